package wasm

import "math"

// body is the code of one function.
type body struct {
	params  int    // parameters
	locals  []byte // runs of locals as they were, without their count
	runs    uint32
	total   int    // parameters and locals
	code    []byte // instructions, the last of them an end
	calls   bool   // some function of the module itself, directly or through a table
	bulk    bool   // an instruction whose work depends on an operand
	blocks  int    // places where control parts or meets, those that meter adds included
	chain   int    // steps up the dominator tree, as the engine takes them
	arity   int    // parameters and results of all blocks
	targets int    // labels of br_table
}

// Bounds on where the engine's work on one function grows faster than the
// function. Chains are walked from each block to the entry when loops are
// looked for; locals and the values that blocks pass on are tracked through
// every block.
const (
	maxShape = 2_000_000 // locals times blocks
	maxChain = 5_000_000
	maxArity = 16_384
)

func (m *module) readCode(r *reader) {
	n := r.count("bodies", maxFunctions)
	if r.err == nil && n != len(m.functions) {
		r.fail("%d bodies for %d functions", n, len(m.functions))
		return
	}
	w := walker{m: m}
	for i := range n {
		size := r.u32()
		if r.err == nil && size > maxBody {
			r.fail("function %d has %d bytes: at most %d are allowed", i, size, maxBody)
		}
		s := &reader{b: r.bytes(int(size)), section: r.section}
		if r.err != nil {
			return
		}
		b := body{params: len(m.types[m.functions[i]].params)}
		m.readLocals(s, &b, i)
		if s.err == nil {
			b.code = s.b[s.pos:]
			w.walk(&b, nil)
			if s.err = w.r.err; s.err == nil {
				if b.total*b.blocks > maxShape || b.chain > maxChain || b.arity > maxArity {
					s.fail("function %d has %d locals in %d blocks, which pass on %d values and stand in chains of %d: too much to compile",
						i, b.total, b.blocks, b.arity, b.chain)
				}
			}
		}
		if s.err != nil {
			r.err = s.err
			return
		}
		m.bodies = append(m.bodies, b)
	}
}

func (m *module) readLocals(r *reader, b *body, function int) {
	b.runs = uint32(r.count("runs of locals", maxLocals))
	start, total := r.pos, uint64(b.params)
	for range b.runs {
		total += uint64(r.u32())
		r.valueType()
		if r.err == nil && total > maxLocals {
			r.fail("function %d has %d locals or more: at most %d are allowed", function, total, maxLocals)
		}
		if r.err != nil {
			return
		}
	}
	b.locals, b.total = r.b[start:r.pos], int(total)
}

// region is a stretch of instructions that is paid for at one point, which
// every way to any of them passes, and none passes without coming to them all
// unless one of them ends the call.
type region struct {
	at    int32 // where in the code the charge stands
	cost  int32
	check bool // the charge also looks whether fuel is left: entry of the function and loops
}

// Costs beyond 1 an instruction.
const (
	costEntry    = 8    // of a function
	costImport   = 32   // of a call into the host
	costGrow     = 1024 // of memory.grow
	maxRegionFee = math.MaxInt32 / 4
)

type patchKind uint8

const (
	patchReplace  patchKind = iota // a function index by another
	patchCall                      // a call, which finds and leaves the fuel in its global
	patchReturn                    // return by a branch to the end of the body
	patchBulk                      // charge for the operand on top of the stack
	patchMark                      // note that what a reset does not cover changes
	patchMarkBulk                  // both
)

// patch is one change to the code of a function, between pos and end.
type patch struct {
	pos, end int32
	kind     patchKind
	op       byte
	arg      uint32
}

// plan is what meter wants to know of a body besides its being well formed.
type plan struct {
	regions []region
	patches []patch
	shifted uint32 // functions from this index on move up by one
}

type frame struct {
	op     byte
	dead   bool // what follows up to the end is never reached
	region int32
	depth  int32 // of the present basic block in the dominator tree, at most
	joined int32 // the least depth from which control comes to the end of the frame
}

// walker goes through the instructions of functions. It is used again and
// again to keep its memory.
type walker struct {
	m      *module
	r      reader
	frames []frame
	p      *plan
}

func (w *walker) patch(kind patchKind, pos int, op byte, arg uint32) {
	if w.p != nil {
		w.p.patches = append(w.p.patches, patch{int32(pos), int32(w.r.pos), kind, op, arg})
	}
}

func (w *walker) top() *frame { return &w.frames[len(w.frames)-1] }

// enter starts a region at the present position.
func (w *walker) enter(check bool) int32 {
	if w.p == nil {
		return 0
	}
	w.p.regions = append(w.p.regions, region{at: int32(w.r.pos), check: check})
	return int32(len(w.p.regions) - 1)
}

func (w *walker) charge(cost int32) {
	if w.p == nil || w.top().dead {
		return
	}
	if g := &w.p.regions[w.top().region]; g.cost < maxRegionFee {
		g.cost += cost
	}
}

