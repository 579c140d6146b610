package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// The bars of workloads that a manager keeps.
const (
	freshBar   = 250.0    // ms more than with the manager up
	keeperBar  = 64 << 20 // bytes resident, of the manager of 100 workloads
	helperBar  = 4 << 20  // bytes resident, of a helper
	privateBar = 1 << 20  // bytes that a helper shares with nobody
	listBar    = 100.0    // ms, of `weir list`
	allBar     = 10.0     // s, until all workloads run after `weir up`
	crowdBar   = 0.2      // share by which a call to one of many may take more than one to one alone
	bulk       = 16 << 20 // bytes, of a message
	bulkBar    = 3 * bulk // bytes more in memory
	watcherBar = 4 << 20  // bytes resident
	idleFor    = time.Minute
)

// managed is a place of its own in which workloads are kept.
type managed struct {
	weir, home string
	env        []string     // besides
	at         *kit.Process // nil for a manager in the background
}

// newManaged makes a place without a manager.
func (b *bench) newManaged() *managed {
	return &managed{weir: b.weir, home: kit.Must(os.MkdirTemp(b.dir, "home-"))}
}

// up starts a manager, which ends with the case.
func (m *managed) up(b *bench, flags ...string) {
	m.at = kit.Must(kit.Start("manager", exec.Command(m.weir, append([]string{"up", "--log-level", "error"}, flags...)...), nil, append(append(environment(b.procs), "WEIR_HOME="+m.home), m.env...)...))
	b.started = append(b.started, m.at)
}

// try runs a command, and returns what it has printed.
func (m *managed) try(args ...string) (string, error) {
	cmd := exec.Command(m.weir, args...)
	cmd.Env = append(append(os.Environ(), "WEIR_HOME="+m.home), m.env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("weir %s: %w: %s", args[0], err, said.Bytes())
	}
	return strings.TrimSpace(string(out)), err
}

// ask is try where nothing is to go wrong.
func (m *managed) ask(args ...string) string { return kit.Must(m.try(args...)) }

// run starts this program as a workload in a sandbox of a grade, and returns where it is
// reached, host:port.
func (m *managed) run(name, grade string) string {
	url := m.ask("run", "--name", name, "--sandbox", grade, "--", kit.Must(os.Executable()), "stdio")
	return strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp")
}

// addrs are where the workloads that run are reached, by name.
func (m *managed) addrs() map[string]string {
	text, err := m.try("list", "--format", "json")
	if err != nil {
		return nil // it does not answer yet
	}
	var all []struct{ Name, Status, URL string }
	kit.Check(json.Unmarshal([]byte(text), &all))
	running := map[string]string{}
	for _, one := range all {
		if one.Status == "running" {
			running[one.Name] = strings.TrimSuffix(strings.TrimPrefix(one.URL, "http://"), "/mcp")
		}
	}
	return running
}

// await waits until so many workloads run, and returns where.
func (m *managed) await(ctx context.Context, count int, within time.Duration) (addrs map[string]string) {
	if !kit.WaitFor(ctx, within, func() bool { addrs = m.addrs(); return len(addrs) == count }) {
		kit.Fail("%d of %d workloads run after %s", len(addrs), count, within)
	}
	return addrs
}

// keepers are the manager in the background and its watcher.
func (m *managed) keepers() (manager, watcher int) {
	for _, path := range kit.Must(filepath.Glob("/proc/[0-9]*/environ")) {
		text, err := os.ReadFile(path)
		if err != nil || !slices.Contains(strings.Split(string(text), "\x00"), "WEIR_HOME="+m.home) {
			continue
		}
		pid := kit.Must(strconv.Atoi(filepath.Base(filepath.Dir(path))))
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		switch words := strings.Split(string(line), "\x00"); {
		case len(words) > 1 && words[1] == "watch":
			watcher = pid
		case len(words) > 1 && words[1] == "up":
			manager = pid
		}
	}
	return manager, watcher
}

// ended waits until a process is gone.
func ended(ctx context.Context, pid int) {
	if !kit.WaitFor(ctx, handshakeLimit, func() bool { _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); return err != nil }) {
		kit.Fail("the process %d does not end", pid)
	}
}

