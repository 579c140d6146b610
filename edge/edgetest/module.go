package edgetest

import (
	"bytes"
	"cmp"

	"github.com/weir-edge/weir/sdk/abi"
)

// Module is a guest that is put together by hand, in a moment and without a
// compiler. It subscribes to one hook, if it has an Answer or traps there, and else
// to nothing.
type Module struct {
	Hook     string // that it subscribes to; "" for on_call_request
	Manifest string // JSON text of the section weir.manifest; "" for none
	Random   bool   // it imports random, which stands behind a grant
	Sees     string // the header line that it wants to see; "" for none
	Refuses  bool   // it traps when it is initialized
	Traps    bool   // it traps when it is asked
	Answer   []byte // what it answers, at most 1 KiB
	Counts   int    // where in the answer one is added to a byte before each call; 0 for nowhere
}

// Where things lie in its memory.
const (
	moduleInput  = 1024
	moduleAsks   = 16384
	moduleAnswer = 24576
)

// Bytes returns the binary of the module.
func (m Module) Bytes() []byte {
	const i32, i64 = 0x7f, 0x7e
	const unreachable, end, constant, constant64 = 0x00, 0x0b, 0x41, 0x42
	hooked := m.Traps || m.Answer != nil
	hook := cmp.Or(m.Hook, abi.OnCallRequest.String())
	var asks []byte
	if hooked {
		asks = abi.AppendString(nil, abi.SubHook, hook)
		if m.Sees != "" {
			asks = abi.AppendString(asks, abi.SubHeader, m.Sees)
		}
		asks = abi.AppendBytes(nil, abi.InitSubscription, asks)
	}
	place := func(at int, text []byte) []byte { // of a record, as a constant of 64 bits
		return append([]byte{constant64}, leb(int64(at)<<32|int64(len(text)))...)
	}

	// 1. The bodies of its functions: the ABI 1.0, its buffer, what it subscribes to, its answer.
	bodies := [][]byte{
		append([]byte{constant}, leb(abi.Major<<16)...),
		append([]byte{constant}, leb(moduleInput)...),
		place(moduleAsks, asks),
	}
	if m.Refuses {
		bodies[2] = []byte{unreachable}
	}
	exports := []string{abi.ExportABI, abi.ExportBuffer, abi.ExportInit}
	types := []byte{0, 1, 2}
	if hooked {
		body := []byte{unreachable}
		if !m.Traps {
			body = place(moduleAnswer, m.Answer)
			if at := leb(int64(moduleAnswer + m.Counts)); m.Counts > 0 {
				add := bytes.Join([][]byte{{constant}, at, {constant}, at, {0x2d, 0, 0, constant, 1, 0x6a, 0x3a, 0, 0}}, nil) // load8_u, add, store8
				body = append(add, body...)
			}
		}
		bodies, exports, types = append(bodies, body), append(exports, "weir_"+hook), append(types, 2)
	}

	// 2. The sections.
	out := []byte("\x00asm\x01\x00\x00\x00")
	section := func(id byte, parts ...[]byte) {
		body := bytes.Join(parts, nil)
		out = append(append(append(out, id), uleb(len(body))...), body...)
	}
	name := func(s string) []byte { return append(uleb(len(s)), s...) }
	section(1, []byte{4, 0x60, 0, 1, i32, 0x60, 1, i32, 1, i32, 0x60, 1, i32, 1, i64, 0x60, 2, i32, i32, 1, i32})
	first := 0
	if m.Random {
		section(2, []byte{1}, name(abi.ImportModule), name("random"), []byte{0, 3})
		first = 1
	}
	section(3, uleb(len(types)), types)
	section(5, []byte{1, 0, 1})
	all := append([]byte{byte(1 + len(exports))}, append(name(abi.ExportMemory), 2, 0)...)
	for i, e := range exports {
		all = append(append(all, name(e)...), 0, byte(first+i))
	}
	section(7, all)
	code := uleb(len(bodies))
	for _, b := range bodies {
		code = append(append(append(append(code, uleb(len(b)+2)...), 0), b...), end)
	}
	section(10, code)
	data := []byte{2}
	for _, d := range []struct {
		at   int
		text []byte
	}{{moduleAsks, asks}, {moduleAnswer, m.Answer}} {
		data = append(append(append(data, 0, constant), leb(int64(d.at))...), end)
		data = append(append(data, uleb(len(d.text))...), d.text...)
	}
	section(11, data)
	if m.Manifest != "" {
		section(0, name("weir.manifest"), []byte(m.Manifest))
	}
	return out
}

// uleb and leb write numbers as the binary format does (core specification 2.0,
// 5.2.2).
func uleb(n int) []byte {
	var b []byte
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

func leb(n int64) []byte {
	var b []byte
	for {
		c := byte(n & 0x7f)
		n >>= 7
		if n == 0 && c&0x40 == 0 || n == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}
