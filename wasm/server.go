package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm/linear"
	"github.com/weir-edge/weir/wasm/wasi"
)

// MCP servers as modules of WASI preview 1: each instance is what a process is to other
// servers. They share the validator, the meter and the machine code with guests, and of their
// host functions the one that sends HTTP requests.

// Limits of a server.
const (
	MaxServerMemory = 256 << 20 // bytes that the memory of one instance may be set to
	MaxServerModule = 32 << 20  // bytes of its module
)

// Fuel of a server. It is not bounded over an instance's life, since a server lives as long
// as its session; bounded is what it uses at a stretch.
const (
	// burst is what a server may use at once. Wall time refills it, at burst a second: who
	// computes for seconds ends, who waits meanwhile does not.
	burst = 1_000_000_000

	// askFuel is what an HTTP request costs by itself, so that nobody has requests refused
	// faster than a thousand a second; hereFuel is what it costs to ask for one, or for an
	// answer, in vain: about as much as it takes.
	askFuel  = 1_000_000
	hereFuel = 500

	// stretch is what it may use without having slept, so that an endless loop ends on a
	// machine, too, that does not run burst a second. A second of sleep refills it.
	stretch = 10 * burst
)

// CompileServer is Compile for a server.
func (c *Compiler) CompileServer(ctx context.Context, binary []byte, digest string) (*Module, error) {
	got, err := digested(binary, digest)
	if err != nil {
		return nil, err
	}
	return c.compileAs(ctx, got, func() (*Module, error) { return prepareServer(binary, got) })
}

// CheckServer judges a module as CompileServer does, short of making machine code of it. An
// error is a *Refusal.
func CheckServer(binary []byte) error {
	parsed, err := parseServer(binary)
	if err == nil {
		err = (&Module{}).serverContract(parsed)
	}
	return err
}

func prepareServer(binary []byte, digest string) (*Module, error) {
	parsed, err := parseServer(binary)
	if err != nil {
		return nil, err
	}
	m := &Module{Digest: digest, Size: len(binary), server: true}
	if err := m.serverContract(parsed); err != nil {
		return nil, err
	}
	m.polls = parsed.byGo && slices.Contains(m.Imports, wasi.Module+".poll_oneoff")
	keep := func(name string) bool { return name == abi.ExportMemory || name == exportMain }
	m.metered, m.mutable, err = meter(parsed, metering{pages: MaxServerMemory / pageSize, keep: keep, join: true})
	return m, err
}

// exportMain is the function that is the whole life of a server.
const exportMain = "_start"

// serverContract checks what a server imports and exports.
func (m *Module) serverContract(p *module) error {
	if p.exported(abi.ExportABI) && !p.exported(exportMain) {
		return &Refusal{"export", abi.ExportABI + " is there and " + exportMain + " is not: this is a guest, which an EdgeFilter puts into an edge, and no MCP server"}
	}
	functions := wasi.Functions()
	for _, e := range p.imports {
		name := e.module + "." + e.name
		said := edge.Printable(name) // a stranger's word, which may hold lines
		i := slices.IndexFunc(functions, func(f wasi.Function) bool { return e.module == wasi.Module && f.Name == e.name })
		switch {
		case e.module == wasi.Module && strings.HasPrefix(e.name, "sock_"):
			return &Refusal{"import", said + ": a server in WebAssembly has no sockets: build it without what listens (in Go: net.Listen, http.ListenAndServe)"}
		case strings.HasPrefix(e.module, "wasi:") || e.module == "wasi_unstable":
			return &Refusal{"import", fmt.Sprintf("%s: of another WASI than preview 1 (%s)", said, wasi.Module)}
		}
		var is funcType
		if i >= 0 {
			is = funcType{[]byte(functions[i].Params), []byte(functions[i].Results)}
		} else if params, ok := outsideFunctions[e.name]; ok && e.module == abi.ImportModule {
			is = funcType{[]byte(params), []byte(vI64)}
		} else {
			return &Refusal{"import", "there is no host function " + said + " for a server"}
		}
		if e.kind != kindFunc {
			return &Refusal{"import", said + " is not a function: only functions can be imported"}
		}
		if typ := p.types[e.typ]; !typ.equal(string(is.params), string(is.results)) {
			return &Refusal{"import", fmt.Sprintf("%s is imported as %v and is %v", said, typ, is)}
		}
		m.Imports = append(m.Imports, name)
	}
	memory, main := false, false
	for _, e := range p.exports {
		switch {
		case strings.HasPrefix(e.name, "weir."):
			return &Refusal{"export", fmt.Sprintf("%q: names that begin with weir. are kept", e.name)}
		case e.name == abi.ExportMemory && e.kind == kindMemory:
			memory = true
		case e.name == exportMain && e.kind == kindFunc && p.types[p.allFuncs[e.index]].equal("", ""):
			main = true
		}
	}
	switch {
	case !main:
		return &Refusal{"export", exportMain + " is missing: this is no program but a library; build a command (Go: without -buildmode=c-shared; Rust: a binary)"}
	case !memory:
		return &Refusal{"export", "memory is missing"}
	}
	m.Minimum = uint32(min(uint64(p.allMemories[0].min)*pageSize, 1<<32-1))
	if p.allMemories[0].min > MaxServerMemory/pageSize {
		return &Refusal{"memory", fmt.Sprintf("%d pages of 64 KiB at the start: at most %d are allowed", p.allMemories[0].min, MaxServerMemory/pageSize)}
	}
	m.hasStart = p.start >= 0
	return nil
}