// walk decodes all instructions of b. With a plan it fills that, otherwise it
// notes in b what it saw.
func (w *walker) walk(b *body, p *plan) {
	w.r = reader{b: b.code, section: sectionNames[sectionCode]}
	w.p = p
	w.frames = append(w.frames[:0], frame{joined: math.MaxInt32})
	w.frames[0].region = w.enter(true)
	w.charge(costEntry)
	w.blocks(b, 2)
	r := &w.r
	for len(w.frames) > 0 && r.err == nil {
		w.step(b, r)
	}
	if r.err == nil && r.left() > 0 {
		r.fail("%d bytes behind the end of a function", r.left())
	}
}

func (w *walker) step(b *body, r *reader) {
	start := r.pos
	op := r.byte()
	if !free(op) {
		w.charge(1)
	}
	switch shapeOf(op) {
	case shapeNone:
		if op == opReturn {
			w.patch(patchReturn, start, op, uint32(len(w.frames)-1))
		}
		if op == opReturn || op == opUnreachable {
			w.top().dead = true
		}
	case shapeBlock:
		b.arity += w.blockType(r)
		w.open(b, op)
	case shapeElse:
		f := w.top()
		if f.op != opIf {
			r.fail("an else without an if")
			return
		}
		outer := w.frames[len(w.frames)-2]
		w.join(f, f)
		*f = frame{opElse, outer.dead, w.enter(false), outer.depth, f.joined}
		w.blocks(b, 1)
	case shapeEnd:
		w.close(b)
	case shapeLabel:
		w.branch(b, r.index("label", len(w.frames)))
		if op == opBr {
			w.top().dead = true
			return
		}
		if f := w.top(); !f.dead {
			f.region = w.enter(false)
		}
		w.blocks(b, 1)
	case shapeLabels:
		n := r.count("labels", maxTargets)
		for range n + 1 {
			w.branch(b, r.index("label", len(w.frames)))
			if r.err != nil {
				return
			}
		}
		b.targets += n
		if w.p == nil && b.targets > maxTargets {
			r.fail("%d labels of br_table in one function: at most %d are allowed", b.targets, maxTargets)
		}
		w.top().dead = true
	case shapeFunction:
		f := w.m.functionIndex(r)
		if op == opCall {
			if int(f) < w.m.importFuncs {
				w.charge(costImport)
			} else {
				b.calls = true
			}
		}
		if w.p == nil {
			break
		}
		shifted := f
		if f >= w.p.shifted {
			shifted++
		}
		switch {
		case op == opCall:
			w.patch(patchCall, start, op, shifted)
		case shifted != f:
			w.patch(patchReplace, start, op, shifted)
		}
	case shapeIndirect:
		w.m.typeIndex(r)
		r.index("table", len(w.m.allTables))
		b.calls = true
		w.patch(patchCall, start, op, 0)
	case shapeTypes:
		for range r.count("types", 1) {
			r.valueType()
		}
	case shapeLocal:
		r.index("local", b.total)
	case shapeGlobal:
		r.index("global", len(w.m.allGlobals))
	case shapeTable:
		r.index("table", len(w.m.allTables))
		if op == opTableSet {
			w.patch(patchMark, start, 0, 0)
		}
	case shapeMemArg:
		w.memArg(r)
	case shapeMemory:
		w.memory(r)
		if op == opMemoryGrow {
			w.charge(costGrow)
		}
	case shapeI32:
		r.signed(32)
	case shapeI64:
		r.signed(64)
	case shape4:
		r.bytes(4)
	case shape8:
		r.bytes(8)
	case shapeRef:
		r.refType()
	case shapeFC:
		w.stepFC(b, r, start)
	case shapeFD:
		w.stepFD(r)
	default:
		r.fail("instruction 0x%02x is unknown or of a feature that is not supported", op)
	}
}

// blocks counts basic blocks that follow each other.
func (w *walker) blocks(b *body, n int32) {
	f := w.top()
	f.depth += n
	b.blocks += int(n)
	b.chain += int(n) * int(f.depth)
}

// branch notes a way to the end of a frame, or to the start of a loop.
func (w *walker) branch(b *body, label uint32) {
	if w.r.err == nil {
		b.chain += int(w.top().depth)
		w.join(w.top(), &w.frames[len(w.frames)-1-int(label)])
	}
}

func (w *walker) join(from, to *frame) {
	if !from.dead {
		to.joined = min(to.joined, from.depth)
	}
}

