package wasm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm/linear"
	"github.com/weir-edge/weir/wasm/pattern"
)

// slice is the fuel between two yields: some 50 to 100 µs of work.
const slice = 100_000

// How much is kept of what a guest says on standard error, and in lines of the
// level error: of its beginning, and of its end.
const (
	maxFirst = 1 << 10
	maxTail  = 512
)

// instance is one running copy of a guest. One goroutine at a time calls it.
type instance struct {
	guest  *Guest
	ctx    *instanceContext
	module api.Module
	memory api.Memory
	linear *linear.Memory

	fuel, depth, dirty api.MutableGlobal
	mutable            []api.MutableGlobal
	buffer             api.Function
	hooks              [abi.Hooks]api.Function
	stack              [2]uint64

	version        uint32 // of the ABI, of an instance that was initialized
	bufPtr, bufCap uint32 // where the guest wants its input
	base           *image // what a reset goes back to
	own            bool   // base is this instance's own, and closed with it
	copyable       bool   // base is all that other instances need
	first, tail    []byte // of what the guest says of a failure in this call
	left           int    // bytes between them that are not kept

	// Of the call under way.
	call   context.Context
	clock  clock
	budget int64 // fuel not handed out yet
	given  int64 // fuel handed out since the call began
	failed error // why a host function ended it
	acted  bool  // it changed something outside of its memory

	hook      abi.Hook      // that was called; abi.Hooks for none
	asked     int           // requests to others
	waitedFor time.Duration // for them
	stored    int           // requests to the store
	storedFor time.Duration // waited for it
	answer    []byte        // the last of theirs; nil for none

	compiled []*pattern.Pattern // by handle
	searcher *pattern.Searcher  // nil before the first search
	searched bool               // in the call under way

	runScript api.Function // of an interpreter
	script    *ScriptHost  // of its run under way; nil for none
}

// image is what an instance was like after it was initialized: all that a
// reset restores and that a new instance starts from.
type image struct {
	snapshot       *linear.Snapshot
	globals        []uint64
	bufPtr, bufCap uint32
	compiled       []*pattern.Pattern
}

// instanceContext carries an instance through the engine to host functions.
// The engine looks a few of its own settings up in it, of which it has none.
type instanceContext struct {
	context.Context
	in *instance
}

func (c *instanceContext) Value(any) any { return nil }

// instanceOf returns the instance that a host function is called by.
func instanceOf(ctx context.Context) *instance {
	c, ok := ctx.(*instanceContext)
	if !ok {
		panic(errABI) // the engine hands contexts on as they are
	}
	return c.in
}

// newInstance makes an instance: as a copy of the guest's image where there is
// one, else by running the initialization of the module, which gives the
// record that weir_init returns.
func (g *Guest) newInstance(ctx context.Context) (in *instance, result []byte, err error) {
	in = &instance{guest: g}
	in.ctx = &instanceContext{context.Background(), in}
	var failed error
	allocate := experimental.MemoryAllocatorFunc(func(_, _ uint64) experimental.LinearMemory {
		l, err := linear.New(g.binding.Limits.Memory)
		if err != nil {
			failed = err
			panic(err)
		}
		in.linear = l
		return l
	})
	in.module, err = g.instantiate(experimental.WithMemoryAllocator(context.Background(), allocate))
	if err != nil {
		if failed != nil {
			err = failed
		}
		if in.linear != nil {
			in.linear.Free() // the engine keeps it where it fails
		}
		return nil, nil, fmt.Errorf("guest %q: %w", g.binding.Name, err)
	}
	in.memory = in.module.ExportedMemory(abi.ExportMemory)
	in.fuel, in.depth, in.dirty = in.global(exportFuel), in.global(exportDepth), in.global(exportDirty)
	for i := range g.module.mutable {
		in.mutable = append(in.mutable, in.global(fmt.Sprint(exportMut, i)))
	}
	in.buffer = in.module.ExportedFunction(abi.ExportBuffer)
	for _, h := range g.module.Hooks {
		in.hooks[h] = in.module.ExportedFunction(h.Export())
	}
	if g.module.interpreter {
		in.runScript = in.module.ExportedFunction(exportRun)
	}
	switch {
	case g.image != nil:
		if g.module.interpreter {
			in.linear.Provide(g.image.snapshot.Size())
		}
		err = in.become(g.image)
	case g.module.interpreter:
		err = in.warmUp(ctx)
	default:
		result, err = in.initialize(ctx)
	}
	if err != nil {
		in.close()
		return nil, nil, err
	}
	return in, result, nil
}

