package wasm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/sdk/abi"
)

// Where guests of these tests keep what.
const (
	patternsAt = 1 << 16
	withAt     = patternsAt + 1<<15
	textAt     = 2 << 16
	foundAt    = 20 << 16
	searchRoom = 64 << 16 // of the memory
)

var searchFunctions = []string{"pattern", "match", "find", "replace"}

// searchGuest compiles patterns as it is initialized and keeps their handles at
// stateAt. Asked, it does what body says, with functions in the order of
// searchFunctions, and answers with 64 bytes from resultAt on, where body leaves an
// i64, and 64 from foundAt on.
func searchGuest(compiled []string, text, with string, body ...[]byte) *encoder {
	e := guestEncoder(func(e *encoder) {
		for _, name := range searchFunctions {
			f, ok := hostFunctionNamed(abi.ImportModule, name)
			if !ok {
				panic(name)
			}
			e.imported(f.module, f.name, f.params, f.results)
		}
	})
	e.memory.min = searchRoom >> 16
	var init []byte
	at := patternsAt
	for i, p := range compiled {
		init = append(init, seq(i32(stateAt+4*i), i32(at), i32(len(p)), call(0), ins(0x36, 2, 0))...)
		e.data = append(e.data, [2]any{at, []byte(p)})
		at += len(p)
	}
	e.funcs[2].body = seq(init, i64(0))
	e.data = append(e.data, [2]any{textAt, []byte(text)}, [2]any{withAt, []byte(with)})
	whole := seq(i32(resultAt), seq(body...), ins(0x37, 0, 0)) // i64.store
	for i := range 8 {
		whole = append(whole, seq(i32(resultAt), i32(stateAt+8*i), ins(0x29, 0, 0, 0x37, 0), appendU32(nil, uint32(8+8*i)))...)
	}
	for i := range 8 {
		whole = append(whole, seq(i32(resultAt), i32(foundAt+8*i), ins(0x29, 0, 0, 0x37, 0), appendU32(nil, uint32(72+8*i)))...)
	}
	return e.hook("", whole, result(resultAt, 136))
}

// room gives a guest of these tests its memory.
func room(b *Binding) { b.Limits.Memory, b.Limits.Timeout = searchRoom, time.Minute }

// searched is what such a guest says: what its call left, the handles, and the
// bytes that were found.
func searched(t *testing.T, e *encoder, change ...func(*Binding)) (n int64, handles []int32, out []byte, err error) {
	t.Helper()
	g := open(t, e.bytes(), append([]func(*Binding){room}, change...)...)
	b, err := g.Call(t.Context(), hook, "", Sender{}, nil, nil)
	if err != nil {
		return 0, nil, nil, err
	}
	for i := range 16 {
		handles = append(handles, int32(binary.LittleEndian.Uint32(b[8+4*i:])))
	}
	return int64(binary.LittleEndian.Uint64(b)), handles, b[72:], nil
}

var signed = ins(0xac) // i64.extend_i32_s

