package wasm

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/sdk/abi"
)

// MaxMemory is the most that the memory of one instance may be set to, in bytes.
const MaxMemory = 64 << 20

const pageSize = 64 << 10

// Compilation says how modules are compiled.
type Compilation struct {
	// Dir is a directory for machine code, which only this user may write to;
	// it is made when missing, and keeps 2 GiB. "" keeps machine code in memory alone.
	Dir string

	Workers int           // modules compiled at a time; 1 when 0
	Timeout time.Duration // of one module; 10s when 0, which is several times what 5 MiB take

	Log *slog.Logger // is told once where Dir can no longer be used; nil for nobody
}

// Compiler turns modules into machine code. It is safe for concurrent use.
type Compiler struct {
	dir     string // that the first of caches is in; "" for none
	log     *slog.Logger
	timeout time.Duration
	slots   chan struct{}
	work    sync.WaitGroup
	mu      sync.Mutex
	closed  bool
	caches  []wazero.CompilationCache // of which the last is in use
}

// NewCompiler returns a compiler. It fails when the directory cannot be used
// or when others could put machine code into it.
func NewCompiler(c Compilation) (*Compiler, error) {
	cache := wazero.NewCompilationCache()
	if c.Dir != "" {
		if err := privateDir(c.Dir); err != nil {
			return nil, fmt.Errorf("wasm: cache of machine code: %w", err)
		}
		var err error
		if cache, err = wazero.NewCompilationCacheWithDir(c.Dir); err != nil {
			return nil, fmt.Errorf("wasm: cache of machine code: %w", err)
		}
	}
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Compiler{caches: []wazero.CompilationCache{cache}, dir: c.Dir, log: c.Log, timeout: c.Timeout, slots: make(chan struct{}, max(c.Workers, 1))}, nil
}

// privateDir makes dir when it is missing. What lies in it is run without
// further checks, so that nobody else may write to it.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if runtime.GOOS != "windows" && info.Mode()&fs.FileMode(0o022) != 0 {
		return fmt.Errorf("%s: others than its owner may write to it (mode %v)", dir, info.Mode().Perm())
	}
	return ownDir(dir, info)
}

// Close waits for compilations under way and frees all machine code. Guests
// must be closed before.
func (c *Compiler) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.work.Wait()
	var err error
	for _, cache := range c.caches {
		err = errors.Join(err, cache.Close(context.Background()))
	}
	return err
}

// Module is a compiled module. It is never changed and may be opened many
// times.
type Module struct {
	Digest  string        // SHA-256 of the module as it came, in hexadecimal
	Size    int           // of it, in bytes
	Hooks   []abi.Hook    // that it has a function for
	Imports []string      // host functions that it asks for, as MODULE.NAME, in the order of the module
	Minimum uint32        // of its memory, in bytes
	Elapsed time.Duration // that checking and compiling took

	compiler *Compiler
	cache    wazero.CompilationCache
	metered  []byte
	runtime  wazero.Runtime        // keeps the machine code
	compiled wazero.CompiledModule //
	mutable  int
	hasStart bool
	hasInit  bool

	interpreter bool // made by CompileInterpreter
	server      bool // made by CompileServer
	polls       bool // a server whose runtime polls standard input where a read of it would wait
}

// Compile checks a module against its digest and the limits, meters and
// compiles it. digest is its SHA-256 in hexadecimal, "" for any. An error is a
// *Refusal when the module is at fault; the others say that the time was over,
// or that the digest is another.
func (c *Compiler) Compile(ctx context.Context, binary []byte, digest string) (*Module, error) {
	got, err := digested(binary, digest)
	if err != nil {
		return nil, err
	}
	return c.compileAs(ctx, got, func() (*Module, error) { return prepare(binary, got, false) })
}

// digested returns the digest of a module. It fails where that is not the one asked for;
// "" asks for none.
func digested(binary []byte, digest string) (string, error) {
	sum := sha256.Sum256(binary)
	got := hex.EncodeToString(sum[:])
	if digest != "" && subtle.ConstantTimeCompare([]byte(got), []byte(strings.ToLower(digest))) != 1 {
		return "", fmt.Errorf("module: its sha256 is %s, and %s is asked for", got, digest)
	}
	return got, nil
}

