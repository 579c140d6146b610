package wasm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/need"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm/wasi"
)

const wasiP1 = "wasi_snapshot_preview1"

// serverModule is a server of one function, with functions of WASI that it imports by their
// names, in that order.
func serverModule(imports []string, locals string, body ...[]byte) []byte {
	e := newEncoder()
	for _, name := range imports {
		for _, f := range wasi.Functions() {
			if f.Name == name {
				e.imported(wasiP1, name, f.Params, f.Results)
			}
		}
	}
	e.memory = &span{min: 1}
	e.exports = append(e.exports, exportEntry{"memory", kindMemory, 0})
	e.fn("_start", "", "", locals, body...)
	return e.bytes()
}

// echoing is a server that says what it is told, until there is no more.
func echoing() []byte {
	const read, write = 0, 1
	return serverModule([]string{"fd_read", "fd_write"}, "",
		i32(0), i32(64), ins(0x36, 2, 0), i32(0), i32(4096), ins(0x36, 2, 4), // the buffer, to read into
		i32(0), i32(64), ins(0x36, 2, 16), // and to write of
		block(loop(
			i32(0), i32(0), i32(1), i32(8), call(read), ins(opBrIf, 1),
			i32(0), i32(0), ins(0x28, 2, 8), ins(0x36, 2, 20), // as much as came
			i32(0), ins(0x28, 2, 8, 0x45, opBrIf, 1),
			i32(1), i32(16), i32(1), i32(8), call(write), ins(opBrIf, 1),
			ins(opBr, 0))))
}

