package wasm

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/sdk/abi"
)

// encoder writes modules for tests.
type encoder struct {
	types   []funcType
	imports []importEntry
	funcs   []encodedFunc
	tables  []tableType
	memory  *span
	globals []encodedGlobal
	exports []exportEntry
	start   int // function; -1 for none
	tail    []encodedSection
	data    [][2]any // offset int, bytes []byte
}

type encodedFunc struct {
	typ    uint32
	locals []byte // runs, without their count; one run each of two bytes: count, type
	body   []byte // without the last end
	run    string // one more run of locals, of any count
}

type encodedGlobal struct {
	globalType
	init []byte // without the end
}

type encodedSection struct {
	id      byte
	content []byte
}

func newEncoder() *encoder { return &encoder{start: -1} }

func (e *encoder) sig(params, results string) uint32 {
	for i, t := range e.types {
		if t.equal(params, results) {
			return uint32(i)
		}
	}
	e.types = append(e.types, funcType{[]byte(params), []byte(results)})
	return uint32(len(e.types) - 1)
}

// imported adds an imported function; all of them come before the first of
// the module's own.
func (e *encoder) imported(module, name, params, results string) uint32 {
	e.imports = append(e.imports, importEntry{module: module, name: name, kind: kindFunc, typ: e.sig(params, results)})
	return uint32(len(e.imports) - 1)
}

func (e *encoder) fn(export, params, results, locals string, body ...[]byte) uint32 {
	e.funcs = append(e.funcs, encodedFunc{typ: e.sig(params, results), locals: []byte(locals), body: slices.Concat(body...)})
	index := uint32(len(e.imports) + len(e.funcs) - 1)
	if export != "" {
		e.exports = append(e.exports, exportEntry{export, kindFunc, index})
	}
	return index
}

func (e *encoder) global(value byte, mutable bool, init []byte) uint32 {
	e.globals = append(e.globals, encodedGlobal{globalType{value, mutable}, init})
	return uint32(len(e.globals) - 1)
}

func (e *encoder) bytes() []byte {
	out := []byte("\x00asm\x01\x00\x00\x00")
	add := func(id byte, n int, content []byte) {
		if n > 0 {
			content = append(appendU32(nil, uint32(n)), content...)
			out = append(appendU32(append(out, id), uint32(len(content))), content...)
		}
	}
	var types, imports, functions, tables, globals, exports, code, data []byte
	for _, t := range e.types {
		types = append(appendU32(append(types, 0x60), uint32(len(t.params))), t.params...)
		types = append(appendU32(types, uint32(len(t.results))), t.results...)
	}
	for _, i := range e.imports {
		imports = appendU32(append(appendName(appendName(imports, i.module), i.name), i.kind), i.typ)
	}
	for _, t := range e.tables {
		tables = appendSpan(append(tables, t.elem), t.span)
	}
	for _, g := range e.globals {
		globals = append(append(appendGlobalType(globals, g.globalType), g.init...), opEnd)
	}
	for _, x := range e.exports {
		exports = appendU32(append(appendName(exports, x.name), x.kind), x.index)
	}
	for _, f := range e.funcs {
		functions = appendU32(functions, f.typ)
		n := len(f.locals) / 2
		if f.run != "" {
			n++
		}
		body := append(append(appendU32(nil, uint32(n)), f.locals...), f.run...)
		body = append(append(body, f.body...), opEnd)
		code = append(appendU32(code, uint32(len(body))), body...)
	}
	for _, d := range e.data {
		b := d[1].([]byte)
		data = append(append(append(data, 0), i32(d[0].(int))...), opEnd)
		data = append(appendU32(data, uint32(len(b))), b...)
	}
	add(sectionType, len(e.types), types)
	add(sectionImport, len(e.imports), imports)
	add(sectionFunction, len(e.funcs), functions)
	add(sectionTable, len(e.tables), tables)
	if e.memory != nil {
		add(sectionMemory, 1, appendSpan(nil, *e.memory))
	}
	add(sectionGlobal, len(e.globals), globals)
	add(sectionExport, len(e.exports), exports)
	if e.start >= 0 {
		out = append(append(out, sectionStart, byte(len(appendU32(nil, uint32(e.start))))), appendU32(nil, uint32(e.start))...)
	}
	for _, s := range e.tail {
		out = append(appendU32(append(out, s.id), uint32(len(s.content))), s.content...)
	}
	add(sectionCode, len(e.funcs), code)
	add(sectionData, len(e.data), data)
	return out
}

