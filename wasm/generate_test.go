package wasm

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tetratelabs/wazero/api"
)

// generator makes valid modules whose functions end: loops count their turns,
// and functions call later ones alone. Choices come from bytes, so that a
// fuzzer can steer them; behind their end every choice is the first.
type generator struct {
	choices []byte
	e       *encoder
	fn      int // function under way
	fns     []funcType
	labels  []string // results of the blocks around, the innermost last; loops have none
	loops   []bool   // whether that label is a loop's
	size    int      // instructions of the function
	turns   uint32   // next local that counts turns
	locals  string   // all of the function, parameters included
}

const (
	genFunctions = 5
	genCounters  = 6 // locals of each function that count turns
)

func (g *generator) pick(n int) int {
	if len(g.choices) == 0 {
		return 0
	}
	c := g.choices[0]
	g.choices = g.choices[1:]
	return int(c) % n
}

var genTypes = []string{"\x7f", "\x7e", "\x7d", "\x7c"}

// generate makes a module with the export "run", of no parameters.
func generate(choices []byte) []byte {
	g := &generator{choices: choices, e: newEncoder()}
	g.e.memory = &span{min: 1, max: 3, bounded: true}
	g.e.tables = []tableType{{typeFuncref, span{min: genFunctions}}, {typeFuncref, span{min: 2, max: 20, bounded: true}}}
	g.e.exports = append(g.e.exports, exportEntry{"memory", kindMemory, 0})
	for i, t := range genTypes {
		init := [][]byte{i32(7), i64(9), ins(opF32Const, 0, 0, 0x80, 0x3f), ins(opF64Const, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f)}[i]
		g.e.exports = append(g.e.exports, exportEntry{fmt.Sprint("g", i), kindGlobal, g.e.global(t[0], true, init)})
	}
	g.e.global(typeI32, true, i32(0)) // counts calls
	g.fns = append(g.fns, funcType{nil, []byte{typeI64, typeI32}})
	for range genFunctions - 1 {
		var f funcType
		for range g.pick(4) {
			f.params = append(f.params, genTypes[g.pick(4)]...)
		}
		for range g.pick(3) {
			f.results = append(f.results, genTypes[g.pick(4)]...)
		}
		g.fns = append(g.fns, f)
	}
	for i, f := range g.fns {
		g.fn, g.size = i, 0
		g.locals = string(f.params) + "\x7f\x7e\x7d\x7c" + "\x7f\x7f\x7f\x7f\x7f\x7f"
		g.turns = uint32(len(g.locals) - genCounters)
		g.labels, g.loops = []string{string(f.results)}, []bool{false}
		body := g.block(4, string(f.results))
		export := ""
		if i == 0 {
			export = "run"
		}
		g.e.fn(export, string(f.params), string(f.results), "\x01\x7f\x01\x7e\x01\x7d\x01\x7c\x06\x7f", body)
	}
	// An active segment with all functions, and a passive one with two.
	active := seq(ins(0), i32(0), ins(opEnd, genFunctions))
	for i := range genFunctions {
		active = append(active, byte(i))
	}
	g.e.tail = []encodedSection{{sectionElement, seq(ins(2), active, ins(1, 0, 2, 1, 2))}}
	g.e.data = append(g.e.data, [2]any{100, []byte("some data to work with")})
	return g.e.bytes()
}

// block is some statements, and then values of the types.
func (g *generator) block(depth int, results string) (out []byte) {
	for range g.pick(5) {
		out = append(out, g.statement(depth)...)
	}
	for i := range len(results) {
		out = append(out, g.value(depth, results[i])...)
	}
	return out
}

func (g *generator) inner(depth int, results string, loop bool) []byte {
	g.labels, g.loops = append(g.labels, results), append(g.loops, loop)
	out := g.block(depth-1, results)
	g.labels, g.loops = g.labels[:len(g.labels)-1], g.loops[:len(g.loops)-1]
	return out
}

