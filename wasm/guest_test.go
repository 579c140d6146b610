package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/sdk/abi"
)

func TestMain(m *testing.M) {
	if os.Getenv(mutantEnv) != "" {
		os.Exit(mutantMain())
	}
	goleak.VerifyTestMain(m)
}

// scanner is what a small guest in C does in a hook: it goes over the fields
// of its record, adds up what they begin with, keeps the sum, and answers with
// one operation.
func scanner() *encoder {
	e := guestEncoder()
	const i, end, n, c, shift, sum = 1, 2, 3, 4, 5, 6
	e.hook("\x06\x7f",
		i32(bufferAt), set(i),
		i32(bufferAt), get(0), ins(opAdd32), set(end),
		block(loop(
			get(i), get(end), ins(opGeU32, opBrIf, 1),
			// the key, then the length of the field
			get(i), i32(1), ins(opAdd32), set(i),
			i32(0), set(n), i32(0), set(shift),
			block(loop(
				get(i), load8(0), set(c),
				get(i), i32(1), ins(opAdd32), set(i),
				get(n), get(c), i32(0x7f), ins(0x71), get(shift), ins(0x74, 0x72), set(n),
				get(shift), i32(7), ins(opAdd32), set(shift),
				get(c), i32(0x80), ins(0x71, opBrIf, 0),
			)),
			get(sum), get(i), load8(0), ins(opAdd32), set(sum),
			get(i), get(n), ins(opAdd32), set(i),
			ins(opBr, 0),
		)),
		i32(stateAt), get(sum), store8(0),
		result(resultAt, uint32(len(scannerOps()))),
	)
	e.data = append(e.data, [2]any{resultAt, scannerOps()})
	return e
}

func scannerOps() []byte {
	arg := abi.AppendString(abi.AppendString(nil, abi.ArgName, "x-user"), abi.ArgText, "ann")
	return abi.AppendBytes(nil, abi.OpsOp, abi.AppendBytes(nil, abi.OpSetHeader, arg))
}

// record is an input of a realistic kind with n bytes of arguments.
func record(n int) []byte {
	b := abi.AppendString(nil, abi.CallTool, "github_create_issue")
	b = abi.AppendString(b, abi.CallBackend, "github")
	b = abi.AppendString(b, abi.CallMethod, "tools/call")
	p := abi.AppendString(nil, abi.PrincipalSubject, "ann")
	for _, g := range []string{"dev", "ops", "admin"} {
		p = abi.AppendString(p, abi.PrincipalGroup, g)
	}
	b = abi.AppendBytes(b, abi.CallPrincipal, p)
	for i := range 4 {
		h := abi.AppendString(nil, abi.HeaderName, fmt.Sprint("x-header-", i))
		b = abi.AppendBytes(b, abi.CallHeader, abi.AppendString(h, abi.HeaderValue, "value"))
	}
	args := `{"text":"` + strings.Repeat("a", max(n-11, 0)) + `"}`
	return abi.AppendString(b, abi.CallArguments, args)
}

func TestCall(t *testing.T) {
	g := open(t, scanner().bytes())
	for _, n := range []int{0, 100, 1 << 10, 16 << 10} {
		out, err := g.Call(context.Background(), hook, "", Sender{}, record(n), []byte("before"))
		if err != nil {
			t.Fatal(err)
		}
		if want := append([]byte("before"), scannerOps()...); !bytes.Equal(out, want) {
			t.Errorf("%d bytes: got %q, want %q", n, out, want)
		}
	}
	if out, err := g.Call(context.Background(), abi.OnEvent, "", Sender{}, nil, nil); out != nil || err != nil {
		t.Errorf("a hook that is not there gives %q, %v", out, err)
	}
	s := g.Stats()
	if s.Hooks[hook].Ops != 4 || s.Fuel == 0 || s.Live == 0 || s.Idle != s.Live {
		t.Errorf("after 4 calls: %+v", s)
	}
}