// TestZ37Functions holds the functions for patterns to their contract.
func TestZ37Functions(t *testing.T) {
	const text = "ann@example.org, bob@example.org"
	email := []string{`z+`, `\w+@[\w.]+`}
	pairs := func(all ...uint32) (b []byte) {
		for _, n := range all {
			b = binary.LittleEndian.AppendUint32(b, n)
		}
		return b
	}
	whole := seq(i32(1), i32(textAt), i32(len(text)))
	with := seq(whole, i32(withAt), i32(3), i32(foundAt))
	for title, c := range map[string]struct {
		body []byte
		want int64
		out  []byte
	}{
		"match":                     {seq(whole, call(1), signed), 1, nil},
		"no match":                  {seq(i32(0), i32(textAt), i32(len(text)), call(1), signed), 0, nil},
		"no such pattern":           {seq(i32(2), i32(textAt), i32(1), call(1), signed), abi.ErrArgument, nil},
		"no pattern below zero":     {seq(i32(-1), i32(textAt), i32(1), call(1), signed), abi.ErrArgument, nil},
		"find":                      {seq(whole, i32(foundAt), i32(64), call(2)), 2, pairs(0, 15, 17, 32, 0)},
		"find with room for one":    {seq(whole, i32(foundAt), i32(15), call(2)), 2, pairs(0, 15, 0, 0)},
		"find without room":         {seq(whole, i32(foundAt), i32(0), call(2)), 2, pairs(0, 0)},
		"find nothing":              {seq(i32(0), i32(textAt), i32(len(text)), i32(foundAt), i32(64), call(2)), 0, pairs(0, 0)},
		"find without a pattern":    {seq(i32(9), i32(textAt), i32(len(text)), i32(foundAt), i32(64), call(2)), abi.ErrArgument, pairs(0, 0)},
		"replace":                   {seq(with, i32(64), call(3)), 8, []byte("[$], [$]\x00")},
		"replace with just enough":  {seq(with, i32(8), call(3)), 8, []byte("[$], [$]\x00")},
		"replace with too little":   {seq(with, i32(7), call(3)), 8, make([]byte, 8)},
		"replace nothing":           {seq(i32(0), i32(textAt), i32(len(text)), i32(withAt), i32(3), i32(foundAt), i32(64), call(3)), abi.ErrNotFound, make([]byte, 8)},
		"replace without a pattern": {seq(i32(9), i32(textAt), i32(len(text)), i32(withAt), i32(3), i32(foundAt), i32(64), call(3)), abi.ErrArgument, make([]byte, 8)},
		"compile too late":          {seq(i32(patternsAt), i32(2), call(0), signed), abi.ErrDenied, nil},
	} {
		got, handles, out, err := searched(t, searchGuest(email, text, "[$]", c.body))
		if err != nil {
			t.Errorf("%s: %v", title, err)
			continue
		}
		if got != c.want || handles[0] != 0 || handles[1] != 1 {
			t.Errorf("%s: %d, want %d; handles %d", title, got, c.want, handles[:2])
		}
		if !bytes.HasPrefix(out, c.out) {
			t.Errorf("%s: wrote %x, want %x", title, out[:len(c.out)], c.out)
		}
	}
	for title, body := range map[string][]byte{
		"a text outside":         seq(i32(1), i32(searchRoom-1), i32(2), call(1), signed),
		"a text that wraps":      seq(i32(1), i32(-1), i32(2), call(1), signed),
		"room outside":           seq(whole, i32(searchRoom-8), i32(9), call(2)),
		"what is put outside":    seq(whole, i32(searchRoom-1), i32(2), i32(foundAt), i32(64), call(3)),
		"a whole outside":        seq(whole, i32(withAt), i32(3), i32(searchRoom), i32(1), call(3)),
		"no pattern and outside": seq(i32(9), i32(searchRoom), i32(1), call(1), signed),
	} {
		_, _, _, err := searched(t, searchGuest(email, text, "[$]", body))
		var f *Failure
		if !errors.As(err, &f) || f.Reason != Broken {
			t.Errorf("%s: %v", title, err)
		}
	}
}

