package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// managed is a manager with workloads, at a place of its own.
type managed struct {
	s    *storm
	home string // what WEIR_HOME says
	at   *kit.Process
	http *http.Client
	urls map[string]string // of the workloads, by name

	mu  sync.Mutex
	ran map[string]int // calls that remote servers ran
}

// How many workloads the manager has, of each kind.
const onStreams, overHTTP, atURLs = 10, 5, 5

// runManager is V31: the manager is killed with a call under way at each workload, and is
// started again.
func runManager(ctx context.Context, s *storm) {
	times := s.size(s.count, 100, 5, "kills")
	m := &managed{s: s, home: s.folder("home"), http: &http.Client{}, urls: map[string]string{}, ran: map[string]int{}}
	s.later(m.http.CloseIdleConnections)
	m.start()
	s.later(func() { m.at.Stop() })
	m.runAll(ctx)

	var back []time.Duration
	orphans, answered, undecided, torn, moved, zombies := 0, 0, 0, 0, 0, 0
	for i := range times {
		// 1. Calls, and when all have reached their servers, the kill.
		ends := make(chan int, len(m.urls))
		for name, url := range m.urls {
			go func() { ends <- m.mark(url, fmt.Sprintf("%s-%d", name, i)) }()
		}
		if !kit.WaitFor(ctx, 20*time.Second, func() bool { return m.marked(strconv.Itoa(i)) == len(m.urls) }) {
			s.bar(false, "all", "kill %d: only %d of %d calls reached their servers", i+1, m.marked(strconv.Itoa(i)), len(m.urls))
			return
		}
		old := m.processes()
		m.at.Kill()
		for range m.urls {
			select {
			case status := <-ends:
				if status == http.StatusOK {
					answered++
				}
			case <-time.After(5 * time.Second):
				undecided++
			}
		}

		// 2. A new one: all run, at the same addresses, and of the old nothing is left.
		began := time.Now()
		m.start()
		well := kit.WaitFor(ctx, 30*time.Second, func() bool { return m.running() == len(m.urls) })
		back = append(back, time.Since(began))
		if !well {
			s.note("kill %d: %s", i+1, m.ask("list", "-a"))
			break
		}
		for _, one := range m.list() {
			if m.urls[one.Name] != one.URL {
				moved++
			}
		}
		if slices.ContainsFunc(old, lives) {
			orphans++
		}
		torn += m.torn()
		if !kit.WaitFor(ctx, 2*time.Second, func() bool { return zombiesBelow(m.at.PID()) == 0 }) {
			zombies++
		}
	}
	twice := m.twice()
	s.bar(len(back) == times && moved == 0 && kit.Percentile(back, 1000) <= 3*time.Second, "3 s", "%d kills of %d: all %d workloads run at their addresses %.2f s after the start in the median, %.2f s at most", len(back), times, len(m.urls), kit.Percentile(back, 500).Seconds(), kit.Percentile(back, 1000).Seconds())
	s.bar(answered+undecided == 0, "0", "of %d calls under way %d were answered and %d still wait", len(back)*len(m.urls), answered, undecided)
	s.bar(twice == 0, "0", "%d calls were run twice", twice)
	s.bar(orphans == 0, "0", "%d times something of the old processes was left", orphans)
	s.bar(zombies == 0, "0", "%d times nobody waited for a process below the manager", zombies)
	s.bar(torn == 0, "0", "%d files were torn or left over", torn)

	m.ask("down")
	left := kit.WaitFor(ctx, 10*time.Second, func() bool { return len(m.processes()) == 0 })
	_, err := os.Lstat(filepath.Join(m.home, "state", "manager.sock"))
	s.bar(left && os.IsNotExist(err), "0", "%d processes after the end, its socket is gone: %t", len(m.processes()), os.IsNotExist(err))
}

// start starts the manager, and does not wait.
func (m *managed) start() {
	m.at = kit.Must(kit.Start("manager", exec.Command(m.s.weir, "up", "--log-level", "warn"), nil, "WEIR_HOME="+m.home))
}

// runAll has the manager run the workloads of each kind.
func (m *managed) runAll(ctx context.Context) {
	kit.WaitFor(ctx, 10*time.Second, func() bool { _, err := m.try("list"); return err == nil })
	self := kit.Must(os.Executable())
	for i := range onStreams {
		m.ask("run", "--name", fmt.Sprint("stream", i), "--", self, asServer)
	}
	for i := range overHTTP {
		m.ask("run", "--name", fmt.Sprint("http", i), "--transport", "streamable-http", "--", self, asHTTP)
	}
	for i := range atURLs {
		b := kit.NewBackend(kit.Legacy, "mark")
		b.Do = m.remote
		addr := kit.Must(b.Listen("127.0.0.1:0"))
		m.s.later(b.Close)
		m.ask("run", "--name", fmt.Sprint("url", i), "http://"+addr+"/mcp")
	}
	for _, one := range m.list() {
		m.urls[one.Name] = one.URL
	}
	if n := m.running(); n != onStreams+overHTTP+atURLs {
		kit.Check(fmt.Errorf("%d workloads run:\n%s", n, m.ask("list", "-a")))
	}
}

