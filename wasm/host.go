package wasm

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"math"
	"time"
	"unicode/utf8"

	"github.com/weir-edge/weir/sdk/abi"
)

// hostFunction is what guests may import. call reads its arguments from the
// stack and leaves its result there; it ends the call of the guest by a panic
// with an error.
type hostFunction struct {
	module, name    string
	params, results string // value types
	grant           string // that it stands behind; "" for none
	call            func(in *instance, stack []uint64)
}

const (
	vI32 = "\x7f"
	vI64 = "\x7e"
	vF64 = "\x7c"
)

func hostFunctionNamed(module, name string) (hostFunction, bool) {
	return named(hostFunctions(), module, name)
}

func named(functions []hostFunction, module, name string) (hostFunction, bool) {
	for _, f := range functions {
		if f.module == module && f.name == name {
			return f, true
		}
	}
	return hostFunction{}, false
}

// hostFunctions are all functions that guests may import: those of the ABI,
// and those of WASI that toolchains link in whether they are used or not.
func hostFunctions() []hostFunction {
	v1 := []hostFunction{
		{name: "log", params: vI32 + vI32 + vI32, call: hostLog},
		{name: "log_level", results: vI32, call: hostLogLevel},
		{name: "now_ms", results: vI64, call: func(_ *instance, s []uint64) { s[0] = uint64(time.Now().UnixMilli()) }},
		{name: "mono_ns", results: vI64, call: func(in *instance, s []uint64) { s[0] = uint64(time.Since(in.guest.opened)) }},
		{name: "random", params: vI32 + vI32, results: vI32, grant: abi.GrantRandom, call: hostRandom},
		{name: "sha256", params: vI32 + vI32 + vI32, results: vI32, call: hostSHA256},
		{name: "hmac", params: vI32 + vI32 + vI32 + vI32 + vI32, results: vI64, grant: abi.GrantKeys, call: hostHMAC},
		{name: "kv_get", params: vI32 + vI32 + vI32 + vI32, results: vI64, grant: abi.GrantKV, call: hostGet},
		{name: "kv_set", params: vI32 + vI32 + vI32 + vI32 + vI64, results: vI64, grant: abi.GrantKV, call: hostSet},
		{name: "kv_incr", params: vI32 + vI32 + vI64 + vI64, results: vI64, grant: abi.GrantKV, call: hostIncr},
		{name: "metric", params: vI32 + vI32 + vI32 + vI64, results: vI32, grant: abi.GrantMetrics, call: hostMetric},
		{name: "http_call", params: vI32 + vI32 + vI32 + vI32, results: vI64, grant: abi.GrantHTTP, call: hostFetch},
		{name: "call_tool", params: vI32 + vI32 + vI32 + vI32, results: vI64, grant: abi.GrantTools, call: hostTool},
		{name: "answer", params: vI32 + vI32, results: vI64, call: hostAnswer},
		{name: "pattern", params: vI32 + vI32, results: vI32, call: hostPattern},
		{name: "match", params: vI32 + vI32 + vI32, results: vI32, call: hostMatch},
		{name: "find", params: vI32 + vI32 + vI32 + vI32 + vI32, results: vI64, call: hostFind},
		{name: "replace", params: vI32 + vI32 + vI32 + vI32 + vI32 + vI32 + vI32, results: vI64, call: hostReplace},
		{name: "emit", params: vI32 + vI32 + vI32 + vI32, results: vI32, grant: abi.GrantEvents, call: hostEmit},
	}
	for i := range v1 {
		v1[i].module = abi.ImportModule
	}
	return append(v1, wasiFunctions()...)
}

// view returns n bytes of the guest's memory, or ends the call.
func (in *instance) view(p, n uint64) []byte {
	if p > math.MaxUint32 || n > math.MaxUint32 {
		panic(errABI)
	}
	b, ok := in.memory.Read(uint32(p), uint32(n))
	if !ok {
		panic(errABI)
	}
	return b
}

func code(n int64) uint64 { return uint64(n) }

func hostLog(in *instance, s []uint64) {
	text := in.view(s[1], min(uint64(uint32(s[2])), MaxLine))
	level := slog.LevelDebug
	switch uint32(s[0]) {
	case abi.LevelDebug:
	case abi.LevelInfo:
		level = slog.LevelInfo
	case abi.LevelWarn:
		level = slog.LevelWarn
	default:
		level = slog.LevelError
		in.keepLast(text) // it may be why the guest gives up
	}
	in.guest.log(level, text)
}

func hostLogLevel(in *instance, s []uint64) {
	ctx := context.Background()
	for i, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn} {
		if in.guest.binding.Log.Enabled(ctx, level) {
			s[0] = uint64(i)
			return
		}
	}
	s[0] = abi.LevelError
}

// hostDenied stands in for a function that is not granted, in a guest that does
// without it. All that stand behind grants return a number, which is -2.
func hostDenied(f hostFunction) func(*instance, []uint64) {
	denied := int64(abi.ErrDenied)
	return func(_ *instance, s []uint64) {
		if s[0] = uint64(denied); f.results == vI32 {
			s[0] = uint64(uint32(denied))
		}
	}
}