// Server is a server at its place: instances of it are started, each for itself. It is safe
// for concurrent use.
type Server struct {
	module *Module
	memory uint64
	fetch  Outside // nil for one that reaches nobody

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup // instances
}

// OpenServer opens a module that CompileServer returned, once: Close closes it. memory is
// what one instance may have, in bytes; fetch carries its HTTP requests, and nil refuses them.
func (m *Module) OpenServer(memory uint64, fetch Outside) (*Server, error) {
	switch {
	case !m.server:
		return nil, errors.New("server: the module was compiled as a guest")
	case memory > MaxServerMemory || memory < pageSize:
		return nil, fmt.Errorf("server: a memory of %d bytes: at least %d and at most %d are possible", memory, pageSize, MaxServerMemory)
	case uint64(m.Minimum) > memory:
		return nil, fmt.Errorf("server: it starts with %d bytes of memory: its limit is %d", m.Minimum, memory)
	}
	s := &Server{module: m, memory: memory / pageSize * pageSize, fetch: fetch}
	ctx := context.Background()
	host := m.runtime.NewHostModuleBuilder(wasi.Module)
	for _, f := range wasi.Functions() {
		if slices.Contains(m.Imports, wasi.Module+"."+f.Name) {
			host.NewFunctionBuilder().WithGoFunction(serverCall(f), []byte(f.Params), []byte(f.Results)).Export(f.Name)
		}
	}
	yield := m.runtime.NewHostModuleBuilder(meterModule)
	yield.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(ctx context.Context, st []uint64) {
		st[0] = serverOf(ctx).yield(int64(st[0]), int64(st[1]))
	}), []byte(vI64+vI64), []byte(vI64)).Export(meterYield)
	outside := m.runtime.NewHostModuleBuilder(abi.ImportModule)
	for name, call := range map[string]func(*Serving, []uint64){"http_call": (*Serving).outside, "answer": (*Serving).again} {
		outside.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(ctx context.Context, st []uint64) {
			call(serverOf(ctx), st)
		}), []byte(outsideFunctions[name]), []byte(vI64)).Export(name)
	}
	for _, b := range []wazero.HostModuleBuilder{host, yield, outside} {
		if _, err := b.Instantiate(ctx); err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
	}
	return s, nil
}

// serverCall is what the engine calls for a function of WASI.
func serverCall(f wasi.Function) api.GoFunc {
	return func(ctx context.Context, st []uint64) {
		in := serverOf(ctx)
		if err := f.Call(in.system, in.memory, st); err != nil {
			panic(err)
		}
	}
}

// Close waits for all instances, which whoever started them has end, and frees the module.
func (s *Server) Close() {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	s.work.Wait()
	if !was {
		s.module.Close()
	}
}

// ServerEnd is how an instance of a server ended.
type ServerEnd struct {
	Code   int    // that it exited with; -1 where it did not
	Reason string // why else: "" for an exit, "ended" for one that was asked for, and fuel, memory, stack or trap
	Detail string // what the engine says of a trap
}