// instantiate turns panics, such as of an allocator that finds no memory, into
// errors.
func (g *Guest) instantiate(ctx context.Context) (m api.Module, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("instantiating: %v", r)
		}
	}()
	return g.runtime.InstantiateModule(ctx, g.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
}

func (in *instance) global(name string) api.MutableGlobal {
	return in.module.ExportedGlobal(name).(api.MutableGlobal)
}

// become takes over an image.
func (in *instance) become(m *image) error {
	now := int(in.memory.Size())
	if grow := m.snapshot.Size() - now; grow > 0 {
		if _, ok := in.memory.Grow(uint32(grow / pageSize)); !ok {
			return fmt.Errorf("guest %q: memory of %d bytes is not to be had", in.guest.binding.Name, m.snapshot.Size())
		}
	}
	in.base, in.compiled = m, m.compiled
	if !in.reset() {
		return fmt.Errorf("guest %q: a copy of the first instance cannot be made", in.guest.binding.Name)
	}
	return nil
}

// reset brings memory and globals back to the image. It reports false when
// that cannot be done: the memory grew, or tables changed or segments were
// dropped.
func (in *instance) reset() bool {
	if int(in.memory.Size()) != in.base.snapshot.Size() || in.dirty.Get() != 0 {
		return false
	}
	if in.base.snapshot.Restore(in.linear) != nil {
		return false
	}
	for i, g := range in.mutable {
		g.Set(in.base.globals[i])
	}
	in.bufPtr, in.bufCap = in.base.bufPtr, in.base.bufCap
	return true
}

// wake runs the start function and _initialize, and asks for the version of the ABI.
// name is the function that failed.
func (in *instance) wake() (version uint32, name string, err error) {
	for _, name := range []string{exportStart, abi.ExportInitialize, abi.ExportABI} {
		if f := in.module.ExportedFunction(name); f != nil {
			if err := f.CallWithStack(in.ctx, in.stack[:]); err != nil {
				return 0, name, err
			}
		}
	}
	return uint32(in.stack[0]), "", nil
}

// initialize runs what a module does before its first call, under the limits
// of that phase, and takes the image.
func (in *instance) initialize(ctx context.Context) ([]byte, error) {
	g := in.guest
	limits := g.binding.Limits
	in.begin(ctx, limits.Init, limits.InitFuel)
	defer in.clock.stop()
	fail := func(what string, err error) ([]byte, error) {
		f := in.failure(0, err)
		if f.Detail == "" {
			return nil, fmt.Errorf("guest %q: %s: %v", g.binding.Name, what, f.Reason)
		}
		return nil, fmt.Errorf("guest %q: %s: %v: %s", g.binding.Name, what, f.Reason, f.Detail)
	}
	// 1. The start function, _initialize and the version.
	v, name, err := in.wake()
	if err != nil {
		return fail(name, err)
	}
	if v>>16 != abi.Major || v&0xffff > abi.Minor {
		return nil, fmt.Errorf("guest %q: made for version %d.%d of the ABI: this host has %d.%d", g.binding.Name, v>>16, v&0xffff, abi.Major, abi.Minor)
	}
	in.version = v
	// 2. The configuration.
	record := g.initRecord()
	if err := in.put(record); err != nil {
		return fail(abi.ExportBuffer, err)
	}
	in.stack[0] = uint64(len(record))
	if err := in.module.ExportedFunction(abi.ExportInit).CallWithStack(in.ctx, in.stack[:]); err != nil {
		return fail(abi.ExportInit, err)
	}
	result, err := in.take(in.stack[0], nil)
	if err != nil {
		return fail(abi.ExportInit, err)
	}
	if b, ok := in.memory.Read(in.bufPtr, uint32(len(record))); ok {
		clear(b)
	}
	// 3. Room for inputs of an ordinary size, so that the first calls need not
	// ask, nor every call after a reset. A guest may have less.
	room := uint32(minBuffer)
	if in.memory.Size() >= bigGuest {
		room = bigBuffer
	}
	if in.bufCap < room {
		if err := in.reserve(room); err != nil && err != errNoRoom {
			return fail(abi.ExportBuffer, err)
		}
	}
	in.call = nil
	// 4. The image. Tables that the initialization changed, and segments that
	// it dropped, cannot be copied to other instances; they stay what they are
	// in this one.
	in.copyable = in.dirty.Get() == 0
	in.dirty.Set(0)
	return result, in.capture(linear.NewSnapshot)
}