// runManaged is about workloads that a manager keeps.
func (b *bench) runManaged(ctx context.Context) {
	b.tryEdge(ctx, "stdio, cold starts", b.coldStarts)
	b.tryEdge(ctx, "stdio, many workloads", b.manyWorkloads)
	b.tryEdge(ctx, "stdio, a large message", b.largeMessage)
	b.tryEdge(ctx, "stdio, watcher", b.watcher)
}

// askForTools asks a server that has just been started for its tools.
func askForTools(ctx context.Context, addr string) {
	c := kit.Must(kit.Dial(ctx, addr, kit.Modern, kit.DialOptions{}))
	defer c.Close()
	c.Wait(handshakeLimit)
	a := kit.Must(c.Do(c.Modern("1", "tools/list", "", "", "")))
	if a.Status != http.StatusOK || !bytes.Contains(a.Text(), []byte(`"echo"`)) {
		kit.Fail("tools/list: status %d: %s", a.Status, a.Text())
	}
}

// coldStarts is how long `weir run` takes until the server has listed its tools.
func (b *bench) coldStarts(ctx context.Context) {
	var bare []float64
	for range 4 * b.starts {
		bare = append(bare, bareStart())
	}
	floor := median(bare)
	for _, grade := range []struct {
		name string
		bar  float64
	}{{"bwrap", boxedBar}, {"off", plainBar}} {
		m := b.newManaged()
		start := func() float64 {
			began := time.Now()
			askForTools(ctx, m.run("one", grade.name))
			return kit.Millis(time.Since(began))
		}
		down := func() {
			manager, watcher := m.keepers()
			m.ask("down")
			ended(ctx, manager)
			ended(ctx, watcher)
		}
		var warm, cold []float64
		func() {
			defer func() { _, _ = m.try("down") }() // which the next lines may not have come to
			start()                                 // makes the helper's file, and tries what sandboxes there are
			for range b.starts {
				for range 4 {
					m.ask("rm", "one")
					warm = append(warm, start())
				}
				m.ask("rm", "one")
				down()
				cold = append(cold, start())
			}
			down()
		}()
		took, fresh := median(warm), median(cold)
		b.addLocal(verdict{"stdio", "`weir run` until its tools are listed, the manager up, sandbox " + grade.name, fmt.Sprintf("%.1f ms", took), fmt.Sprintf("%.1f ms, by pipe", floor), fmt.Sprintf("%.2f", took/floor), fmt.Sprintf("≤ + %.0f ms", grade.bar), yesNo(took <= floor+grade.bar)})
		b.addLocal(verdict{"stdio", "the same, the manager not up", fmt.Sprintf("%.1f ms", fresh), fmt.Sprintf("%.1f ms, by pipe", floor), fmt.Sprintf("%.2f", fresh/floor), fmt.Sprintf("≤ + %.0f ms", grade.bar+freshBar), yesNo(fresh <= floor+grade.bar+freshBar)})
	}
}

