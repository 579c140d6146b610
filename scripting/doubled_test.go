package scripting_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/weir-edge/weir/scripting"
)

// plain reads a JSON text of the test with the decoder of the library, and writes it with one
// member of each name: at the first one's place, with the last one's value.
func plain(t *testing.T, d *json.Decoder) string {
	token, err := d.Token()
	if err != nil {
		t.Fatal(err)
	}
	switch token {
	case json.Delim('['):
		var parts []string
		for d.More() {
			parts = append(parts, plain(t, d))
		}
		_, _ = d.Token() // the end, which More has seen
		return "[" + strings.Join(parts, ",") + "]"
	case json.Delim('{'):
		var names []string
		values := map[string]string{}
		for d.More() {
			name, _ := d.Token() // a text, or plain fails at what comes
			key := fmt.Sprint(name)
			if _, ok := values[key]; !ok {
				names = append(names, key)
			}
			values[key] = plain(t, d)
		}
		_, _ = d.Token()
		for i, name := range names {
			names[i] = fmt.Sprintf("%q:%s", name, values[name])
		}
		return "{" + strings.Join(names, ",") + "}"
	}
	return fmt.Sprint(token)
}

// made makes a JSON text in which many names are equal.
func made(r *rand.Rand, depth int) string {
	if depth == 0 || r.IntN(4) == 0 {
		return fmt.Sprint(r.IntN(1000))
	}
	parts := make([]string, r.IntN(5)+r.IntN(3)*r.IntN(12))
	open, end := "[", "]"
	object := r.IntN(3) > 0
	for i := range parts {
		parts[i] = made(r, depth-1)
		if object {
			open, end = "{", "}"
			parts[i] = fmt.Sprintf("%q:%s", string(rune('a'+r.IntN(2+r.IntN(20)))), parts[i])
		}
	}
	return open + strings.Join(parts, ",") + end
}

// TestX28Doubled holds that of equal names the first one's place and the last one's value
// count, in objects within objects too.
func TestX28Doubled(t *testing.T) {
	for seed := range uint64(1000) {
		text := made(rand.New(rand.NewPCG(seed, 1)), 3)
		wire, err := scripting.FromJSON([]byte(text))
		if err != nil {
			t.Fatal(text, err)
		}
		got, err := scripting.ToJSON(wire)
		if want := plain(t, json.NewDecoder(strings.NewReader(text))); err != nil || string(got) != want {
			t.Fatalf("%s\n got %s %v\nwant %s", text, got, err, want)
		}
	}
}

// TestX28DoubledDeep holds that equal names in objects within objects cost no more than
// elsewhere.
func TestX28DoubledDeep(t *testing.T) {
	text := `"` + strings.Repeat("x", 2<<20) + `"`
	for range 99 {
		text = `{"b":0,"a":0,"a":` + text + `,"b":1}`
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	wire, err := scripting.FromJSON([]byte(text))
	runtime.ReadMemStats(&after)
	if err != nil || bytes.Count(wire, []byte("a")) != 99 || bytes.Count(wire, []byte("b")) != 99 {
		t.Fatal(err, len(wire))
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 5*uint64(len(text)) {
		t.Errorf("%d KiB of memory for a text of %d KiB", took>>10, len(text)>>10)
	}
}
