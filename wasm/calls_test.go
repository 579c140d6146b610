package wasm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/sdk/abi"
)

// The rows W of the threat model from W09 on: what goes wrong while guests run.

// byCommand is a guest that does what the first byte of its input says.
func byCommand() *encoder {
	e := guestEncoder(func(e *encoder) { e.imported(wasiModule, "proc_exit", vI32, "") })
	when := func(c int, what ...[]byte) []byte {
		return seq(i32(bufferAt), load8(0), i32(c), ins(opEq32, opIf, blockVoid), seq(what...), ins(opEnd))
	}
	return e.hook("",
		when('t', ins(opUnreachable)),
		when('x', i32(0), call(0)),
		when('o', i32(-4), load8(0), ins(opDrop)),
		when('l', forever()),
		i32(resultAt), i32('k'), store8(0), result(resultAt, 1),
	)
}

func TestW09(t *testing.T) {
	g := open(t, byCommand().bytes(), func(b *Binding) { b.Limits.Timeout, b.Limits.Fuel, b.Limits.Instances = 5*time.Millisecond, 1<<50, 1 })
	for i, c := range []struct {
		input string
		want  Reason
	}{{"t", Trap}, {"x", Trap}, {"o", Trap}, {"l", Deadline}} {
		_, err := g.Call(context.Background(), hook, "", Sender{}, []byte(c.input), nil)
		var f *Failure
		if !errors.As(err, &f) || f.Reason != c.want {
			t.Errorf("%q: got %v, want %v", c.input, err, c.want)
		}
		out, err := g.Call(context.Background(), hook, "", Sender{}, []byte("k"), nil)
		if err != nil || string(out) != "k" {
			t.Errorf("the call after %q: %q, %v", c.input, out, err)
		}
		if s := g.Stats(); s.Made != uint64(i+1) {
			t.Errorf("%d instances were made after the first, want %d", s.Made, i+1)
		}
	}
}

// TestG23: one call in a hundred traps, and only those fail.
func TestG23(t *testing.T) {
	g := open(t, byCommand().bytes(), func(b *Binding) { b.Isolation = PerRequest })
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				input := "k"
				if i%100 == w {
					input = "t"
				}
				_, err := g.Call(context.Background(), hook, "", Sender{}, []byte(input), nil)
				if (err != nil) != (input == "t") {
					t.Errorf("%q gives %v", input, err)
				}
			}
		})
	}
	wg.Wait()
	s := g.Stats()
	if s.Hooks[hook].Failures[Trap] != 40 || s.Hooks[hook].Ops != 3960 || s.Rests != 0 {
		t.Errorf("counted %+v", s.Hooks[hook])
	}
}

func TestW10(t *testing.T) {
	// The guest answers with what it kept, and keeps its input: in memory, in a
	// global, and in memory beyond its first pages.
	e := guestEncoder()
	kept := e.global(typeI32, true, i32(0))
	e.memory.min = 8
	const far = 7 << 16
	e.hook("",
		i32(resultAt), gget(kept), store8(0),
		i32(resultAt), i32(far), load8(0), store8(1),
		i32(bufferAt), load8(0), gset(kept),
		i32(far), i32(bufferAt), load8(0), store8(0),
		result(resultAt, 2),
	)
	for name, c := range map[string]struct {
		isolation Isolation
		leaks     bool
	}{"shared": {Shared, true}, "per request": {PerRequest, false}, "per session": {PerSession, false}} {
		g := open(t, e.bytes(), func(b *Binding) { b.Isolation, b.Limits.Instances = c.isolation, 1 })
		for i, tenant := range []string{"A", "B", "A", "B"} {
			out, err := g.Call(context.Background(), hook, tenant, Sender{}, []byte(tenant), nil)
			if err != nil {
				t.Fatal(err)
			}
			other := "A"
			if tenant == "A" {
				other = "B"
			}
			if got := strings.Contains(string(out), other); got != (c.leaks && i > 0) {
				t.Errorf("%s: call %d of %s sees %q", name, i, tenant, out)
			}
		}
	}
}

