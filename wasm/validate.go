package wasm

import (
	"bytes"
	"fmt"
	"math"
)

// The limits of a module. Those of one function are set so that the engine
// compiles it in about a second, whatever it holds: it can be stopped between
// functions only.
const (
	maxModule       = 10 << 20 // bytes
	maxCustom       = 4 << 20  // bytes of all custom sections: names and debug information
	maxName         = 1 << 10  // bytes of one name
	maxTypes        = 10_000
	maxTypeValues   = 256 // parameters, and results, of one type
	maxImports      = 1_000
	maxFunctions    = 100_000
	maxTables       = 8
	maxTableEntries = 100_000 // of all tables at the start, and of each as it grows
	maxGlobals      = 10_000
	maxExports      = 1_000
	maxSegments     = 10_000  // element segments
	maxData         = 200_000 // data segments, of which the Go toolchain makes one for every stretch without zeros
	maxElements     = 1_000_000
	maxLocals       = 50_000    // of one function, parameters included
	maxBody         = 512 << 10 // bytes of one function
	maxNesting      = 1_000     // blocks of one function within each other
	maxTargets      = 32_768    // of all br_table instructions of one function
)

// Value types, as the binary format writes them.
const (
	typeI32       = 0x7f
	typeI64       = 0x7e
	typeF32       = 0x7d
	typeF64       = 0x7c
	typeV128      = 0x7b
	typeFuncref   = 0x70
	typeExternref = 0x6f
)

// Kinds of imports and exports.
const (
	kindFunc = iota
	kindTable
	kindMemory
	kindGlobal
)

// Sections by their numbers in the binary format.
const (
	sectionCustom = iota
	sectionType
	sectionImport
	sectionFunction
	sectionTable
	sectionMemory
	sectionGlobal
	sectionExport
	sectionStart
	sectionElement
	sectionCode
	sectionData
	sectionDataCount
)

var sectionNames = [...]string{"custom", "type", "import", "function", "table", "memory", "global", "export", "start", "element", "code", "data", "data count"}

// sectionOrder is where a section stands among the others: the data count
// section comes before the code section, although its number is higher.
var sectionOrder = [...]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 10}

type funcType struct{ params, results []byte }

func (f funcType) equal(params, results string) bool {
	return string(f.params) == params && string(f.results) == results
}

func (f funcType) String() string { return valueNames(f.params) + " -> " + valueNames(f.results) }

func valueNames(types []byte) string {
	s := "("
	for i, t := range types {
		if i > 0 {
			s += ", "
		}
		switch t {
		case typeI32:
			s += "i32"
		case typeI64:
			s += "i64"
		case typeF32:
			s += "f32"
		case typeF64:
			s += "f64"
		case typeV128:
			s += "v128"
		case typeFuncref:
			s += "funcref"
		default:
			s += "externref"
		}
	}
	return s + ")"
}

// span is the size of a table in entries, or of a memory in pages of 64 KiB.
type span struct {
	min, max uint32
	bounded  bool // max is set
}

type tableType struct {
	elem byte
	span
}

type globalType struct {
	value   byte
	mutable bool
}

type importEntry struct {
	module, name string
	kind         byte
	typ          uint32 // of a function
	table        tableType
	memory       span
	global       globalType
}

type exportEntry struct {
	name  string
	kind  byte
	index uint32
}

// constExpr is the initial value of a global, the offset of a segment or an
// element. It is one instruction: raw holds it without the end, and function
// is its index when it is ref.func, else -1.
type constExpr struct {
	raw      []byte
	function int64
}

type globalEntry struct {
	globalType
	init constExpr
}

type elementSegment struct {
	flags     uint32
	table     uint32
	offset    constExpr
	kind      byte     // elemkind or reftype byte, as flags ask for it
	functions []uint32 // when flags say indices
	exprs     []constExpr
}

type dataSegment struct {
	flags  uint32
	offset constExpr
	bytes  []byte
}

// module is a decoded module. It holds slices of the bytes that it was decoded
// from.
type module struct {
	types       []funcType
	imports     []importEntry
	functions   []uint32 // types of the module's own functions
	tables      []tableType
	memories    []span
	globals     []globalEntry
	exports     []exportEntry
	start       int64 // index of a function; -1 for none
	elements    []elementSegment
	dataCount   int64 // -1 for none
	data        []dataSegment
	bodies      []body
	custom      int  // bytes
	byGo        bool // the Go toolchain made it, by what it says
	nesting     int  // blocks of one function within each other that are allowed
	importFuncs int  // imported functions, which come first in the index space
	allFuncs    []uint32
	allTables   []tableType
	allMemories []span
	allGlobals  []globalType
}

