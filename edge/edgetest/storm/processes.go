package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// local is an edge that starts servers on standard streams, in sandboxes.
type local struct {
	*kit.Edge
	http   *http.Client
	marker string // an argument of each of its servers
}

// runProcesses is G32 of processes: they are killed, made to take more memory than they may,
// stopped, and kept at work, and the edge that keeps them is killed. Whoever calls gets on
// within 10 s or is told why not, and no process is left over.
func runProcesses(ctx context.Context, s *storm) {
	times := s.size(s.count, 50, 5, "times each")
	marker := fmt.Sprintf("storm-%d", os.Getpid())
	manifest := filepath.Join(s.folder("local"), "weir.yaml")
	self := kit.Must(os.Executable())
	text := ""
	for _, name := range []string{"plain", "small"} {
		memory := "1Gi"
		if name == "small" {
			memory = "64Mi"
		}
		text += fmt.Sprintf("---\napiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: %s}\nspec:\n  image: exec://%s\n  args: [%s, %s]\n  run: {memory: %s}\n", name, self, asServer, marker, memory)
	}
	kit.Check(os.WriteFile(manifest, []byte(text), 0o600))
	state := s.folder("state")
	seat := kit.Must(kit.FreeSeat())
	start := func() *local {
		e := s.startAt(ctx, manifest, seat, "--allow-workloads", "local", "--state-dir", state)
		return &local{e, &http.Client{Timeout: 2 * time.Minute}, marker}
	}
	l := start()
	s.later(func() { l.http.CloseIdleConnections() })

	s.killed(l, times)
	s.hungry(ctx, l, times)
	s.stopped(ctx, l)
	s.atWork(l)

	l = s.edgeKilled(ctx, l, start, times)

	// The end.
	zombies := zombiesBelow(l.PID())
	l.Stop()
	left := kit.WaitFor(ctx, 5*time.Second, func() bool { return len(l.processes()) == 0 })
	s.bar(left && zombies == 0, "0", "%d processes left over, %d zombies below the edge", len(l.processes()), zombies)
}

// edgeKilled kills the edge that keeps servers, again and again, and returns the last one.
func (s *storm) edgeKilled(ctx context.Context, l *local, start func() *local, times int) *local {
	var back []time.Duration
	orphans := 0
	for range times {
		kit.Must(l.session("plain"))
		old := l.processes()
		l.Kill()
		if !kit.WaitFor(ctx, 5*time.Second, func() bool { return !slices.ContainsFunc(old, lives) }) {
			orphans++
		}
		began := time.Now()
		l = start()
		kit.Must(l.session("plain"))
		back = append(back, time.Since(began))
	}
	s.bar(kit.Percentile(back, 1000) <= 10*time.Second, "10 s", "%d times the edge was killed: the first call of a new one is answered after %.1f s at most", times, kit.Percentile(back, 1000).Seconds())
	s.bar(orphans == 0, "0", "%d times something of its processes was left after 5 s", orphans)
	return l
}

