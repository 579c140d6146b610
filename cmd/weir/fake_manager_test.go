package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/workload"
)

// fakeManager is a manager in memory, with faults. It is nobody's but of tests.
type fakeManager struct {
	mu     sync.Mutex
	all    map[string]*workload.Detail
	groups []string
	logs   map[string][]workload.Line
	faults map[string]error                 // by "list", or by "stop files"
	did    []string                         // what it was asked to do, and did
	after  func()                           // called after the lines of a log that is followed; nil to wait for the end
	lists  int                              // how often it was asked for a list
	listed func(ctx context.Context, n int) // called before each of them
}

var _ workload.Manager = (*fakeManager)(nil)

// longAgo is when everything of a fake manager was made.
var longAgo = time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)

// newFakeManager has workloads of all kinds: one that runs, one that failed, and so on.
func newFakeManager() *fakeManager {
	m := &fakeManager{all: map[string]*workload.Detail{}, groups: []string{"default", "work"}, logs: map[string][]workload.Line{}, faults: map[string]error{}}
	add := func(name, url, group string, state workload.State, change func(*workload.Detail)) {
		d := &workload.Detail{
			Status: workload.Status{
				Name: name, Package: "npx -y @example/" + name, URL: url, Port: 20001, TransportType: "stdio", ProxyMode: "streamable-http",
				Status: state, CreatedAt: longAgo, Group: group, Sandbox: "bwrap", Isolation: true,
			},
			Wish: workload.Running, Command: []string{"npx", "-y", "@example/" + name}, Manifest: "apiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: " + name + "}\nspec: {image: npx}\n",
		}
		if state == workload.Running {
			d.StartedAt, d.Processes, d.RSSBytes = &longAgo, 1, 40<<20
		}
		if change != nil {
			change(d)
		}
		m.all[name] = d
	}
	add("files", "http://127.0.0.1:20001/mcp", "work", workload.Running, func(d *workload.Detail) {
		d.Labels = map[string]string{"team": "blue", "a": "b=c"}
		d.Tools = []string{"read_file", "list_directory"}
		d.Restarts = 2
		d.RunAs = []string{"/home/weir/bin/server-files"}
		d.Notes = []string{"memory is not limited: cgroup v2 is not delegated"}
	})
	add("broken", "http://127.0.0.1:20002/mcp", "work", workload.Failed, func(d *workload.Detail) {
		d.StatusContext = "it ends again and again"
		d.Failure, d.Next = "the server ended with code 1, 0.2 s after its start\x1b[2J", "`weir logs broken` shows what it said"
		d.Stderr = []string{"npm error 404", "\x1b[31mNot found\x1b[0m"}
		d.Restarts = 5
	})
	add("paused", "http://127.0.0.1:20003/mcp", "default", workload.Stopped, func(d *workload.Detail) { d.Wish = workload.Stopped })
	add("tickets", "http://127.0.0.1:20004/mcp", "default", workload.Unauthenticated, func(d *workload.Detail) {
		d.Package, d.Command, d.Remote, d.Sandbox, d.TransportType = "https://tickets.example.com/mcp", nil, true, "", "streamable-http"
		d.Failure, d.Next = "the login has ended", "`weir start tickets` logs in anew"
	})
	add("older", "http://127.0.0.1:20005/sse", "default", workload.AuthRetrying, func(d *workload.Detail) { d.ProxyMode = "sse" })
	add("odd", "http://127.0.0.1:20006/mcp", "default", workload.PolicyStopped, func(d *workload.Detail) { d.Isolation = false; d.Sandbox = "none" })
	at := func(n int) time.Time { return longAgo.Add(time.Duration(n) * time.Second) }
	m.logs["files"] = []workload.Line{
		{Time: at(0), Source: "event", Text: "running"},
		{Time: at(1), Source: "stderr", Text: "\x1b[31mSecure\x1b[0m MCP server\x07"},
		{Time: at(2), Source: "edge", Text: "tools/list: ok"},
		{Time: at(3), Source: "stderr", Text: "ready <now>"},
	}
	return m
}

// fault is what is to go wrong when a manager does something; nil for nothing.
func (m *fakeManager) fault(what ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.faults[strings.Join(what, " ")]
}

// change does something with a workload, and tells of it.
func (m *fakeManager) change(ctx context.Context, verb, name string, to workload.State, told func(workload.Event)) error {
	if err := m.fault(verb, name); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.all[name]
	if d == nil {
		return &workload.Error{Code: workload.CodeNotFound, Message: fmt.Sprintf("there is no workload %q", name)}
	}
	m.did = append(m.did, verb+" "+name)
	told(workload.Event{Text: verb + " is under way\x1b[2J"})
	if d.Status.Status = to; to == "" {
		delete(m.all, name)
		to = workload.Removing
	}
	told(workload.Event{State: to, URL: d.URL})
	return nil
}

