package wasm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/sdk/abi"
)

// outsideGuest is a guest that calls one function of the host so often, and
// answers with what the last of these calls left. Where it blocks, it says so.
func outsideGuest(t *testing.T, name string, times int, blocks bool, args []byte) []byte {
	t.Helper()
	f, ok := hostFunctionNamed(abi.ImportModule, name)
	if !ok {
		t.Fatal(name)
	}
	e := guestEncoder(func(e *encoder) { e.imported(f.module, f.name, f.params, f.results) })
	var body []byte
	for range times {
		body = append(body, seq(i32(resultAt), args, call(0))...)
		if f.results == vI32 {
			body = append(body, 0xac) // with its sign, as 64 bits
		}
		body = append(body, 0x37, 0, 0) // i64.store
	}
	sub := abi.AppendString(nil, abi.SubHook, hook.String())
	if blocks {
		sub = abi.AppendUint(sub, abi.SubBlocking, 1)
	}
	record := abi.AppendBytes(nil, abi.InitSubscription, sub)
	const at = 1 << 16
	e.memory.min = 32
	e.data = append(e.data, [2]any{at, record}, [2]any{64, []byte("a request")}, [2]any{80, []byte("seen")})
	e.funcs[2].body = result(at, uint32(len(record)))
	return e.hook("", body, result(resultAt, 8)).bytes()
}

// TestOutside holds what a guest may ask others for, and how often.
func TestOutside(t *testing.T) {
	var asked []string
	grants := func(b *Binding) {
		b.Grants = []string{abi.GrantHTTP, abi.GrantTools, abi.GrantEvents}
		b.Limits.Memory = 4 << 20
		b.Fetch = func(_ context.Context, q []byte) ([]byte, int64) {
			asked = append(asked, string(q))
			return []byte("an answer"), 0
		}
		b.Tool = func(context.Context, []byte) ([]byte, int64) { return make([]byte, MaxAnswer+1), 0 }
		b.Emit = func(_ context.Context, h abi.Hook, name string, data []byte) int64 {
			asked = append(asked, h.String()+" "+name+" "+string(data))
			return 0
		}
	}
	nobody := func(b *Binding) { grants(b); b.Fetch, b.Tool, b.Emit = nil, nil, nil }
	request, room := seq(i32(64), i32(9)), seq(i32(128), i32(64))
	for _, c := range []struct {
		title, name string
		times       int
		silent      bool // it does not say that it waits
		args        []byte
		bind        func(*Binding)
		want        int64
		asked       int
	}{
		{"a request", "http_call", 1, false, seq(request, room), grants, 9, 1},
		{"no room for the answer", "http_call", 1, false, seq(request, i32(128), i32(8)), grants, 9, 1},
		{"as many as may be", "http_call", MaxOutside, false, seq(request, room), grants, 9, MaxOutside},
		{"one more", "http_call", MaxOutside + 1, false, seq(request, room), grants, abi.ErrLimit, MaxOutside},
		{"where it does not wait", "http_call", 1, true, seq(request, room), grants, abi.ErrDenied, 0},
		{"of nobody", "http_call", 1, false, seq(request, room), nobody, abi.ErrDenied, 0},
		{"a large request", "http_call", 1, false, seq(i32(0), i32(MaxRequest), room), grants, 9, 1},
		{"one too large", "http_call", 1, false, seq(i32(0), i32(MaxRequest+1), room), grants, abi.ErrLimit, 0},
		{"an answer too large", "call_tool", 1, false, seq(request, room), grants, abi.ErrLimit, 0},
		{"no answer yet", "answer", 1, false, room, grants, abi.ErrNotFound, 0},
		{"an event", "emit", 1, true, seq(i32(80), i32(4), i32(64), i32(9)), grants, 0, 1},
		{"with a bad name", "emit", 1, true, seq(i32(64), i32(9), i32(64), i32(9)), grants, abi.ErrArgument, 0},
		{"without a name", "emit", 1, true, seq(i32(64), i32(0), i32(64), i32(9)), grants, abi.ErrArgument, 0},
		{"with too long a name", "emit", 1, true, seq(i32(80), i32(65), i32(64), i32(9)), grants, abi.ErrArgument, 0},
		{"with too much to say", "emit", 1, true, seq(i32(80), i32(4), i32(0), i32(MaxEvent+1)), grants, abi.ErrLimit, 0},
		{"that nobody hears", "emit", 1, true, seq(i32(80), i32(4), i32(64), i32(9)), nobody, abi.ErrDenied, 0},
	} {
		asked = nil
		g := open(t, outsideGuest(t, c.name, c.times, !c.silent, c.args), c.bind)
		out, err := g.Call(context.Background(), hook, "", Sender{}, nil, nil)
		if err != nil || len(out) != 8 {
			t.Fatalf("%s: %x, %v", c.title, out, err)
		}
		if got := int64(binary.LittleEndian.Uint64(out)); got != c.want || len(asked) != c.asked {
			t.Errorf("%s: got %d, want %d; %d were asked", c.title, got, c.want, len(asked))
		}
		if c.asked == 1 && c.title == "a request" && asked[0] != "a request" || c.title == "an event" && asked[0] != "on_call_request seen a request" {
			t.Errorf("%s: asked %q", c.title, asked)
		}
	}
	// What lies outside of the memory is a breach of the ABI.
	for _, args := range [][]byte{seq(i32(-1), i32(9), room), seq(request, i32(-1), i32(64)), seq(i32(64), i32(-1), room)} {
		_, err := open(t, outsideGuest(t, "http_call", 1, true, args), grants).Call(context.Background(), hook, "", Sender{}, nil, nil)
		var f *Failure
		if !errors.As(err, &f) || f.Reason != Broken {
			t.Errorf("outside of the memory: %v", err)
		}
	}
}