// parse decodes a module of the core specification 2.0 in whole and holds it
// to the limits. Indices are checked against what they point into; types of
// operands are left to the engine, which checks them in what meter wrote.
func parse(b []byte) (*module, error) { return parseWithin(b, maxModule, maxNesting) }

// parseServer is parse for a server, which may be larger: the Go toolchain makes a block of
// every place in a function that control comes to, and a large library has functions with
// more of them than guests may have.
func parseServer(b []byte) (*module, error) { return parseWithin(b, MaxServerModule, 4*maxNesting) }

func parseWithin(b []byte, most, nesting int) (*module, error) {
	if len(b) > most {
		return nil, &Refusal{"module", fmt.Sprintf("%d bytes: at most %d are allowed", len(b), most)}
	}
	if len(b) < 8 || string(b[:4]) != "\x00asm" {
		return nil, &Refusal{"module", "not a WebAssembly module"}
	}
	if string(b[4:8]) != "\x01\x00\x00\x00" {
		return nil, &Refusal{"module", "not a core module of version 1: components are not supported"}
	}
	m := &module{start: -1, dataCount: -1, nesting: nesting}
	r := &reader{b: b, pos: 8, section: "module"}
	last := 0
	for r.err == nil && r.left() > 0 {
		id := r.byte()
		size := r.u32()
		if r.err == nil && int(id) >= len(sectionNames) {
			r.fail("section %d is unknown", id)
		}
		part := r.bytes(int(min(size, math.MaxInt32)))
		if r.err != nil {
			return nil, r.err
		}
		if id == sectionCustom {
			m.custom += len(part)
			s := &reader{b: part, section: "custom"}
			if s.name() == "producers" && bytes.Contains(s.b[s.pos:], []byte("Go cmd/compile")) {
				m.byGo = true
			}
			if m.custom > maxCustom {
				s.fail("%d bytes of names and debug information: at most %d are allowed: leave them out (Rust: -C strip=symbols; C: wasm-ld --strip-all; Go: -ldflags=-s)", m.custom, maxCustom)
			}
			if s.err != nil {
				return nil, s.err
			}
			continue
		}
		if sectionOrder[id] <= last {
			r.fail("the %s section is out of order or there twice", sectionNames[id])
			return nil, r.err
		}
		last = sectionOrder[id]
		s := &reader{b: part, section: sectionNames[id]}
		m.section(s, id)
		if s.err == nil && s.left() > 0 {
			s.fail("%d bytes too many", s.left())
		}
		if s.err != nil {
			return nil, s.err
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	if len(m.bodies) != len(m.functions) {
		return nil, &Refusal{"code", fmt.Sprintf("%d bodies for %d functions", len(m.bodies), len(m.functions))}
	}
	if m.dataCount >= 0 && int(m.dataCount) != len(m.data) {
		return nil, &Refusal{"data count", fmt.Sprintf("says %d of %d segments", m.dataCount, len(m.data))}
	}
	return m, nil
}

func (m *module) section(r *reader, id byte) {
	switch id {
	case sectionType:
		for range r.count("types", maxTypes) {
			m.types = append(m.types, r.funcType())
		}
	case sectionImport:
		for range r.count("imports", maxImports) {
			m.readImport(r)
		}
		m.importFuncs = len(m.allFuncs)
	case sectionFunction:
		for range r.count("functions", maxFunctions) {
			m.functions = append(m.functions, m.typeIndex(r))
		}
		m.allFuncs = append(m.allFuncs, m.functions...)
	case sectionTable:
		for range r.count("tables", maxTables) {
			m.tables = append(m.tables, m.addTable(r))
		}
	case sectionMemory:
		for range r.count("memories", 1) {
			m.memories = append(m.memories, m.addMemory(r))
		}
	case sectionGlobal:
		for range r.count("globals", maxGlobals) {
			g := globalEntry{globalType: r.globalType()}
			g.init = m.constExpr(r)
			m.globals = append(m.globals, g)
			m.allGlobals = append(m.allGlobals, g.globalType)
		}
	case sectionExport:
		seen := make(map[string]bool)
		for range r.count("exports", maxExports) {
			e := exportEntry{name: r.name(), kind: r.byte(), index: r.u32()}
			if r.err != nil {
				return
			}
			if seen[e.name] {
				r.fail("%q is exported twice", e.name)
			}
			seen[e.name] = true
			m.checkKind(r, e.kind, e.index)
			m.exports = append(m.exports, e)
		}
	case sectionStart:
		m.start = int64(m.functionIndex(r))
	case sectionElement:
		entries := 0
		for range r.count("segments", maxSegments) {
			s := m.elementSegment(r)
			entries += len(s.functions) + len(s.exprs)
			if entries > maxElements {
				r.fail("more than %d elements", maxElements)
			}
			m.elements = append(m.elements, s)
		}
	case sectionDataCount:
		m.dataCount = int64(r.u32())
		if m.dataCount > maxData {
			r.fail("%d segments: at most %d are allowed", m.dataCount, maxData)
		}
	case sectionCode:
		m.readCode(r)
	case sectionData:
		for range r.count("segments", maxData) {
			m.data = append(m.data, m.dataSegment(r))
		}
	}
}

func (r *reader) valueType() byte {
	t := r.byte()
	if r.err == nil && (t < typeV128 || t > typeI32) && t != typeFuncref && t != typeExternref {
		r.fail("value type 0x%02x is unknown", t)
	}
	return t
}

func (r *reader) refType() byte {
	t := r.byte()
	if r.err == nil && t != typeFuncref && t != typeExternref {
		r.fail("reference type 0x%02x is unknown", t)
	}
	return t
}

func (r *reader) funcType() funcType {
	if form := r.byte(); r.err == nil && form != 0x60 {
		r.fail("type form 0x%02x is unknown", form)
	}
	values := func(what string) []byte {
		n := r.count(what, maxTypeValues)
		start := r.pos
		for range n {
			r.valueType()
		}
		return r.b[start:r.pos]
	}
	return funcType{values("parameters"), values("results")}
}

func (r *reader) span(what string, most uint32) span {
	var s span
	flags := r.byte()
	if r.err == nil && flags > 1 {
		r.fail("limits 0x%02x are unknown: shared and 64-bit memories are not supported", flags)
	}
	s.min = r.u32()
	if flags == 1 {
		s.bounded, s.max = true, r.u32()
		if s.max < s.min {
			r.fail("a %s of at least %d and at most %d", what, s.min, s.max)
		}
	}
	if r.err == nil && s.min > most {
		r.fail("a %s of at least %d: at most %d are allowed", what, s.min, most)
	}
	return s
}

func (r *reader) globalType() globalType {
	g := globalType{value: r.valueType()}
	mutable := r.byte()
	if r.err == nil && mutable > 1 {
		r.fail("mutability 0x%02x is unknown", mutable)
	}
	g.mutable = mutable == 1
	return g
}

func (m *module) addTable(r *reader) tableType {
	t := tableType{elem: r.refType()}
	t.span = r.span("table", maxTableEntries)
	m.allTables = append(m.allTables, t)
	var total uint64
	for _, t := range m.allTables {
		total += uint64(t.min)
	}
	if total > maxTableEntries {
		r.fail("tables of %d entries: at most %d are allowed", total, maxTableEntries)
	}
	if len(m.allTables) > maxTables {
		r.fail("%d tables: at most %d are allowed", len(m.allTables), maxTables)
	}
	return t
}

func (m *module) addMemory(r *reader) span {
	s := r.span("memory (in pages of 64 KiB)", 1<<16)
	if s.max > 1<<16 {
		r.fail("a memory of at most %d pages: there cannot be more than 65536", s.max)
	}
	m.allMemories = append(m.allMemories, s)
	if len(m.allMemories) > 1 {
		r.fail("%d memories: one is allowed", len(m.allMemories))
	}
	return s
}

func (m *module) readImport(r *reader) {
	e := importEntry{module: r.name(), name: r.name(), kind: r.byte()}
	switch e.kind {
	case kindFunc:
		e.typ = m.typeIndex(r)
		m.allFuncs = append(m.allFuncs, e.typ)
	case kindTable:
		e.table = m.addTable(r)
	case kindMemory:
		e.memory = m.addMemory(r)
	case kindGlobal:
		e.global = r.globalType()
		m.allGlobals = append(m.allGlobals, e.global)
	default:
		r.fail("import kind 0x%02x is unknown", e.kind)
	}
	m.imports = append(m.imports, e)
}

func (m *module) checkKind(r *reader, kind byte, index uint32) {
	n := 0
	switch kind {
	case kindFunc:
		n = len(m.allFuncs)
	case kindTable:
		n = len(m.allTables)
	case kindMemory:
		n = len(m.allMemories)
	case kindGlobal:
		n = len(m.allGlobals)
	default:
		r.fail("export kind 0x%02x is unknown", kind)
	}
	if uint64(index) >= uint64(n) {
		r.fail("index %d of %d", index, n)
	}
}

// index reads an index below n.
func (r *reader) index(what string, n int) uint32 {
	i := r.u32()
	if r.err == nil && uint64(i) >= uint64(n) {
		r.fail("%s %d of %d", what, i, n)
		return 0
	}
	return i
}

func (m *module) typeIndex(r *reader) uint32     { return r.index("type", len(m.types)) }
func (m *module) functionIndex(r *reader) uint32 { return r.index("function", len(m.allFuncs)) }
