package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// The bars of local servers on standard streams.
const (
	boxedBar = 50.0 // ms more than the bare start, with bubblewrap
	plainBar = 20.0 // ms more, without a sandbox
	lineCPU  = 1.3  // × the CPU of a call with an HTTP backend
	lineP50  = 20.0 // µs more than with an HTTP backend, at one connection
	gateway  = 20.0 // times less CPU than supergateway
)

// stdioCommand is an MCP server on standard streams, of both eras, that answers as the backend
// over HTTP does. Its tool take answers with the digest of its text, give with as much text as it
// is told.
func stdioCommand(stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReaderSize(stdin, 64<<10)
	var out []byte
	filler := strings.Repeat("x", 100)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil // its stdin is closed: it ends
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Name      string `json:"name"`
				Arguments struct {
					Text string `json:"text"`
				} `json:"arguments"`
			} `json:"params"`
		}
		if err := json.Unmarshal(line, &m); err != nil || m.ID == nil {
			continue
		}
		result := `{}`
		switch m.Method {
		case "server/discover":
			result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`
		case "initialize":
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}`
		case "tools/list":
			result = `{"resultType":"complete","tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`
		case "tools/call":
			said := m.Params.Arguments.Text + " " + filler
			switch m.Params.Name {
			case "take":
				said = digestOf(m.Params.Arguments.Text)
			case "give":
				size, _ := strconv.Atoi(m.Params.Arguments.Text)
				said = strings.Repeat("0123456789abcdef", size/16)
			}
			text, _ := json.Marshal(said)
			result = `{"resultType":"complete","content":[{"type":"text","text":` + string(text) + `}],"isError":false}`
		}
		out = fmt.Appendf(out[:0], `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
		if _, err := stdout.Write(out); err != nil {
			return err
		}
	}
}

// digestOf is the SHA-256 of a text, in hexadecimal.
func digestOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// runStdio is about servers that the edge starts.
func (b *bench) runStdio(ctx context.Context) {
	b.tryEdge(ctx, "stdio, starts", b.stdioStarts)
	b.tryEdge(ctx, "stdio, calls", func(ctx context.Context) { b.stdioCalls(ctx, 8) })
	b.tryEdge(ctx, "stdio, added p50", func(ctx context.Context) { b.stdioCalls(ctx, 1) })
	b.tryEdge(ctx, "stdio, supergateway", b.supergateway)
	b.runManaged(ctx)
}

// startLocal starts an edge that starts this program as its server, in a sandbox of a grade.
func (b *bench) startLocal(ctx context.Context, grade string) *kit.Edge {
	dir := kit.Must(os.MkdirTemp(b.dir, "local-"))
	manifest := filepath.Join(dir, "weir.yaml")
	kit.Check(os.WriteFile(manifest, fmt.Appendf(nil, "apiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: %s}\nspec: {image: \"exec://%s\", args: [stdio], run: {sandbox: %q, maxProcesses: 64}}\n", kit.ServerName, kit.Must(os.Executable()), grade), 0o600))
	e := kit.Must(kit.Launch(b.weir, manifest, kit.Must(kit.FreeSeat()), environment(b.procs), "--allow-workloads", "local", "--state-dir", filepath.Join(dir, "state")))
	b.started = append(b.started, e.Process)
	kit.Check(e.AwaitReady(ctx, e.Addr))
	return e
}

// bareStart is how long the server takes from its start until it has listed its tools, over
// pipes and with nothing between, in milliseconds.
func bareStart() float64 {
	began := time.Now()
	cmd := exec.Command(kit.Must(os.Executable()), "stdio")
	stdin, stdout := kit.Must(cmd.StdinPipe()), kit.Must(cmd.StdoutPipe())
	kit.Check(cmd.Start())
	kit.Must(io.WriteString(stdin, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`+"\n"+`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`+"\n"))
	lines := bufio.NewScanner(stdout)
	for range 2 {
		if !lines.Scan() {
			kit.Fail("the server has ended")
		}
	}
	took := kit.Millis(time.Since(began))
	kit.Check(stdin.Close())
	kit.Check(cmd.Wait())
	return took
}

// firstCall is how long a new session of a legacy client takes from its beginning until its
// first call is answered, which starts a process, in milliseconds.
func firstCall(ctx context.Context, e *kit.Edge) float64 {
	began := time.Now()
	f := kit.Must(openFleet(ctx, e.Addr, kit.Legacy, 1))
	kit.Must(f.drive(ctx, "echo", 1))
	took := kit.Millis(time.Since(began))
	kit.Check(f.close())
	return took
}

func (b *bench) stdioStarts(ctx context.Context) {
	var bare []float64
	for range 4 * b.starts {
		bare = append(bare, bareStart())
	}
	floor := median(bare)
	for _, grade := range []struct {
		name string
		bar  float64
	}{{"bwrap", boxedBar}, {"off", plainBar}} {
		e := b.startLocal(ctx, grade.name)
		firstCall(ctx, e) // the sandbox is there, and the edge's own process
		var all []float64
		for range 4 * b.starts {
			all = append(all, firstCall(ctx, e))
		}
		e.Stop()
		took := median(all)
		b.addLocal(verdict{"stdio", "a new session until its first call is answered, sandbox " + grade.name, fmt.Sprintf("%.1f ms", took), fmt.Sprintf("%.1f ms, by pipe", floor), fmt.Sprintf("%.2f", took/floor), fmt.Sprintf("≤ + %.0f ms", grade.bar), yesNo(took <= floor+grade.bar)})
	}
}