// TestCallAllocates nothing: P10 of performance.md.
func TestCallAllocates(t *testing.T) {
	for name, isolation := range map[string]Isolation{"shared": Shared, "per request": PerRequest, "per session": PerSession} {
		g := open(t, scanner().bytes(), func(b *Binding) { b.Isolation = isolation })
		in, out, ctx := record(1<<10), make([]byte, 0, 1<<10), context.Background()
		n := testing.AllocsPerRun(200, func() {
			if _, err := g.Call(ctx, hook, "s", Sender{}, in, out); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations for a call", name, n)
		}
	}
}

// counter counts its calls in a global and in memory, and returns the sum of
// both, which is its record's only byte.
func counter() *encoder {
	e := guestEncoder()
	n := e.global(typeI32, true, i32(0))
	return e.hook("",
		gget(n), i32(1), ins(opAdd32), gset(n),
		i32(stateAt), i32(stateAt), load8(0), i32(1), ins(opAdd32), store8(0),
		i32(resultAt), gget(n), i32(stateAt), load8(0), ins(opAdd32), store8(0),
		result(resultAt, 1),
	)
}

func TestIsolation(t *testing.T) {
	big := counter()
	big.memory.min = 8 // above copyBelow: mapped rather than copied
	for _, c := range []struct {
		name      string
		isolation Isolation
		sessions  []string
		want      []byte
	}{
		{"shared", Shared, []string{"a", "b", "a", "b"}, []byte{2, 4, 6, 8}},
		{"per request", PerRequest, []string{"a", "b", "a", "b"}, []byte{2, 2, 2, 2}},
		{"per session", PerSession, []string{"a", "b", "a", "b", "end a", "a"}, []byte{2, 2, 4, 4, 2}},
	} {
		for size, e := range map[string]*encoder{"small": counter(), "big": big} {
			t.Run(c.name+" "+size, func(t *testing.T) {
				g := open(t, e.bytes(), func(b *Binding) { b.Isolation = c.isolation })
				var got []byte
				for _, s := range c.sessions {
					if key, ok := strings.CutPrefix(s, "end "); ok {
						g.EndSession(key)
						continue
					}
					out, err := g.Call(context.Background(), hook, s, Sender{}, nil, nil)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, out...)
				}
				if !bytes.Equal(got, c.want) {
					t.Errorf("got %v, want %v", got, c.want)
				}
			})
		}
	}
}

// TestResetChanges looks at what a reset cannot undo: such an instance goes.
func TestResetChanges(t *testing.T) {
	grow := guestEncoder().hook("", i32(1), ins(opMemoryGrow, 0, opDrop), ins(opMemorySize, 0), i32(16), ins(0x74), ins(opDrop),
		i32(resultAt), ins(opMemorySize, 0), store8(0), result(resultAt, 1))
	table := guestEncoder()
	table.tables = []tableType{{typeFuncref, span{min: 1}}}
	table.hook("", i32(resultAt), ins(opRefNull, typeFuncref), i32(1), ins(opPrefixFC, fcTableGrow, 0), store8(0), result(resultAt, 1))
	for name, c := range map[string]struct {
		e    *encoder
		want byte
	}{"memory": {grow, 2}, "table": {table, 1}} {
		g := open(t, c.e.bytes(), func(b *Binding) { b.Isolation = PerRequest })
		for range 3 {
			out, err := g.Call(context.Background(), hook, "", Sender{}, nil, nil)
			if err != nil || len(out) != 1 || out[0] != c.want {
				t.Fatalf("%s: got %v, %v, want %d", name, out, err, c.want)
			}
		}
		if s := g.Stats(); s.Changed != 3 {
			t.Errorf("%s: %d instances went, want 3", name, s.Changed)
		}
	}
}

// TestInitTables: what the initialization puts into tables is there in every
// instance, although tables cannot be copied.
func TestInitTables(t *testing.T) {
	e := guestEncoder()
	e.tables = []tableType{{typeFuncref, span{min: 2}}}
	target := e.fn("", "", vI32, "", i32(77))
	e.exports = append(e.exports, exportEntry{"keep", kindFunc, target}) // declares the reference
	e.fn(abi.ExportInitialize, "", "", "", i32(1), ins(opRefFunc, byte(target)), ins(opTableSet, 0))
	e.hook("", i32(resultAt), i32(1), ins(opCallIndirect, byte(e.sig("", vI32)), 0), store8(0), result(resultAt, 1))
	g := open(t, e.bytes(), func(b *Binding) { b.Isolation, b.Limits.Prewarm = PerRequest, 3 })
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				out, err := g.Call(context.Background(), hook, "", Sender{}, nil, nil)
				if err != nil || !bytes.Equal(out, []byte{77}) {
					t.Errorf("got %v, %v", out, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestCloseWhileCalled(t *testing.T) {
	g := open(t, scanner().bytes())
	var wg sync.WaitGroup
	started := make(chan struct{}, 8)
	for range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				_, err := g.Call(context.Background(), hook, "", Sender{}, record(100), nil)
				if i == 0 {
					started <- struct{}{}
				}
				if errors.Is(err, errClosed) {
					return
				}
				if err != nil {
					t.Errorf("call: %v", err)
					return
				}
			}
		})
	}
	for range 8 {
		<-started
	}
	g.Close()
	wg.Wait()
	if s := g.Stats(); s.Live != 0 {
		t.Errorf("%d instances outlive their guest", s.Live)
	}
}

func TestFailureIsOverload(t *testing.T) {
	g := open(t, guestEncoder().hook("", ins(opUnreachable)).bytes())
	_, err := g.Call(context.Background(), hook, "", Sender{}, nil, nil)
	var f *Failure
	if !errors.As(err, &f) || f.Reason != Trap || !strings.Contains(f.Detail, "unreachable") {
		t.Fatalf("got %v", err)
	}
	if edge.KindOf(err) != edge.Overload {
		t.Errorf("kind %v", edge.KindOf(err))
	}
	var shown *edge.Error
	if errors.As(err, &shown) && strings.Contains(shown.Error(), "unreachable") {
		t.Errorf("a client would see %q", shown)
	}
}