func (g *generator) statement(depth int) []byte {
	if g.size++; g.size > 60 {
		return nil
	}
	n := 14
	if depth <= 0 {
		n = 7
	}
	switch g.pick(n) {
	case 0:
		i := g.pick(len(g.locals) - genCounters)
		return seq(g.value(depth, g.locals[i]), set(uint32(i)))
	case 1:
		i := g.pick(4)
		return seq(g.value(depth, genTypes[i][0]), gset(uint32(i)))
	case 2:
		return seq(g.address(depth), g.value(depth, typeI64), ins(0x37, 0, byte(g.pick(100)))) // i64.store
	case 3:
		return seq(g.value(depth, typeF64), ins(opDrop))
	case 4:
		return seq(g.address(depth), g.value(depth, typeI32), store8(uint32(g.pick(200))))
	case 5:
		return seq(g.small(depth), ins(opMemoryGrow, 0, opDrop))
	case 6:
		return seq(g.address(depth), g.address(depth), g.small(depth), ins(opPrefixFC, fcMemoryCopy, 0, 0))
	case 7:
		return seq(g.value(depth, typeI32), ins(opIf, blockVoid), g.inner(depth, "", false), ins(opElse), g.inner(depth, "", false), ins(opEnd))
	case 8:
		return seq(ins(opBlock, blockVoid), g.inner(depth, "", false), ins(opEnd))
	case 9:
		if g.turns == uint32(len(g.locals)) {
			return nil
		}
		turn := g.turns
		g.turns++
		body := g.inner(depth, "", true)
		return seq(ins(opLoop, blockVoid), body,
			get(turn), i32(1), ins(opAdd32, opLocalTee), appendU32(nil, turn), i32(2+g.pick(4)), ins(0x48, opBrIf, 0, opEnd))
	case 10: // out of a block, never back to a loop
		label := g.pick(len(g.labels))
		at := len(g.labels) - 1 - label
		if g.loops[at] {
			return nil
		}
		results := g.labels[at]
		switch g.pick(3) {
		case 0:
			return seq(g.values(depth-1, results), g.value(depth-1, typeI32), ins(opBrIf, byte(label)), bytes.Repeat(ins(opDrop), len(results)))
		case 1:
			return g.when(depth, func() []byte { return seq(g.values(depth-1, results), ins(opBr, byte(label+1))) })
		default:
			return g.when(depth, func() []byte {
				return seq(g.values(depth-1, results), g.small(depth-1), ins(opBrTable, 2, byte(label+1), byte(label+1), byte(label+1)))
			})
		}
	case 11:
		return g.when(depth, func() []byte { return seq(g.values(depth-1, string(g.fns[g.fn].results)), ins(opReturn)) })
	case 12:
		return g.call(depth)
	default:
		switch g.pick(5) {
		case 0:
			return seq(ins(opRefNull, typeFuncref), g.small(depth), ins(opPrefixFC, fcTableGrow, 1, opDrop))
		case 1:
			return seq(g.small(depth), g.small(depth), g.small(depth), ins(opPrefixFC, fcTableInit, 1, 1))
		case 2:
			return seq(g.small(depth), g.small(depth), g.small(depth), ins(opPrefixFC, fcTableCopy, 1, 1))
		case 3:
			return seq(g.address(depth), g.value(depth, typeI32), g.small(depth), ins(opPrefixFC, fcMemoryFill, 0))
		default:
			return seq(ins(opPrefixFC, fcElemDrop, 1))
		}
	}
}

// when does something under a condition.
func (g *generator) when(depth int, what func() []byte) []byte {
	condition := g.value(depth-1, typeI32)
	g.labels, g.loops = append(g.labels, ""), append(g.loops, false)
	body := what()
	g.labels, g.loops = g.labels[:len(g.labels)-1], g.loops[:len(g.loops)-1]
	return seq(condition, ins(opIf, blockVoid), body, ins(opEnd))
}

func (g *generator) values(depth int, types string) (out []byte) {
	for i := range len(types) {
		out = append(out, g.value(depth, types[i])...)
	}
	return out
}