// manyWorkloads is about many workloads that rest.
func (b *bench) manyWorkloads(ctx context.Context) {
	// 1. They are made, and come back with another manager.
	m := b.newManaged()
	m.up(b)
	m.await(ctx, 0, handshakeLimit)
	for i := range b.workloads {
		m.run("one"+strconv.Itoa(i), "bwrap")
	}
	m.at.Stop()
	began := time.Now()
	m.up(b)
	addrs := m.await(ctx, b.workloads, time.Minute)
	took := time.Since(began).Seconds()
	count := strconv.Itoa(b.workloads)
	b.addLocal(verdict{"stdio", "`weir up` until all of " + count + " workloads run", fmt.Sprintf("%.1f s", took), "–", "–", fmt.Sprintf("≤ %.0f s", allBar), yesNo(took <= allBar)})

	// 2. Each has a session, and rests.
	for _, addr := range addrs {
		f := kit.Must(openFleet(ctx, addr, kit.Legacy, 1))
		defer f.hangUp()
		kit.Must(f.drive(ctx, "echo", 1))
	}
	// The process that was there first served nobody but the edge, and ends after a minute.
	if !kit.WaitFor(ctx, 2*time.Minute, func() bool { return servers(m.at.PID()) == b.workloads }) {
		kit.Fail("%d servers of %d workloads run", servers(m.at.PID()), b.workloads)
	}
	most := restingMemory(ctx, m.at.PID())
	b.addLocal(verdict{"stdio", "resident memory of the manager of " + count + " workloads that rest, one session each", fmt.Sprintf("%.1f MiB at most", kit.MiB(most)), "–", "–", fmt.Sprintf("≤ %.0f MiB", kit.MiB(keeperBar)), yesNo(most <= keeperBar)})
	helpers := helpersOf(m.at.PID())
	if len(helpers) != b.workloads {
		kit.Fail("%d helpers of %d workloads", len(helpers), b.workloads)
	}
	var large, own int64
	for _, pid := range helpers {
		s := kit.Must(kit.Smaps(pid))
		large, own = max(large, s.Resident), max(own, s.Own)
	}
	b.addLocal(verdict{"stdio", "resident memory of a helper", fmt.Sprintf("%.2f MiB at most", kit.MiB(large)), "–", "–", fmt.Sprintf("≤ %.0f MiB", kit.MiB(helperBar)), yesNo(large <= helperBar)})
	b.addLocal(verdict{"stdio", "its own memory, which it shares with nobody", fmt.Sprintf("%.2f MiB at most", kit.MiB(own)), "–", "–", fmt.Sprintf("≤ %.0f MiB", kit.MiB(privateBar)), yesNo(own <= privateBar)})
	var sum, theirs int64
	for pid, name := range below(m.at.PID()) {
		share := kit.Must(kit.Smaps(pid)).Share
		if sum += share; name == itself() {
			theirs += share
		}
	}
	b.addLocal(verdict{"stdio", "memory of all of it, by share (PSS)", fmt.Sprintf("%.0f MiB, %.0f MiB of them the servers'", kit.MiB(sum), kit.MiB(theirs)), "–", "–", "–", "–"})

	// 3. The list.
	var lists []float64
	for range 4 * b.starts {
		began := time.Now()
		m.ask("list")
		lists = append(lists, kit.Millis(time.Since(began)))
	}
	b.addLocal(verdict{"stdio", "`weir list` of " + count + " workloads", fmt.Sprintf("%.1f ms", median(lists)), "–", "–", fmt.Sprintf("≤ %.0f ms", listBar), yesNo(median(lists) <= listBar)})

	// 4. Calls to one of them, beside calls to one alone.
	alone := b.newManaged()
	alone.up(b)
	alone.await(ctx, 0, handshakeLimit)
	alone.run("one0", "bwrap")
	m.at.Addr, alone.at.Addr = addrs["one0"], alone.addrs()["one0"]
	targets := []*target{{name: "alone", Process: alone.at}, {name: "crowd", Process: m.at}}
	figures := b.inTurn(ctx, cell{kit.Modern, kit.Modern, "json", 8, false}, targets)
	one, many := figures["alone"], figures["crowd"]
	bar := fmt.Sprintf("≤ + %.0f %%", 100*crowdBar)
	b.addLocal(verdict{"stdio", "CPU per call of the manager, to one of " + count + " workloads, 8 connections", fmt.Sprintf("%.2f µs", many.cpu), fmt.Sprintf("%.2f µs, to one alone", one.cpu), fmt.Sprintf("%.2f", many.cpu/one.cpu), bar, yesNo(many.cpu <= (1+crowdBar)*one.cpu)})
	b.addLocal(verdict{"stdio", "p50 of the same calls", fmt.Sprintf("%.1f µs", many.p50), fmt.Sprintf("%.1f µs, to one alone", one.p50), fmt.Sprintf("%.2f", many.p50/one.p50), bar, yesNo(many.p50 <= (1+crowdBar)*one.p50)})
}

// restingMemory is the most that a process has resident over some seconds in which it rests.
func restingMemory(ctx context.Context, pid int) (most int64) {
	for range 10 {
		most = max(most, kit.Must(kit.Resident(pid)))
		kit.Pause(ctx, time.Second)
	}
	return most
}

// itself is what the system calls processes of this program.
func itself() string {
	name := filepath.Base(kit.Must(os.Executable()))
	return name[:min(len(name), 15)] // proc_pid_comm(5)
}

// servers is how many processes of this program descend from a manager.
func servers(pid int) (n int) {
	for _, name := range below(pid) {
		if name == itself() {
			n++
		}
	}
	return n
}