// killed kills the process of a session, and then a pool's.
func (s *storm) killed(l *local, times int) {
	var back []time.Duration
	unclear := 0
	for range times {
		before := l.processes()
		one := kit.Must(l.session("plain"))
		began := time.Now()
		for _, pid := range l.processes() {
			if !slices.Contains(before, pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		status, answer := l.call("plain", one, "pid", 0)
		if status != 404 && !strings.Contains(answer, "ended: signal killed") {
			unclear++
			s.note("after its process was killed a session reads %d %s", status, answer)
		}
		kit.Must(l.session("plain"))
		back = append(back, time.Since(began))
	}
	s.bar(unclear == 0 && kit.Percentile(back, 1000) <= 10*time.Second, "10 s", "%d processes killed: the next session serves after %.1f s at most, %d answers that do not say why", times, kit.Percentile(back, 1000).Seconds(), unclear)
}

// hungry has servers take more memory than they may.
func (s *storm) hungry(ctx context.Context, l *local, times int) {
	var back []time.Duration
	unclear := 0
	for range times {
		one := kit.Must(l.session("small"))
		status, answer := l.call("small", one, "eat", 0)
		if !strings.Contains(answer, "ended: memory") {
			unclear++
			s.note("a server that takes too much memory is answered for with %d %s", status, answer)
		}
		began := time.Now()
		if !kit.WaitFor(ctx, 20*time.Second, func() bool { _, err := l.session("small"); return err == nil }) {
			unclear++
		}
		back = append(back, time.Since(began))
	}
	s.bar(unclear == 0 && kit.Percentile(back, 1000) <= 10*time.Second, "10 s", "%d times above the limit of memory: the next session serves after %.1f s at most, %d answers that do not say why", times, kit.Percentile(back, 1000).Seconds(), unclear)
}

// stopped stops processes that are at rest.
func (s *storm) stopped(ctx context.Context, l *local) {
	before := l.processes()
	for range 3 {
		kit.Must(l.session("plain"))
	}
	var all []int
	for _, pid := range l.processes() {
		if !slices.Contains(before, pid) {
			all = append(all, pid)
		}
	}
	began := time.Now()
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	gone := kit.WaitFor(ctx, 40*time.Second, func() bool { return !slices.ContainsFunc(all, lives) })
	took := time.Since(began)
	kit.Must(l.session("plain"))
	s.bar(gone && len(all) >= 3 && took <= 16*time.Second, "12 s until it is seen, 4 s for the end", "%d processes stopped: ended after %.1f s", len(all), took.Seconds())
	s.bar(time.Since(began) <= 25*time.Second, "25 s", "the next session serves after %.1f s", time.Since(began).Seconds())
}

// atWork has a server of one thread work on a call, of which it says nothing meanwhile.
func (s *storm) atWork(l *local) {
	length := s.span(0, time.Minute, 12*time.Second, "of work")
	one := kit.Must(l.session("plain"))
	_, first := l.call("plain", one, "pid", 0)
	status, answer := l.call("plain", one, "work", length)
	s.bar(status == 200 && strings.HasSuffix(answer, first), "answered", "a call that keeps a server of one thread silently at work for %s: %d", length, status)
}

// session begins a session of a legacy client, and calls in it.
func (l *local) session(server string) (id string, err error) {
	r, err := l.post(server, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"storm","version":"1"}}}`)
	if err != nil {
		return "", err
	}
	_, _ = io.Copy(io.Discard, r.Body)
	_ = r.Body.Close()
	id = r.Header.Get("Mcp-Session-Id")
	if r.StatusCode != 200 || id == "" {
		return "", fmt.Errorf("initialize: status %d", r.StatusCode)
	}
	if status, answer := l.call(server, id, "pid", 0); status != 200 {
		return "", fmt.Errorf("the first call: %d %s", status, answer)
	}
	return id, nil
}

// call calls a tool in a session, and returns what came.
func (l *local) call(server, session, tool string, length time.Duration) (status int, answer string) {
	r, err := l.post(server, session, fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":%q,"arguments":{"ms":%d}}}`, tool, length.Milliseconds()))
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	text, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return r.StatusCode, err.Error()
	}
	return r.StatusCode, string(bytes.TrimSpace(text))
}

func (l *local) post(server, session, body string) (*http.Response, error) {
	q, err := http.NewRequest("POST", "http://"+l.Addr+"/servers/"+server+"/mcp", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		q.Header.Set("Mcp-Session-Id", session)
		q.Header.Set("MCP-Protocol-Version", "2025-11-25")
	}
	return l.http.Do(q)
}

// processes are the servers of this machine that an edge of this run has started.
func (l *local) processes() (all []int) {
	for _, path := range kit.Must(filepath.Glob("/proc/[0-9]*/cmdline")) {
		text, err := os.ReadFile(path)
		words := strings.Split(string(text), "\x00")
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && len(words) > 1 && words[1] == asServer && slices.Contains(words, l.marker) && lives(pid) {
			all = append(all, pid)
		}
	}
	return all
}

// lives reports whether a process is there, and no zombie.
func lives(pid int) bool {
	state, _ := procState(pid)
	return state != "" && state != "Z"
}

// procState returns the state of a process and its parent; "" for one that is gone.
func procState(pid int) (state string, parent int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

// zombiesBelow is how many processes below one nobody has waited for.
func zombiesBelow(manager int) (n int) {
	for _, path := range kit.Must(filepath.Glob("/proc/[0-9]*")) {
		pid, _ := strconv.Atoi(filepath.Base(path))
		state, at := procState(pid)
		for range 10 {
			if at == manager && state == "Z" {
				n++
			}
			if at <= 1 {
				break
			}
			_, at = procState(at)
		}
	}
	return n
}
