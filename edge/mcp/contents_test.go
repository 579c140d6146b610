package mcp

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/heavy"
)

// array is a JSON array of so many elements of a kind.
func array(element string, count int) string {
	return "[" + strings.Repeat(element+",", count-1) + element + "]"
}

// TestZ03ManyEdits: many edits of a large array or object cost little more than
// one of it, and what they take of memory is a few times the text.
func TestZ03ManyEdits(t *testing.T) {
	var b strings.Builder
	for i := range 400_000 {
		fmt.Fprintf(&b, `"k%d":0,`, i)
	}
	for name, c := range map[string]struct {
		text string
		edit func(d *Draft, i int) error
	}{
		"cut the first":    {array("0", 1<<21), func(d *Draft, _ int) error { _, err := d.Cut(path("/a/0")); return err }},
		"cut one behind":   {array("{}", 1<<20), func(d *Draft, i int) error { _, err := d.Cut(path(fmt.Sprint("/a/", 3000*i))); return err }},
		"cut the last one": {array("[[]]", 1<<19), func(d *Draft, i int) error { _, err := d.Cut(path(fmt.Sprint("/a/", 1<<19-1-i))); return err }},
		"insert":           {array("0", 1<<21), func(d *Draft, _ int) error { return d.Insert(path("/a/0"), []byte("1")) }},
		"move":             {array("[1]", 1<<20), func(d *Draft, i int) error { return d.Move(path("/a/0"), path(fmt.Sprint("/a/", 1000*i+5))) }},
		"append":           {array("0", 1<<21), func(d *Draft, _ int) error { return d.Put(path("/a/-"), []byte("1")) }},
		"members":          {"{" + b.String() + `"z":1}`, func(d *Draft, i int) error { return d.Put(path(fmt.Sprint("/a/k", 399_999-i)), []byte("1")) }},
		"new members":      {"{" + b.String() + `"z":1}`, func(d *Draft, i int) error { return d.Put(path(fmt.Sprint("/a/n", i)), []byte("1")) }},
	} {
		text := []byte(`{"a":` + c.text + `}`)
		var before, after runtime.MemStats
		edits := func(n int) func() {
			return func() {
				d := NewDraft(text)
				for i := range n {
					if err := c.edit(d, i); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
				}
				if n == 256 {
					d.Text()
					runtime.ReadMemStats(&after)
				}
			}
		}
		few := min(heavy.CPU(edits(2)), heavy.CPU(edits(2)))
		most := 8*few + 20*time.Millisecond
		var took uint64
		many := heavy.Least(most, func() {
			runtime.ReadMemStats(&before)
			edits(256)()
			took = after.TotalAlloc - before.TotalAlloc
		})
		t.Logf("%s: 2 edits %v, 256 and the text %v, %d bytes for each of the text", name, few, many, took/uint64(len(text)))
		if many > most {
			t.Errorf("%s: 2 edits take %v, 256 take %v", name, few, many)
		}
		if took > 24*uint64(len(text)) {
			t.Errorf("%s: %d bytes for a text of %d", name, took, len(text))
		}
	}
}

// TestZ03ManyPaths: to look at many places of a large value costs little more than
// to look at two.
func TestZ03ManyPaths(t *testing.T) {
	var b strings.Builder
	for i := range 400_000 {
		fmt.Fprintf(&b, `"k%d":0,`, i)
	}
	for name, c := range map[string]struct {
		text string
		path func(i int) []string
	}{
		"members":  {"{" + b.String() + `"z":1}`, func(i int) []string { return []string{fmt.Sprint("k", 399_999-i)} }},
		"none":     {"{" + b.String() + `"z":1}`, func(i int) []string { return []string{fmt.Sprint("n", i)} }},
		"elements": {array("[0]", 1<<20), func(i int) []string { return []string{fmt.Sprint(1<<20 - 1 - i), "0"} }},
		"flat":     {array("0", 1<<21), func(i int) []string { return []string{fmt.Sprint(1<<21 - 1 - i)} }},
	} {
		looks := func(n int) func() {
			return func() {
				var o Outline
				if err := o.Read([]byte(c.text), Bounds{}); err != nil {
					t.Fatal(err)
				}
				for i := range n {
					if at := o.At(c.path(i), ArrayIndex); at < 0 != (name == "none") {
						t.Fatalf("%s: %d at %s", name, at, c.path(i))
					}
				}
			}
		}
		few := min(heavy.CPU(looks(2)), heavy.CPU(looks(2)))
		many := min(heavy.CPU(looks(64)), heavy.CPU(looks(64)))
		t.Logf("%s: 2 looks %v, 64 looks %v", name, few, many)
		if many > 5*few+20*time.Millisecond {
			t.Errorf("%s: 2 looks take %v, 64 take %v", name, few, many)
		}
	}
}

