package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/sdk/abi"
)

// The tests of this file are the rows W of the threat model, by their IDs.
// Where a row wants a figure of memory, the figure is the process's resident
// peak, which Linux starts anew on request.

// refused checks that a module is refused, with a reason that holds want.
func refused(t *testing.T, binary []byte, want string) {
	t.Helper()
	m, err := testCompiler(t).Compile(context.Background(), binary, "")
	if m != nil {
		m.Close()
	}
	var r *Refusal
	if !errors.As(err, &r) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want a refusal that says %q", err, want)
	}
}

// fails calls the hook and checks why that fails.
func fails(t *testing.T, g *Guest, want Reason) *Failure {
	t.Helper()
	_, err := g.Call(context.Background(), hook, "", Sender{}, nil, nil)
	var f *Failure
	if !errors.As(err, &f) || f.Reason != want {
		t.Fatalf("got %v, want a failure for %v", err, want)
	}
	return f
}

// peak is how far the resident set rises above what it is now while f runs, in
// bytes; 0 where that cannot be known.
func peak(t *testing.T, f func()) int64 {
	t.Helper()
	debug.FreeOSMemory()
	if os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) != nil {
		f()
		return 0
	}
	before := statusOf("VmRSS")
	f()
	return statusOf("VmHWM") - before
}

