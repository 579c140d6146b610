package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/sdk/abi"
)

// Isolation is what an instance keeps from one call to the next.
type Isolation uint8

// The ways to keep calls apart.
const (
	Shared     Isolation = iota // memory stays between calls of whoever comes next
	PerRequest                  // each call starts from memory, globals and tables as they were after initialization
	PerSession                  // each session has an instance of its own
)

// Policy is what happens to a message when a guest fails on it.
type Policy uint8

// The policies.
const (
	Deny Policy = iota // Call returns the failure
	Skip               // Call returns no record, as if the guest had nothing to say
)

// Limits of one guest. Zero values stand for the defaults.
type Limits struct {
	Memory    uint64        // bytes of one instance, at most MaxMemory; 32 MiB for a module of the Go toolchain, 4 MiB for another
	Fuel      int64         // of one call; 50 million
	Timeout   time.Duration // of a processor, in one call; 5ms
	Output    uint64        // bytes that one call may return; 1 MiB
	Input     uint64        // bytes that one call may be given; 1 MiB
	Instances int           // at once; twice the processors
	Prewarm   int           // instances that are kept ready before they are asked for; as many as there are processors, and of PerSession one
	Wait      time.Duration // for an instance to become free; Timeout, and at least 100ms: that others are at it, or that the machine is busy, is no fault of the call
	Init      time.Duration // of the initialization; 2s
	InitFuel  int64         // of the initialization; 2,000 million
	LogLines  int           // a second; 64
}

// Binding is a module's place in a plan: what it is given and what it may do.
type Binding struct {
	Name      string // of the filter, for errors, logs and the store
	Config    []byte // JSON text; nil for none
	Grants    []string
	Optional  []string // grants without which the module opens all the same: their functions say that they are denied
	Limits    Limits
	Isolation Isolation
	OnError   [abi.Hooks]Policy // never Skip for a hook of identity
	Passes    [abi.Hooks]bool   // who opens the guest passes over failures in the hook by itself

	Log    *slog.Logger                               // nil for none
	Store  edge.Store                                 // of the kv grant
	Keys   map[string]edge.Secret                     // of the keys grant, by the names that the guest uses
	Metric func(name string, gauge bool, delta int64) // of the metrics grant; safe for concurrent use

	// Fetch makes an HTTP request, of the http grant, and Tool calls a tool, of the
	// tools grant. Requests and answers are records (ABI.md, asking others). nil for nobody.
	Fetch, Tool Outside

	// Emit tells of what happened, of the events grant: data is the guest's own
	// bytes. It returns 0 or one of abi.Err…, and is safe for concurrent use.
	Emit func(ctx context.Context, hook abi.Hook, name string, data []byte) int64
}

// Guest is a module at its place, ready to be called. It is safe for
// concurrent use.
type Guest struct {
	module   *Module
	binding  Binding
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	image    *image // nil when instances cannot be copied
	opened   time.Time
	asked    []Subscription
	version  uint32 // of the ABI that it is made for
	has      [abi.Hooks]bool
	blocking [abi.Hooks + 1]bool // where it may wait for others

	pool     *pool
	sessions *sessions // nil unless PerSession
	patterns patterns
	maker    maker
	front    Front

	how *Interpretation // of an interpreter; nil for a filter
}

func (b *Binding) fill(goModule bool) error {
	l := &b.Limits
	if l.Memory == 0 {
		l.Memory = 4 << 20
		if goModule {
			l.Memory = 32 << 20
		}
	}
	if l.Memory > MaxMemory || l.Memory < pageSize {
		return fmt.Errorf("guest %q: a memory limit of %d bytes: at least %d and at most %d are possible", b.Name, l.Memory, pageSize, MaxMemory)
	}
	l.Memory = l.Memory / pageSize * pageSize
	l.Fuel = orElse(l.Fuel, 50_000_000)
	l.Timeout = orElse(l.Timeout, 5*time.Millisecond)
	l.Output = min(orElse(l.Output, 1<<20), MaxMemory)
	l.Input = min(orElse(l.Input, 1<<20), MaxMemory)
	l.Instances = orElse(l.Instances, 2*runtime.GOMAXPROCS(0))
	ready := runtime.GOMAXPROCS(0)
	if b.Isolation == PerSession {
		ready = 1
	}
	l.Prewarm = min(orElse(l.Prewarm, ready), l.Instances)
	l.Wait = orElse(l.Wait, max(l.Timeout, 100*time.Millisecond))
	l.Init = orElse(l.Init, 2*time.Second)
	l.InitFuel = orElse(l.InitFuel, 2_000_000_000)
	l.LogLines = orElse(l.LogLines, 64)
	if b.Log == nil {
		b.Log = slog.New(slog.DiscardHandler)
	}
	for h, policy := range b.OnError {
		if policy == Skip && abi.Hook(h).Identity() {
			return fmt.Errorf("guest %q: a failure in %v cannot be passed over: it decides who somebody is", b.Name, abi.Hook(h))
		}
	}
	return nil
}