func (in *instance) capture(take func(memory []byte) (*linear.Snapshot, error)) error {
	whole, _ := in.memory.Read(0, in.memory.Size())
	s, err := take(whole)
	if err != nil {
		return fmt.Errorf("guest %q: %w", in.guest.binding.Name, err)
	}
	in.base = &image{snapshot: s, bufPtr: in.bufPtr, bufCap: in.bufCap, compiled: in.compiled}
	for _, g := range in.mutable {
		in.base.globals = append(in.base.globals, g.Get())
	}
	in.own = true
	if !in.reset() {
		return fmt.Errorf("guest %q: the first instance cannot be reset", in.guest.binding.Name)
	}
	return nil
}

func (in *instance) close() {
	_ = in.module.Close(context.Background()) // gives the memory back; it only fails in the file systems of WASI
	if in.own && in.base != nil {
		in.base.snapshot.Close()
	}
}

// The room for inputs that the host asks for at first, and that for a guest
// with so much memory that it does not matter.
const (
	minBuffer = 4 << 10
	bigBuffer = 64 << 10
	bigGuest  = 1 << 20
)

// reserve asks the guest for room for n bytes of input.
func (in *instance) reserve(n uint32) error {
	in.stack[0] = uint64(n)
	if err := in.buffer.CallWithStack(in.ctx, in.stack[:]); err != nil {
		return err
	}
	p := uint32(in.stack[0])
	if p == 0 {
		return errNoRoom
	}
	if _, ok := in.memory.Read(p, n); !ok {
		return errABI
	}
	in.bufPtr, in.bufCap = p, n
	return nil
}

var errNoRoom = errors.New("the guest has no room for its input")

// put writes an input to where the guest wants it.
func (in *instance) put(record []byte) error {
	if n := uint32(len(record)); n > in.bufCap {
		// Rounded up, so that a guest is not asked at every new largest input.
		if err := in.reserve((n + minBuffer - 1) &^ (minBuffer - 1)); err != nil {
			return err
		}
	}
	if !in.memory.Write(in.bufPtr, record) {
		return errABI
	}
	return nil
}

// take appends a record that the guest returned to out.
func (in *instance) take(result uint64, out []byte) ([]byte, error) {
	if result == 0 {
		return out, nil
	}
	p, n := uint32(result>>32), uint32(result)
	if uint64(n) > in.guest.binding.Limits.Output {
		return nil, errABI
	}
	b, ok := in.memory.Read(p, n)
	if !ok {
		return nil, errABI
	}
	return append(out, b...), nil
}

// begin sets the limits of a call.
func (in *instance) begin(ctx context.Context, timeout time.Duration, fuel int64) {
	in.call, in.clock, in.failed, in.acted = ctx, clock{limit: timeout}, nil, false
	in.hook, in.asked, in.waitedFor, in.answer, in.stored, in.storedFor = abi.Hooks, 0, 0, nil, 0, 0
	first := min(slice, fuel)
	in.budget, in.given = fuel-first, first
	in.fuel.Set(uint64(first))
	in.first, in.tail, in.left = in.first[:0], in.tail[:0], 0
	in.linear.Refused, in.searched = false, false
}

// used is the fuel that the call has used.
func (in *instance) used() int64 { return max(in.given-int64(in.fuel.Get()), 0) }

// run calls a hook.
func (in *instance) run(ctx context.Context, hook abi.Hook, record, out []byte) ([]byte, error) {
	limits := &in.guest.binding.Limits
	in.begin(ctx, limits.Timeout, limits.Fuel)
	in.hook = hook
	again := in.guest.binding.Isolation == PerRequest
	if again {
		in.linear.Before()
	}
	err := in.put(record)
	if err == nil {
		in.stack[0] = uint64(len(record))
		err = in.hooks[hook].CallWithStack(in.ctx, in.stack[:])
	}
	in.clock.stop()
	if again {
		in.linear.After()
	}
	if err != nil {
		return nil, err
	}
	out, err = in.take(in.stack[0], out)
	in.call, in.answer = nil, nil
	return out, err
}

