package sandbox

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/scripting"
)

// built builds a package into a module, as go generate does with the interpreter.
func built(t testing.TB, source, tags string) module {
	t.Helper()
	const most = 8 << 20 // what is built for tests alone has more in it
	dir := t.TempDir()
	cmd := exec.Command("go", "run", "./build", "-package", source, "-tags", tags, "-most", strconv.Itoa(most), "-o", dir)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	packed, err1 := os.ReadFile(filepath.Join(dir, "guest.wasm.gz"))
	about, err2 := os.ReadFile(filepath.Join(dir, "guest.txt"))
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	m, err := moduleOf(packed, string(about))
	m.most = most
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// hostile is an engine with the twin of the interpreter that keeps to nothing.
func hostile(t testing.TB) *Engine {
	t.Helper()
	m := built(t, "./testdata/hostile", "")
	e := newEngine(Options{Most: 4, MostPerHolder: 4, CacheDir: shared.cache()}, func() (module, error) { return m, nil })
	t.Cleanup(e.Close)
	if err := e.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestX31HostileTwin: an interpreter that lies meets every budget but that of steps, and
// what it answers is an error or a bounded value.
func TestX31HostileTwin(t *testing.T) {
	e := hostile(t)
	before := rss(t)
	for _, c := range []struct{ does, want string }{
		{"calls", "error: more than 1000 tool calls"},
		{"spins", "error: ran longer than 200ms of CPU"},
		{"polls", "error: ran longer than 200ms of CPU"},
		{"prints", "error: ran longer than 200ms of CPU"},
		{"progress", "error: ran longer than 200ms of CPU"},
		{"hoards", "error: needs more than 64 MiB"},
		{"overflows", "error: calls or values nest too deep"},
		{"lies", "false"},
		{"error", "error: "},
		{"ids", "true"},
		{"args", "true"},
		{"waits", "error: the interpreter failed"},
		{"garbage", "error: the interpreter failed"},
		{"nothing", "error: the interpreter failed"},
		{"cut", "error: the interpreter failed"},
		{"deep", "error: the interpreter failed"},
		{"large", "error: result: larger than 1048576 bytes"},
		{"wide", "error: result: larger than 1048576 bytes"},
		{"binary", "error: the interpreter failed"},
		{"beyond", "error: the interpreter failed"},
		{"kinds", "error: the interpreter failed"},
		{"names", "error: the interpreter failed"},
		{"outside", "error: the interpreter failed"},
		{"panics", "error: the interpreter failed"},
		{"exits", "error: the interpreter failed"},
	} {
		t.Run(c.does, func(t *testing.T) {
			p, err := scripting.Compile(c.does+".star", "return 1", scripting.Scope{})
			if err != nil {
				t.Fatal(err)
			}
			limit := 200 * time.Millisecond
			if strings.Contains(c.want, "MiB") || c.does == "overflows" {
				limit = 5 * time.Second // the system counts what it takes to find the memory, which is more where it is busy
			}
			var made atomic.Int64
			said1 := 0
			o, err := e.Run(t.Context(), "mallory", &scripting.Run{
				Program: p, Limits: scripting.Limits{CPU: limit, PerCall: time.Minute},
				Call: func(context.Context, *scripting.Call) scripting.Answer {
					made.Add(1)
					return scripting.Answer{Value: []byte("1")}
				},
				Progress: func(float64, float64, string) { said1++ },
			})
			if err != nil {
				t.Fatal(err)
			}
			got := said(o)
			if got != c.want && !(c.does == "error" && strings.HasPrefix(got, c.want)) {
				t.Errorf("got %.200q, want %q", got, c.want)
			}
			if made.Load() > 1000 || o.Calls > 1000 || o.Steps > 100_000 {
				t.Errorf("%d calls were made, %d are counted, and %d steps", made.Load(), o.Calls, o.Steps)
			}
			if o.CPU > limit+100*time.Millisecond {
				t.Errorf("it used %v of CPU", o.CPU)
			}
			size := 0
			for _, line := range o.Logs {
				size += len(line) + 1
			}
			if len(o.Logs) > scripting.MaxLogLines || size > scripting.MaxLogs {
				t.Errorf("%d lines, %d bytes of logs", len(o.Logs), size)
			}
			if x := o.Error; x != nil && c.does != "error" {
				innocent(t, x.Message+x.Tool+strings.Join(x.Frames, ""))
			} else if x != nil {
				whole := x.Message + x.Tool + strings.Join(x.Frames, "")
				if len(x.Message) > scripting.MaxMessage+8 || len(x.Frames) > scripting.MaxFrames || len(whole) > 64<<10 || strings.ContainsAny(whole, "\x00\x1b\n") || x.Line < 0 || x.Column < 0 {
					t.Errorf("an error of %d bytes at %d:%d with %d frames: %.100q", len(whole), x.Line, x.Column, len(x.Frames), whole)
				}
			}
		})
	}
	if after := rss(t); after-before > 80<<20 {
		t.Errorf("the process holds %d MiB more", (after-before)>>20)
	}
}

// TestX34Hostile: even a twin that keeps what it is given finds none of it in the next run.
func TestX34Hostile(t *testing.T) {
	e := hostile(t)
	for i := range 200 {
		p, err := scripting.Compile("keeps.star", "return 1", scripting.Scope{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := e.Run(t.Context(), "me", &scripting.Run{Program: p, Call: tools{}.call})
		if err != nil || said(o) != `""` {
			t.Fatalf("run %d finds %v, %v", i, said(o), err)
		}
	}
}

// TestX32Admission: of one holder no more scripts run at once than may, of all no more
// than may; others are let in meanwhile, in their order, and places come free.
func TestX32Admission(t *testing.T) {
	e := engine(t, Options{Most: 6, MostPerHolder: 4})
	begun := make(chan struct{}, 100)
	s := tools{"until": func(ctx context.Context, c *scripting.Call) scripting.Answer {
		begun <- struct{}{}
		return until(ctx, c)
	}}
	p := program(t, "until()", s)
	var all sync.WaitGroup
	var placed atomic.Int64
	began := func() { placed.Add(1) }
	start := func(holder string) context.CancelFunc {
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() { _, _ = e.Run(ctx, holder, &scripting.Run{Program: p, Call: s.call, Began: began}) })
		<-begun
		return cancel
	}
	var stop []context.CancelFunc
	for range 4 {
		stop = append(stop, start("one"))
	}
	// 1. A fifth of one holder.
	from := time.Now()
	if _, err := e.Run(t.Context(), "one", &scripting.Run{Program: p, Call: s.call, Began: began}); err != ErrBusy || placed.Load() != 4 {
		t.Errorf("a fifth script of one holder: %v, %d have begun", err, placed.Load())
	}
	if took := time.Since(from); took < 900*time.Millisecond || took > 2*time.Second {
		t.Errorf("it waited %v", took)
	}
	// 2. Others are unaffected, until all places are taken.
	stop = append(stop, start("two"), start("three"))
	if _, err := e.Run(t.Context(), "four", &scripting.Run{Program: p, Call: s.call}); err != ErrBusy {
		t.Errorf("a seventh script: %v", err)
	}
	// 3. A place comes free while somebody waits for it.
	got := make(chan error)
	go func() {
		o, err := e.Run(t.Context(), "four", &scripting.Run{Program: program(t, "return 1", nil), Call: s.call})
		if err == nil && said(o) != "1" {
			t.Error(said(o))
		}
		got <- err
	}()
	eventually(t, "it waits", func() bool {
		e.admission.mu.Lock()
		defer e.admission.mu.Unlock()
		return len(e.admission.queue) == 1
	})
	stop[0]()
	if err := <-got; err != nil {
		t.Errorf("after a place came free: %v", err)
	}
	for _, f := range stop {
		f()
	}
	from = time.Now()
	all.Wait()
	if took := time.Since(from); took > time.Second {
		t.Errorf("cancelled scripts took %v", took)
	}
	e.admission.mu.Lock()
	defer e.admission.mu.Unlock()
	if e.admission.running != 0 || len(e.admission.of) != 0 || len(e.admission.queue) != 0 {
		t.Errorf("%d run, %v, %d wait", e.admission.running, e.admission.of, len(e.admission.queue))
	}
}

// TestX10ManyAtOnce: of 100 scripts that each take all the memory they may, some run and
// the others are refused; the process lives.
func TestX10ManyAtOnce(t *testing.T) {
	e := engine(t, Options{Most: 8, MostPerHolder: 4})
	p := program(t, "x = ['a' * 1000000 for i in range(40)]\nwhile True:\n  pass", nil)
	var ran, busy atomic.Int64
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			o, err := e.Run(t.Context(), string(rune('a'+i%25)), &scripting.Run{Program: p, Call: tools{}.call, Limits: scripting.Limits{CPU: 200 * time.Millisecond, Steps: 1 << 60}})
			switch {
			case err == ErrBusy:
				busy.Add(1)
			case err != nil:
				t.Error(err)
			case said(o) != "error: ran longer than 200ms of CPU" && said(o) != tooLarge:
				t.Errorf("%s", said(o))
			default:
				ran.Add(1)
			}
		})
	}
	all.Wait()
	if ran.Load() < 8 || busy.Load() == 0 || ran.Load()+busy.Load() != 100 {
		t.Errorf("%d ran and %d were refused", ran.Load(), busy.Load())
	}
}