// call calls a later function, directly or through the table, and drops its
// results. A global counts calls and ends them after some, since calls in
// loops multiply.
func (g *generator) call(depth int) []byte {
	if g.fn+1 >= genFunctions {
		return nil
	}
	to := g.fn + 1 + g.pick(genFunctions-g.fn-1)
	g.labels, g.loops = append(g.labels, ""), append(g.loops, false)
	out := g.values(depth-1, string(g.fns[to].params))
	g.labels, g.loops = g.labels[:len(g.labels)-1], g.loops[:len(g.loops)-1]
	if g.pick(3) == 0 {
		out = append(out, seq(i32(to), ins(opCallIndirect, byte(g.e.sig(string(g.fns[to].params), string(g.fns[to].results))), 0))...)
	} else {
		out = append(out, call(uint32(to))...)
	}
	out = append(out, bytes.Repeat(ins(opDrop), len(g.fns[to].results))...)
	count := uint32(len(genTypes))
	return seq(gget(count), i32(100), ins(0x49, opIf, blockVoid), gget(count), i32(1), ins(opAdd32), gset(count), out, ins(opEnd))
}

// address is a number that mostly lies within memory.
func (g *generator) address(depth int) []byte {
	if g.pick(20) == 19 {
		return g.value(depth-1, typeI32)
	}
	return seq(g.value(depth-1, typeI32), i32(0x3fff), ins(0x71))
}

func (g *generator) small(depth int) []byte { return seq(g.value(depth-1, typeI32), i32(3), ins(0x71)) }

func (g *generator) value(depth int, t byte) []byte {
	g.size++
	i := bytes.IndexByte([]byte{typeI32, typeI64, typeF32, typeF64}, t)
	n := 9
	if depth <= 0 || g.size > 200 {
		n = 3
	}
	switch g.pick(n) {
	case 0:
		return [][]byte{i32(g.pick(256) - 100), i64(int64(g.pick(256)) << 30), ins(opF32Const, 0, byte(g.pick(256)), 0x40, 0x40), ins(opF64Const, 0, 0, 0, 0, 0, byte(g.pick(256)), 0x08, 0x40)}[i]
	case 1:
		return gget(uint32(i))
	case 2:
		for k := len(g.locals) - genCounters - 1; k >= 0; k-- {
			if g.locals[k] == t {
				return get(uint32(k))
			}
		}
	case 3: // arithmetic that may trap
		ops := [][]byte{{0x6a, 0x6b, 0x6c, 0x6d, 0x70, 0x71, 0x73, 0x74, 0x76}, {0x7c, 0x7d, 0x7e, 0x7f, 0x82, 0x83, 0x85, 0x86, 0x88}, {0x92, 0x93, 0x94, 0x95, 0x96}, {0xa0, 0xa1, 0xa2, 0xa3, 0xa4}}[i]
		return seq(g.value(depth-1, t), g.value(depth-1, t), ins(ops[g.pick(len(ops))]))
	case 4: // of another type
		switch t {
		case typeI32:
			return [][]byte{
				seq(g.value(depth-1, typeI64), ins(0xa7)), seq(g.value(depth-1, typeF64), ins(opPrefixFC, 2)),
				seq(g.value(depth-1, typeF64), ins(0xaa)), seq(g.value(depth-1, typeI64), ins(0x50)),
				seq(g.value(depth-1, typeF32), g.value(depth-1, typeF32), ins(0x5d)),
			}[g.pick(5)]
		case typeI64:
			return [][]byte{seq(g.value(depth-1, typeI32), ins(0xac)), seq(g.value(depth-1, typeF32), ins(opPrefixFC, 4))}[g.pick(2)]
		case typeF32:
			return seq(g.value(depth-1, typeF64), ins(0xb6))
		}
		return seq(g.value(depth-1, typeI64), ins(0xb9))
	case 5:
		if t == typeI32 {
			return [][]byte{ins(opMemorySize, 0), ins(opPrefixFC, fcTableSize, 1), seq(g.address(depth), load8(uint32(g.pick(100))))}[g.pick(3)]
		}
		return seq(g.value(depth-1, t), g.value(depth-1, t), g.value(depth-1, typeI32), ins(0x1b)) // select
	case 6:
		return seq(g.value(depth-1, typeI32), ins(opIf, t), g.inner(depth, string(t), false), ins(opElse), g.inner(depth, string(t), false), ins(opEnd))
	case 7:
		return seq(ins(opBlock, t), g.inner(depth, string(t), false), ins(opEnd))
	case 8:
		for k := range len(g.locals) - genCounters {
			if g.locals[k] == t {
				return seq(g.value(depth-1, t), ins(opLocalTee), appendU32(nil, uint32(k)))
			}
		}
	}
	return [][]byte{i32(1), i64(1), ins(opF32Const, 0, 0, 0, 0), ins(opF64Const, 0, 0, 0, 0, 0, 0, 0, 0)}[i]
}