// forget zeroes the input of a call that is over, so that nothing of it is there
// in the next one. What was returned may have been part of it.
func (in *instance) forget(n int) {
	if in.guest.binding.Isolation == PerRequest {
		return // the reset does it
	}
	if b, ok := in.memory.Read(in.bufPtr, uint32(n)); ok {
		clear(b)
	}
}

// yield is called by a guest whose slice is used up. It ends the call or
// returns the next slice; being Go code, it also lets the collector stop the
// world. The clock runs from the first of them: a call shorter than one slice
// never costs that.
func (in *instance) yield(left, depth int64) uint64 {
	in.fuel.Set(uint64(left)) // for what the call has used, when it ends here
	switch {
	case depth < 0:
		in.end(errDeep)
	case in.call.Err() != nil:
		in.end(errCanceled)
	}
	if in.clock.over(in.used()) {
		in.end(errDeadline)
	}
	if in.script != nil {
		in.breathe()
	}
	// left is below zero by what was used beyond the slice.
	if in.budget += left; in.budget <= 0 {
		in.end(errFuel)
	}
	next := min(slice, in.budget)
	in.budget -= next
	in.given += next - left
	return uint64(next)
}

// spend charges fuel for the work of a host function.
func (in *instance) spend(n uint64) { in.fuel.Set(uint64(int64(in.fuel.Get()) - int64(n))) }

// pay charges fuel as spend does, and ends the call where fuel or time is used up.
// It is for work that is paid for before it is long.
func (in *instance) pay(n int64) {
	left := int64(in.fuel.Get()) - n
	if in.fuel.Set(uint64(left)); left < 0 {
		in.fuel.Set(in.yield(left, 0))
	}
}

// end ends the call of the guest from within a host function.
func (in *instance) end(why error) {
	in.failed = why
	panic(why)
}

// keepLast keeps what a guest says of its failure: the beginning, where most say
// why, and the end.
func (in *instance) keepLast(text []byte) {
	if room := maxFirst - len(in.first); room > 0 {
		n := min(room, len(text))
		in.first = append(in.first, text[:n]...)
		text = text[n:]
	}
	in.left += max(len(in.tail)+len(text)-maxTail, 0)
	text = text[max(len(text)-maxTail, 0):]
	if over := len(in.tail) + len(text) - maxTail; over > 0 {
		in.tail = append(in.tail[:0], in.tail[over:]...)
	}
	in.tail = append(in.tail, text...)
}

// last is what was kept.
func (in *instance) last() string {
	text := string(in.first)
	if in.left > 0 {
		text += " … "
	}
	return strings.ToValidUTF8(text+string(in.tail), "\ufffd")
}

// failure says why a call ended with an error.
func (in *instance) failure(hook abi.Hook, err error) *Failure {
	f := &Failure{Guest: in.guest.binding.Name, Hook: hook}
	switch {
	case in.failed == errDeep:
		f.Reason = Stack
	case in.failed == errFuel:
		f.Reason = Fuel
	case in.failed == errDeadline:
		f.Reason = Deadline
		f.Detail = fmt.Sprintf("%s of a processor used, with %d fuel", max(in.clock.limit, in.clock.used.Round(time.Millisecond)), in.used())
	case in.failed == errCanceled:
		f.Reason = Canceled
	case errors.Is(err, errABI), errors.Is(err, errNoRoom), errors.Is(err, errOtherPattern):
		f.Reason = Broken
		f.Detail, _, _ = strings.Cut(err.Error(), " (recovered")
	default:
		f.Reason = Trap
		if in.linear.Refused {
			f.Reason = Memory
		}
		text, _, _ := strings.Cut(err.Error(), "\n")
		f.Detail, _, _ = strings.Cut(strings.TrimPrefix(text, "wasm error: "), " (recovered")
		if strings.Contains(text, "stack overflow") {
			f.Reason = Stack
		}
		if len(in.first) > 0 {
			f.Detail += ": " + in.last()
		}
	}
	return f
}