// remote runs a call of a remote server.
func (m *managed) remote(t *kit.Task) (said string, ok bool) {
	m.mu.Lock()
	m.ran[t.Text]++
	m.mu.Unlock()
	select {
	case <-t.Cancelled:
		return "", false
	case <-time.After(time.Duration(t.Ms) * time.Millisecond):
		return t.Text, true
	}
}

// try asks the manager by a command.
func (m *managed) try(args ...string) (string, error) {
	cmd := exec.Command(m.s.weir, args...)
	cmd.Env = append(os.Environ(), "WEIR_HOME="+m.home)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("weir %s: %w: %s", strings.Join(args, " "), err, said.String())
	}
	return string(out), err
}

// ask is try where nothing is to go wrong.
func (m *managed) ask(args ...string) string { return kit.Must(m.try(args...)) }

// listed is what the list says of a workload.
type listed struct{ Name, Status, URL string }

// list is what the manager says; nothing while none answers.
func (m *managed) list() (all []listed) {
	text, err := m.try("list", "-a", "--format", "json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &all)
	}
	if err != nil {
		return nil
	}
	return all
}

// running is how many workloads the manager says to run.
func (m *managed) running() (n int) {
	for _, one := range m.list() {
		if one.Status == "running" {
			n++
		}
	}
	return n
}

// mark begins a session and calls a tool in it that leaves a mark and then takes a minute; it
// returns the status of the answer, 0 for none.
func (m *managed) mark(url, text string) int {
	post := func(session, body string) (*http.Response, string) {
		q := kit.Must(http.NewRequest("POST", url, strings.NewReader(body)))
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			q.Header.Set("Mcp-Session-Id", session)
			q.Header.Set("MCP-Protocol-Version", "2025-11-25")
		}
		r, err := m.http.Do(q)
		if err != nil {
			return nil, ""
		}
		defer r.Body.Close()
		said, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			return nil, ""
		}
		return r, string(said)
	}
	r, _ := post("", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"storm","version":"1"}}}`)
	if r == nil {
		return 0
	}
	r, said := post(r.Header.Get("Mcp-Session-Id"), fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"mark","arguments":{"text":%q,"ms":60000}}}`, text))
	if r == nil {
		return 0
	}
	if r.StatusCode == http.StatusOK && !strings.Contains(said, `"result"`) {
		return http.StatusBadGateway
	}
	return r.StatusCode
}

// marks are the calls that all servers have run, each as often as they have.
func (m *managed) marks() (all []string) {
	for _, path := range kit.Must(filepath.Glob(filepath.Join(m.home, "state", "workloads", "*", "home", "ran"))) {
		all = append(all, strings.Fields(string(kit.Must(os.ReadFile(path))))...)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for text, n := range m.ran {
		all = append(all, slices.Repeat([]string{text}, n)...)
	}
	return all
}

// marked is how many calls of a round have reached their servers.
func (m *managed) marked(round string) (n int) {
	for _, text := range m.marks() {
		if strings.HasSuffix(text, "-"+round) {
			n++
		}
	}
	return n
}

// twice is how many calls were run more than once.
func (m *managed) twice() (n int) {
	all := m.marks()
	slices.Sort(all)
	return len(all) - len(slices.Compact(slices.Clone(all)))
}

// torn is how many files of the state directory are no whole ones, or are left over.
func (m *managed) torn() (n int) {
	kit.Check(filepath.WalkDir(filepath.Join(m.home, "state"), func(path string, d fs.DirEntry, err error) error {
		var v any
		switch {
		case err != nil && !os.IsNotExist(err): // what is written meanwhile may go
			return err
		case d == nil:
		case d.IsDir() && d.Name() == "home":
			return fs.SkipDir
		case d.Name() == "status.json":
			if json.Unmarshal(kit.Must(os.ReadFile(path)), &v) != nil {
				n++
			}
		case strings.HasPrefix(d.Name(), ".new-"):
			if info, err := d.Info(); err == nil && info.ModTime().Before(m.at.Began) {
				n++
			}
		case d.Name() == "manifest.yaml":
			if text := kit.Must(os.ReadFile(path)); !strings.HasPrefix(string(text), "apiVersion: ") || !strings.HasSuffix(string(text), "\n") {
				n++
			}
		}
		return nil
	}))
	return n
}

// processes are those that have their home below that of the manager, besides itself.
func (m *managed) processes() (all []int) {
	for _, path := range kit.Must(filepath.Glob("/proc/[0-9]*/environ")) {
		text, err := os.ReadFile(path)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && strings.Contains(string(text), "HOME="+m.home+"/") && lives(pid) {
			all = append(all, pid)
		}
	}
	return all
}
