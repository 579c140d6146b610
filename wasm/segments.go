package wasm

import (
	"cmp"
	"math"
	"slices"
)

func (m *module) constExpr(r *reader) constExpr {
	start, function := r.pos, int64(-1)
	switch op := r.byte(); op {
	case opI32Const:
		r.signed(32)
	case opI64Const:
		r.signed(64)
	case opF32Const:
		r.bytes(4)
	case opF64Const:
		r.bytes(8)
	case opGlobalGet:
		r.index("global", len(m.allGlobals))
	case opRefNull:
		r.refType()
	case opRefFunc:
		function = int64(m.functionIndex(r))
	case opPrefixFD:
		if sub := r.u32(); r.err == nil && sub != simdConst {
			r.fail("instruction 0xfd 0x%02x in a constant", sub)
		}
		r.bytes(16)
	default:
		r.fail("instruction 0x%02x in a constant", op)
	}
	raw := r.b[start:r.pos:r.pos]
	if end := r.byte(); r.err == nil && end != opEnd {
		r.fail("a constant of more than one instruction")
	}
	return constExpr{raw, function}
}

// elementSegment reads a segment in one of the eight forms of the core
// specification 2.0, 5.5.12.
func (m *module) elementSegment(r *reader) elementSegment {
	s := elementSegment{flags: r.u32()}
	if r.err == nil && s.flags > 7 {
		r.fail("segment form %d is unknown", s.flags)
	}
	passive, explicit, exprs := s.flags&1 != 0, s.flags&2 != 0, s.flags&4 != 0
	if !passive {
		if explicit {
			s.table = r.u32()
		}
		if r.err == nil && uint64(s.table) >= uint64(len(m.allTables)) {
			r.fail("table %d of %d", s.table, len(m.allTables))
		}
		s.offset = m.constExpr(r)
	}
	if passive || explicit {
		if exprs {
			s.kind = r.refType()
		} else if s.kind = r.byte(); s.kind != 0 {
			r.fail("element kind 0x%02x is unknown", s.kind)
		}
	}
	n := r.count("elements", maxElements)
	for range n {
		if r.err != nil {
			return s
		}
		if exprs {
			s.exprs = append(s.exprs, m.constExpr(r))
		} else {
			s.functions = append(s.functions, m.functionIndex(r))
		}
	}
	return s
}

func (m *module) dataSegment(r *reader) dataSegment {
	s := dataSegment{flags: r.u32()}
	switch {
	case s.flags > 2:
		r.fail("segment form %d is unknown", s.flags)
	case s.flags == 2:
		r.index("memory", len(m.allMemories))
		s.offset = m.constExpr(r)
	case s.flags == 0:
		if len(m.allMemories) == 0 {
			r.fail("a segment for a memory that is not there")
		}
		s.offset = m.constExpr(r)
	}
	s.bytes = r.bytes(int(min(r.u32(), math.MaxInt32)))
	return s
}

// joinGap is how many bytes of zeros between two segments are written where that makes one
// of both. The engine keeps more than that of each.
const joinGap = 64

// joined makes one segment of those that lie side by side: linkers leave out zeros, and the
// engine keeps tens of thousands of segments. Where some lie over others, all stay as they
// are.
func joined(data []dataSegment) []dataSegment {
	type placed struct {
		at int64
		dataSegment
	}
	all := make([]placed, len(data))
	for i, s := range data {
		at, ok := place(&s)
		if !ok {
			return data
		}
		all[i] = placed{at, s}
	}
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	var out []dataSegment
	end := int64(0)
	for _, s := range all {
		gap := s.at - end
		if gap < 0 {
			return data
		}
		end = s.at + int64(len(s.bytes))
		if n := len(out); n > 0 && gap <= joinGap {
			last := &out[n-1]
			last.bytes = append(append(last.bytes, make([]byte, gap)...), s.bytes...)
			continue
		}
		s.bytes = append([]byte(nil), s.bytes...)
		out = append(out, s.dataSegment)
	}
	return out
}

// place is where an active segment of the first memory lies.
func place(s *dataSegment) (at int64, ok bool) {
	if s.flags == 1 || len(s.offset.raw) == 0 || s.offset.raw[0] != opI32Const {
		return 0, false
	}
	r := reader{b: s.offset.raw, pos: 1}
	n := r.signed(32)
	return int64(uint32(n)), r.err == nil
}