// Serving is an instance of a server that runs, on a goroutine of its own.
type Serving struct {
	system *wasi.System
	ctx    *servingContext
	module api.Module
	memory api.Memory
	linear *linear.Memory
	fuel   api.MutableGlobal

	handed int64     // the slice that was given last
	tokens int64     // of burst, as they were at
	at     time.Time //
	rested int64     // of stretch
	failed error     // why yield ended it

	fetch  Outside
	answer []byte // to its last request; nil for none

	quit chan struct{} // closed when it has to end
	once sync.Once
	done chan struct{} // closed when it has ended, as end says
	end  ServerEnd
}

// servingContext carries an instance through the engine to host functions, as
// instanceContext does for guests.
type servingContext struct {
	context.Context
	in *Serving
}

func (c *servingContext) Value(any) any { return nil }

func serverOf(ctx context.Context) *Serving {
	c, ok := ctx.(*servingContext)
	if !ok {
		panic(errABI) // the engine hands contexts on as they are
	}
	return c.in
}

// Start starts an instance. The pipes of what it sees are made where they are missing, and
// are closed when it ends; Done, Slept, Spend and Waits of it are set here.
func (s *Server) Start(sees wasi.Config) (*Serving, error) {
	if err := sees.Check(); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errors.New("server: it is closed")
	}
	s.work.Add(1)
	s.mu.Unlock()
	in := &Serving{fetch: s.fetch, tokens: burst, rested: stretch, at: time.Now(), quit: make(chan struct{}), done: make(chan struct{})}
	in.ctx = &servingContext{context.Background(), in}
	for _, p := range []**wasi.Pipe{&sees.Stdin, &sees.Stdout, &sees.Stderr} {
		if *p == nil {
			*p = wasi.NewPipe()
		}
	}
	sees.Done, sees.Slept = in.quit, in.slept
	sees.Spend = in.spend
	sees.Waits = !s.module.polls
	if err := s.instantiate(in); err != nil {
		s.work.Done()
		return nil, err
	}
	in.system = wasi.New(sees)
	go func() {
		defer s.work.Done()
		in.live()
	}()
	return in, nil
}

func (s *Server) instantiate(in *Serving) (err error) {
	var failed error
	allocate := experimental.MemoryAllocatorFunc(func(_, _ uint64) experimental.LinearMemory {
		l, err := linear.New(s.memory)
		if err != nil {
			failed = err
			panic(err)
		}
		in.linear = l
		return l
	})
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("server: instantiating: %v", r)
			if failed != nil {
				err = fmt.Errorf("server: %w", failed)
			}
		}
		if err != nil && in.linear != nil {
			in.linear.Free() // the engine keeps it where it fails
		}
	}()
	ctx := experimental.WithMemoryAllocator(context.Background(), allocate)
	in.module, err = s.module.runtime.InstantiateModule(ctx, s.module.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	in.memory = in.module.ExportedMemory(abi.ExportMemory)
	in.fuel = in.module.ExportedGlobal(exportFuel).(api.MutableGlobal)
	return nil
}

// live is the life of an instance.
func (in *Serving) live() {
	var err error
	in.handed = slice
	in.fuel.Set(slice)
	for _, name := range []string{exportStart, exportMain} {
		if f := in.module.ExportedFunction(name); f != nil && err == nil {
			_, err = f.Call(in.ctx)
		}
	}
	in.end = in.ending(err)
	in.system.Close()
	_ = in.module.Close(context.Background()) // gives the memory back; it only fails in the file systems of WASI
	in.system.Stdin.CloseRead()
	in.system.Stdout.CloseWrite()
	in.system.Stderr.CloseWrite()
	close(in.done)
}

