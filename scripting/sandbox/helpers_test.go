package sandbox

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-edge/weir/scripting"
)

func TestMain(m *testing.M) {
	code := m.Run()
	shared.close()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// shared is what tests of this package have in common: one directory of machine code, and
// one engine for tests that change none of its options.
var shared common

type common struct {
	once   sync.Once
	dir    string
	engine *Engine
}

func (c *common) cache() string {
	c.once.Do(func() {
		dir, err := os.MkdirTemp("", "weir-sandbox-test")
		if err != nil {
			panic(err)
		}
		c.dir, c.engine = dir, New(Options{CacheDir: dir, Most: 8, MostPerHolder: 8})
	})
	return c.dir
}

func (c *common) close() {
	if c.engine != nil {
		c.engine.Close()
		_ = os.RemoveAll(c.dir)
	}
}

// engine returns the shared engine, or one with other options.
func engine(t testing.TB, options ...Options) *Engine {
	t.Helper()
	dir := shared.cache()
	e := shared.engine
	if len(options) > 0 {
		o := options[0]
		if err := e.Ready(t.Context()); err != nil { // its machine code lies in the directory
			t.Fatal(err)
		}
		o.CacheDir = dir
		e = New(o)
		t.Cleanup(e.Close)
	}
	if err := e.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

// tools answer the calls of tests.
type tools map[string]func(ctx context.Context, c *scripting.Call) scripting.Answer

func (s tools) call(ctx context.Context, c *scripting.Call) scripting.Answer {
	if f := s[c.Tool]; f != nil {
		return f(ctx, c)
	}
	return scripting.Answer{Error: &scripting.Fault{Message: fmt.Sprintf("tool %q: not found", c.Tool), Code: 404}}
}

func (s tools) scope() scripting.Scope {
	return scripting.Scope{Tool: func(name string) (string, bool) { _, ok := s[name]; return name, ok }}
}

// value is a tool that answers with a JSON text.
func value(text string) func(context.Context, *scripting.Call) scripting.Answer {
	return func(context.Context, *scripting.Call) scripting.Answer { return scripting.Answer{Value: []byte(text)} }
}

// echo is a tool that answers with its arguments.
func echo(_ context.Context, c *scripting.Call) scripting.Answer {
	return scripting.Answer{Value: c.Arguments}
}

// until is a tool that answers when its context ends.
func until(ctx context.Context, c *scripting.Call) scripting.Answer {
	<-ctx.Done()
	return scripting.Answer{Error: &scripting.Fault{Message: fmt.Sprintf("tool %q: %v", c.Tool, ctx.Err())}}
}

func program(t testing.TB, text string, s tools, data ...string) *scripting.Program {
	t.Helper()
	scope := s.scope()
	scope.Data = data
	p, err := scripting.Compile("script.star", text, scope)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

// run runs a text with the shared engine, and fails the test when the host does.
func run1(t testing.TB, e *Engine, text string, s tools, change ...func(*scripting.Run)) *scripting.Outcome {
	t.Helper()
	r := &scripting.Run{Program: program(t, text, s), Call: s.call}
	for _, f := range change {
		f(r)
	}
	o, err := e.Run(t.Context(), "me", r)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o
}

func said(o *scripting.Outcome) string {
	if o.Error != nil {
		return "error: " + o.Error.Message
	}
	return string(o.Value)
}

// eventually waits for what another goroutine does.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came to this: %s", what)
		}
	}
}

func contains(t testing.TB, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("got %q, which does not contain %q", got, want)
	}
}
