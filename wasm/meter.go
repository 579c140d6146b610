package wasm

import "fmt"

// meter writes a module anew so that it pays for what it does. The counters
// are two globals of its own that no instruction of the guest can name:
//
//   - fuel goes down at the entry of every function, at every turn of a loop,
//     and where branches part or meet, by what the instructions from there to
//     the next such point cost: a guest pays for what runs, and for nothing
//     else. Bulk instructions pay for their length before they run. At the
//     first two kinds of point, and before bulk instructions, fuel below zero
//     calls the host's yield, which refills it or ends the call. Between two
//     such points there is only code that runs forward, so that a guest never
//     keeps the host from stopping the world for longer than one function
//     takes. Within a function fuel is in a local, which the engine keeps in a
//     register; the global has it between functions, and where the host looks.
//   - depth goes down by the size of a frame while a function that calls others
//     runs. Below zero, yield ends the call: recursion is bounded well before
//     the engine's own limit.
//
// A third global is set by instructions whose effect the reset of an instance
// does not undo: those that change tables or drop segments. Memory and tables
// get the maximum that the host allows. Custom sections and the exports that
// the host does not ask for are left out.
//
// The result is checked by the engine as every module is; no step here relies
// on operand types being right.

// Names of what meter adds. Guests cannot export names with a dot under the
// ABI, and cannot import the module.
const (
	meterModule = "weir_meter"
	meterYield  = "yield"
	exportFuel  = "weir.fuel"
	exportDepth = "weir.depth"
	exportDirty = "weir.dirty"
	exportStart = "weir.start"
	exportMut   = "weir.g" // and a number, for each mutable global
)

// maxDepth is how deep functions may call each other, in bytes of frames as
// frameSize estimates them.
const maxDepth = 12 << 20

// frameSize estimates what a call of a function takes of the stack.
func frameSize(b *body) int64 { return 96 + 8*int64(b.total) + int64(len(b.code))/2 }

// metering says what meter keeps.
type metering struct {
	pages    uint32                 // bound on the memory
	keep     func(name string) bool // exports that stay; nil for all
	join     bool                   // makes one of data segments that lie side by side
	runStart bool                   // leaves the start function where it is; otherwise it is exported for the host to call
}

type meterer struct {
	metering
	m       *module
	yield   uint32 // index of the imported function
	fuel    uint32 // indices of the globals
	depth   uint32
	dirty   uint32
	blocks  map[string]uint32 // types of blocks without parameters, by their results
	types   []funcType        // added
	mutable int               // globals exported for the reset
	unkept  []uint32          // functions whose export was left out
	walker  walker
	plan    plan
}

// meter returns m rewritten, and how many mutable globals it exports for the
// reset of an instance.
func meter(m *module, how metering) (out []byte, mutable int, err error) {
	t := &meterer{metering: how, m: m, blocks: make(map[string]uint32)}
	t.yield = uint32(m.importFuncs)
	t.fuel = uint32(len(m.allGlobals))
	t.depth, t.dirty = t.fuel+1, t.fuel+2
	t.walker.m, t.plan.shifted = m, t.yield
	// The code comes first because it adds types.
	code := t.code()
	size := len(code) + 4096
	for _, d := range m.data {
		size += len(d.bytes) + 16
	}
	out = make([]byte, 0, size)
	out = append(out, "\x00asm\x01\x00\x00\x00"...)
	section := func(id byte, n int, content []byte) {
		if n > 0 {
			count := appendU32(nil, uint32(n))
			out = appendU32(append(out, id), uint32(len(count)+len(content)))
			out = append(append(out, count...), content...)
		}
	}
	yieldType := uint32(len(m.types) + len(t.types))
	t.types = append(t.types, funcType{[]byte{typeI64, typeI64}, []byte{typeI64}})
	section(sectionType, len(m.types)+len(t.types), t.typeSection())
	section(sectionImport, len(m.imports)+1, t.importSection(yieldType))
	var functions []byte
	for _, f := range m.functions {
		functions = appendU32(functions, f)
	}
	section(sectionFunction, len(m.functions), functions)
	section(sectionTable, len(m.tables), t.tableSection())
	section(sectionMemory, len(m.memories), t.memorySection())
	section(sectionGlobal, len(m.globals)+3, t.globalSection())
	exports, content := t.exportSection()
	section(sectionExport, exports, content)
	if m.start >= 0 && t.runStart {
		index := appendU32(nil, t.function(uint32(m.start)))
		out = append(appendU32(append(out, sectionStart), uint32(len(index))), index...)
	}
	segments, content := t.elementSection()
	section(sectionElement, segments, content)
	if m.dataCount >= 0 {
		count := appendU32(nil, uint32(m.dataCount))
		out = append(appendU32(append(out, sectionDataCount), uint32(len(count))), count...)
	}
	section(sectionCode, len(m.bodies), code)
	segments, content = t.dataSection()
	section(sectionData, segments, content)
	return out, t.mutable, nil
}