// TestForgotten: a call finds the input of none before it where its own is, nor
// the configuration. What it answers may be its input.
func TestForgotten(t *testing.T) {
	e := guestEncoder().hook("", result(bufferAt, 200))
	for name, isolation := range map[string]Isolation{"shared": Shared, "per request": PerRequest, "per session": PerSession} {
		g := open(t, e.bytes(), func(b *Binding) {
			b.Isolation, b.Limits.Instances, b.Config = isolation, 1, []byte(`{"key":"of the configuration"}`)
		})
		for _, in := range []string{"", "first", strings.Repeat("long", 40), "short", ""} {
			out, err := g.Call(context.Background(), hook, "s", Sender{}, []byte(in), nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimRight(string(out), "\x00"); got != in {
				t.Errorf("%s: asked %q, it finds %q", name, in, got)
			}
		}
	}
}

func TestW11(t *testing.T) {
	e := guestEncoder(func(e *encoder) {
		e.imported(wasiModule, "environ_sizes_get", vI32+vI32, vI32)
		e.imported(wasiModule, "args_sizes_get", vI32+vI32, vI32)
		e.imported(wasiModule, "path_open", vI32+vI32+vI32+vI32+vI32+vI64+vI64+vI32+vI32, vI32)
		e.imported(wasiModule, "fd_prestat_get", vI32+vI32, vI32)
		e.imported(wasiModule, "random_get", vI32+vI32, vI32)
		e.imported(wasiModule, "sock_accept", vI32+vI32+vI32, vI32)
	})
	to := func(i int, value []byte) []byte { return seq(i32(resultAt+i), value, store8(0)) }
	path := "/etc/passwd"
	e.data = append(e.data, [2]any{stateAt, []byte(path)})
	e.hook("",
		i32(0), i32(-1), ins(0x36, 0, 0), i32(4), i32(-1), ins(0x36, 0, 0), // would-be counts
		to(0, seq(i32(0), i32(4), call(0))), to(1, seq(i32(0), load8(0))), to(2, seq(i32(4), load8(0))),
		to(3, seq(i32(0), i32(4), call(1))), to(4, seq(i32(0), load8(0))),
		to(5, seq(i32(3), i32(0), i32(stateAt), i32(len(path)), i32(0), i64(-1), i64(-1), i32(0), i32(8), call(2))),
		to(6, seq(i32(3), i32(16), call(3))),
		to(7, seq(i32(resultAt+16), i32(8), call(4))),
		to(8, seq(i32(3), i32(0), i32(8), call(5))),
		result(resultAt, 24),
	)
	g := open(t, e.bytes(), func(b *Binding) { b.Isolation = PerRequest })
	one, err := g.Call(context.Background(), hook, "", Sender{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []byte{0, 0, 0, 0, 0, wasiNoCapable, wasiBadFile, 0, wasiNoCapable}; !bytes.Equal(one[:9], want) {
		t.Errorf("got %v, want %v", one[:9], want)
	}
	two, err := g.Call(context.Background(), hook, "", Sender{}, nil, nil)
	if err != nil || !bytes.Equal(one, two) {
		t.Errorf("random bytes without the grant: %x, then %x, %v", one[16:], two[16:], err)
	}
	e = guestEncoder(func(e *encoder) { e.imported(wasiModule, "path_unlink_file", vI32+vI32+vI32, vI32) })
	refused(t, e.hook("", i64(0)).bytes(), "import section: there is no host function wasi_snapshot_preview1.path_unlink_file")
}

func TestW12(t *testing.T) {
	g := open(t, scanner().bytes())
	_, err := g.Call(context.Background(), hook, "", Sender{}, make([]byte, 100<<20), nil)
	var f *Failure
	if !errors.As(err, &f) || f.Reason != Broken || !strings.Contains(f.Detail, "104857600 bytes") {
		t.Errorf("100 MiB: %v", err)
	}
	// More than the guest has room for.
	if _, err = g.Call(context.Background(), hook, "", Sender{}, make([]byte, bufferMax+1), nil); !errors.As(err, &f) || f.Reason != Broken {
		t.Errorf("more than its buffer: %v", err)
	}
	if _, err = g.Call(context.Background(), hook, "", Sender{}, record(1000), nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestW13(t *testing.T) {
	c := testCompiler(t)
	binary := scanner().bytes()
	m, err := c.Compile(context.Background(), binary, "")
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	if m, err := c.Compile(context.Background(), binary, strings.ToUpper(m.Digest)); err != nil {
		t.Errorf("its own digest: %v", err)
	} else {
		m.Close()
	}
	swapped := counter().bytes()
	if _, err := c.Compile(context.Background(), swapped, m.Digest); err == nil || !strings.Contains(err.Error(), "is asked for") {
		t.Errorf("another module under the digest: %v", err)
	}
	if _, err := c.Compile(context.Background(), binary, m.Digest[:63]); err == nil {
		t.Error("a part of the digest was enough")
	}
}

func TestW14(t *testing.T) {
	c := testCompiler(t)
	ctx := context.Background()
	openNew := func() (*Module, *Guest) {
		m, err := c.Compile(ctx, scanner().bytes(), "")
		if err != nil {
			t.Fatal(err)
		}
		g, err := m.Open(ctx, Binding{Name: "test", Isolation: PerRequest, Limits: Limits{Instances: 4, Wait: 10 * time.Second, Timeout: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		return m, g
	}
	var mu sync.RWMutex // a plan that is swapped: calls hold it while they run
	m, g := openNew()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				mu.RLock()
				_, err := g.Call(ctx, hook, "", Sender{}, record(100), nil)
				mu.RUnlock()
				if err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
			}
		})
	}
	var early, late int64
	files := func() int { f, _ := os.ReadDir("/proc/self/fd"); return len(f) }
	fds := 0
	for i := range 100 {
		m2, g2 := openNew()
		mu.Lock()
		oldM, oldG := m, g
		m, g = m2, g2
		mu.Unlock()
		oldG.Close()
		oldM.Close()
		if i == 20 || i == 99 {
			debug.FreeOSMemory()
			early, late = late, resident()
			if i == 20 {
				fds = files()
			}
		}
	}
	close(stop)
	wg.Wait()
	g.Close()
	m.Close()
	t.Logf("resident set after 20 reloads %d KiB, after 100 %d KiB", early>>10, late>>10)
	if late > early+early/20+4<<20 {
		t.Errorf("the resident set grew from %d to %d MiB", early>>20, late>>20)
	}
	if n := files(); n > fds+8 {
		t.Errorf("%d open files after 20 reloads, %d after 100", fds, n)
	}
}

func resident() int64 {
	b, _ := os.ReadFile("/proc/self/statm")
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.ParseInt(f[1], 10, 64)
	return n * int64(os.Getpagesize())
}

// TestW15 gives every module of the specification's tests, and of the fuzz
// cases that once broke the engine, to the compiler as if it were a guest's,
// and then meters and compiles it without the ABI. TestMeterSpec runs them.
func TestW15(t *testing.T) {
	c := testCompiler(t)
	dir, err := wazeroDir()
	if err != nil {
		t.Fatal(err)
	}
	cases, err := filepath.Glob(filepath.Join(dir, "internal/integration_test/fuzzcases/testdata/*.wasm"))
	if err != nil || len(cases) == 0 {
		t.Fatalf("no fuzz cases in %s: %v", dir, err)
	}
	parsed, compiled, seen := 0, 0, 0
	for _, file := range append(specFiles(t, "*.wasm"), cases...) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		seen++
		m, err := c.Compile(context.Background(), b, "")
		var r *Refusal
		if !errors.As(err, &r) {
			t.Errorf("%s: compiled %v, error %v", file, m != nil, err)
		}
		if p, err := parse(b); err == nil {
			parsed++
			if _, err := compileRaw(p); err == nil {
				compiled++
			}
		}
	}
	t.Logf("%d modules: %d decoded, %d compiled", seen, parsed, compiled)
	if seen < 1000 || compiled < 500 {
		t.Errorf("only %d of %d modules compiled", compiled, seen)
	}
}

func TestW17(t *testing.T) {
	sink := &logSink{}
	e := guestEncoder(func(e *encoder) { e.imported(abi.ImportModule, "log", vI32+vI32+vI32, "") })
	e.memory.min = 17
	e.hook("\x01\x7f",
		loop(i32(1), i32(1<<16), i32(1<<20), call(0), get(1), i32(1), ins(opAdd32, opLocalTee, 1), i32(1_000_000), ins(0x49, opBrIf, 0)),
		i64(0))
	g := open(t, e.bytes(), func(b *Binding) { b.Log, b.Limits.Fuel, b.Limits.Timeout = slogger(sink), 1<<40, time.Minute })
	if _, err := g.Call(context.Background(), hook, "", Sender{}, nil, nil); err != nil {
		t.Fatal(err)
	}
	s := g.Stats()
	if int(s.LogsDropped)+len(sink.lines) != 1_000_000 || len(sink.lines) < 64 || s.LogsDropped < 900_000 {
		t.Errorf("%d lines, %d dropped", len(sink.lines), s.LogsDropped)
	}
	for _, line := range sink.lines {
		if len(line) > MaxLine {
			t.Fatalf("a line of %d bytes", len(line))
		}
	}
	// Under ordinary limits the flood ends by fuel or time.
	g = open(t, e.bytes(), func(b *Binding) { b.Limits.Timeout = 5 * time.Millisecond })
	if _, err := g.Call(context.Background(), hook, "", Sender{}, nil, nil); err == nil {
		t.Error("a million lines within 5 ms")
	}
}