// below are a process and all that descend from it, with their names.
func below(pid int) map[int]string {
	all := map[int]string{}
	for _, path := range kit.Must(filepath.Glob("/proc/[0-9]*/comm")) {
		name, err := os.ReadFile(path)
		one, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && (one == pid || isBelow(one, pid)) {
			all[one] = strings.TrimSpace(string(name))
		}
	}
	return all
}

// largeMessage is what a message of 16 MiB takes on its way through the bridge.
func (b *bench) largeMessage(ctx context.Context) {
	m := b.newManaged()
	m.up(b, "--max-body", "17MiB")
	m.await(ctx, 0, handshakeLimit)
	addr := m.run("one", "bwrap")
	f := kit.Must(openFleet(ctx, addr, kit.Modern, 1))
	kit.Must(f.drive(ctx, "echo", 100))
	f.hangUp()
	helpers := helpersOf(m.at.PID())
	if len(helpers) == 0 {
		kit.Fail("no helper of a sandbox was found")
	}
	const room = 4 << 10 // for what is about the text, in both directions
	text := strings.Repeat("0123456789abcdef", (bulk-room)/16)
	for _, way := range []struct{ tool, text, what string }{{"take", text, "to the server"}, {"give", strconv.Itoa(len(text)), "from the server"}} {
		pids := append(slices.Clone(helpers), m.at.PID())
		var before int64
		var peaks []func() int64
		for _, pid := range pids {
			before += kit.Must(kit.Settled(ctx, pid, 100*time.Millisecond, 3*time.Second))
			peaks = append(peaks, kit.Peak(pid, time.Millisecond))
		}
		said := callOnceFor(ctx, addr, way.tool, way.text)
		var most int64
		for _, stop := range peaks {
			most += stop()
		}
		if want := map[string]string{"take": digestOf(text), "give": text}[way.tool]; said != want {
			kit.Fail("a message of 16 MiB %s was changed on its way: %d bytes came", way.what, len(said))
		}
		b.addLocal(verdict{"stdio", "memory of manager and helper for a message of 16 MiB " + way.what, fmt.Sprintf("%.1f MiB", kit.MiB(most-before)), "–", fmt.Sprintf("%.2f × its size", float64(most-before)/bulk), fmt.Sprintf("≤ %.0f MiB", kit.MiB(bulkBar)), yesNo(most-before <= bulkBar)})
	}
}

// callOnceFor calls a tool with a text, and returns the text that it answers.
func callOnceFor(ctx context.Context, addr, tool, text string) string {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{"text":%q},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, tool, text)
	q := kit.Must(http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/mcp", strings.NewReader(body)))
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool} {
		q.Header.Set(name, value)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	r := kit.Must((&http.Client{Transport: transport, Timeout: time.Minute}).Do(q))
	defer r.Body.Close()
	said := kit.Must(io.ReadAll(r.Body))
	var answer struct {
		Result struct{ Content []struct{ Text string } }
	}
	if err := json.Unmarshal(said, &answer); err != nil || len(answer.Result.Content) != 1 {
		kit.Fail("a call of %s: status %d: %.200s", tool, r.StatusCode, said)
	}
	return answer.Result.Content[0].Text
}

// watcher is what stands beside a manager in the background, and starts it again.
func (b *bench) watcher(ctx context.Context) {
	m := b.newManaged()
	m.ask("up", "--detach")
	defer func() { _, _ = m.try("down") }()
	_, pid := m.keepers()
	if pid == 0 {
		kit.Fail("there is no watcher")
	}
	span := idleFor
	if b.quick {
		span /= 12
	}
	before := kit.Must(kit.CPU(pid))
	kit.Pause(ctx, span)
	used, size := kit.Must(kit.CPU(pid))-before, kit.Must(kit.Resident(pid))
	b.addLocal(verdict{"stdio", "resident memory of the watcher", fmt.Sprintf("%.2f MiB", kit.MiB(size)), "–", "–", fmt.Sprintf("≤ %.0f MiB", kit.MiB(watcherBar)), yesNo(size <= watcherBar)})
	b.addLocal(verdict{"stdio", fmt.Sprintf("its CPU in %s", span), used.String(), "–", "–", "0", yesNo(used == 0)})
}