func TestPolicy(t *testing.T) {
	binary := guestEncoder().hook("", ins(opUnreachable)).bytes()
	g := open(t, binary, func(b *Binding) { b.OnError[hook] = Skip })
	out, err := g.Call(context.Background(), hook, "", Sender{}, nil, []byte("x"))
	if err != nil || string(out) != "x" {
		t.Errorf("got %q, %v", out, err)
	}
	if s := g.Stats().Hooks[hook]; s.Skipped != 1 || s.Failures[Trap] != 1 {
		t.Errorf("counted %+v", s)
	}
	m, err := testCompiler(t).Compile(context.Background(), binary, "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, h := range []abi.Hook{abi.Authenticate, abi.MapIdentity, abi.OutgoingAuth} {
		b := Binding{Name: "test"}
		b.OnError[h] = Skip
		if _, err := m.Open(context.Background(), b); err == nil {
			t.Errorf("a failure in %v may be passed over", h)
		}
	}
}

func TestReject(t *testing.T) {
	g := open(t, scanner().bytes())
	if err := g.Reject(hook, Sender{}, "an operation of another hook"); edge.KindOf(err) != edge.Overload {
		t.Errorf("got %v", err)
	}
	if n := g.Stats().Hooks[hook].Failures[Broken]; n != 1 {
		t.Errorf("counted %d", n)
	}
	g = open(t, scanner().bytes(), func(b *Binding) { b.OnError[hook] = Skip })
	if err := g.Reject(hook, Sender{}, "x"); err != nil {
		t.Errorf("under Skip: %v", err)
	}
}

func TestGrants(t *testing.T) {
	binary := guestEncoder(func(e *encoder) { e.imported(abi.ImportModule, "random", vI32+vI32, vI32) }).
		hook("", i32(resultAt), i32(8), call(0), ins(opDrop), result(resultAt, 8)).bytes()
	m, err := testCompiler(t).Compile(context.Background(), binary, "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Open(context.Background(), Binding{Name: "test"}); err == nil || !strings.Contains(err.Error(), `weir_v1.random, which needs the grant "random"`) {
		t.Errorf("without the grant: %v", err)
	}
	g := open(t, binary, func(b *Binding) { b.Grants, b.Isolation = []string{abi.GrantRandom}, PerRequest })
	one, err1 := g.Call(context.Background(), hook, "", Sender{}, nil, nil)
	two, err2 := g.Call(context.Background(), hook, "", Sender{}, nil, nil)
	if err1 != nil || err2 != nil || bytes.Equal(one, two) {
		t.Errorf("random bytes %x and %x, errors %v, %v", one, two, err1, err2)
	}
}

// goGuest builds testdata/guest with the Go toolchain, once.
var goGuest = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "weir-guest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "guest.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", out, "testdata/guest/main.go")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	return os.ReadFile(out)
})

func openGo(t testing.TB, change ...func(*Binding)) *Guest {
	t.Helper()
	binary, err := goGuest()
	if err != nil {
		t.Fatal(err)
	}
	return open(t, binary, append([]func(*Binding){func(b *Binding) { b.Config = []byte(`{"deny":"delete_repo"}`) }}, change...)...)
}

func callRecord(tool string) []byte { return abi.AppendString(nil, abi.CallTool, tool) }

func TestGoGuest(t *testing.T) {
	sink := &logSink{}
	for _, isolation := range []Isolation{Shared, PerRequest, PerSession} {
		g := openGo(t, func(b *Binding) { b.Isolation, b.Log = isolation, slogger(sink) })
		subs := g.Subscriptions()
		if len(subs) != 1 || subs[0].Hook != hook || len(subs[0].Tools) != 1 || subs[0].Tools[0] != "*" {
			t.Errorf("subscriptions %+v", subs)
		}
		for range 3 {
			out, err := g.Call(context.Background(), hook, "s", Sender{}, callRecord("delete_repo"), nil)
			if err != nil || !bytes.Contains(out, []byte("not here")) {
				t.Fatalf("isolation %d: got %q, %v", isolation, out, err)
			}
			if out, err = g.Call(context.Background(), hook, "s", Sender{}, callRecord("list"), nil); err != nil || len(out) != 0 {
				t.Fatalf("isolation %d: got %q, %v", isolation, out, err)
			}
		}
		_, err := g.Call(context.Background(), hook, "s", Sender{}, callRecord("panic"), nil)
		var f *Failure
		if !errors.As(err, &f) || f.Reason != Trap || !strings.Contains(f.Detail, "asked to") {
			t.Errorf("a panic gives %v", err)
		}
		_, err = g.Call(context.Background(), hook, "s", Sender{}, callRecord("hog"), nil)
		if !errors.As(err, &f) || f.Reason != Memory && f.Reason != Deadline {
			t.Errorf("taking all memory gives %v", err)
		}
		if out, err := g.Call(context.Background(), hook, "s", Sender{}, callRecord("delete_repo"), nil); err != nil || len(out) == 0 {
			t.Errorf("after failures: %q, %v", out, err)
		}
	}
	if len(sink.lines) == 0 || sink.lines[0] != "started" {
		t.Errorf("log lines %q", sink.lines)
	}
}