// function is where a function stands after the import was added.
func (t *meterer) function(i uint32) uint32 {
	if i >= t.yield {
		return i + 1
	}
	return i
}

func (t *meterer) typeSection() (b []byte) {
	for _, list := range [][]funcType{t.m.types, t.types} {
		for _, f := range list {
			b = append(appendU32(append(b, 0x60), uint32(len(f.params))), f.params...)
			b = append(appendU32(b, uint32(len(f.results))), f.results...)
		}
	}
	return b
}

func (t *meterer) importSection(yieldType uint32) (b []byte) {
	for _, e := range t.m.imports {
		b = append(appendName(appendName(b, e.module), e.name), e.kind)
		switch e.kind {
		case kindFunc:
			b = appendU32(b, e.typ)
		case kindTable:
			b = appendSpan(append(b, e.table.elem), e.table.span)
		case kindMemory:
			b = appendSpan(b, e.memory)
		case kindGlobal:
			b = appendGlobalType(b, e.global)
		}
	}
	b = append(appendName(appendName(b, meterModule), meterYield), kindFunc)
	return appendU32(b, yieldType)
}

func (t *meterer) tableSection() (b []byte) {
	for _, table := range t.m.tables {
		if !table.bounded || table.max > maxTableEntries {
			table.bounded, table.max = true, maxTableEntries
		}
		b = appendSpan(append(b, table.elem), table.span)
	}
	return b
}

func (t *meterer) memorySection() (b []byte) {
	for _, memory := range t.m.memories {
		if !memory.bounded || memory.max > t.pages {
			memory.bounded, memory.max = true, max(t.pages, memory.min)
		}
		b = appendSpan(b, memory)
	}
	return b
}

func (t *meterer) globalSection() (b []byte) {
	for _, g := range t.m.globals {
		b = t.appendConst(appendGlobalType(b, g.globalType), g.init)
	}
	counter := func(value byte, op byte, init int64) {
		b = appendGlobalType(b, globalType{value, true})
		b = append(appendS64(append(b, op), init), opEnd)
	}
	counter(typeI64, opI64Const, 0)
	counter(typeI64, opI64Const, maxDepth)
	counter(typeI32, opI32Const, 0)
	return b
}

func (t *meterer) exportSection() (n int, b []byte) {
	add := func(name string, kind byte, index uint32) {
		b = appendU32(append(appendName(b, name), kind), index)
		n++
	}
	for _, e := range t.m.exports {
		if t.keep != nil && !t.keep(e.name) {
			if e.kind == kindFunc {
				t.unkept = append(t.unkept, t.function(e.index))
			}
			continue
		}
		if e.kind == kindFunc {
			e.index = t.function(e.index)
		}
		add(e.name, e.kind, e.index)
	}
	add(exportFuel, kindGlobal, t.fuel)
	add(exportDepth, kindGlobal, t.depth)
	add(exportDirty, kindGlobal, t.dirty)
	if t.m.start >= 0 && !t.runStart {
		add(exportStart, kindFunc, t.function(uint32(t.m.start)))
	}
	for i, g := range t.m.allGlobals {
		if g.mutable {
			add(fmt.Sprint(exportMut, t.mutable), kindGlobal, uint32(i))
			t.mutable++
		}
	}
	return n, b
}