// TestZ37CompiledAtInit holds what a guest may compile, and what it hears.
func TestZ37CompiledAtInit(t *testing.T) {
	sink := &logSink{}
	list := []string{"a", "(", "b", strings.Repeat("a", 1025), strings.Repeat("a{1000}", 20), "c", "\xff", strings.Repeat("é", 512)}
	_, handles, _, err := searched(t, searchGuest(list, "", "", i64(0)), func(b *Binding) { b.Log = slogger(sink) })
	want := []int32{0, abi.ErrArgument, 1, abi.ErrLimit, abi.ErrLimit, 2, abi.ErrArgument, 3}
	for i, w := range want {
		if err != nil || handles[i] != w {
			t.Errorf("%.20q: %v, %v, want %d", list[i], handles, err, w)
		}
	}
	if all := strings.Join(sink.lines, "\n"); !strings.Contains(all, `pattern "(": error parsing regexp: missing closing )`) || !strings.Contains(all, "too large") {
		t.Errorf("the log says %q", sink.lines)
	}
	many := make([]string, 0, 66)
	for range 66 {
		many = append(many, "a")
	}
	e := searchGuest(many, "", "", i64(0))
	// The last handles, in place of the first.
	e.funcs[2].body = append(e.funcs[2].body[:len(e.funcs[2].body)-2], seq(i32(stateAt), i32(stateAt+4*62), ins(0x29, 0, 0, 0x37, 0, 0), i32(stateAt+8), i32(stateAt+4*64), ins(0x29, 0, 0, 0x37, 0, 0), i64(0))...)
	if _, handles, _, err = searched(t, e); err != nil || handles[0] != 62 || handles[1] != 63 || handles[2] != abi.ErrLimit || handles[3] != abi.ErrLimit {
		t.Errorf("66 patterns: %v, %v", handles, err)
	}
	// A guest that gives up for its pattern says why.
	e = searchGuest([]string{"("}, "", "", i64(0))
	e.funcs[2].body = append(e.funcs[2].body, 0) // unreachable
	m, err := testCompiler(t).Compile(t.Context(), e.bytes(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b := Binding{Name: "test"}
	room(&b)
	if _, err := m.Open(t.Context(), b); err == nil || !strings.Contains(err.Error(), "missing closing )") {
		t.Errorf("it gives up with %v", err)
	}
	// Compiling is paid for from the fuel of the initialization.
	m2, err := testCompiler(t).Compile(t.Context(), searchGuest([]string{strings.Repeat("a", 1000)}, "", "", i64(0)).bytes(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer m2.Close()
	b.Limits.InitFuel = 1_000_000
	if _, err := m2.Open(t.Context(), b); err == nil || !strings.Contains(err.Error(), "fuel") {
		t.Errorf("compiled for less than it costs: %v", err)
	}
}

// TestZ37Instances: every instance has the patterns of the first under their
// handles, be it a copy or initialized by itself; one that would have others is not
// made.
func TestZ37Instances(t *testing.T) {
	tables := func(e *encoder) *encoder { // whose change keeps instances from being copied
		e.tables = append(e.tables, tableType{0x70, span{min: 1}})
		e.funcs[2].body = append(seq(i32(0), ins(0xd0, 0x70, 0x26, 0)), e.funcs[2].body...)
		return e
	}
	const text = "aab"
	guest := func() *encoder {
		return searchGuest([]string{"x", "a+"}, text, "", i32(1), i32(textAt), i32(len(text)), i32(foundAt), i32(64), call(2))
	}
	for title, e := range map[string]*encoder{"copies": guest(), "initialized each": tables(guest())} {
		for _, isolation := range []Isolation{Shared, PerRequest, PerSession} {
			g := open(t, e.bytes(), room, func(b *Binding) { b.Isolation, b.Limits.Instances, b.Limits.Prewarm = isolation, 3, 3 })
			for i := range 12 {
				out, err := g.Call(t.Context(), hook, string(rune('a'+i%3)), Sender{}, nil, nil)
				if err != nil || out[0] != 1 || !bytes.Equal(out[72:80], []byte{0, 0, 0, 0, 2, 0, 0, 0}) {
					t.Fatalf("%s, %d: %x, %v", title, isolation, out, err)
				}
			}
		}
	}
	// A guest whose first pattern is longer for every instance.
	f, _ := hostFunctionNamed(abi.ImportModule, "pattern")
	incr, _ := hostFunctionNamed(abi.ImportModule, "kv_incr")
	e := guestEncoder(func(e *encoder) {
		e.imported(f.module, f.name, f.params, f.results)
		e.imported(incr.module, incr.name, incr.params, incr.results)
	}).hook("", i64(0))
	e.data = append(e.data, [2]any{64, []byte("aaaaaaaa")})
	e.funcs[2].body = seq(i32(64), i32(64), i32(1), i64(1), i64(1000), call(1), ins(0xa7), call(0), ins(opDrop), i64(0))
	sink := &logSink{}
	g := open(t, tables(e).bytes(), func(b *Binding) {
		b.Grants, b.Store, b.Log = []string{abi.GrantKV}, &mapStore{values: map[string][]byte{}}, slogger(sink)
		b.Limits.Prewarm = 2
	})
	if _, err := g.maker.may(); err == nil || !strings.Contains(err.Error(), errOtherPattern.Error()) {
		t.Errorf("a second instance with another pattern: %v", err)
	}
	if _, err := g.Call(t.Context(), hook, "", Sender{}, nil, nil); err != nil {
		t.Errorf("the first instance: %v", err)
	}
}

// TestZ37SearchEnds: a search ends where the fuel or the time of its call ends,
// whatever the pattern and the text are.
func TestZ37SearchEnds(t *testing.T) {
	// It looks at every pair of places.
	const pattern, n = "a[^z]*z|a", 1 << 20
	e := searchGuest([]string{pattern}, strings.Repeat("a", n), "", i32(0), i32(textAt), i32(n), i32(foundAt), i32(64), call(2))
	for name, c := range map[string]struct {
		limits Limits
		want   Reason
		most   time.Duration
	}{
		// At half a nanosecond a unit, and forty times that where the machine is busy.
		"fuel": {Limits{Timeout: time.Minute}, Fuel, time.Second},
		"time": {Limits{Fuel: math.MaxInt64 / 2}, Deadline, 200 * time.Millisecond},
	} {
		g := open(t, e.bytes(), func(b *Binding) { b.Limits = c.limits; b.Limits.Memory = searchRoom })
		var f *Failure
		start := time.Now()
		_, err := g.Call(t.Context(), hook, "", Sender{}, nil, nil)
		if d := time.Since(start); !errors.As(err, &f) || f.Reason != c.want || d > slower*c.most {
			t.Errorf("%s: %v after %v", name, err, d)
		} else {
			t.Logf("%s: after %v", name, d)
		}
	}
	// A megabyte of ordinary text is searched within the limits of a call.
	g := open(t, searchGuest([]string{`\w+@[\w.]+`}, strings.Repeat("no address here ", n/16), "", i32(0), i32(textAt), i32(n), call(1), signed).bytes(),
		room, func(b *Binding) { b.Isolation = PerRequest })
	if fuel := fuelOf(t, g, nil); fuel > 8*n {
		t.Errorf("%d fuel for %d bytes", fuel, n)
	}
	// Replacements that make much of little are counted and not made.
	got, _, _, err := searched(t, searchGuest([]string{""}, strings.Repeat("a", 1<<10), strings.Repeat("b", 1<<14), i32(0), i32(textAt), i32(1<<10), i32(withAt), i32(1<<14), i32(foundAt), i32(64), call(3)))
	if want := int64(1<<10 + (1<<10+1)<<14); got != want || err != nil {
		t.Errorf("replaced by much: %d, %v, want %d", got, err, want)
	}
}

// argumentsGuest hands its input, as numbers, to one of searchFunctions.
func argumentsGuest(which int) []byte {
	var args []byte
	f, _ := hostFunctionNamed(abi.ImportModule, searchFunctions[which])
	for i := range len(f.params) {
		args = append(args, seq(i32(bufferAt), ins(0x28, 2), appendU32(nil, uint32(4*i)))...)
	}
	args = append(args, call(uint32(which))...)
	if f.results == vI32 {
		args = append(args, signed...)
	}
	return searchGuest([]string{"a+", `\b`}, "aa b aaa é a", "éé", args).bytes()
}

// FuzzSearchArguments lets a fuzzer choose what match, find and replace are given:
// what reaches outside of memory is a breach of the ABI, and everything else is
// answered within memory.
func FuzzSearchArguments(f *testing.F) {
	var guests [4]*Guest
	for i := 1; i < len(guests); i++ {
		guests[i] = open(f, argumentsGuest(i), room, func(b *Binding) { b.Isolation, b.OnError[hook] = PerRequest, Deny })
	}
	add := func(which byte, n ...uint32) {
		n = append(n, make([]uint32, 7-len(n))...)
		f.Add(which, n[0], n[1], n[2], n[3], n[4], n[5], n[6])
	}
	add(1, 0, textAt, 12)
	add(2, 0, textAt, 12, foundAt, 64)
	add(2, 1, textAt, 12, textAt, 64)
	add(3, 1, textAt, 12, withAt, 4, foundAt, 64)
	add(3, 0, textAt, 12, textAt, 12, textAt+3, 64)
	add(2, 0, math.MaxUint32, 2, 0, 0)
	f.Fuzz(func(t *testing.T, which byte, a, b, c, d, e, g, h uint32) {
		i := 1 + int(which)%3
		args := []uint32{a, b, c, d, e, g, h}
		// Long texts cost their fuel, which other tests look at.
		for _, n := range []int{2, 4, 6} {
			if args[n] < math.MaxUint32/2 {
				args[n] %= 1 << 12
			}
		}
		var in []byte
		for _, n := range args {
			in = binary.LittleEndian.AppendUint32(in, n)
		}
		inside := true
		for _, region := range [][]uint32{args[1:3], args[3:5], args[5:7]}[:i] {
			inside = inside && uint64(region[0])+uint64(region[1]) <= searchRoom
		}
		out, err := guests[i].Call(t.Context(), hook, "", Sender{Address: t.Name()}, in, nil)
		var failed *Failure
		switch {
		case !inside && (!errors.As(err, &failed) || failed.Reason != Broken && failed.Reason != Open):
			t.Fatalf("%s%v reaches outside: %v", searchFunctions[i], args, err)
		case !inside:
			guests[i].front.breaker.success(Sender{Address: t.Name()}, false)
		case err != nil:
			t.Fatalf("%s%v: %v", searchFunctions[i], args, err)
		case a > 1 && int64(binary.LittleEndian.Uint64(out)) != abi.ErrArgument:
			t.Fatalf("%s%v has a pattern", searchFunctions[i], args)
		case a == 0 && b == textAt && c == 12 && i == 2:
			want := len(regexp.MustCompile("a+").FindAllString("aa b aaa é ", -1))
			if d >= textAt+12 && int(binary.LittleEndian.Uint64(out)) != want {
				t.Fatalf("find%v: %x", args, out)
			}
		}
	})
}