// TestX34Tenants: two tenants in turn on one instance: the second finds nothing that the
// first left, and after each run memory, globals and tables are equal to the image. 10,000
// pairs where WEIR_LONG is set, and 200 otherwise.
func TestX34Tenants(t *testing.T) {
	pairs := 200
	if os.Getenv("WEIR_LONG") != "" {
		pairs = 10_000
	}
	e := engine(t, Options{Most: 1})
	check := func(i int, tenant string) {
		eventually(t, "the instance is back", func() bool { s := e.ready.interpreter.Stats(); return s.Live == 1 && s.Idle == 1 })
		if what := e.ready.interpreter.Differs(); what != "" {
			t.Fatalf("pair %d, %s: %s differs from the image", i, tenant, what)
		}
	}
	var first []*scripting.Program
	for _, end := range []string{"", "fail(secret)", "x = [secret] * 10000", "len('a' * 100000000)"} {
		first = append(first, program(t, `
secret = "SECRET-" + str(n) + "-" + "x" * 100
d = {secret: [secret], "k": set([secret])}
def f():
    return secret
print(secret)
parallel([f, lambda: secret.upper()])
attempt(lambda: fail(secret))
json.encode(list(d.items())[0])
`+end+`
return secret`, tools{}, "n"))
	}
	second := program(t, `return [dir(""), str({}), repr([]), json.encode({"a": 1}), hash("a"), "SECRET" in str(n)]`, tools{}, "n")
	var want []byte
	for i := range pairs {
		data := []byte(`{"n":` + strconv.Itoa(i) + `}`)
		if o, err := e.Run(t.Context(), "a", &scripting.Run{Program: first[i%len(first)], Call: tools{}.call, Data: data}); err != nil || len(o.Logs) != 1 {
			t.Fatal(said(o), err)
		}
		check(i, "first")
		o, err := e.Run(t.Context(), "b", &scripting.Run{Program: second, Call: tools{}.call, Data: []byte(`{"n":1}`)})
		if err != nil || o.Error != nil {
			t.Fatal(err, said(o))
		}
		if want == nil {
			want = o.Value
		}
		if !bytes.Equal(o.Value, want) || bytes.Contains(o.Value, []byte("SECRET-")) || len(o.Logs) > 0 {
			t.Fatalf("pair %d: %s %q", i, o.Value, o.Logs)
		}
		check(i, "second")
	}
}