// elementSection ends with a declaration of the functions whose exports were
// left out: an export allows ref.func to name a function.
func (t *meterer) elementSection() (n int, b []byte) {
	for _, s := range t.m.elements {
		passive, explicit, exprs := s.flags&1 != 0, s.flags&2 != 0, s.flags&4 != 0
		b = appendU32(b, s.flags)
		if !passive {
			if explicit {
				b = appendU32(b, s.table)
			}
			b = t.appendConst(b, s.offset)
		}
		if passive || explicit {
			b = append(b, s.kind)
		}
		if exprs {
			b = appendU32(b, uint32(len(s.exprs)))
			for _, e := range s.exprs {
				b = t.appendConst(b, e)
			}
		} else {
			b = appendU32(b, uint32(len(s.functions)))
			for _, f := range s.functions {
				b = appendU32(b, t.function(f))
			}
		}
	}
	if len(t.unkept) == 0 {
		return len(t.m.elements), b
	}
	b = appendU32(append(b, 3, 0), uint32(len(t.unkept)))
	for _, f := range t.unkept {
		b = appendU32(b, f)
	}
	return len(t.m.elements) + 1, b
}

func (t *meterer) dataSection() (n int, b []byte) {
	data := t.m.data
	if t.join && t.m.dataCount < 0 { // so no instruction names one
		data = joined(data)
	}
	for _, s := range data {
		b = appendU32(b, s.flags)
		if s.flags == 2 {
			b = append(b, 0)
		}
		if s.flags != 1 {
			b = t.appendConst(b, s.offset)
		}
		b = append(appendU32(b, uint32(len(s.bytes))), s.bytes...)
	}
	return len(data), b
}

func (t *meterer) appendConst(b []byte, c constExpr) []byte {
	if c.function >= 0 {
		b = appendU32(append(b, opRefFunc), t.function(uint32(c.function)))
	} else {
		b = append(b, c.raw...)
	}
	return append(b, opEnd)
}

func appendSpan(b []byte, s span) []byte {
	if s.bounded {
		return appendU32(appendU32(append(b, 1), s.min), s.max)
	}
	return appendU32(append(b, 0), s.min)
}

func appendGlobalType(b []byte, g globalType) []byte {
	if g.mutable {
		return append(b, g.value, 1)
	}
	return append(b, g.value, 0)
}

func (t *meterer) code() []byte {
	total := 0
	for i := range t.m.bodies {
		total += len(t.m.bodies[i].code) + len(t.m.bodies[i].locals)
	}
	out := make([]byte, 0, total+total/2+1024)
	var scratch []byte
	for i := range t.m.bodies {
		scratch = t.body(scratch[:0], &t.m.bodies[i], t.m.types[t.m.functions[i]])
		out = append(appendU32(out, uint32(len(scratch))), scratch...)
	}
	return out
}

