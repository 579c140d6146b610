package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/engine"
	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// The bars of servers in containers.
const (
	engineBar = 300.0    // ms more than an engine takes with the same image
	webCPU    = 1.3      // × the CPU of a call without the link
	fullBar   = 80 << 20 // bytes resident, of the manager of 100 of them
)

// benchImage is this program as an image.
const benchImage = "bench:1"

// isolate starts this program again in a network namespace of its own, where an engine may
// publish ports without a rule in the machine's. It returns where there is one already, or
// nothing to measure.
func isolate() error {
	if os.Getenv(ownNetwork) != "" || engine.Missing() != "" {
		return nil
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	words := append([]string{unshare, "--net", "sh", "-c", `ip link set lo up && exec "$0" "$@"`, self}, os.Args[1:]...)
	return syscall.Exec(unshare, words, append(os.Environ(), ownNetwork+"=1"))
}

// runContainers is about servers in containers: this program again, in an engine of its own.
func (b *bench) runContainers(ctx context.Context) {
	if why := engine.Missing(); why != "" || b.floors {
		b.addLocal(verdict{"containers", why, "–", "–", "–", "–", "–"})
		return
	}
	b.tryEdge(ctx, "containers, starts", func(ctx context.Context) { b.withEngine(func(e *engine.Engine) { b.containerStarts(ctx, e) }) })
	for _, link := range []string{"socket", "attach"} {
		b.tryEdge(ctx, "containers, calls, link "+link, func(ctx context.Context) {
			b.withEngine(func(e *engine.Engine) {
				for _, conns := range []int{8, 1} {
					b.containerCalls(ctx, e, link, conns, b.plainServer, "over HTTP to this machine", "stdio", "--", "stdio")
				}
			})
		})
	}
	b.tryEdge(ctx, "containers, calls over HTTP", func(ctx context.Context) {
		e := kit.Must(engine.OpenHere())
		defer e.Close()
		b.load(e)
		b.containerCalls(ctx, e, "socket", 8, publishedServer, "to a port that the engine publishes", "streamable-http", "--transport", "streamable-http", "--target-port", "7000", "--", "backend", "--listen", "127.0.0.1:7000", "--era", "modern")
	})
	b.tryEdge(ctx, "containers, many", func(ctx context.Context) { b.withEngine(func(e *engine.Engine) { b.manyContainers(ctx, e) }) })
}

// withEngine has an engine with the image.
func (b *bench) withEngine(do func(e *engine.Engine)) {
	e := kit.Must(engine.Open())
	defer e.Close()
	b.load(e)
	do(e)
}

// load gives an engine the image.
func (b *bench) load(e *engine.Engine) {
	program := kit.Must(engine.Build(b.dir, "edge/edgetest/bench"))
	kit.Check(e.TryLoad(benchImage, engine.Config{Entrypoint: []string{"/bench"}, Cmd: []string{"stdio"}}, map[string]string{"/bench": program}, nil))
}

// contained is a place whose manager has an engine, and links its containers in one way.
func (b *bench) contained(ctx context.Context, e *engine.Engine, link string) *managed {
	m := b.newManaged()
	m.env = []string{"WEIR_ENGINE=unix://" + e.Socket}
	config := filepath.Join(m.home, "config")
	kit.Check(os.MkdirAll(config, 0o700))
	kit.Check(os.WriteFile(filepath.Join(config, "workloads.yaml"), []byte("link: "+link+"\n"), 0o600))
	m.up(b)
	m.await(ctx, 0, handshakeLimit)
	return m
}

// box starts a container as a workload, and returns where it is reached, host:port.
func (m *managed) box(name string, more ...string) string {
	said := m.ask(append([]string{"run", benchImage, "--name", name, "--permission-profile", "none", "--image-verification", "disabled"}, more...)...)
	return strings.TrimSuffix(strings.TrimPrefix(said[strings.LastIndexByte(said, '\n')+1:], "http://"), "/mcp")
}

// containerStarts is how long a server takes from `weir run` until it has listed its tools,
// beside what the engine takes for a container of the same image until it has.
func (b *bench) containerStarts(ctx context.Context, e *engine.Engine) {
	m := b.contained(ctx, e, "socket")
	askForTools(ctx, m.box("one")) // makes the helper's file
	var bare, ours []float64
	for range 4 * b.starts {
		bare = append(bare, kit.Must(bareContainer(e)))
		m.ask("rm", "one")
		began := time.Now()
		askForTools(ctx, m.box("one"))
		ours = append(ours, kit.Millis(time.Since(began)))
	}
	took, floor := median(ours), median(bare)
	b.addLocal(verdict{"containers", "`weir run IMAGE` until its tools are listed", fmt.Sprintf("%.0f ms", took), fmt.Sprintf("%.0f ms, by the engine alone", floor), fmt.Sprintf("%.2f", took/floor), fmt.Sprintf("≤ + %.0f ms", engineBar), yesNo(took <= floor+engineBar)})
	var ids []struct{ ID string }
	kit.Check(json.Unmarshal(kit.Must(e.Try("GET", "/containers/json?all=1")), &ids))
	b.addLocal(verdict{"containers", "containers of one workload", strconv.Itoa(len(ids)), "–", "–", "1", yesNo(len(ids) == 1)})
}

// bareContainer is how long an engine takes from being asked for a container until the server
// in it has listed its tools on its standard streams, in milliseconds.
func bareContainer(e *engine.Engine) (ms float64, err error) {
	began := time.Now()
	text, err := e.TryPost("/containers/create", `{"Image":"`+benchImage+`","OpenStdin":true,"StdinOnce":true,"AttachStdin":true,"AttachStdout":true,"AttachStderr":true,"HostConfig":{"NetworkMode":"none"}}`)
	var made struct{ ID string }
	if err == nil {
		err = json.Unmarshal(text, &made)
	}
	if err != nil {
		return 0, err
	}
	defer func() {
		_, gone := e.Try("DELETE", "/containers/"+made.ID+"?force=1")
		err = errors.Join(err, gone)
	}()
	conn, err := net.Dial("unix", e.Socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(handshakeLimit))
	if _, err := fmt.Fprintf(conn, "POST /containers/%s/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n", made.ID); err != nil {
		return 0, err
	}
	in := bufio.NewReader(conn)
	for line := " "; line != "\r\n"; { // the head of the answer
		if line, err = in.ReadString('\n'); err != nil {
			return 0, err
		}
	}
	if _, err := e.TryPost("/containers/"+made.ID+"/start", ""); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(conn, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`+"\n"+`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`+"\n"); err != nil {
		return 0, err
	}
	for lines := 0; lines < 2; { // in frames of the engine's, with a head of eight bytes
		var head [8]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return 0, err
		}
		frame := make([]byte, binary.BigEndian.Uint32(head[4:]))
		if _, err := io.ReadFull(in, frame); err != nil {
			return 0, err
		}
		lines += bytes.Count(frame, []byte("\n"))
	}
	return kit.Millis(time.Since(began)), nil
}

// plainServer is a server on this machine.
func (b *bench) plainServer(ctx context.Context, _ *engine.Engine) (addr string) {
	return b.startBackend(ctx, kit.Modern, "json").Addr
}

// publishedServer is the same in a container of the engine's own making, at a port that the
// engine publishes. What its docker-proxy takes for a call is not counted.
func publishedServer(_ context.Context, e *engine.Engine) (addr string) {
	text := kit.Must(e.TryPost("/containers/create", `{"Image":"`+benchImage+`","OpenStdin":true,"Cmd":["backend","--listen","0.0.0.0:7000","--era","modern"],"ExposedPorts":{"7000/tcp":{}},"HostConfig":{"PortBindings":{"7000/tcp":[{"HostIp":"127.0.0.1"}]}}}`))
	var made struct{ ID string }
	kit.Check(json.Unmarshal(text, &made))
	kit.Must(e.TryPost("/containers/"+made.ID+"/start", ""))
	var now struct {
		NetworkSettings struct {
			Ports map[string][]struct{ HostPort string }
		}
	}
	kit.Check(json.Unmarshal(kit.Must(e.Try("GET", "/containers/"+made.ID+"/json")), &now))
	return "127.0.0.1:" + now.NetworkSettings.Ports["7000/tcp"][0].HostPort
}

// containerCalls holds calls to a server in a container against calls to another server, in
// turn.
func (b *bench) containerCalls(ctx context.Context, e *engine.Engine, link string, conns int, other func(context.Context, *engine.Engine) (addr string), beside, transport string, run ...string) {
	m := b.contained(ctx, e, link)
	m.at.Addr = m.box("one", run...)
	defer m.ask("rm", "one")
	askForTools(ctx, m.at.Addr)
	targets := []*target{{name: weir, Process: b.startEdge(ctx, []string{other(ctx, e)}).Process}, {name: "contained", Process: m.at, helpers: helpersIn(e)}}
	if len(targets[1].helpers) == 0 {
		kit.Fail("no helper of a container was found")
	}
	figures := b.inTurn(ctx, cell{kit.Modern, kit.Modern, "json", conns, false}, targets)
	over, inside := figures[weir], figures["contained"]
	what := fmt.Sprintf("%s, link %s, ", transport, link)
	barred := func(bar, reached string) (string, string) {
		if link == "attach" { // the engine carries it
			return "–", "–"
		}
		return bar, reached
	}
	if conns == 1 {
		bar, reached := barred(fmt.Sprintf("≤ + %.0f µs", lineP50), yesNo(inside.p50 <= over.p50+lineP50))
		b.addLocal(verdict{"containers", what + "p50 at one connection", fmt.Sprintf("%.1f µs", inside.p50), fmt.Sprintf("%.1f µs, %s", over.p50, beside), fmt.Sprintf("%.2f", inside.p50/over.p50), bar, reached})
		return
	}
	bar, reached := barred(fmt.Sprintf("≤ %.1f ×", webCPU), yesNo(inside.cpu <= webCPU*over.cpu))
	b.addLocal(verdict{"containers", what + fmt.Sprintf("CPU per call of manager and helper, %d connections", conns), fmt.Sprintf("%.2f µs", inside.cpu), fmt.Sprintf("%.2f µs, %s", over.cpu, beside), fmt.Sprintf("%.2f", inside.cpu/over.cpu), bar, reached})
}

// helpersIn are the helpers in the containers of an engine.
func helpersIn(e *engine.Engine) (pids []int) {
	var all []struct{ ID string }
	kit.Check(json.Unmarshal(kit.Must(e.Try("GET", "/containers/json")), &all))
	for _, one := range all {
		var top struct {
			Titles    []string
			Processes [][]string
		}
		kit.Check(json.Unmarshal(kit.Must(e.Try("GET", "/containers/"+one.ID+"/top")), &top))
		pid, command := slices.Index(top.Titles, "PID"), slices.Index(top.Titles, "CMD")
		for _, p := range top.Processes {
			if !strings.HasPrefix(p[command], "/bench ") {
				pids = append(pids, kit.Must(strconv.Atoi(p[pid])))
			}
		}
	}
	return pids
}

// manyContainers is what the manager of many of them has in memory.
func (b *bench) manyContainers(ctx context.Context, e *engine.Engine) {
	m := b.contained(ctx, e, "socket")
	for i := range b.workloads {
		m.box("one" + strconv.Itoa(i))
	}
	for _, addr := range m.await(ctx, b.workloads, time.Minute) {
		askForTools(ctx, addr)
	}
	most := restingMemory(ctx, m.at.PID())
	b.addLocal(verdict{"containers", fmt.Sprintf("resident memory of the manager of %d that rest", b.workloads), fmt.Sprintf("%.1f MiB at most", kit.MiB(most)), "–", "–", fmt.Sprintf("≤ %.0f MiB", kit.MiB(fullBar)), yesNo(most <= fullBar)})
	var large int64
	for _, pid := range helpersIn(e) {
		large = max(large, kit.Must(kit.Smaps(pid)).Resident)
	}
	b.addLocal(verdict{"containers", "resident memory of a helper", fmt.Sprintf("%.2f MiB at most", kit.MiB(large)), "–", "–", fmt.Sprintf("≤ %.0f MiB", kit.MiB(helperBar)), yesNo(large <= helperBar)})
	m.ask("rm", "--all")
}
