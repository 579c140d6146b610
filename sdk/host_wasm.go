//go:build wasip1

package weir

import "unsafe"

// The linker leaves out what a guest does not call, so that it needs no grant
// for it.

//go:wasmimport weir_v1 log
func importLog(level uint32, p unsafe.Pointer, n uint32)

//go:wasmimport weir_v1 log_level
func importLogLevel() uint32

//go:wasmimport weir_v1 now_ms
func importNow() int64

//go:wasmimport weir_v1 mono_ns
func importMono() int64

//go:wasmimport weir_v1 random
func importRandom(p unsafe.Pointer, n uint32) int32

//go:wasmimport weir_v1 sha256
func importSHA256(p unsafe.Pointer, n uint32, out unsafe.Pointer) int32

//go:wasmimport weir_v1 hmac
func importHMAC(key unsafe.Pointer, keyN uint32, p unsafe.Pointer, n uint32, out unsafe.Pointer) int64

//go:wasmimport weir_v1 kv_get
func importGet(key unsafe.Pointer, keyN uint32, out unsafe.Pointer, room uint32) int64

//go:wasmimport weir_v1 kv_set
func importSet(key unsafe.Pointer, keyN uint32, p unsafe.Pointer, n uint32, ttl int64) int64

//go:wasmimport weir_v1 kv_incr
func importIncr(key unsafe.Pointer, keyN uint32, delta, ttl int64) int64

//go:wasmimport weir_v1 metric
func importMetric(name unsafe.Pointer, n, kind uint32, delta int64) int32

//go:wasmimport weir_v1 http_call
func importFetch(p unsafe.Pointer, n uint32, out unsafe.Pointer, room uint32) int64

//go:wasmimport weir_v1 call_tool
func importTool(p unsafe.Pointer, n uint32, out unsafe.Pointer, room uint32) int64

//go:wasmimport weir_v1 answer
func importAnswer(out unsafe.Pointer, room uint32) int64

//go:wasmimport weir_v1 emit
func importEmit(name unsafe.Pointer, nameN uint32, p unsafe.Pointer, n uint32) int32

func ptr(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
func str(s string) unsafe.Pointer { return unsafe.Pointer(unsafe.StringData(s)) }

func hostLog(level int, s string) { importLog(uint32(level), str(s), uint32(len(s))) }
func hostLogLevel() int           { return int(importLogLevel()) }
func hostNow() int64              { return importNow() }
func hostMono() int64             { return importMono() }
func hostRandom(b []byte) int32   { return importRandom(ptr(b), uint32(len(b))) }
func hostSHA256(b []byte, sum *[32]byte) {
	importSHA256(ptr(b), uint32(len(b)), unsafe.Pointer(sum))
}
func hostHMAC(key string, b []byte, sum *[32]byte) int64 {
	return importHMAC(str(key), uint32(len(key)), ptr(b), uint32(len(b)), unsafe.Pointer(sum))
}
func hostGet(key string, b []byte) int64 {
	return importGet(str(key), uint32(len(key)), ptr(b), uint32(len(b)))
}
func hostSet(key string, b []byte, millis int64) int64 {
	return importSet(str(key), uint32(len(key)), ptr(b), uint32(len(b)), millis)
}
func hostIncr(key string, n, millis int64) int64 {
	return importIncr(str(key), uint32(len(key)), n, millis)
}
func hostMetric(name string, kind int, delta int64) int32 {
	return importMetric(str(name), uint32(len(name)), uint32(kind), delta)
}
func hostFetch(record, out []byte) int64 {
	return importFetch(ptr(record), uint32(len(record)), ptr(out), uint32(len(out)))
}
func hostTool(record, out []byte) int64 {
	return importTool(ptr(record), uint32(len(record)), ptr(out), uint32(len(out)))
}
func hostAnswer(out []byte) int64 { return importAnswer(ptr(out), uint32(len(out))) }
func hostEmit(name, data string) int32 {
	return importEmit(str(name), uint32(len(name)), str(data), uint32(len(data)))
}