// openServer opens a server; what it makes is closed with the test.
func openServer(t testing.TB, binary []byte, memory uint64) *Server {
	t.Helper()
	m, err := testCompiler(t).CompileServer(context.Background(), binary, "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.OpenServer(memory, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// serving starts an instance, which ends with the test.
func (s *Server) serving(t testing.TB) *Serving {
	t.Helper()
	in, err := s.Start(wasi.Config{Args: []string{"test"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.End)
	return in
}

// within waits for the end of an instance.
func (in *Serving) within(t testing.TB, d time.Duration) ServerEnd {
	t.Helper()
	select {
	case <-in.done:
		return in.end
	case <-time.After(d):
		in.End()
		t.Fatalf("it still runs after %s", d)
		return ServerEnd{}
	}
}

// V43: an endless loop ends for want of fuel, whatever it does meanwhile; what is ended ends,
// and traps are told.
func TestServerEnds(t *testing.T) {
	for name, c := range map[string]struct {
		module []byte
		want   ServerEnd
	}{
		"an endless loop":           {serverModule(nil, "", loop(ins(opBr, 0))), ServerEnd{Code: -1, Reason: "fuel"}},
		"a loop through the host":   {serverModule([]string{"sched_yield"}, "", loop(call(0), ins(opDrop, opBr, 0))), ServerEnd{Code: -1, Reason: "fuel"}},
		"a loop over random bytes":  {serverModule([]string{"random_get"}, "", loop(i32(0), i32(60_000), call(0), ins(opDrop, opBr, 0))), ServerEnd{Code: -1, Reason: "fuel"}},
		"recursion":                 {serverModule(nil, "", call(0)), ServerEnd{Code: -1, Reason: "stack"}},
		"the end of its function":   {serverModule(nil, ""), ServerEnd{}},
		"proc_exit":                 {serverModule([]string{"proc_exit"}, "", i32(3), call(0)), ServerEnd{Code: 3}},
		"unreachable":               {serverModule(nil, "", ins(opUnreachable)), ServerEnd{Code: -1, Reason: "trap", Detail: "unreachable"}},
		"more memory than it has":   {serverModule(nil, "", i32(1024), ins(opMemoryGrow, 0, opDrop, opUnreachable)), ServerEnd{Code: -1, Reason: "memory", Detail: "unreachable"}},
		"a poll of none":            {serverModule([]string{"poll_oneoff", "proc_exit"}, "", i32(0), i32(0), i32(0), i32(0), call(0), call(1)), ServerEnd{Code: 28}},
		"a poll of a million":       {serverModule([]string{"poll_oneoff", "proc_exit"}, "", i32(0), i32(0), i32(1_000_000), i32(0), call(0), call(1)), ServerEnd{Code: 28}},
		"a pointer out of memory":   {serverModule([]string{"random_get", "proc_exit"}, "", i32(-1), i32(8), call(0), call(1)), ServerEnd{Code: 21}},
		"stdin while there is none": {serverModule([]string{"fd_read", "proc_exit"}, "", i32(0), i32(0), i32(0), i32(8), call(0), call(1)), ServerEnd{Code: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := openServer(t, c.module, 16<<20).serving(t)
			if got := in.within(t, time.Minute); got != c.want {
				t.Errorf("%+v, and should %+v", got, c.want)
			}
			if _, err := in.Stdin().Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("its stdin then: %v", err)
			}
			if b, err := io.ReadAll(in.Stdout()); err != nil || len(b) > 0 {
				t.Errorf("its stdout then: %q, %v", b, err)
			}
		})
	}
}

// asking is a server that asks others once, with what its memory begins with, and exits with
// the code that body makes of the answer's length, an i64 on the stack.
func asking(request string, size, room int, body ...[]byte) []byte {
	e := newEncoder()
	e.imported(abi.ImportModule, "http_call", vI32+vI32+vI32+vI32, vI64)
	e.imported(abi.ImportModule, "answer", vI32+vI32, vI64)
	e.imported(wasiP1, "proc_exit", vI32, "")
	e.memory = &span{min: 1}
	e.exports = append(e.exports, exportEntry{"memory", kindMemory, 0})
	e.data = append(e.data, [2]any{0, []byte(request)})
	const wrapI64 = 0xa7
	e.fn("_start", "", "", "", append([][]byte{i32(0), i32(size), i32(1024), i32(room), call(0)}, append(body, ins(wrapI64), call(2))...)...)
	return e.bytes()
}

// The HTTP requests of a server go to what carries them, with bounds; without it they are
// refused. A request ends with the instance.
func TestServerAsks(t *testing.T) {
	var got []byte
	answers := func(answer string, code int64) Outside {
		return func(_ context.Context, request []byte) ([]byte, int64) {
			got = request
			return []byte(answer), code
		}
	}
	again := func(room int) []byte {
		return append(ins(opDrop), append(i32(2048), append(i32(room), call(1)...)...)...)
	}
	for name, c := range map[string]struct {
		module []byte
		fetch  Outside
		want   int32
	}{
		"nobody carries it":          {asking("GET", 3, 8), nil, abi.ErrDenied},
		"an answer":                  {asking("GET", 3, 8), answers("12345", 0), 5},
		"too little room":            {asking("GET", 3, 4), answers("12345", 0), 5},
		"the answer again":           {asking("GET", 3, 4, again(8)), answers("12345", 0), 5},
		"again, to no memory":        {asking("GET", 3, 4, ins(opDrop), i32(-8), i32(8), call(1)), answers("12345", 0), abi.ErrArgument},
		"a refusal":                  {asking("GET", 3, 8), answers("", abi.ErrName), abi.ErrName},
		"again, after a refusal":     {asking("GET", 3, 8, again(8)), answers("", abi.ErrName), abi.ErrNotFound},
		"a request out of memory":    {asking("GET", -1, 8), answers("12345", 0), abi.ErrArgument},
		"an answer above the limit":  {asking("GET", 3, 8), answers(strings.Repeat("a", MaxAnswer+1), 0), abi.ErrLimit},
		"room that is no memory":     {asking("GET", 3, -1), answers(strings.Repeat("a", 70_000), 0), abi.ErrArgument},
		"more than a request can be": {asking("GET", MaxRequest+1, 8, i64(0), ins(opI64Add)), answers("12345", 0), abi.ErrArgument}, // the memory is smaller
	} {
		m, err := testCompiler(t).CompileServer(context.Background(), c.module, "")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s, err := m.OpenServer(16<<20, c.fetch)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		got = nil
		if end := s.serving(t).within(t, time.Minute); end != (ServerEnd{Code: int(uint32(c.want))}) {
			t.Errorf("%s: %+v, and should exit with %d", name, end, c.want)
		}
		if c.want == 5 && string(got) != "GET" {
			t.Errorf("%s: the request is %q", name, got)
		}
	}

	began := make(chan struct{})
	m, err := testCompiler(t).CompileServer(context.Background(), asking("GET", 3, 8), "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.OpenServer(16<<20, func(ctx context.Context, _ []byte) ([]byte, int64) {
		close(began)
		<-ctx.Done()
		return nil, abi.ErrTimeout
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	in := s.serving(t)
	<-began
	in.End()
	if end := in.within(t, 10*time.Second); end.Reason != "ended" {
		t.Errorf("ended while it asked: %+v", end)
	}

	// One that asks without end computes as little as it likes, and ends all the same.
	asks := 0
	m, err = testCompiler(t).CompileServer(context.Background(), asking("GET", 3, 8, ins(opDrop), loop(i32(0), i32(3), i32(1024), i32(8), call(0), ins(opDrop, opBr, 0)), i64(0)), "")
	if err != nil {
		t.Fatal(err)
	}
	if s, err = m.OpenServer(16<<20, func(context.Context, []byte) ([]byte, int64) { asks++; return nil, abi.ErrDenied }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if end := s.serving(t).within(t, time.Minute); end.Reason != "fuel" || asks > 2*burst/askFuel+stretch/askFuel {
		t.Errorf("after %d refusals it ended so: %+v", asks, end)
	}
	// So does one whose requests nobody carries, and one that asks for an answer that there is none of.
	for name, body := range map[string][]byte{
		"requests": loop(i32(0), i32(3), i32(1024), i32(8), call(0), ins(opDrop, opBr, 0)),
		"answers":  loop(i32(1024), i32(8), call(1), ins(opDrop, opBr, 0)),
	} {
		if end := openServer(t, asking("GET", 3, 8, ins(opDrop), body, i64(0)), 16<<20).serving(t).within(t, 5*time.Second*heavier); end.Reason != "fuel" {
			t.Errorf("%s without end: %+v", name, end)
		}
	}
}

// A loop that does not use its fuel faster than wall time refills it ends as well, unless it
// sleeps; a server that sleeps has all its fuel back.
func TestServerStretch(t *testing.T) {
	in := &Serving{tokens: burst, rested: stretch, at: time.Now(), handed: slice, quit: make(chan struct{})}
	spend := func(n int, rest time.Duration) (failed any) {
		defer func() { failed = recover() }()
		for range n {
			in.at = in.at.Add(-time.Duration(slice)) // as much wall time as fuel
			in.yield(0, 0)
			if rest > 0 {
				in.slept(rest)
			}
		}
		return nil
	}
	if failed := spend(2*stretch/slice, time.Duration(slice)/9); failed != nil {
		t.Errorf("one that sleeps a tenth of the time: %v", failed)
	}
	in.rested = stretch
	if failed := spend(stretch/slice+1, 0); failed != errFuel {
		t.Errorf("one that does not: %v", failed)
	}
}

// waiting is a server that waits for input, without a clock, and exits with 9 when there is
// some.
func waiting() []byte {
	e := newEncoder()
	for _, f := range wasi.Functions() {
		if f.Name == "poll_oneoff" || f.Name == "proc_exit" {
			e.imported(wasiP1, f.Name, f.Params, f.Results)
		}
	}
	e.memory = &span{min: 1}
	e.exports = append(e.exports, exportEntry{"memory", kindMemory, 0})
	sub := make([]byte, 48)
	sub[8] = 1 // to read from descriptor 0
	e.data = append(e.data, [2]any{0, sub})
	poll, exit := uint32(0), uint32(1)
	if e.imports[0].name != "poll_oneoff" {
		poll, exit = 1, 0
	}
	e.fn("_start", "", "", "", i32(0), i32(256), i32(1), i32(512), call(poll), ins(opDrop), i32(9), call(exit))
	return e.bytes()
}

// V43: a server that waits lives and takes no processor, however long; its input wakes it,
// and the end of its session ends it.
func TestServerWaits(t *testing.T) {
	s := openServer(t, waiting(), 16<<20)
	first, second := s.serving(t), s.serving(t)
	time.Sleep(50 * time.Millisecond)
	before := processTime()
	time.Sleep(time.Second)
	if used := processTime() - before; used > 100*time.Millisecond {
		t.Errorf("two that wait for a second take %s", used)
	}
	select {
	case <-first.done:
		t.Fatalf("it has ended: %+v", first.end)
	default:
	}
	if _, err := first.Stdin().Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if got := first.within(t, 10*time.Second); got.Code != 9 {
		t.Errorf("woken by input: %+v", got)
	}
	second.End()
	if got := second.within(t, 10*time.Second); got.Reason != "ended" {
		t.Errorf("ended while it waits: %+v", got)
	}
	loop := openServer(t, serverModule([]string{"sched_yield"}, "", loop(call(0), ins(opDrop, opBr, 0))), 16<<20).serving(t)
	loop.End()
	if got := loop.within(t, 10*time.Second); got.Reason != "ended" {
		t.Errorf("ended while it loops: %+v", got)
	}
}

// TestServerThatAsksForATerminal is a program that asks whether its standard input is one and then
// reads it: a read waits, unless the Go toolchain made the program and it can poll, or it has said
// that it polls.
func TestServerThatAsksForATerminal(t *testing.T) {
	for _, c := range []struct {
		imports string // and fd_fdstat_get, fd_read and proc_exit
		section string // that says who made it
		first   []byte
		want    int // error number of the read
	}{
		{"sched_yield", "", nil, 0},
		{"poll_oneoff", "", nil, 0},
		{"poll_oneoff", "rustc\x061.90.0", nil, 0},
		{"sched_yield", "Go cmd/compile\x06go1.26", nil, 0},
		{"poll_oneoff", "Go cmd/compile\x06go1.26", nil, 6},                                           // EAGAIN
		{"fd_fdstat_set_flags", "", append(append(i32(0), i32(4)...), append(call(3), opDrop)...), 6}, // NONBLOCK
	} {
		binary := serverModule([]string{"fd_fdstat_get", "fd_read", "proc_exit", c.imports}, "",
			c.first, i32(0), i32(128), call(0), ins(opDrop),
			i32(0), i32(64), ins(0x36, 2, 0), i32(0), i32(4096), ins(0x36, 2, 4), // the buffer
			i32(0), i32(0), i32(1), i32(8), call(1), call(2))
		if c.section != "" {
			section := append(appendName(nil, "producers"), c.section...)
			binary = append(appendU32(append(binary, sectionCustom), uint32(len(section))), section...)
		}
		in := openServer(t, binary, 16<<20).serving(t)
		if c.want == 0 {
			select {
			case <-in.done:
				t.Fatalf("it has ended: %+v", in.end)
			case <-time.After(100 * time.Millisecond):
			}
			if _, err := in.Stdin().Write([]byte("\n")); err != nil {
				t.Fatal(err)
			}
		}
		if got := in.within(t, 10*time.Second); got.Code != c.want {
			t.Errorf("%s of %q: %+v, want %d", c.imports, c.section, got, c.want)
		}
	}
}

// A name that a module imports stands on one line of an error, and steers no terminal.
func TestNamesOfImportsStayOnTheirLine(t *testing.T) {
	const forged = "log for a server\nnext: run `x`\x1b[2J\u202e"
	for what, add := range map[string]func(*encoder){
		"a name":          func(e *encoder) { e.imported("env", forged, "", "") },
		"a module":        func(e *encoder) { e.imported("env\nnext: run `x`", "log", "", "") },
		"another WASI":    func(e *encoder) { e.imported("wasi:"+forged, "log", "", "") },
		"a socket":        func(e *encoder) { e.imported(wasiP1, "sock_"+forged, "", "") },
		"an endless name": func(e *encoder) { e.imported("env", strings.Repeat("a", 1000), "", "") },
	} {
		server := newEncoder()
		add(server)
		server.memory = &span{min: 1}
		server.exports = append(server.exports, exportEntry{"memory", kindMemory, 0})
		server.fn("_start", "", "", "")
		_, asServer := testCompiler(t).CompileServer(context.Background(), server.bytes(), "")
		_, asGuest := testCompiler(t).Compile(context.Background(), guestEncoder(add).bytes(), "")
		for form, err := range map[string]error{"server": asServer, "guest": asGuest} {
			var refusal *Refusal
			if !errors.As(err, &refusal) || refusal.Section != "import" || !strings.Contains(err.Error(), `"`) || strings.ContainsAny(err.Error(), "\n\x1b\u202e") || len(err.Error()) > 400 {
				t.Errorf("%s, %s: %v", what, form, err)
			}
		}
	}
}

// V43 and G22: what is no server of WASI preview 1 is refused before it runs, by name.
func TestServerRefused(t *testing.T) {
	module := func(change func(*encoder)) []byte {
		e := newEncoder()
		e.memory = &span{min: 1}
		change(e)
		return e.bytes()
	}
	whole := func(e *encoder) {
		e.exports = append(e.exports, exportEntry{"memory", kindMemory, 0})
		e.fn("_start", "", "", "")
	}
	importing := func(module_, name, params, results string) []byte {
		return module(func(e *encoder) { e.imported(module_, name, params, results); whole(e) })
	}
	for name, c := range map[string]struct {
		module []byte
		want   string
	}{
		"a component":            {[]byte("\x00asm\x0d\x00\x01\x00"), "components are not supported"},
		"a text":                 {[]byte("(module)"), "not a WebAssembly module"},
		"sock_accept":            {importing(wasiP1, "sock_accept", vI32+vI32+vI32, vI32), "sock_accept: a server in WebAssembly has no sockets"},
		"sock_open":              {importing(wasiP1, "sock_open", vI32, vI32), "sock_open: a server in WebAssembly has no sockets"},
		"http of another type":   {importing(abi.ImportModule, "http_call", vI32+vI32, vI64), "weir_v1.http_call is imported as"},
		"more of the host":       {importing(abi.ImportModule, "kv_get", vI32+vI32+vI32+vI32, vI64), "there is no host function weir_v1.kv_get for a server"},
		"forged http":            {importing("http", "request", vI32, vI32), "there is no host function http.request"},
		"http under WASI's name": {importing(wasiP1, "http_call", vI32+vI32+vI32+vI32, vI64), "there is no host function wasi_snapshot_preview1.http_call"},
		"what scripts import":    {importing(ScriptModule, "submit", vI32+vI32+vI32+vI32+vI32, vI64), "there is no host function weir_script_v1.submit"},
		"the meter's yield":      {importing(meterModule, meterYield, vI64+vI64, vI64), "there is no host function weir_meter.yield"},
		"an older WASI":          {importing("wasi_unstable", "fd_write", vI32+vI32+vI32+vI32, vI32), "of another WASI than preview 1"},
		"preview 2":              {importing("wasi:http/outgoing-handler@0.2.0", "handle", vI32, vI32), "of another WASI than preview 1"},
		"another type":           {importing(wasiP1, "fd_write", vI32, vI32), "is imported as"},
		"a library": {module(func(e *encoder) {
			e.exports = append(e.exports, exportEntry{"memory", kindMemory, 0})
			e.fn("_initialize", "", "", "")
		}), "_start is missing"},
		"a _start with arguments": {module(func(e *encoder) {
			e.exports = append(e.exports, exportEntry{"memory", kindMemory, 0})
			e.fn("_start", vI32, "", "")
		}), "_start is missing"},
		"no memory":                 {module(func(e *encoder) { e.fn("_start", "", "", "") }), "memory is missing"},
		"a name of the meter's":     {module(func(e *encoder) { whole(e); e.fn("weir.fuel", "", "", "") }), "names that begin with weir."},
		"more memory than possible": {module(func(e *encoder) { e.memory.min = 5000; whole(e) }), "at most 4096 are allowed"},
		"a filter":                  {guestEncoder().bytes(), "weir_abi is there and _start is not: this is a guest, which an EdgeFilter puts into an edge, and no MCP server"},
		"too large":                 {make([]byte, MaxServerModule+1), "at most 33554432 are allowed"},
	} {
		_, err := testCompiler(t).CompileServer(context.Background(), c.module, "")
		var refusal *Refusal
		if !errors.As(err, &refusal) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, and should say %q", name, err, c.want)
		}
		if again := CheckServer(c.module); fmt.Sprint(again) != fmt.Sprint(err) {
			t.Errorf("%s: checked, it says %v, and compiled %v", name, again, err)
		}
	}
	good, err := testCompiler(t).CompileServer(context.Background(), waiting(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer good.Close()
	for memory, want := range map[uint64]string{0: "at least", MaxServerMemory + 1: "at most"} {
		if _, err := good.OpenServer(memory, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a memory of %d: %v", memory, err)
		}
	}
	if _, err := good.Open(context.Background(), Binding{Name: "x"}); err == nil {
		t.Error("a server is opened as a filter")
	}
}

// Instances know nothing of each other, and of an ended one nothing is left: no goroutine (of
// which TestMain looks), no descriptor.
func TestServerInstances(t *testing.T) {
	s := openServer(t, waiting(), 16<<20)
	if in, err := s.Start(wasi.Config{Env: []string{"A=\x00"}}); err == nil {
		in.End()
		t.Error("a NUL byte in a variable is taken")
	}
	before := runtime.NumGoroutine()
	for range 50 {
		in := s.serving(t)
		in.End()
		in.within(t, 10*time.Second)
	}
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if now := runtime.NumGoroutine(); now > before {
		t.Errorf("%d goroutines are left of %d", now, before)
	}
	s.Close()
	if _, err := s.Start(wasi.Config{}); err == nil {
		t.Error("a closed server starts")
	}
}

// A server of the official Go SDK answers, and reads and writes the files that it is given.
func TestServerOfGoSDK(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute to build and to compile one")
	}
	file := filepath.Join(t.TempDir(), "server.wasm")
	build := exec.Command("go", "build", "-o", file, "./testdata/sdkserver")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=-ldflags=-s -trimpath")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in := openServer(t, module, 64<<20).serving(t)
	said := bufio.NewScanner(in.Stdout())
	ask := func(text, want string) {
		t.Helper()
		fmt.Fprintln(in.Stdin(), text)
		if !said.Scan() || !strings.Contains(said.Text(), want) {
			t.Fatalf("asked %s, it says %q and not %s", text, said.Text(), want)
		}
	}
	ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`, `"protocolVersion":"2025-11-25"`)
	fmt.Fprintln(in.Stdin(), `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	ask(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, `"name":"add"`)
	for i := range 20 { // with rests between them, in which it sleeps
		ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"add","arguments":{"a":%d,"b":1}}}`, i+3, i), fmt.Sprintf(`"text":"%d"`, i+1))
		time.Sleep(5 * time.Millisecond)
	}
	in.Stdin().CloseWrite()
	if end := in.within(t, 10*time.Second); end != (ServerEnd{}) {
		t.Errorf("at the end of its input: %+v", end)
	}
}

// A module whose data does not fit into its memory fails at each start, when some of that is
// written already: nothing is left of the instance, be it of a server or of a filter.
func TestFailedStartsLeaveNothing(t *testing.T) {
	need.Of(t, resident() != 0, "what a process takes is not told here")
	const pages, starts = 64, 50
	filled := func(e *encoder) []byte {
		e.memory = &span{min: pages}
		e.data = append(e.data, [2]any{0, bytes.Repeat([]byte("x"), pages*pageSize)}, [2]any{pages*pageSize - 1, []byte("xx")})
		return e.bytes()
	}
	e := newEncoder()
	e.exports = append(e.exports, exportEntry{"memory", kindMemory, 0})
	e.fn("_start", "", "", "")
	server := openServer(t, filled(e), 16<<20)
	guest, err := testCompiler(t).Compile(context.Background(), filled(guestEncoder()), "")
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	for what, start := range map[string]func() error{
		"a server": func() error { _, err := server.Start(wasi.Config{}); return err },
		"a filter": func() error { _, err := guest.Open(context.Background(), Binding{Name: "test"}); return err },
	} {
		before := resident()
		for range starts {
			if err := start(); err == nil || !strings.Contains(err.Error(), "out of bounds memory access") {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if grown := resident() - before; grown > starts/2*pages*pageSize {
			t.Errorf("%s: %d MiB are left of %d starts", what, grown>>20, starts)
		}
	}
}

// A file of machine code that is damaged, or a directory that cannot be used, costs the time to
// compile and nothing else; it is told once, and the next start has whole files again.
func TestMachineCodeIsDamaged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "code")
	kept := func() []string {
		files, _ := filepath.Glob(filepath.Join(dir, "wazero-*", "*"))
		return files
	}
	run := func(wantLines int, modules ...[]byte) {
		t.Helper()
		sink := &logSink{}
		c, err := NewCompiler(Compilation{Dir: dir, Timeout: 2 * time.Minute, Log: slogger(sink)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, binary := range modules {
			m, err := c.CompileServer(context.Background(), binary, "")
			if err != nil {
				t.Fatal(err)
			}
			s, err := m.OpenServer(1<<20, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			in := s.serving(t)
			_, _ = in.Stdin().Write([]byte("hello"))
			in.Stdin().CloseWrite()
			if said, err := io.ReadAll(in.Stdout()); err != nil || string(said) != "hello" {
				t.Errorf("it says %q, %v", said, err)
			}
		}
		if lines := sink.lines; len(lines) != wantLines {
			t.Errorf("the log has %q", lines)
		}
	}
	other := bytes.Replace(echoing(), i32(4096), i32(2048), 1)
	run(0, echoing())
	if len(kept()) != 1 {
		t.Fatalf("kept: %q", kept())
	}
	path := kept()[0]
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := func(at int) []byte {
		b := bytes.Clone(whole)
		b[at] ^= 0xff
		return b
	}
	for name, bad := range map[string][]byte{"empty": {}, "cut off": whole[:len(whole)/2], "a name that is another": flipped(0), "code that is another": flipped(len(whole) / 2)} {
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		run(1, echoing(), other)
		run(0, echoing())
		if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, whole) {
			t.Errorf("%s: the next start leaves %d bytes of %d, %v", name, len(again), len(whole), err)
		}
	}
	// What the engine refuses is the module's own fault, and empties nothing.
	c, err := NewCompiler(Compilation{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var refused *Refusal
	if _, err := c.CompileServer(context.Background(), serverModule(nil, "", ins(opDrop)), ""); !errors.As(err, &refused) || len(kept()) != 1 {
		t.Errorf("%v; %d files are kept", err, len(kept()))
	}
	// The directory is taken away from a compiler.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, binary := range [][]byte{echoing(), other} {
		m, err := c.CompileServer(context.Background(), binary, "")
		if err != nil {
			t.Fatalf("without its directory: %v", err)
		}
		m.Close()
	}
}
