package abi

import "testing"

func TestWire(t *testing.T) {
	b := AppendString(nil, 1, "tool")
	b = AppendUint(b, 10, 1<<63)
	b = append(b, 3<<3|5, 1, 2, 3, 4)             // fixed32: skipped
	b = append(b, 3<<3|1, 1, 2, 3, 4, 5, 6, 7, 8) // fixed64: skipped
	b = AppendBytes(b, 1000, []byte{})
	r := Reader{B: b}
	if !r.Next() || r.Num != 1 || string(r.Data) != "tool" {
		t.Fatalf("first field: %+v", r)
	}
	if !r.Next() || r.Num != 10 || r.Uint != 1<<63 || r.Data != nil {
		t.Fatalf("second field: %+v", r)
	}
	if !r.Next() || r.Num != 1000 || r.Data == nil || len(r.Data) != 0 {
		t.Fatalf("third field: %+v", r)
	}
	if r.Next() || r.Bad {
		t.Fatalf("end: %+v", r)
	}
	for i := 1; i < len(b); i++ {
		r := Reader{B: b[:i]}
		for r.Next() {
		}
		if len(r.B) > 0 && !r.Bad {
			t.Errorf("the first %d bytes were not read to their end", i)
		}
	}
}

func TestHooks(t *testing.T) {
	for h := Hook(0); h < Hooks; h++ {
		if back, ok := HookNamed(h.String()); !ok || back != h {
			t.Errorf("hook %d is called %q, which is hook %d", h, h, back)
		}
	}
	if _, ok := HookNamed("on_nothing"); ok {
		t.Error("there is a hook on_nothing")
	}
	if Hooks.String() != "unknown" {
		t.Errorf("the hook behind the last is called %q", Hooks)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(AppendUint(AppendString(nil, 1, "x"), 2, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := Reader{B: b}
		var again []byte
		for r.Next() {
			if r.Data != nil {
				again = AppendBytes(again, r.Num, r.Data)
			} else {
				again = AppendUint(again, r.Num, r.Uint)
			}
		}
		s := Reader{B: again}
		for s.Next() {
		}
		if s.Bad {
			t.Fatalf("what was read of %x cannot be read again: %x", b, again)
		}
		if !r.Bad && len(again) > len(b) {
			t.Fatalf("%x became longer: %x", b, again)
		}
	})
}
