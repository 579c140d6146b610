//go:build unix

package stdio_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/stdio"
)

// behind is a bridge before a played server, behind an edge.
type behind struct {
	*edgetest.Edge
	t      *testing.T
	bridge *stdio.Bridge
	file   string // what the servers tell

	mu    sync.Mutex
	lines []stdio.Line
}

// start starts an edge before a played server.
func start(t *testing.T, how string, change func(*stdio.Config), options ...edgetest.Option) *behind {
	t.Helper()
	b := &behind{t: t, file: filepath.Join(t.TempDir(), "told")}
	c := stdio.Config{
		Name: "back", Digest: how, Timeout: 3 * time.Second,
		Starter: program(t, how, b.file),
		Lines: func(l stdio.Line) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.lines = append(b.lines, l)
		},
	}
	if change != nil {
		change(&c)
	}
	b.open(c, options...)
	return b
}

// program starts this program as a server that behaves in a way, and tells of it in a file.
func program(t *testing.T, how, file string) stdio.Command {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return stdio.Command{Path: self, Env: []string{asServer + "=" + how + " tell=" + file, "PATH=" + os.Getenv("PATH")}}
}

// open starts an edge before the server of a bridge.
func (b *behind) open(c stdio.Config, options ...edgetest.Option) {
	b.t.Helper()
	start := func(serve.Starting) (backend.Local, error) {
		bridge, err := stdio.New(c)
		b.bridge = bridge
		return bridge, err
	}
	b.Edge = edgetest.StartPlan(b.t, planned(b.t), append(options, edgetest.With(serve.WithWorkloads(start)))...)
}

// planned is the plan of one server that the edge starts.
func planned(t testing.TB) *compile.Plan {
	return plannedAs(t, "apiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: back}\nspec: {image: \"exec:///unused\", transport: stdio}\n")
}

// plannedAs is the plan of manifests.
func plannedAs(t testing.TB, manifests string) *compile.Plan {
	t.Helper()
	set, _ := source.Read("test.yaml", []byte(manifests))
	set.Starts = []compile.Form{compile.FormLocal}
	r := set.Compile()
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	return r.Plan
}

// told returns the lines that the servers have told so far and that hold a text.
func (b *behind) told(text string) []string {
	all, _ := os.ReadFile(b.file)
	var found []string
	for line := range strings.Lines(string(all)) {
		if strings.Contains(line, text) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// log returns what the bridge has logged so far.
func (b *behind) log() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all bytes.Buffer
	for _, l := range b.lines {
		fmt.Fprintf(&all, "%s: %s\n", l.Source, l.Text)
	}
	return all.String()
}

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// await waits until something holds.
func await(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not in %s", what, patience)
		}
	}
}

// alive reports whether a process runs, zombies aside.
func alive(pid string) bool {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// text is the text that a tool's result has.
func text(t testing.TB, r *edgetest.Response) string {
	t.Helper()
	result := r.Result()
	var m struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal([]byte(result), &m); err != nil || len(m.Content) != 1 {
		t.Fatalf("a result without a text: %s", result)
	}
	return m.Content[0].Text
}

func quote(s string) string {
	text, _ := json.Marshal(s)
	return string(text)
}

// fault is the error that a message has, as text; "" for none.
func fault(m edgetest.Message) string {
	if m.Error == nil {
		return ""
	}
	return fmt.Sprintf("%d %s", m.Error.Code, m.Error.Message)
}