// slowStore answers when nobody waits any more.
type slowStore struct {
	edge.Store
	asked atomic.Int32
}

func (s *slowStore) Get(ctx context.Context, _ string) ([]byte, error) {
	s.asked.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestStoreIsBounded holds how often one call of a hook may come to the store, and for how
// long it waits there.
func TestStoreIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := new(slowStore)
		for _, c := range []struct {
			title string
			times int
			store edge.Store
			want  int64
		}{
			{"as often as may be", MaxStored, &mapStore{}, abi.ErrNotFound},
			{"once more", MaxStored + 1, &mapStore{}, abi.ErrLimit},
			{"a slow store", 10, slow, abi.ErrUnavailable},
		} {
			g := open(t, outsideGuest(t, "kv_get", c.times, false, seq(i32(64), i32(9), i32(128), i32(64))), func(b *Binding) {
				b.Grants, b.Store, b.Limits.Memory = []string{abi.GrantKV}, c.store, 4<<20
			})
			for range 2 { // each call has its own
				began := time.Now()
				out, err := g.Call(context.Background(), hook, "", Sender{}, nil, nil)
				if err != nil || len(out) != 8 {
					t.Fatalf("%s: %x, %v", c.title, out, err)
				}
				if got := int64(binary.LittleEndian.Uint64(out)); got != c.want {
					t.Errorf("%s: got %d, want %d", c.title, got, c.want)
				}
				if took := time.Since(began); c.store == slow && took != StoreWait {
					t.Errorf("%s: waited %v", c.title, took)
				}
			}
		}
		if n, most := slow.asked.Load(), int32(2*StoreWait/HostWait); n != most {
			t.Errorf("the slow store was asked %d times, want %d", n, most)
		}
	})
}

// TestOutsideTime holds that what others take is not the guest's time, and has a
// bound of its own; and that a message which is not wanted any more ends it.
func TestOutsideTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took []time.Duration
		g := open(t, outsideGuest(t, "http_call", MaxOutside, true, seq(i32(64), i32(9), i32(128), i32(64))), func(b *Binding) {
			b.Grants = []string{abi.GrantHTTP}
			b.Limits.Memory, b.Limits.Timeout = 4<<20, time.Millisecond
			b.Fetch = func(ctx context.Context, _ []byte) ([]byte, int64) {
				start := time.Now()
				select {
				case <-ctx.Done():
				case <-time.After(8 * time.Second):
				}
				took = append(took, time.Since(start))
				return bytes.Repeat([]byte("x"), 10), 0
			}
		})
		start := time.Now()
		out, err := g.Call(t.Context(), hook, "", Sender{}, nil, nil)
		if err != nil || int64(binary.LittleEndian.Uint64(out)) != abi.ErrLimit {
			t.Errorf("%x, %v", out, err)
		}
		if all := time.Since(start); all != MaxWait || len(took) != 4 || took[3] != 6*time.Second {
			t.Errorf("it waited %v: %v", all, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = g.Call(ctx, hook, "", Sender{}, nil, nil)
		var f *Failure
		if !errors.As(err, &f) || f.Reason != Canceled {
			t.Errorf("a message that is not wanted: %v", err)
		}
	})
}