// compileAs compiles what prepare returns, in one of the compiler's slots.
func (c *Compiler) compileAs(ctx context.Context, got string, prepare func() (*Module, error)) (*Module, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("module %.12s: waiting to be compiled: %w", got, ctx.Err())
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.slots
		return nil, errors.New("module: the compiler is closed")
	}
	c.work.Add(1)
	c.mu.Unlock()

	// The goroutine ends with the engine's work on one function after ctx
	// does; until then it keeps its slot, so that modules that take too long
	// do not add up.
	type result struct {
		m   *Module
		err error
	}
	done := make(chan result, 1)
	var settled atomic.Bool // by whoever came first: the goroutine or the end of ctx
	go func() {
		defer c.work.Done()
		defer func() { <-c.slots }()
		m, err := c.compile(ctx, got, prepare)
		if !settled.CompareAndSwap(false, true) && m != nil {
			m.Close()
		}
		done <- result{m, err}
		if c.dir != "" && err == nil {
			prune(c.dir, maxKept) // nobody waits for it but who is compiled next
		}
	}()
	select {
	case r := <-done:
		return r.m, r.err
	case <-ctx.Done():
		if settled.CompareAndSwap(false, true) {
			return nil, fmt.Errorf("module %.12s: compiling: %w", got, ctx.Err())
		}
		r := <-done
		return r.m, r.err
	}
}

// Close gives up the machine code, which goes when the guests that use it are
// closed too.
func (m *Module) Close() {
	ctx := context.Background()
	_ = m.compiled.Close(ctx) // neither ever fails
	_ = m.runtime.Close(ctx)
}

// prepare checks and meters a module.
func prepare(binary []byte, digest string, interpreter bool) (*Module, error) {
	parsed, err := parse(binary)
	if err != nil {
		return nil, err
	}
	m := &Module{Digest: digest, Size: len(binary), interpreter: interpreter}
	if err := m.contract(parsed); err != nil {
		return nil, err
	}
	m.metered, m.mutable, err = meter(parsed, metering{pages: MaxMemory / pageSize, keep: exported, join: interpreter})
	return m, err
}

func (c *Compiler) compile(ctx context.Context, digest string, prepare func() (*Module, error)) (_ *Module, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &Refusal{"module", fmt.Sprintf("the engine fails on it: %v", r)}
		}
	}()
	start := time.Now()
	m, err := prepare()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	m.compiler, m.cache = c, c.caches[len(c.caches)-1]
	inDir := c.dir != "" && len(c.caches) == 1
	c.mu.Unlock()
	err = m.build(ctx)
	if err != nil && inDir && ctx.Err() == nil {
		// The module may be good, and what is kept in the directory damaged, or without room.
		failed := err
		m.cache = wazero.NewCompilationCache()
		if err = m.build(ctx); err == nil {
			c.leaveDir(m.cache, failed)
		} else {
			_ = m.cache.Close(context.Background()) // nothing is in it
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("module %.12s: compiling: %w", digest, ctx.Err())
		}
		text, _, _ := strings.Cut(err.Error(), "\n")
		return nil, &Refusal{"module", text}
	}
	m.Elapsed = time.Since(start)
	if m.interpreter || m.server {
		m.metered = nil // nobody compiles it again
	}
	return m, nil
}

// build has the engine make machine code, or take what its cache has.
func (m *Module) build(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the engine fails on it: %v", r)
		}
	}()
	config := m.config()
	if m.server {
		config = config.WithMemoryLimitPages(MaxServerMemory / pageSize)
	}
	rt := wazero.NewRuntimeWithConfig(ctx, config)
	compiled, err := rt.CompileModule(experimental.WithCompilationWorkers(ctx, 2), m.metered)
	if err != nil {
		_ = rt.Close(context.Background())
		return err
	}
	m.runtime, m.compiled = rt, compiled
	return nil
}

// leaveDir keeps machine code in memory from now on, and empties the directory: which of its
// files is damaged, only the engine knows, and the next start fills it again.
func (c *Compiler) leaveDir(memory wazero.CompilationCache, failed error) {
	c.mu.Lock()
	c.caches = append(c.caches, memory)
	first := len(c.caches) == 2
	c.mu.Unlock()
	if first {
		prune(c.dir, 0)
		text, _, _ := strings.Cut(failed.Error(), "\n")
		c.log.Warn("the directory of machine code is emptied, and not used until the next start: see that it is there, may be written to and has room", "dir", c.dir, "error", text)
	}
}

func (m *Module) config() wazero.RuntimeConfig {
	return wazero.NewRuntimeConfig().WithCompilationCache(m.cache).WithCoreFeatures(api.CoreFeaturesV2).
		WithMemoryLimitPages(MaxMemory / pageSize).WithDebugInfoEnabled(false)
}