// body appends one function. The parts of its code between patches are copied
// as they are.
func (t *meterer) body(out []byte, b *body, typ funcType) []byte {
	p := &t.plan
	p.regions, p.patches = p.regions[:0], p.patches[:0]
	t.walker.walk(b, p)

	// 1. Locals: those of the function, one for the fuel that is left, and two
	// for depth and lengths where they are needed.
	left := uint32(b.total)
	runs, extra := b.runs+1, 1
	if b.calls {
		extra = 2
	}
	deep := left + 1
	if b.bulk {
		runs++
	}
	length := left + uint32(extra)
	out = append(appendU32(out, runs), b.locals...)
	out = append(appendU32(out, uint32(extra)), typeI64)
	if b.bulk {
		out = append(appendU32(out, 1), typeI32)
	}

	// 2. The entry: pay for the function and its frame.
	out = t.take(out, left)
	out = t.spend(out, p.regions[0].cost, left)
	out = appendU32(append(out, opLocalGet), left)
	if b.calls {
		out = appendU32(append(out, opGlobalGet), t.depth)
		out = appendS64(append(out, opI64Const), frameSize(b))
		out = append(out, opI64Sub)
		out = appendU32(append(out, opLocalTee), deep)
		out = appendU32(append(out, opGlobalSet), t.depth)
		out = appendU32(append(out, opLocalGet), deep)
		out = append(out, opI64Or)
	}
	out = t.yieldIfNegative(out, left, deep, b.calls)
	out = append(append(out, opBlock), t.blockType(typ.results)...)

	// 3. The code, with charges and patches in the order of their positions.
	done, next := int32(0), 1
	emit := func(upTo int32) {
		for ; next < len(p.regions) && p.regions[next].at <= upTo; next++ {
			g := &p.regions[next]
			if g.cost == 0 {
				continue
			}
			out = append(out, b.code[done:g.at]...)
			done = g.at
			out = t.spend(out, g.cost, left)
			if g.check {
				out = appendU32(append(out, opLocalGet), left)
				out = t.yieldIfNegative(out, left, 0, false)
			}
		}
		out = append(out, b.code[done:upTo]...)
		done = upTo
	}
	for i := range p.patches {
		c := &p.patches[i]
		emit(c.pos)
		switch c.kind {
		case patchReplace:
			out = appendU32(append(out, c.op), c.arg)
			done = c.end
		case patchCall:
			out = t.give(out, left)
			if c.op == opCall {
				out = appendU32(append(out, c.op), c.arg)
			} else {
				out = append(out, b.code[c.pos:c.end]...)
			}
			out = t.take(out, left)
			done = c.end
		case patchReturn:
			out = appendU32(append(out, opBr), c.arg)
			done = c.end
		case patchMark:
			out = t.mark(out)
		case patchMarkBulk:
			out = t.bulk(t.mark(out), left, length)
		case patchBulk:
			out = t.bulk(out, left, length)
		}
	}
	emit(int32(len(b.code)))

	// 4. The way out: give the rest and the frame back.
	out = t.give(out, left)
	if b.calls {
		out = appendU32(append(out, opLocalGet), deep)
		out = appendS64(append(out, opI64Const), frameSize(b))
		out = append(out, opI64Add)
		out = appendU32(append(out, opGlobalSet), t.depth)
	}
	return append(out, opEnd)
}

// take takes the fuel over into the local, where a function keeps it between
// calls of others.
func (t *meterer) take(out []byte, left uint32) []byte {
	return appendU32(append(appendU32(append(out, opGlobalGet), t.fuel), opLocalSet), left)
}

// give leaves what is in the local to whoever runs next.
func (t *meterer) give(out []byte, left uint32) []byte {
	return appendU32(append(appendU32(append(out, opLocalGet), left), opGlobalSet), t.fuel)
}

// spend takes cost off the fuel.
func (t *meterer) spend(out []byte, cost int32, left uint32) []byte {
	out = appendU32(append(out, opLocalGet), left)
	out = appendS64(append(out, opI64Const), int64(cost))
	return appendU32(append(out, opI64Sub, opLocalSet), left)
}

// yieldIfNegative calls the host when the i64 on the stack is below zero.
func (t *meterer) yieldIfNegative(out []byte, left, deep uint32, hasDeep bool) []byte {
	out = append(out, opI64Const, 0, opI64LtS, opIf, blockVoid)
	out = appendU32(append(out, opLocalGet), left)
	if hasDeep {
		out = appendU32(append(out, opLocalGet), deep)
	} else {
		out = append(out, opI64Const, 0)
	}
	out = appendU32(append(out, opCall), t.yield)
	out = appendU32(append(out, opLocalSet), left)
	return append(out, opEnd)
}

// bulk charges a sixteenth of the length on top of the stack, in bytes or in
// entries, and leaves it there.
func (t *meterer) bulk(out []byte, left, length uint32) []byte {
	out = appendU32(append(out, opLocalTee), length)
	out = appendU32(append(out, opLocalGet), left)
	out = appendU32(append(out, opLocalGet), length)
	out = append(out, opI64ExtendU32, opI64Const, 4, opI64ShrU, opI64Sub)
	out = appendU32(append(out, opLocalTee), left)
	return t.yieldIfNegative(out, left, 0, false)
}

func (t *meterer) mark(out []byte) []byte {
	return appendU32(append(out, opI32Const, 1, opGlobalSet), t.dirty)
}

// blockType is the type of a block that gives the results of a function.
func (t *meterer) blockType(results []byte) []byte {
	switch len(results) {
	case 0:
		return []byte{blockVoid}
	case 1:
		return results
	}
	i, ok := t.blocks[string(results)]
	if !ok {
		i = uint32(len(t.m.types) + len(t.types))
		t.types = append(t.types, funcType{nil, results})
		t.blocks[string(results)] = i
	}
	return appendS64(nil, int64(i))
}