func (m *fakeManager) Run(context.Context, []byte, bool, time.Duration, func(workload.Event)) error {
	return &workload.Error{Code: workload.CodeFault, Message: "a fake runs nothing"}
}

func (m *fakeManager) List(ctx context.Context) ([]workload.Status, error) {
	m.mu.Lock()
	m.lists++
	n, before := m.lists, m.listed
	m.mu.Unlock()
	if before != nil {
		before(ctx, n)
	}
	if err := m.fault("list"); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := []workload.Status{}
	for _, name := range slices.Sorted(maps.Keys(m.all)) {
		all = append(all, m.all[name].Status)
	}
	return all, nil
}

func (m *fakeManager) Inspect(_ context.Context, name string) (*workload.Detail, error) {
	if err := m.fault("inspect", name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.all[name]; d != nil {
		return d, nil
	}
	return nil, &workload.Error{Code: workload.CodeNotFound, Message: fmt.Sprintf("there is no workload %q", name)}
}

func (m *fakeManager) Start(ctx context.Context, name string, wait time.Duration, told func(workload.Event)) error {
	return m.change(ctx, "start", name, workload.Running, told)
}

func (m *fakeManager) Restart(ctx context.Context, name string, wait time.Duration, told func(workload.Event)) error {
	return m.change(ctx, "restart", name, workload.Running, told)
}

func (m *fakeManager) Stop(ctx context.Context, name string, timeout time.Duration, told func(workload.Event)) error {
	return m.change(ctx, fmt.Sprintf("stop in %s", timeout), name, workload.Stopped, told)
}

func (m *fakeManager) Remove(ctx context.Context, name string, o workload.RemoveOptions, told func(workload.Event)) error {
	verb := "remove"
	if o.Force {
		verb = "remove by force"
	}
	if o.KeepImage {
		verb += ", not the image"
	}
	return m.change(ctx, verb, name, "", told)
}

func (m *fakeManager) Logs(ctx context.Context, name string, o workload.LogOptions, line func(workload.Line)) error {
	if err := m.fault("logs", name); err != nil {
		return err
	}
	if _, err := m.Inspect(ctx, name); err != nil {
		return err
	}
	m.mu.Lock()
	lines := slices.DeleteFunc(slices.Clone(m.logs[name]), func(l workload.Line) bool {
		return l.Time.Before(o.Since) || o.Proxy && l.Source != "edge"
	})
	m.mu.Unlock()
	if o.Tail > 0 {
		lines = lines[max(0, len(lines)-o.Tail):]
	}
	for _, l := range lines {
		line(l)
	}
	if !o.Follow {
		return nil
	}
	if m.after != nil {
		m.after()
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (m *fakeManager) PruneLogs(context.Context) (files int, bytes int64, err error) {
	return 3, 4096, m.fault("prune")
}

func (m *fakeManager) Groups(context.Context) ([]workload.Group, error) {
	if err := m.fault("groups"); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []workload.Group
	for _, name := range m.groups {
		g := workload.Group{Name: name, Members: []string{}}
		for _, one := range slices.Sorted(maps.Keys(m.all)) {
			if m.all[one].Group == name {
				g.Members = append(g.Members, one)
			}
		}
		all = append(all, g)
	}
	return all, nil
}

func (m *fakeManager) CreateGroup(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Contains(m.groups, name) {
		return &workload.Error{Code: workload.CodeTaken, Message: fmt.Sprintf("there is a group %q already", name), Next: "`weir group list` shows what there is"}
	}
	m.groups = append(m.groups, name)
	return nil
}

func (m *fakeManager) RemoveGroup(_ context.Context, name string, with bool, told func(workload.Event)) error {
	if err := m.fault("remove group", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.groups = slices.DeleteFunc(m.groups, func(g string) bool { return g == name })
	for one, d := range m.all {
		switch {
		case d.Group != name:
		case with:
			delete(m.all, one)
		default:
			d.Group = "default"
		}
	}
	told(workload.Event{Text: "the group is gone"})
	return nil
}

// asking is an app before a manager; nil stands for none that runs. What the state directory
// keeps are workloads of these names.
func asking(t *testing.T, m *fakeManager, kept ...string) (a *app, out, said *bytes.Buffer) {
	t.Helper()
	home := t.TempDir()
	out, said = new(bytes.Buffer), new(bytes.Buffer)
	a = &app{in: strings.NewReader(""), out: out, err: said, environ: []string{"WEIR_HOME=" + home}, exit: func(int) {}}
	a.managed = func(context.Context, bool) (workload.Manager, error) {
		if m == nil {
			return nil, workload.ErrNoManager
		}
		return m, nil
	}
	keep(t, a, kept...)
	return a, out, said
}
