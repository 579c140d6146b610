package wasm

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/sdk/abi"
)

// mapStore is a store of the values that guests keep.
type mapStore struct {
	edge.Store // nil: what is not defined below is not called

	mu     sync.Mutex
	values map[string][]byte
	down   bool
	spent  bool // the guest's share is full
}

var errDown = errors.New("down")

func (s *mapStore) Get(_ context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errDown
	}
	return s.values[key], nil
}

func (s *mapStore) Put(_ context.Context, key string, value []byte, _ time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spent {
		return fmt.Errorf("put: %w", edge.ErrShare)
	}
	if s.down {
		return errDown
	}
	s.values[key] = value
	return nil
}

func (s *mapStore) Update(_ context.Context, key string, _ time.Duration, change func([]byte) ([]byte, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errDown
	}
	v, err := change(s.values[key])
	if err == nil {
		s.values[key] = v
	}
	return err
}

// hostGuest imports every function of the ABI and answers with the value that
// one call of one of them leaves, and 64 bytes from stateAt on.
func hostGuest(name string, args ...[]byte) []byte {
	e := guestEncoder(func(e *encoder) {
		f, ok := hostFunctionNamed(abi.ImportModule, name)
		if !ok {
			panic(name)
		}
		e.imported(f.module, f.name, f.params, f.results)
	})
	f, _ := hostFunctionNamed(abi.ImportModule, name)
	body := seq(i32(resultAt), seq(args...), call(0))
	if f.results == vI32 {
		body = append(body, 0xac) // with its sign, as 64 bits
	}
	body = append(body, 0x37, 0, 0) // i64.store
	for i := range 8 {
		body = append(body, seq(i32(resultAt), i32(stateAt+8*i), ins(0x29, 0, 0, 0x37, 0), appendU32(nil, uint32(8+8*i)))...)
	}
	e.data = append(e.data, [2]any{64, []byte("the key")}, [2]any{80, []byte("a value")})
	return e.hook("", body, result(resultAt, 72)).bytes()
}