// stdioCalls holds calls through the bridge against calls over HTTP, in turn.
func (b *bench) stdioCalls(ctx context.Context, conns int) {
	c := cell{kit.Modern, kit.Modern, "json", conns, false}
	local := b.startLocal(ctx, "bwrap")
	web := b.startEdge(ctx, []string{b.startBackend(ctx, kit.Modern, "json").Addr})
	firstCall(ctx, local) // the sandbox is there
	targets := []*target{{name: weir, Process: web.Process}, {name: "stdio", Process: local.Process, helpers: helpersOf(local.PID())}}
	if len(targets[1].helpers) == 0 {
		kit.Fail("no helper of a sandbox was found")
	}
	figures := b.inTurn(ctx, c, targets)
	over, lines := figures[weir], figures["stdio"]
	if conns == 1 {
		b.addLocal(verdict{"stdio", "p50 at one connection", fmt.Sprintf("%.1f µs", lines.p50), fmt.Sprintf("%.1f µs, over HTTP", over.p50), fmt.Sprintf("%.2f", lines.p50/over.p50), fmt.Sprintf("≤ + %.0f µs", lineP50), yesNo(lines.p50 <= over.p50+lineP50)})
		return
	}
	b.addLocal(verdict{"stdio", fmt.Sprintf("CPU per call of edge and helper, %d connections", conns), fmt.Sprintf("%.2f µs", lines.cpu), fmt.Sprintf("%.2f µs, over HTTP", over.cpu), fmt.Sprintf("%.2f", lines.cpu/over.cpu), fmt.Sprintf("≤ %.1f ×", lineCPU), yesNo(lines.cpu <= lineCPU*over.cpu)})
}

// helpersOf are the helpers of sandboxes below a process.
func helpersOf(pid int) (all []int) {
	for _, path := range kit.Must(filepath.Glob("/proc/[0-9]*/comm")) {
		name, err := os.ReadFile(path)
		one, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && strings.HasPrefix(string(name), "weir-inside") && isBelow(one, pid) {
			all = append(all, one)
		}
	}
	return all
}

// isBelow reports whether a process descends from another.
func isBelow(pid, from int) bool {
	for range 10 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < 2 {
			return false
		}
		if pid, _ = strconv.Atoi(fields[1]); pid == from {
			return true
		}
	}
	return false
}

// supergateway holds the bridge against the npm package of that name, where it is installed:
// legacy clients with a process each, on both sides.
func (b *bench) supergateway(ctx context.Context) {
	node, err := exec.LookPath("node")
	script := "edge/edgetest/peers/node_modules/supergateway/dist/index.js"
	if _, missing := os.Stat(script); err != nil || missing != nil {
		b.addLocal(verdict{"stdio", "supergateway: node or its package is not installed (make peers)", "–", "–", "–", "–", "–"})
		return
	}
	seat := kit.Must(kit.FreeSeat())
	_, number, _ := strings.Cut(seat.Addr, ":")
	cmd := exec.Command(node, script, "--stdio", "'"+kit.Must(os.Executable())+"' stdio", "--port", number, "--logLevel", "none", "--outputTransport", "streamableHttp", "--stateful")
	p := kit.Must(kit.Start("supergateway", cmd, nil))
	b.started = append(b.started, p)
	p.Addr = seat.Addr
	var f *fleet
	if !kit.WaitFor(ctx, handshakeLimit, func() (up bool) {
		f, err = openFleet(ctx, p.Addr, kit.Legacy, 8)
		return err == nil
	}) {
		kit.Fail("supergateway: %w", err)
	}
	defer f.hangUp()
	local := b.startLocal(ctx, "bwrap")
	ours := kit.Must(openFleet(ctx, local.Addr, kit.Legacy, 8))
	defer ours.hangUp()
	per := map[*fleet]float64{}
	const calls = 2000
	for _, one := range []struct {
		*fleet
		pids []int
	}{{f, []int{p.PID()}}, {ours, append(helpersOf(local.PID()), local.PID())}} {
		kit.Must(one.drive(ctx, "echo", calls/10))
		before := cpuOfAll(one.pids)
		kit.Must(one.drive(ctx, "echo", calls))
		per[one.fleet] = micros(cpuOfAll(one.pids)-before) / calls
	}
	mine, theirs := kit.Must(kit.Resident(local.PID())), kit.Must(kit.Resident(p.PID()))
	b.addLocal(verdict{"stdio", "CPU per call of legacy clients with a process each, beside supergateway", fmt.Sprintf("%.1f µs", per[ours]), fmt.Sprintf("%.1f µs", per[f]), fmt.Sprintf("%.3f", per[ours]/per[f]), fmt.Sprintf("≤ 1/%.0f", gateway), yesNo(per[ours]*gateway <= per[f])})
	b.addLocal(verdict{"stdio", "resident memory beside supergateway, 8 sessions", fmt.Sprintf("%.1f MiB", kit.MiB(mine)), fmt.Sprintf("%.1f MiB", kit.MiB(theirs)), fmt.Sprintf("%.2f", kit.MiB(mine)/kit.MiB(theirs)), "≤ 1/3", yesNo(3*mine <= theirs)})
}

// cpuOfAll is the CPU time of several processes.
func cpuOfAll(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		sum += kit.Must(kit.CPU(pid))
	}
	return sum
}

func (b *bench) addLocal(v verdict) {
	b.report.local = append(b.report.local, v)
	b.say("%s: %s: %s, floor %s, %s: %s", v.id, v.what, v.value, v.floor, v.bar, v.reached)
}