func (w *walker) open(b *body, op byte) {
	if len(w.frames) > w.m.nesting {
		w.r.fail("blocks nested more than %d deep", w.m.nesting)
		return
	}
	outer := w.top()
	f := frame{op: op, dead: outer.dead, region: outer.region, depth: outer.depth, joined: math.MaxInt32}
	switch op {
	case opLoop:
		f.region = w.enter(true)
		w.frames = append(w.frames, f)
		w.charge(1)
		w.blocks(b, 3) // the header, and two for the look at the fuel
	case opIf:
		f.region = w.enter(false)
		f.joined = f.depth // without an else; with one it does no harm
		w.frames = append(w.frames, f)
		w.blocks(b, 1)
	default:
		w.frames = append(w.frames, f)
	}
}

// close ends a block. What follows it may be reached without what came before
// it in the block around it, so that a region starts here, for as long as that
// block lasts.
func (w *walker) close(b *body) {
	ended := *w.top()
	w.frames = w.frames[:len(w.frames)-1]
	if len(w.frames) == 0 {
		return
	}
	f := w.top()
	if ended.op == opLoop {
		f.depth = ended.depth // only by falling out of it
	} else {
		w.join(&ended, &ended)
		if ended.joined < math.MaxInt32 {
			f.depth = ended.joined
		}
	}
	w.blocks(b, 1)
	if ended.op != opLoop && !f.dead {
		f.region = w.enter(false)
	}
}

// blockType reads the type of a block, and returns how many values it takes
// and gives.
func (w *walker) blockType(r *reader) int {
	if r.left() > 0 {
		switch c := r.b[r.pos]; {
		case c == blockVoid:
			r.pos++
			return 0
		case c >= blockVoid && c < 0x80: // a negative number of one byte
			r.valueType()
			return 1
		}
	}
	i := r.signed(33)
	if r.err == nil && (i < 0 || i >= int64(len(w.m.types))) {
		r.fail("block type %d of %d", i, len(w.m.types))
	}
	if r.err != nil {
		return 0
	}
	return len(w.m.types[i].params) + len(w.m.types[i].results)
}

func (w *walker) memArg(r *reader) {
	if align := r.u32(); r.err == nil && align >= 32 {
		r.fail("alignment 2^%d", align)
	}
	r.u32()
	w.needMemory(r)
}

func (w *walker) memory(r *reader) {
	if i := r.byte(); r.err == nil && i != 0 {
		r.fail("memory %d: there is one", i)
	}
	w.needMemory(r)
}

func (w *walker) needMemory(r *reader) {
	if r.err == nil && len(w.m.allMemories) == 0 {
		r.fail("an instruction for a memory that is not there")
	}
}

func (w *walker) dataIndex(r *reader) {
	if r.err == nil && w.m.dataCount < 0 {
		r.fail("a data segment is named without a data count section")
	}
	r.index("data segment", int(max(w.m.dataCount, 0)))
}

func (w *walker) stepFC(b *body, r *reader, start int) {
	sub := r.u32()
	switch sub {
	case 0, 1, 2, 3, 4, 5, 6, 7: // conversions that saturate
		return
	case fcMemoryInit:
		w.dataIndex(r)
		w.memory(r)
		w.patch(patchBulk, start, 0, 0)
	case fcDataDrop:
		w.dataIndex(r)
		w.patch(patchMark, start, 0, 0)
	case fcMemoryCopy:
		w.memory(r)
		w.memory(r)
		w.patch(patchBulk, start, 0, 0)
	case fcMemoryFill:
		w.memory(r)
		w.patch(patchBulk, start, 0, 0)
	case fcTableInit:
		r.index("element segment", len(w.m.elements))
		r.index("table", len(w.m.allTables))
		w.patch(patchMarkBulk, start, 0, 0)
	case fcElemDrop:
		r.index("element segment", len(w.m.elements))
		w.patch(patchMark, start, 0, 0)
	case fcTableCopy:
		r.index("table", len(w.m.allTables))
		r.index("table", len(w.m.allTables))
		w.patch(patchMarkBulk, start, 0, 0)
	case fcTableGrow, fcTableFill:
		r.index("table", len(w.m.allTables))
		w.patch(patchMarkBulk, start, 0, 0)
	case fcTableSize:
		r.index("table", len(w.m.allTables))
		return
	default:
		r.fail("instruction 0xfc 0x%02x is unknown", sub)
		return
	}
	if sub != fcDataDrop && sub != fcElemDrop {
		b.bulk = true
		w.blocks(b, 2) // for the look at the fuel
	}
}

func (w *walker) stepFD(r *reader) {
	sub := r.u32()
	switch {
	case r.err != nil:
	case simdUnknown(sub):
		r.fail("instruction 0xfd 0x%02x is unknown", sub)
	case sub <= 0x0b, sub == 0x5c, sub == 0x5d: // loads and stores
		w.memArg(r)
	case sub == simdConst, sub == 0x0d: // a constant, a shuffle
		r.bytes(16)
	case sub >= 0x15 && sub <= 0x22: // a lane
		r.byte()
	case sub >= 0x54 && sub <= 0x5b: // loads and stores of a lane
		w.memArg(r)
		r.byte()
	}
}