func TestHostFunctions(t *testing.T) {
	store := &mapStore{values: make(map[string][]byte)}
	var metrics []string
	grants := func(b *Binding) {
		b.Grants = []string{abi.GrantKV, abi.GrantKeys, abi.GrantMetrics, abi.GrantRandom}
		b.Store, b.Isolation = store, PerRequest
		b.Keys = map[string]edge.Secret{"the key": "secret"}
		b.Metric = func(name string, gauge bool, delta int64) {
			metrics = append(metrics, fmt.Sprintf("%s %t %d", name, gauge, delta))
		}
	}
	key, value := seq(i32(64), i32(7)), seq(i32(80), i32(7))
	mac := hmac.New(sha256.New, []byte("secret"))
	mac.Write([]byte("a value"))
	sum := sha256.Sum256([]byte("a value"))
	for _, c := range []struct {
		title, name string
		args        []byte
		want        int64
		data        []byte // at stateAt
	}{
		{"get nothing", "kv_get", seq(key, i32(stateAt), i32(64)), abi.ErrNotFound, nil},
		{"get no key", "kv_get", seq(i32(64), i32(0), i32(stateAt), i32(64)), abi.ErrArgument, nil},
		{"set", "kv_set", seq(key, value, i64(1000)), 0, nil},
		{"get", "kv_get", seq(key, i32(stateAt), i32(64)), 7, []byte("a value")},
		{"get too much", "kv_get", seq(key, i32(stateAt), i32(6)), 7, make([]byte, 7)},
		{"set for ever", "kv_set", seq(key, value, i64(0)), abi.ErrArgument, nil},
		{"set for a year", "kv_set", seq(key, value, i64(365*24*3600*1000)), abi.ErrArgument, nil},
		{"set too much", "kv_set", seq(key, i32(0), i32(MaxValue+1), i64(1000)), abi.ErrLimit, nil},
		{"count", "kv_incr", seq(i32(64), i32(3), i64(5), i64(1000)), 5, nil},
		{"count on", "kv_incr", seq(i32(64), i32(3), i64(6), i64(1000)), 11, nil},
		{"count too far", "kv_incr", seq(i32(64), i32(3), i64(math.MaxInt64), i64(1000)), math.MaxInt64, nil},
		{"count back", "kv_incr", seq(i32(64), i32(3), i64(-1), i64(1000)), abi.ErrArgument, nil},
		{"hmac", "hmac", seq(key, value, i32(stateAt)), 32, mac.Sum(nil)},
		{"hmac, no such key", "hmac", seq(i32(64), i32(3), value, i32(stateAt)), abi.ErrNotFound, nil},
		{"sha256", "sha256", seq(value, i32(stateAt)), 0, sum[:]},
		{"metric", "metric", seq(i32(80), i32(1), i32(abi.MetricGauge), i64(-3)), 0, nil},
		{"metric with a space", "metric", seq(value, i32(0), i64(1)), abi.ErrArgument, nil},
		{"too much random", "random", seq(i32(0), i32(MaxRandom+1)), abi.ErrLimit, nil},
		{"log level", "log_level", nil, abi.LevelError, nil},
	} {
		g := open(t, hostGuest(c.name, c.args), grants)
		out, err := g.Call(context.Background(), hook, "", Sender{}, nil, nil)
		if err != nil || len(out) != 72 {
			t.Fatalf("%s: %x, %v", c.title, out, err)
		}
		if got := int64(binary.LittleEndian.Uint64(out)); got != c.want {
			t.Errorf("%s: got %d, want %d", c.title, got, c.want)
		}
		if !bytes.HasPrefix(out[8:], c.data) {
			t.Errorf("%s: got %x, want %x", c.title, out[8:], c.data)
		}
	}
	if _, ok := store.values["weir:guest:test:the key"]; !ok || len(store.values) != 2 {
		t.Errorf("the store holds %q", store.values)
	}
	if len(metrics) != 1 || metrics[0] != "a true -3" {
		t.Errorf("metrics %q", metrics)
	}
	store.down = true
	out, err := open(t, hostGuest("kv_get", seq(key, i32(stateAt), i32(64))), grants).Call(context.Background(), hook, "", Sender{}, nil, nil)
	if err != nil || int64(binary.LittleEndian.Uint64(out)) != abi.ErrUnavailable {
		t.Errorf("a store that is down: %x, %v", out, err)
	}
	store.down, store.spent = false, true
	out, err = open(t, hostGuest("kv_set", seq(key, value, i64(1000))), grants).Call(context.Background(), hook, "", Sender{}, nil, nil)
	if err != nil || int64(binary.LittleEndian.Uint64(out)) != abi.ErrLimit {
		t.Errorf("a share that is full: %x, %v", out, err)
	}
	for _, clock := range []string{"now_ms", "mono_ns"} {
		out, err := open(t, hostGuest(clock), grants).Call(context.Background(), hook, "", Sender{}, nil, nil)
		if err != nil || int64(binary.LittleEndian.Uint64(out)) <= 0 {
			t.Errorf("%s: %x, %v", clock, out, err)
		}
	}
}