// statusOf is a figure of this process, in bytes.
func statusOf(key string) int64 {
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

func TestW01(t *testing.T) {
	e := guestEncoder().hook("", i64(0))
	e.fn("", "", "", "")
	refused(t, withLocals(e, "\xff\xff\xff\xff\x0f\x7f"), "code section: function 4 has 4294967295 locals")
	// The smallest form of it: 37 bytes or fewer, without an export.
	small := newEncoder()
	small.fn("", "", "", "")
	binary := withLocals(small, "\xff\xff\xff\xff\x0f\x7f")
	if len(binary) > 37 {
		t.Errorf("%d bytes", len(binary))
	}
	refused(t, binary, "code section")
	e = guestEncoder().hook("", i64(0))
	e.fn("", "", "", "")
	g := open(t, withLocals(e, string(append(appendU32(nil, maxLocals), typeI32))))
	if _, err := g.Call(context.Background(), hook, "", Sender{}, nil, nil); err != nil {
		t.Errorf("the most locals: %v", err)
	}
}

func TestW02(t *testing.T) {
	table := func(mins ...uint32) *encoder {
		e := guestEncoder()
		for _, n := range mins {
			e.tables = append(e.tables, tableType{typeFuncref, span{min: n}})
		}
		return e
	}
	refused(t, table(134217728).hook("", i64(0)).bytes(), "table section: a table of at least 134217728")
	refused(t, table(slicesOf(15, 10_000_000)...).hook("", i64(0)).bytes(), "table section: 15 tables")
	refused(t, table(slicesOf(8, 50_000)...).hook("", i64(0)).bytes(), "table section: tables of 150000 entries")
	// table.grow is refused to the guest, which sees -1.
	grow := table(1).hook("", i32(resultAt), ins(opRefNull, typeFuncref), i32(100_000_000), ins(opPrefixFC, fcTableGrow, 0),
		i32(-1), ins(opEq32), store8(0), result(resultAt, 1))
	g := open(t, grow.bytes())
	rise := peak(t, func() {
		if out, err := g.Call(context.Background(), hook, "", Sender{}, nil, nil); err != nil || !bytes.Equal(out, []byte{1}) {
			t.Errorf("table.grow by 100 million gives %v, %v", out, err)
		}
	})
	t.Logf("resident set: +%d KiB", rise>>10)
	if rise > 32<<20 {
		t.Errorf("the resident set rose by %d MiB", rise>>20)
	}
}

func slicesOf(n int, v uint32) []uint32 {
	s := make([]uint32, n)
	for i := range s {
		s[i] = v
	}
	return s
}

func TestW03(t *testing.T) {
	e := guestEncoder()
	e.memory.min = 65536
	refused(t, e.hook("", i64(0)).bytes(), "memory section: 65536 pages")
	grow := guestEncoder().hook("", i32(resultAt), i32(65535), ins(opMemoryGrow, 0), i32(-1), ins(opEq32), store8(0), result(resultAt, 1))
	out, err := open(t, grow.bytes()).Call(context.Background(), hook, "", Sender{}, nil, nil)
	if err != nil || !bytes.Equal(out, []byte{1}) {
		t.Errorf("memory.grow by 65535 gives %v, %v", out, err)
	}
	// A limit below what the module starts with.
	e = guestEncoder()
	e.memory.min = 100
	m, err := testCompiler(t).Compile(context.Background(), e.hook("", i64(0)).bytes(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Open(context.Background(), Binding{Name: "test"}); err == nil || !strings.Contains(err.Error(), "its limit is 4194304: raise limits.memory") {
		t.Errorf("100 pages under a limit of 4 MiB: %v", err)
	}
	// All of the memory that it may have, touched.
	all := guestEncoder().hook("\x01\x7f", i32(0), i32(1), i32(4<<20-1<<16), ins(opDrop, opDrop, opDrop),
		loop(i32(1), ins(opMemoryGrow, 0), i32(-1), ins(0x47, opBrIf, 0)),
		i32(0), i32(7), ins(opMemorySize, 0), i32(16), ins(0x74), ins(opPrefixFC, fcMemoryFill, 0),
		i32(resultAt), ins(opMemorySize, 0), store8(0), result(resultAt, 1))
	out, err = open(t, all.bytes()).Call(context.Background(), hook, "", Sender{}, nil, nil)
	if err != nil || !bytes.Equal(out, []byte{64}) {
		t.Errorf("growing up to the limit gives %v pages, %v", out, err)
	}
}

// forever is a loop without end.
func forever() []byte { return loop(ins(opBr, 0)) }

func TestW04(t *testing.T) {
	const timeout = 20 * time.Millisecond
	limit := func(b *Binding) { b.Limits.Timeout, b.Limits.Fuel, b.Limits.Init = timeout, 1<<50, timeout }
	calls := map[string]*encoder{
		"loop":          guestEncoder().hook("", forever(), i64(0)),
		"loop of fills": guestEncoder().hook("", loop(i32(0), i32(0), i32(1<<16), ins(opPrefixFC, fcMemoryFill, 0, opBr, 0)), i64(0)),
		"loop of host calls": guestEncoder(func(e *encoder) { e.imported(abi.ImportModule, "now_ms", "", vI64) }).
			hook("", loop(call(0), ins(opDrop), ins(opBr, 0)), i64(0)),
		"loop of growth": guestEncoder().hook("", loop(i32(0), ins(opMemoryGrow, 0, opDrop, opBr, 0)), i64(0)),
		"loop of shapes": guestEncoder().hook("", loop(bytes.Repeat(block(ins(opNop)), 1000), ins(opBr, 0)), i64(0)),
		"loop of a table": guestEncoder().hook("", loop(bytes.Repeat(ins(opBlock, blockVoid), 900), i32(899),
			ins(opBrTable), appendU32(nil, 1), appendU32(nil, 10), appendU32(nil, 899), bytes.Repeat(ins(opEnd), 900), ins(opBr, 0)), i64(0)),
	}
	// A tree of calls without a loop, 2^40 leaves: the engine's own limit looks
	// at loops alone.
	tree := guestEncoder()
	f := tree.fn("", "", "", "")
	for range 40 {
		f = tree.fn("", "", "", "", call(f), call(f))
	}
	calls["call tree"] = tree.hook("", call(f), i64(0))
	// Two functions that call each other by a table, without depth.
	for name, e := range calls {
		t.Run(name, func(t *testing.T) {
			g := open(t, e.bytes(), limit)
			start := time.Now()
			fails(t, g, Deadline)
			t.Logf("stopped after %v", time.Since(start))
			if s := g.Stats(); s.Retired[Deadline] == 0 {
				t.Errorf("the instance lives on: %+v", s)
			}
		})
	}
	t.Run("fuel", func(t *testing.T) {
		g := open(t, calls["loop"].bytes(), func(b *Binding) { b.Limits.Timeout, b.Limits.Fuel = time.Hour, 1_000_000 })
		fails(t, g, Fuel)
		if used := g.Stats().Fuel; used < 1_000_000 || used > 1_000_100 {
			t.Errorf("used %d of a million", used)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		g := open(t, calls["loop"].bytes(), func(b *Binding) { b.Limits.Timeout, b.Limits.Fuel = time.Hour, 1<<60 })
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		_, err := g.Call(ctx, hook, "", Sender{}, nil, nil)
		var f *Failure
		if !errors.As(err, &f) || f.Reason != Canceled {
			t.Errorf("got %v", err)
		}
	})
	// Before the first call.
	inits := map[string]func() *encoder{
		"start": func() *encoder {
			e := guestEncoder().hook("", i64(0))
			e.start = int(e.fn("", "", "", "", forever()))
			return e
		},
		"_initialize": func() *encoder {
			e := guestEncoder().hook("", i64(0))
			e.fn(abi.ExportInitialize, "", "", "", forever())
			return e
		},
		abi.ExportBuffer: func() *encoder {
			e := guestEncoder().hook("", i64(0))
			e.funcs[1].body = seq(forever(), i32(0))
			return e
		},
		abi.ExportInit: func() *encoder {
			e := guestEncoder().hook("", i64(0))
			e.funcs[2].body = seq(forever(), i64(0))
			return e
		},
		abi.ExportABI: func() *encoder {
			e := guestEncoder().hook("", i64(0))
			e.funcs[0].body = seq(forever(), i32(0))
			return e
		},
	}
	for name, make := range inits {
		t.Run(name, func(t *testing.T) {
			m, err := testCompiler(t).Compile(context.Background(), make().bytes(), "")
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			b := Binding{Name: "test"}
			limit(&b)
			if g, err := m.Open(context.Background(), b); err == nil || !strings.Contains(err.Error(), "deadline") {
				t.Errorf("opened: %v, %v", g, err)
			}
		})
	}
	// While a guest runs, the collector stops the world all the same.
	t.Run("collector", func(t *testing.T) {
		g := open(t, calls["loop"].bytes(), func(b *Binding) { b.Limits.Timeout, b.Limits.Fuel = time.Hour, 1<<60 })
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = g.Call(ctx, hook, "", Sender{}, nil, nil) })
		for range 5 {
			runtime.GC() // does not return before the guest yields
		}
		cancel()
		wg.Wait()
	})
}

func TestW05(t *testing.T) {
	e := guestEncoder().hook("", i64(0))
	for i := range 100_000 {
		e.exports = append(e.exports, exportEntry{fmt.Sprint("f", i), kindFunc, 0})
	}
	refused(t, e.bytes(), "export section: 100005 exports")
	e = guestEncoder().hook("", i64(0))
	e.types = append(e.types, make([]funcType, 50_000)...)
	refused(t, e.bytes(), "type section: 50003 types")
	name := append(appendName(nil, "name"), make([]byte, 10<<20-1000)...)
	refused(t, append(appendU32(append(guestEncoder().hook("", i64(0)).bytes(), sectionCustom), uint32(len(name))), name...), "custom section")
	refused(t, make([]byte, maxModule+1), "10485761 bytes")
	for name, bomb := range bombs() {
		t.Run(name, func(t *testing.T) { compileBomb(t, largest(bomb, false)) })
		// Copies of it up to the size of a module take longer than a test
		// should; one kind stands for the rest unless all mutants are asked for.
		if mutants(t) >= allMutants || name == "ifs" {
			t.Run(name+" in every function", func(t *testing.T) { compileBomb(t, largest(bomb, true)) })
		}
	}
}

// compileBomb compiles a module that is within the limits, for at most five
// seconds.
func compileBomb(t *testing.T, binary []byte) {
	c, err := NewCompiler(Compilation{Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	before := processorTime()
	rise := peak(t, func() {
		var m *Module
		if m, err = c.Compile(context.Background(), binary, ""); m != nil {
			m.Close()
		}
		c.Close() // waits for what is left of a compilation that took too long
	})
	used := processorTime() - before
	t.Logf("%d bytes: %v of CPU, resident set +%d MiB: %v", len(binary), used, rise>>20, err)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("within the limits, and: %v", err)
	}
	// Two workers for five seconds, one more for the last function of each,
	// and the collector.
	if used > 20*time.Second || rise > 256<<20 {
		t.Errorf("it cost %v of CPU and %d MiB", used, rise>>20)
	}
}

func TestW06(t *testing.T) {
	small := guestEncoder()
	small.hook("", i64(0))
	small.funcs[3].body = seq(get(0), call(3))
	mutual := guestEncoder()
	mutual.tables = []tableType{{typeFuncref, span{min: 1}}}
	self := mutual.fn("", vI32, vI64, "", get(0), i32(0), ins(opCallIndirect, byte(mutual.sig(vI32, vI64)), 0))
	mutual.tail = []encodedSection{{sectionElement, seq(ins(1, 0), i32(0), ins(opEnd, 1, byte(self)))}}
	mutual.hook("", get(0), call(self))
	large := guestEncoder()
	const locals = 2000 // all of them needed after the call
	body := seq()
	for i := range uint32(locals) {
		body = append(body, seq(get(0), load8(i), set(i+1))...)
	}
	body = append(body, seq(get(0), call(3), ins(opDrop))...)
	for i := range uint32(locals) {
		body = append(body, seq(get(0), get(i+1), store8(0))...)
	}
	large.fn(hook.Export(), vI32, vI64, "", body, i64(0))
	largeBinary := withLocals(large, string(append(appendU32(nil, locals), typeI32)))
	for name, binary := range map[string][]byte{"small frames": small.bytes(), "through a table": mutual.bytes(), "large frames": largeBinary} {
		t.Run(name, func(t *testing.T) {
			g := open(t, binary, func(b *Binding) { b.Limits.Timeout = 10 * time.Second })
			rise := peak(t, func() { fails(t, g, Stack) })
			t.Logf("resident set: +%d MiB", rise>>20)
			if rise > 64<<20 {
				t.Errorf("the resident set rose by %d MiB", rise>>20)
			}
		})
	}
}

func TestW07(t *testing.T) {
	imports := func(e *encoder) {
		e.imported(abi.ImportModule, "log", vI32+vI32+vI32, "")
		e.imported(abi.ImportModule, "sha256", vI32+vI32+vI32, vI32)
		e.imported(wasiModule, "fd_write", vI32+vI32+vI32+vI32, vI32)
	}
	const end = 1 << 16
	for name, body := range map[string][]byte{
		"result behind the memory":      result(end, 1),
		"result across the end":         result(end-1, 2),
		"result of 2^32-1 bytes":        result(0, 1<<32-1),
		"result at 2^32-1":              result(1<<32-1, 1),
		"result above the output limit": seq(i32(64), ins(opMemoryGrow, 0, opDrop), result(0, 1<<20+1)),
		"log across the end":            seq(i32(1), i32(end-1), i32(2), call(0), i64(0)),
		"log at -1":                     seq(i32(1), i32(-1), i32(1), call(0), i64(0)),
		"sha256 of all of 4 GiB":        seq(i32(0), i32(-1), i32(0), call(1), ins(opDrop), i64(0)),
		"sha256 to behind the end":      seq(i32(0), i32(1), i32(end-31), call(1), ins(opDrop), i64(0)),
		"fd_write vectors at the end":   seq(i32(1), i32(end-4), i32(1), i32(0), call(2), ins(opDrop), i64(0)),
		"fd_write vectors that wrap":    seq(i32(1), i32(-8), i32(3), i32(0), call(2), ins(opDrop), i64(0)),
		"fd_write count behind the end": seq(i32(1), i32(0), i32(0), i32(end-3), call(2), ins(opDrop), i64(0)),
	} {
		t.Run(name, func(t *testing.T) {
			g := open(t, guestEncoder(imports).hook("", body).bytes())
			fails(t, g, Broken)
			if s := g.Stats(); s.Retired[Broken] != 1 {
				t.Error("the instance lives on")
			}
		})
	}
	// A misaligned result that overlaps the input is nothing wrong.
	g := open(t, guestEncoder().hook("", result(bufferAt+1, 3)).bytes())
	if out, err := g.Call(context.Background(), hook, "", Sender{}, []byte("abcd"), nil); err != nil || string(out) != "bcd" {
		t.Errorf("a part of the input: %q, %v", out, err)
	}
	// A buffer outside of memory.
	e := guestEncoder().hook("", i64(0))
	e.funcs[1].body = i32(end - 1)
	m, err := testCompiler(t).Compile(context.Background(), e.bytes(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Open(context.Background(), Binding{Name: "test"}); err == nil || !strings.Contains(err.Error(), abi.ExportBuffer) {
		t.Errorf("a buffer outside of memory: %v", err)
	}
}
