// Command guest is a guest module written against the ABI alone.
package main

import (
	"unsafe"
)

func main() {}

var (
	buffer  []byte
	output  []byte
	deny    string
	hoarded [][]byte
)

//go:wasmimport weir_v1 log
func log(level uint32, p unsafe.Pointer, n uint32)

//go:wasmexport weir_abi
func abiVersion() uint32 { return 1 << 16 }

//go:wasmexport weir_buf
func buf(n uint32) unsafe.Pointer {
	if uint32(len(buffer)) < n {
		buffer = make([]byte, n)
	}
	return unsafe.Pointer(unsafe.SliceData(buffer))
}

//go:wasmexport weir_init
func start(n uint32) uint64 {
	line := "started"
	log(1, unsafe.Pointer(unsafe.StringData(line)), uint32(len(line)))
	// The configuration is {"deny":"NAME"}: the fourth string in quotes.
	config := field(buffer[:n], 1)
	quotes, from := 0, 0
	for i, c := range config {
		if c == '"' {
			if quotes++; quotes == 3 {
				from = i + 1
			} else if quotes == 4 {
				deny = string(config[from:i])
			}
		}
	}
	sub := appendField(nil, 1, "on_call_request")
	sub = appendField(sub, 3, "*")
	return give(appendField(output[:0], 1, string(sub)))
}

//go:wasmexport weir_on_call_request
func onCallRequest(n uint32) uint64 {
	switch tool := field(buffer[:n], 1); {
	case string(tool) == deny:
		arg := appendField(nil, 4, "not here")
		op := appendField(nil, 9, string(arg))
		return give(appendField(output[:0], 1, string(op)))
	case string(tool) == "scan":
		for _, c := range buffer[:n] {
			if c == '~' {
				return give(appendField(output[:0], 1, string(appendField(nil, 9, ""))))
			}
		}
	case string(tool) == "panic":
		panic("asked to")
	case string(tool) == "hog":
		for {
			hoarded = append(hoarded, make([]byte, 1<<20))
		}
	}
	return 0
}

func give(b []byte) uint64 {
	output = b
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))<<32 | uint64(len(b))
}

// field returns field want of a record.
func field(b []byte, want uint64) []byte {
	for len(b) > 0 {
		key, k := uvarint(b)
		n, l := uvarint(b[k:])
		b = b[k+l:]
		if key&7 == 0 {
			continue
		}
		if key>>3 == want {
			return b[:n]
		}
		b = b[n:]
	}
	return nil
}

func uvarint(b []byte) (v uint64, n int) {
	for shift := 0; ; shift += 7 {
		c := b[n]
		n++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, n
		}
	}
}

func appendField(b []byte, n byte, s string) []byte {
	b = append(b, n<<3|2)
	l := len(s)
	for l >= 0x80 {
		b = append(b, byte(l)|0x80)
		l >>= 7
	}
	return append(append(b, byte(l)), s...)
}