// TestInit looks at what a guest may return from its initialization.
func TestInit(t *testing.T) {
	sub := func(fields ...[]byte) []byte { return abi.AppendBytes(nil, abi.InitSubscription, seq(fields...)) }
	name := abi.AppendString(nil, abi.SubHook, hook.String())
	for _, c := range []struct {
		record []byte
		want   string // "" for success
	}{
		{sub(name, abi.AppendString(nil, abi.SubTool, "delete_*"), abi.AppendString(nil, abi.SubHeader, "X-User"), abi.AppendString(nil, abi.SubPointer, "/path"),
			abi.AppendUint(nil, abi.SubField, abi.CallTool), abi.AppendUint(nil, 99, 1)), ""},
		{abi.AppendString(nil, abi.InitError, "prefix is missing"), "prefix is missing"},
		{sub(abi.AppendString(nil, abi.SubHook, "on_nothing")), `there is no hook "on_nothing"`},
		{sub(abi.AppendString(nil, abi.SubHook, "on_event")), "there is no function weir_on_event"},
		{sub(), "names no hook"},
		{sub(name, abi.AppendString(nil, abi.SubPointer, "path")), "no JSON pointer"},
		{sub(name, abi.AppendUint(nil, abi.SubVariesBy, 4)), "varies_by 4"},
		{sub(name, bytes.Repeat(abi.AppendString(nil, abi.SubTool, "a"), 65)), "more than 64"},
		{bytes.Repeat(sub(name), 257), "more than 256"},
		{[]byte{0xff}, "malformed"},
	} {
		e := guestEncoder().hook("", i64(0))
		e.memory.min = 2
		const at = 1 << 16
		e.data = append(e.data, [2]any{at, c.record})
		e.funcs[2].body = result(at, uint32(len(c.record)))
		m, err := testCompiler(t).Compile(context.Background(), e.bytes(), "")
		if err != nil {
			t.Fatal(err)
		}
		g, err := m.Open(context.Background(), Binding{Name: "test"})
		if c.want == "" {
			if err != nil {
				t.Errorf("%q: %v", c.record, err)
			} else {
				s := g.Subscriptions()[0]
				if s.Tools[0] != "delete_*" || s.Headers[0] != "x-user" || s.Pointers[0] != "/path" || s.Fields != 1<<abi.CallTool {
					t.Errorf("subscription %+v", s)
				}
				g.Close()
			}
		} else if err == nil || !bytes.Contains([]byte(err.Error()), []byte(c.want)) {
			t.Errorf("%.60q: got %v, want %q", c.record, err, c.want)
		}
		m.Close()
	}
	// A guest of another version.
	e := guestEncoder().hook("", i64(0))
	e.funcs[0].body = i32(2 << 16)
	m, err := testCompiler(t).Compile(context.Background(), e.bytes(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Open(context.Background(), Binding{Name: "test"}); err == nil || !bytes.Contains([]byte(err.Error()), []byte("version 2.0")) {
		t.Errorf("version 2: %v", err)
	}
}

func TestContract(t *testing.T) {
	without := func(name string) []byte {
		e := guestEncoder().hook("", i64(0))
		for i, x := range e.exports {
			if x.name == name {
				e.exports = append(e.exports[:i], e.exports[i+1:]...)
				break
			}
		}
		return e.bytes()
	}
	for _, name := range []string{abi.ExportMemory, abi.ExportABI, abi.ExportBuffer, abi.ExportInit} {
		refused(t, without(name), name+" is missing")
	}
	e := guestEncoder()
	e.fn("weir_on_nothing", "", "", "")
	refused(t, e.bytes(), `"weir_on_nothing" is not a name of the ABI`)
	e = guestEncoder()
	e.fn(exportFuel, "", "", "")
	refused(t, e.bytes(), `"weir.fuel" is not a name of the ABI`)
	e = guestEncoder()
	e.fn(hook.Export(), vI64, vI64, "", i64(0))
	refused(t, e.bytes(), "weir_on_call_request is (i64) -> (i64) and must be (i32) -> (i64)")
	e = guestEncoder(func(e *encoder) { e.imported(meterModule, meterYield, vI64+vI64, vI64) })
	refused(t, e.hook("", i64(0)).bytes(), "there is no host function weir_meter.yield")
	e = guestEncoder(func(e *encoder) { e.imported(abi.ImportModule, "log", vI32, "") })
	refused(t, e.hook("", i64(0)).bytes(), "weir_v1.log is imported as (i32) -> ()")
	e = guestEncoder().hook("", i64(0))
	e.global(typeV128, true, seq(ins(opPrefixFD, simdConst), make([]byte, 16)))
	refused(t, e.bytes(), "v128")
	// The counters cannot be named: their indices are not the guest's.
	for i := range 3 {
		e = guestEncoder().hook("", gget(uint32(i)), ins(opDrop), i64(0))
		refused(t, e.bytes(), fmt.Sprintf("global %d of 0", i))
	}
	e = guestEncoder()
	e.hook("", get(1), ins(opDrop), i64(0))
	refused(t, e.bytes(), "local 1 of 1")
	for _, b := range [][]byte{nil, []byte("\x00asm"), []byte("\x00asm\x0d\x00\x01\x00"), []byte("MZ......")} {
		refused(t, b, "module section")
	}
}