func orElse[T int | int64 | uint64 | time.Duration](v, other T) T {
	if v <= 0 {
		return other
	}
	return v
}

// Open binds the module: it links the host functions that are granted,
// initializes the first instance and reads its subscriptions. It fails when
// the module asks for what is not granted, does not initialize within its
// limits, or refuses its configuration.
func (m *Module) Open(ctx context.Context, b Binding) (*Guest, error) {
	if err := b.fill(m.hasInit && m.imports(wasiModule)); err != nil {
		return nil, err
	}
	if uint64(m.Minimum) > b.Limits.Memory {
		return nil, fmt.Errorf("guest %q: it starts with %d bytes of memory: its limit is %d: raise limits.memory", b.Name, m.Minimum, b.Limits.Memory)
	}
	g := &Guest{module: m, binding: b, opened: time.Now(), pool: newPool(b.Limits.Instances)}
	g.front.Open(&g.binding)
	for _, h := range m.Hooks {
		g.has[h] = true
	}
	if b.Isolation == PerSession {
		g.sessions = newSessions(g.pool)
	}
	if err := g.link(); err != nil {
		g.free()
		return nil, err
	}
	first, record, err := g.newInstance(ctx)
	if err == nil {
		if err = g.subscribe(record); err != nil {
			first.close()
		}
	}
	if err != nil {
		g.free()
		return nil, err
	}
	g.version = first.version
	if first.copyable {
		g.image, first.own = first.base, false
	}
	g.pool.room()
	g.pool.put(first)
	g.grow()
	g.maker.work.Wait() // no call is the first to need them
	return g, nil
}

func (m *Module) imports(module string) bool {
	for _, name := range m.Imports {
		if strings.HasPrefix(name, module+".") {
			return true
		}
	}
	return false
}