// A few instructions.
func ins(b ...byte) []byte         { return b }
func i32(n int) []byte             { return appendS64([]byte{opI32Const}, int64(n)) }
func i64(n int64) []byte           { return appendS64([]byte{opI64Const}, n) }
func get(n uint32) []byte          { return appendU32([]byte{opLocalGet}, n) }
func set(n uint32) []byte          { return appendU32([]byte{opLocalSet}, n) }
func gget(n uint32) []byte         { return appendU32([]byte{opGlobalGet}, n) }
func gset(n uint32) []byte         { return appendU32([]byte{opGlobalSet}, n) }
func call(n uint32) []byte         { return appendU32([]byte{opCall}, n) }
func load8(offset uint32) []byte   { return appendU32([]byte{0x2d, 0}, offset) }
func store8(offset uint32) []byte  { return appendU32([]byte{0x3a, 0}, offset) }
func seq(parts ...[]byte) []byte   { return slices.Concat(parts...) }
func block(parts ...[]byte) []byte { return wrap(opBlock, parts) }
func loop(parts ...[]byte) []byte  { return wrap(opLoop, parts) }
func wrap(op byte, p [][]byte) []byte {
	return append(append([]byte{op, blockVoid}, slices.Concat(p...)...), opEnd)
}

const (
	opAdd32   = 0x6a
	opGeU32   = 0x4f
	opEq32    = 0x46
	opEqz32   = 0x45
	bufferAt  = 1 << 10
	resultAt  = 512
	stateAt   = 256
	bufferMax = 48 << 10
)

// guestEncoder starts a module that keeps to the ABI: its buffer is at
// bufferAt, and it subscribes to nothing. Imports must be added by imports,
// before anything else.
func guestEncoder(imports ...func(*encoder)) *encoder {
	e := newEncoder()
	for _, f := range imports {
		f(e)
	}
	e.memory = &span{min: 1}
	e.exports = append(e.exports, exportEntry{"memory", kindMemory, 0})
	e.fn(abi.ExportABI, "", vI32, "", i32(abi.Version))
	e.fn(abi.ExportBuffer, vI32, vI32, "", get(0), i32(bufferMax), ins(0x4b, opIf, typeI32), i32(0), ins(opElse), i32(bufferAt), ins(opEnd))
	e.fn(abi.ExportInit, vI32, vI64, "", i64(0))
	return e
}

// result is the i64 for a record.
func result(p, n uint32) []byte { return i64(int64(uint64(p)<<32 | uint64(n))) }

// hook is the export of the hook that tests use.
var hook = abi.OnCallRequest

func (e *encoder) hook(locals string, body ...[]byte) *encoder {
	e.fn(hook.Export(), vI32, vI64, locals, body...)
	return e
}

// logSink is a log of the lines that guests write.
type logSink struct {
	mu    sync.Mutex
	lines []string
}

func (l *logSink) Enabled(context.Context, slog.Level) bool { return true }
func (l *logSink) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logSink) WithGroup(string) slog.Handler            { return l }
func (l *logSink) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, r.Message)
	return nil
}

func testCompiler(t testing.TB) *Compiler {
	t.Helper()
	c, err := NewCompiler(Compilation{Timeout: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// open compiles and opens a module; what it makes is closed with the test.
func open(t testing.TB, binary []byte, change ...func(*Binding)) *Guest {
	t.Helper()
	m, err := testCompiler(t).Compile(context.Background(), binary, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	b := Binding{Name: "test", Limits: Limits{Instances: 4, Timeout: 200 * time.Millisecond, Wait: 10 * time.Second}}
	for _, f := range change {
		f(&b)
	}
	g, err := m.Open(context.Background(), b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func slogger(h slog.Handler) *slog.Logger { return slog.New(h) }