// TestPathsTwice: what a path leads to is the same the first time and later, in
// narrow containers and in wide ones, and when the outline is of another text.
func TestPathsTwice(t *testing.T) {
	t.Parallel()
	var o Outline
	for _, size := range []int{3, 60, 70, 500} {
		var object, elements []string
		for i := range size {
			object = append(object, fmt.Sprintf(`"\u006b%d":[%d]`, i, i))
			elements = append(elements, []string{"7", `{"x":[1,2]}`, `"s"`}[i%3])
		}
		text := fmt.Sprintf(`{"o":{%s},"e":[%s],"f":%s}`, strings.Join(object, ","), strings.Join(elements, ","), array("7", size))
		if err := o.Read([]byte(text), Bounds{}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			for i := range size + 2 {
				for _, path := range [][]string{{"o", fmt.Sprint("k", i), "0"}, {"e", fmt.Sprint(i)}, {"e", fmt.Sprint(i), "x"}, {"f", fmt.Sprint(i)}} {
					want := Find([]byte(text), path, ArrayIndex)
					var got []byte
					if n := o.At(path, ArrayIndex); n >= 0 {
						got = o.Value(n)
					}
					if string(got) != string(want) {
						t.Fatalf("%d: %s: %s, want %s", size, path, got, want)
					}
				}
			}
		}
	}
}

// TestDraftArrays holds edits of an array, chosen at random, against the same of
// a slice.
func TestDraftArrays(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var want []string
		for i := range r.IntN(100) {
			want = append(want, []string{strconv.Itoa(i), fmt.Sprintf(`{"x":%d}`, i), "[]"}[r.IntN(3)])
		}
		d := NewDraft([]byte(`{"a":[` + strings.Join(want, ", ") + `]}`))
		at := func(i int) []string { return []string{"a", strconv.Itoa(i)} }
		for i := range 60 {
			raw, n := strconv.Itoa(1000+i), r.IntN(len(want)+2)
			switch there := n < len(want); r.IntN(5) {
			case 0:
				if was, err := d.Cut(at(n)); was != there || err != nil {
					t.Fatal(was, err)
				}
				if there {
					want = slices.Delete(want, n, n+1)
				}
			case 1:
				if err := d.Insert(at(n), []byte(raw)); (err == nil) != (n <= len(want)) {
					t.Fatal(err)
				}
				if n <= len(want) {
					want = slices.Insert(want, n, raw)
				}
			case 2:
				if err := d.Put(at(n), []byte(raw)); (err == nil) != there {
					t.Fatal(err)
				}
				if there {
					want[n] = raw
				}
			case 3:
				if !there {
					continue
				}
				to := r.IntN(len(want))
				if err := d.Move(at(n), at(to)); err != nil {
					t.Fatal(err)
				}
				value := want[n]
				want = slices.Insert(slices.Delete(want, n, n+1), to, value)
			case 4:
				if got := d.Get(at(n)); there && string(got) != want[n] || !there && got != nil {
					t.Fatalf("%s", got)
				}
				if d.Put([]string{"a", "-"}, []byte(raw)) != nil {
					t.Fatal("nothing behind the last")
				}
				want = append(want, raw)
			}
		}
		if got := strings.ReplaceAll(string(d.Get([]string{"a"})), ", ", ","); got != "["+strings.Join(want, ",")+"]" {
			t.Fatalf("%d: %s, want %s", seed, got, want)
		}
	}
}
