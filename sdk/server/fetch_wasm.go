//go:build wasip1

package server

import "unsafe"

//go:wasmimport weir_v1 http_call
func httpCall(p unsafe.Pointer, n uint32, out unsafe.Pointer, room uint32) int64

//go:wasmimport weir_v1 answer
func lastAnswer(out unsafe.Pointer, room uint32) int64

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// fetch asks the host, once more where there was too little room for the answer.
func fetch(q Request) ([]byte, error) {
	record, out := q.Append(nil), make([]byte, 4<<10)
	n := httpCall(pointer(record), uint32(len(record)), pointer(out), uint32(len(out)))
	if n > int64(len(out)) {
		out = make([]byte, n)
		n = lastAnswer(pointer(out), uint32(len(out)))
	}
	if n < 0 {
		return nil, Failure(n)
	}
	return out[:n], nil
}