func hostRandom(in *instance, s []uint64) {
	if uint32(s[1]) > MaxRandom {
		s[0] = uint64(0xffffffff &^ 2) // -3 as an i32
		return
	}
	b := in.view(s[0], s[1])
	_, _ = rand.Read(b) // never fails
	s[0] = 0
}

func hostSHA256(in *instance, s []uint64) {
	sum := sha256.Sum256(in.view(s[0], s[1]))
	in.spend(uint64(uint32(s[1])) / 4)
	copy(in.view(s[2], sha256.Size), sum[:])
	s[0] = 0
}

func hostHMAC(in *instance, s []uint64) {
	key, ok := in.guest.binding.Keys[string(in.view(s[0], min(s[1], MaxKey)))]
	if !ok {
		s[0] = code(abi.ErrNotFound)
		return
	}
	h := hmac.New(sha256.New, []byte(key))
	h.Write(in.view(s[2], s[3]))
	in.spend(uint64(uint32(s[3])) / 4)
	copy(in.view(s[4], sha256.Size), h.Sum(nil))
	s[0] = sha256.Size
}

// key returns the name in the store for a name of the guest.
func (in *instance) key(p, n uint64) (string, bool) {
	if uint32(n) == 0 || uint32(n) > MaxKey {
		return "", false
	}
	name := in.view(p, n)
	return KeyPrefix + in.guest.binding.Name + ":" + string(name), utf8.Valid(name)
}

// wait runs something that waits for the store, and returns 0 or one of abi.Err… below
// zero. That time is not the guest's, but has a bound of its own.
func (in *instance) wait(f func(context.Context) error) int64 {
	switch {
	case in.guest.binding.Store == nil || in.storedFor >= StoreWait:
		return abi.ErrUnavailable
	case in.stored == MaxStored:
		return abi.ErrLimit
	}
	in.stored++
	resume, start := in.clock.pause(), time.Now()
	ctx, cancel := context.WithTimeout(in.call, min(HostWait, StoreWait-in.storedFor))
	err := f(ctx)
	cancel()
	in.storedFor += time.Since(start)
	resume()
	if err != nil {
		return in.guest.front.Unstored(err)
	}
	return 0
}

func hostGet(in *instance, s []uint64) {
	key, ok := in.key(s[0], s[1])
	if !ok {
		s[0] = code(abi.ErrArgument)
		return
	}
	var value []byte
	if failed := in.wait(func(ctx context.Context) (err error) { value, err = in.guest.binding.Store.Get(ctx, key); return }); failed < 0 {
		s[0] = code(failed)
		return
	}
	switch room := uint32(s[3]); {
	case value == nil:
		s[0] = code(abi.ErrNotFound)
	case uint64(len(value)) > uint64(room):
		s[0] = uint64(len(value))
	default:
		copy(in.view(s[2], uint64(len(value))), value)
		s[0] = uint64(len(value))
	}
}

func ttlOf(ms uint64) (time.Duration, bool) {
	if ms == 0 || ms > uint64(MaxTTL/time.Millisecond) {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

func hostSet(in *instance, s []uint64) {
	key, ok := in.key(s[0], s[1])
	ttl, valid := ttlOf(s[4])
	switch {
	case !ok || !valid:
		s[0] = code(abi.ErrArgument)
		return
	case uint32(s[3]) > MaxValue:
		s[0] = code(abi.ErrLimit)
		return
	}
	value := append([]byte{}, in.view(s[2], s[3])...)
	in.acted = true
	s[0] = code(in.wait(func(ctx context.Context) error { return in.guest.binding.Store.Put(ctx, key, value, ttl) }))
}

// hostIncr adds to a number of 8 bytes, little end first, and returns it. The
// sum saturates at 2^63-1, since what is below zero means an error.
func hostIncr(in *instance, s []uint64) {
	key, ok := in.key(s[0], s[1])
	ttl, valid := ttlOf(s[3])
	delta := int64(s[2])
	if !ok || !valid || delta < 0 {
		s[0] = code(abi.ErrArgument)
		return
	}
	var sum uint64
	in.acted = true
	failed := in.wait(func(ctx context.Context) error {
		return in.guest.binding.Store.Update(ctx, key, ttl, func(old []byte) ([]byte, error) {
			sum = 0
			if len(old) == 8 {
				sum = binary.LittleEndian.Uint64(old)
			}
			if sum += uint64(delta); sum > 1<<63-1 {
				sum = 1<<63 - 1
			}
			return binary.LittleEndian.AppendUint64(nil, sum), nil
		})
	})
	if s[0] = sum; failed < 0 {
		s[0] = code(failed)
	}
}

func hostMetric(in *instance, s []uint64) {
	name := in.view(s[0], min(uint64(uint32(s[1])), MaxName+1))
	if len(name) == 0 || len(name) > MaxName {
		s[0] = uint64(0xffffffff &^ 3) // -4 as an i32
		return
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			s[0] = uint64(0xffffffff &^ 3)
			return
		}
	}
	if f := in.guest.binding.Metric; f != nil {
		in.acted = true
		f(string(name), uint32(s[2]) == abi.MetricGauge, int64(s[3]))
	}
	s[0] = 0
}