// link makes the guest's runtime, in which there is nothing but the module and
// the host functions that it asks for and may have.
func (g *Guest) link() error {
	ctx := context.Background()
	fail := func(err error) error { return fmt.Errorf("guest %q: %w", g.binding.Name, err) }
	if g.module.interpreter { // which is opened once, in the runtime that it was compiled in
		g.runtime, g.compiled = g.module.runtime, g.module.compiled
	} else {
		g.runtime = wazero.NewRuntimeWithConfig(ctx, g.module.config())
	}
	builders := make(map[string]wazero.HostModuleBuilder)
	for _, f := range g.module.functions() {
		if !contains(g.module.Imports, f.module+"."+f.name) {
			continue
		}
		if f.grant != "" && !contains(g.binding.Grants, f.grant) {
			if !contains(g.binding.Optional, f.grant) {
				return fail(fmt.Errorf("it asks for %s.%s, which needs the grant %q", f.module, f.name, f.grant))
			}
			f.call = hostDenied(f)
		}
		b := builders[f.module]
		if b == nil {
			b = g.runtime.NewHostModuleBuilder(f.module)
			builders[f.module] = b
		}
		b.NewFunctionBuilder().WithGoFunction(hostCall(f), []byte(f.params), []byte(f.results)).Export(f.name)
	}
	yield := g.runtime.NewHostModuleBuilder(meterModule)
	yield.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(ctx context.Context, s []uint64) {
		s[0] = instanceOf(ctx).yield(int64(s[0]), int64(s[1]))
	}), []byte(vI64+vI64), []byte(vI64)).Export(meterYield)
	builders[meterModule] = yield
	for _, b := range builders {
		if _, err := b.Instantiate(ctx); err != nil {
			return fail(err)
		}
	}
	if g.compiled != nil {
		return nil
	}
	var err error
	if g.compiled, err = g.runtime.CompileModule(ctx, g.module.metered); err != nil {
		return fail(err)
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

// hostCall is what the engine calls. Arguments of 32 bits come without what
// the upper half of their slot held.
func hostCall(f hostFunction) api.GoFunc {
	return func(ctx context.Context, s []uint64) {
		for i := range len(f.params) {
			if f.params[i] == typeI32 {
				s[i] = uint64(uint32(s[i]))
			}
		}
		f.call(instanceOf(ctx), s)
	}
}

// free gives up what Open made.
func (g *Guest) free() {
	ctx := context.Background()
	if g.compiled != nil {
		_ = g.compiled.Close(ctx) // neither ever fails
	}
	if g.runtime != nil {
		_ = g.runtime.Close(ctx)
	}
	if g.image != nil {
		g.image.snapshot.Close()
	}
}

// Version is that of the ABI that the guest is made for, as weir_abi returns it.
func (g *Guest) Version() uint32 { return g.version }

// Has says whether the guest has a function for the hook.
func (g *Guest) Has(h abi.Hook) bool { return h < abi.Hooks && g.has[h] }

// Call asks the guest: in is the record for the hook, and what the guest
// returns is appended to out; nothing appended means that nothing changes.
// session is an opaque key that is only looked at under PerSession. from is who
// caused the question. A guest without the hook returns nothing.
//
// An error is a *Failure, which for clients is an edge.Error, except after
// Close. Under the policy Skip there is none, and nothing is appended.
func (g *Guest) Call(ctx context.Context, hook abi.Hook, session string, from Sender, in, out []byte) ([]byte, error) {
	if !g.Has(hook) {
		return out, nil
	}
	defer g.front.Leave()
	if err := g.front.Enter(hook, from); err != nil {
		return nil, err
	}
	n := len(out)
	got, again, f := g.ask(ctx, hook, session, in, out)
	if again {
		got, _, f = g.ask(ctx, hook, session, in, out)
	}
	if err := g.front.Settle(hook, from, f, len(got) > n); err != nil {
		return nil, err
	}
	if f != nil {
		return out, nil
	}
	return got, nil
}

// Reject is Front.Reject.
func (g *Guest) Reject(hook abi.Hook, from Sender, detail string) error {
	return g.front.Reject(hook, from, detail)
}

// ask makes one try at a call. again reports that another may succeed: the
// instance had no time or no memory left for next to no work, and nobody has
// seen anything of the call.
func (g *Guest) ask(ctx context.Context, hook abi.Hook, key string, in, out []byte) (got []byte, again bool, failure *Failure) {
	fail := func(why Reason, detail string) ([]byte, bool, *Failure) {
		return nil, false, &Failure{Guest: g.binding.Name, Hook: hook, Reason: why, Detail: detail}
	}
	if uint64(len(in)) > g.binding.Limits.Input {
		return fail(Broken, fmt.Sprintf("an input of %d bytes: its limit is %d", len(in), g.binding.Limits.Input))
	}
	// 1. An instance.
	i, s, why := g.acquire(ctx, key)
	if i == nil {
		switch {
		case ctx.Err() != nil:
			return fail(Canceled, "")
		case why != nil:
			return fail(Unmade, why.Error())
		}
		return fail(Saturated, fmt.Sprintf("none of %d instances is free: raise limits.instances, or have calls take less time", g.binding.Limits.Instances))
	}
	// 2. The call.
	got, err := i.run(ctx, hook, in, out)
	g.front.counts.fuel.Add(uint64(i.used()))
	// 3. What becomes of the instance: after an error, nothing.
	if err != nil {
		f := i.failure(hook, err)
		again = (f.Reason == Deadline || f.Reason == Memory) && !i.acted && little(g.binding.Limits.Timeout, i.used())
		g.retire(i, s, int(f.Reason))
		return nil, again, f
	}
	i.forget(len(in))
	switch {
	case s != nil:
		g.sessions.put(s, true)
	case g.binding.Isolation == PerRequest && !i.reset():
		g.retire(i, nil, retiredChanged)
	default:
		g.pool.put(i)
	}
	return got, false, nil
}

// acquire returns an instance for a call, and its session under PerSession; none
// when none becomes free in time, and why where none can be made.
func (g *Guest) acquire(ctx context.Context, key string) (i *instance, s *session, err error) {
	if g.pool.live.Load() == 0 {
		if may, err := g.maker.may(); !may {
			return nil, nil, err
		}
	}
	if g.sessions == nil {
		i, ok := g.pool.get(ctx, g.binding.Limits.Wait, nil, g.grow)
		if !ok {
			_, err = g.maker.may()
		}
		return i, nil, err
	}
	s, ok := g.sessions.get(ctx, key, g.binding.Limits.Wait)
	if !ok {
		return nil, nil, nil
	}
	if s.in == nil {
		if s.in, err = g.make(ctx); err != nil {
			g.sessions.put(s, false)
			return nil, nil, err
		}
	}
	g.grow()
	return s.in, s, nil
}

func (g *Guest) retire(i *instance, s *session, why int) {
	g.front.counts.retired[why].Add(1)
	if s != nil {
		g.sessions.put(s, false)
	} else {
		g.pool.drop(i)
	}
	g.grow()
}

// EndSession lets go of what a session's instance holds.
func (g *Guest) EndSession(session string) {
	if g.sessions != nil {
		g.sessions.end(session)
	}
}

// Close waits for calls under way and frees everything. Calls after it fail.
func (g *Guest) Close() {
	if !g.front.Shut() {
		return
	}
	g.maker.work.Wait()
	if g.sessions != nil {
		g.sessions.close()
	}
	g.pool.close()
	g.free()
}

// log writes a line of the guest to the log.
func (g *Guest) log(level slog.Level, text []byte) { g.front.Line(level, text) }

// seed fills b with bytes that depend on the module alone.
func (g *Guest) seed(b []byte) {
	digest, _ := hex.DecodeString(g.module.Digest)
	r := rand.NewChaCha8(sha256.Sum256(digest))
	for len(b) > 0 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], r.Uint64())
		b = b[copy(b, word[:]):]
	}
}