// exported says which exports of a guest the host has a use for.
func exported(name string) bool {
	return name == abi.ExportMemory || name == abi.ExportInitialize || strings.HasPrefix(name, "weir_")
}

// functions are those that the module may import.
func (m *Module) functions() []hostFunction {
	if m.interpreter {
		return append(scriptFunctions(), wasiFunctions()...)
	}
	return hostFunctions()
}

// exports are the types of the functions that the module must export, and of those
// that it may.
func (m *Module) exports() (required, optional map[string][2]string) {
	i32, i64, none := string(rune(typeI32)), string(rune(typeI64)), ""
	optional = map[string][2]string{abi.ExportInitialize: {none, none}}
	required = map[string][2]string{abi.ExportABI: {none, i32}, abi.ExportBuffer: {i32, i32}}
	if m.interpreter {
		required[exportRun], required[exportRest] = [2]string{i32, i64}, [2]string{none, none}
		return required, optional
	}
	required[abi.ExportInit] = [2]string{i32, i64}
	for h := abi.Hook(0); h < abi.Hooks; h++ {
		optional[h.Export()] = [2]string{i32, i64}
	}
	return required, optional
}

func (p *module) exported(name string) bool {
	return slices.ContainsFunc(p.exports, func(e exportEntry) bool { return e.name == name })
}

// contract checks what a module imports and exports against the ABI.
func (m *Module) contract(p *module) error {
	if p.exported(exportMain) && !p.exported(abi.ExportABI) {
		return &Refusal{"export", exportMain + " is there and " + abi.ExportABI + " is not: this is a program, such as an MCP server that `weir run` starts, and no guest for weir"}
	}
	for _, e := range p.imports {
		said := edge.Printable(e.module + "." + e.name) // a stranger's word, which may hold lines
		if e.kind != kindFunc {
			return &Refusal{"import", said + " is not a function: only functions can be imported"}
		}
		f, ok := named(m.functions(), e.module, e.name)
		if !ok {
			return &Refusal{"import", "there is no host function " + said}
		}
		if typ := p.types[e.typ]; !typ.equal(f.params, f.results) {
			return &Refusal{"import", fmt.Sprintf("%s is imported as %v and is %v", said, typ, funcType{[]byte(f.params), []byte(f.results)})}
		}
		m.Imports = append(m.Imports, e.module+"."+e.name)
	}
	required, optional := m.exports()
	memory := false
	for _, e := range p.exports {
		want, known := required[e.name]
		if !known {
			if want, known = optional[e.name]; !known {
				if e.name == abi.ExportMemory && e.kind == kindMemory {
					memory = true
				} else if strings.HasPrefix(e.name, "weir_") || strings.HasPrefix(e.name, "weir.") {
					return &Refusal{"export", fmt.Sprintf("%q is not a name of the ABI, which keeps those that begin with weir", e.name)}
				}
				continue
			}
		}
		if e.kind != kindFunc {
			return &Refusal{"export", fmt.Sprintf("%s is not a function", e.name)}
		}
		if typ := p.types[p.allFuncs[e.index]]; !typ.equal(want[0], want[1]) {
			return &Refusal{"export", fmt.Sprintf("%s is %v and must be %v", e.name, typ, funcType{[]byte(want[0]), []byte(want[1])})}
		}
		delete(required, e.name)
		if e.name == abi.ExportInitialize {
			m.hasInit = true
		} else if h, ok := abi.HookNamed(strings.TrimPrefix(e.name, "weir_")); ok {
			m.Hooks = append(m.Hooks, h)
		}
	}
	for _, name := range []string{abi.ExportABI, abi.ExportBuffer, abi.ExportInit, exportRun, exportRest} {
		if _, missing := required[name]; missing {
			return &Refusal{"export", fmt.Sprintf("%s is missing: this is no guest for weir", name)}
		}
	}
	if !memory {
		return &Refusal{"export", "memory is missing"}
	}
	for i, g := range p.allGlobals {
		if g.mutable && g.value == typeV128 {
			return &Refusal{"global", fmt.Sprintf("global %d is mutable and of type v128, which cannot be reset", i)}
		}
	}
	m.Minimum = uint32(min(uint64(p.allMemories[0].min)*pageSize, 1<<32-1))
	if p.allMemories[0].min > MaxMemory/pageSize {
		return &Refusal{"memory", fmt.Sprintf("%d pages of 64 KiB at the start: at most %d are allowed", p.allMemories[0].min, MaxMemory/pageSize)}
	}
	m.hasStart = p.start >= 0
	return nil
}