// compareRuns runs a module plain and metered and compares results, memory and
// globals.
func compareRuns(t *testing.T, binary []byte) (yields int, trapped bool) {
	t.Helper()
	ctx := context.Background()
	var said [2]string
	var memories [2][]byte
	for k, s := range []*side{newSide(ctx, t, false), newSide(ctx, t, true)} {
		m, err := s.load(ctx, binary, "")
		if err != nil {
			t.Fatalf("metered %t: %v\n%x", s.metered, err, binary)
		}
		f := m.ExportedFunction("run")
		for range 2 { // state stays from one to the next
			results, err := f.Call(ctx, make([]uint64, len(f.Definition().ParamTypes()))...)
			said[k] += outcome(results, f.Definition().ResultTypes(), err) + ";"
			trapped = trapped || err != nil
			for _, depth := range s.depths {
				if err == nil && depth.Get() != maxDepth {
					t.Errorf("the depth is %d after a call", depth.Get())
				}
				depth.Set(maxDepth)
			}
		}
		for i := 0; m.ExportedGlobal(fmt.Sprint("g", i)) != nil; i++ {
			g := m.ExportedGlobal(fmt.Sprint("g", i))
			said[k] += outcome([]uint64{g.Get()}, []api.ValueType{g.Type()}, nil)
		}
		if mem := m.Memory(); mem != nil {
			memories[k], _ = mem.Read(0, mem.Size())
		}
		yields += s.yields
	}
	if said[0] != said[1] {
		t.Errorf("plain gives %s and metered gives %s\n%x", said[0], said[1], binary)
	}
	if !bytes.Equal(memories[0], memories[1]) {
		t.Errorf("the memories differ\n%x", binary)
	}
	return yields, trapped
}

// TestMeterGenerated compares metered with plain on generated modules.
func TestMeterGenerated(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	yields, traps := 0, 0
	const n = 300
	for range n {
		choices := make([]byte, 2000)
		for i := range choices {
			choices[i] = byte(r.Uint32())
		}
		y, trapped := compareRuns(t, generate(choices))
		yields += y
		if trapped {
			traps++
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d modules, %d yields, %d of them trapped", n, yields, traps)
	if yields == 0 || traps == 0 || traps == n {
		t.Error("the modules show nothing")
	}
}

// FuzzMeter lets a fuzzer choose what modules do, and compares metered with
// plain.
func FuzzMeter(f *testing.F) {
	f.Add([]byte{})
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		choices := make([]byte, 500)
		for i := range choices {
			choices[i] = byte(r.Uint32())
		}
		f.Add(choices)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		if len(choices) > 4000 {
			return
		}
		compareRuns(t, generate(choices))
	})
}

// FuzzParse takes any bytes as a module: what parse lets through, meter writes
// so that parse lets it through again.
func FuzzParse(f *testing.F) {
	for _, e := range []*encoder{scanner(), counter(), byCommand()} {
		f.Add(e.bytes())
	}
	for _, bomb := range bombs() {
		e := guestEncoder()
		bomb(e, 2)
		f.Add(e.bytes())
	}
	f.Add(generate(bytes.Repeat([]byte{3, 9, 12, 7, 1}, 100)))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err != nil {
			return
		}
		out, _, err := meter(m, metering{pages: 16, runStart: true})
		if err != nil {
			return
		}
		again, err := parse(out)
		if err != nil {
			// Metering adds to what was at its limit already.
			if r, ok := err.(*Refusal); !ok || !bytes.Contains([]byte(r.Reason), []byte("at most")) && !bytes.Contains([]byte(r.Reason), []byte("too much")) {
				t.Fatalf("metered: %v\n%x", err, b)
			}
			return
		}
		if len(again.bodies) != len(m.bodies) || len(again.allGlobals) != len(m.allGlobals)+3 || again.importFuncs != m.importFuncs+1 {
			t.Fatalf("metered: %d bodies, %d globals, %d imports", len(again.bodies), len(again.allGlobals), again.importFuncs)
		}
	})
}