// ending says how an instance ended.
func (in *Serving) ending(err error) ServerEnd {
	var exit *wasi.Exit
	switch {
	case err == nil:
		return ServerEnd{}
	case errors.As(err, &exit):
		return ServerEnd{Code: int(exit.Code)}
	case errors.Is(err, wasi.ErrDone), in.failed == errCanceled:
		return ServerEnd{Code: -1, Reason: "ended"}
	case in.failed == errFuel:
		return ServerEnd{Code: -1, Reason: "fuel"}
	case in.failed == errDeep, strings.Contains(err.Error(), "stack overflow"):
		return ServerEnd{Code: -1, Reason: "stack"}
	}
	end := ServerEnd{Code: -1, Reason: "trap"}
	if in.linear.Refused {
		end.Reason = "memory"
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	end.Detail, _, _ = strings.Cut(strings.TrimPrefix(text, "wasm error: "), " (recovered")
	return end
}

// yield is called by an instance whose slice is used up. It ends it, or returns the next.
func (in *Serving) yield(left, depth int64) uint64 {
	now := time.Now()
	in.tokens = min(burst, in.tokens+int64(min(now.Sub(in.at), time.Second)))
	in.at = now
	used := in.handed - left
	in.tokens -= used
	in.rested -= used
	select {
	case <-in.quit:
		in.failed = errCanceled
	default:
		switch {
		case depth < 0:
			in.failed = errDeep
		case in.tokens <= 0, in.rested <= 0:
			in.failed = errFuel
		}
	}
	if in.failed != nil {
		panic(in.failed)
	}
	in.handed = slice
	return slice
}

// slept notes that the instance was asleep in the host.
func (in *Serving) slept(d time.Duration) {
	in.rested = min(stretch, in.rested+int64(min(d, time.Second))*(stretch/int64(time.Second)))
}

func (in *Serving) spend(n uint64) { in.fuel.Set(uint64(int64(in.fuel.Get()) - int64(n))) }

// outsideFunctions are the host functions for HTTP requests, with their parameters: pointers
// and lengths, as guests have them.
var outsideFunctions = map[string]string{"http_call": vI32 + vI32 + vI32 + vI32, "answer": vI32 + vI32}

// outside sends an HTTP request, and keeps the answer until the next one. The instance sleeps
// meanwhile: it has one thread.
func (in *Serving) outside(st []uint64) {
	in.spend(hereFuel)
	in.answer = nil
	request, ok := in.memory.Read(uint32(st[0]), uint32(st[1]))
	switch {
	case !ok:
		st[0] = code(abi.ErrArgument)
		return
	case in.fetch == nil:
		st[0] = code(abi.ErrDenied)
		return
	case len(request) > MaxRequest:
		st[0] = code(abi.ErrLimit)
		return
	}
	in.spend(askFuel + uint64(len(request))/16)
	ctx, cancel := context.WithTimeout(context.Background(), MaxWait)
	defer cancel()
	go func() { // ends with the request
		select {
		case <-in.quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	began := time.Now()
	answer, failed := in.fetch(ctx, bytes.Clone(request))
	in.slept(time.Since(began))
	select {
	case <-in.quit:
		in.failed = errCanceled
		panic(in.failed)
	default:
	}
	switch {
	case failed < 0:
		st[0] = code(failed)
	case len(answer) > MaxAnswer:
		st[0] = code(abi.ErrLimit)
	default:
		in.answer = answer
		st[0] = in.give(st[2], st[3])
	}
}

// again gives the answer once more, to a server that had too little room for it.
func (in *Serving) again(st []uint64) {
	in.spend(hereFuel)
	if in.answer == nil {
		st[0] = code(abi.ErrNotFound)
		return
	}
	st[0] = in.give(st[0], st[1])
}

// give writes the answer to where the server has room for it, and returns its length. Nothing
// is written where there is too little room.
func (in *Serving) give(p, room uint64) uint64 {
	n := uint64(len(in.answer))
	if n > uint64(uint32(room)) {
		return n
	}
	in.spend(n / 16)
	if !in.memory.Write(uint32(p), in.answer) {
		return code(abi.ErrArgument)
	}
	return n
}

// Stdin, Stdout and Stderr are the host's ends of the streams.
func (in *Serving) Stdin() *wasi.Pipe  { return in.system.Stdin }
func (in *Serving) Stdout() *wasi.Pipe { return in.system.Stdout }
func (in *Serving) Stderr() *wasi.Pipe { return in.system.Stderr }

// End has the instance end, wherever it is. It may be called often, and does not wait.
func (in *Serving) End() { in.once.Do(func() { close(in.quit) }) }

// Wait waits until the instance has ended, and says how.
func (in *Serving) Wait() ServerEnd {
	<-in.done
	return in.end
}
