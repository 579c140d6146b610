package route

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
)

// A retry repeats a request if its values are the same, however they are written; numbers are
// told apart as they are written. The digest of a process of before is of bytes.
func TestRepeats(t *testing.T) {
	request := func(params string) *mcp.Message {
		m, err := mcp.Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := request(`{"name":"t","_meta":{"a":1},"arguments":{"a":1,"b":{"é":["x",{"d":true,"c":null}],"/":"\u2028\t"},"e":{},"f":[]}}`)
	if !Repeats(first, digest(first, false)) {
		t.Error("a state of a process of before is not good any longer")
	}
	for params, want := range map[string]bool{
		`{"name":"t","arguments":{"a":1,"b":{"é":["x",{"d":true,"c":null}],"/":"\u2028\t"},"e":{},"f":[]}}`:                                                     true,
		`{"requestState":"s","arguments": { "f":[ ], "e":{ }, "b":{"\/":"\u2028\u0009","\u00e9":["\u0078",{"c":null, "d":true}]},"\u0061":1},"n":0,"name":"t"}`: false,
		`{"requestState":"s","arguments": { "f":[ ], "e":{ }, "b":{"\/":"\u2028\u0009","\u00e9":["\u0078",{"c":null, "d":true}]},"\u0061":1},"name":"\u0074"}`:  true,
		`{"name":"t","arguments":{"a":1.0,"b":{"é":["x",{"d":true,"c":null}],"/":"\u2028\t"},"e":{},"f":[]}}`:                                                   false,
		`{"name":"t","arguments":{"a":1,"b":{"é":[{"d":true,"c":null},"x"],"/":"\u2028\t"},"e":{},"f":[]}}`:                                                     false,
		`{"name":"t","arguments":{"a":1,"b":{"é":["x",{"d":"true","c":null}],"/":"\u2028\t"},"e":{},"f":[]}}`:                                                   false,
		`{"name":"t","arguments":{"a":1,"b":{"é":["x",{"d":true}],"/":"\u2028\t"},"e":{},"f":[]}}`:                                                              false,
		`{"name":"t","arguments":{"a":1,"b":{"é":["x"],"d":true,"c":null,"/":"\u2028\t"},"e":{},"f":[]}}`:                                                       false,
		`{"name":"t","arguments":{"a":1,"b":{"é":["x",{"d":true,"c":null}],"/":"\u2028\t"},"e":[],"f":{}}}`:                                                     false,
		`{"name":"t","arguments":{"a":1,"b":{"é\",\"":["x",{"d":true,"c":null}],"/":"\u2028\t"},"e":{},"f":[]}}`:                                                false,
		`{"name":"u","arguments":{"a":1,"b":{"é":["x",{"d":true,"c":null}],"/":"\u2028\t"},"e":{},"f":[]}}`:                                                     false,
	} {
		if m := request(params); Repeats(m, Digest(first)) != want {
			t.Errorf("%s: %v", params, !want)
		}
	}
	// One of very many values is told by its bytes.
	for values, spaced := range map[int]bool{maxSpelt / 2: true, maxSpelt + 1: false} {
		many := strings.Repeat("0,", values) + "0"
		of := Digest(request(`{"arguments":[` + many + `]}`))
		if !Repeats(request(`{"arguments":[`+many+`]}`), of) || Repeats(request(`{"arguments":[ `+many+`]}`), of) != spaced {
			t.Errorf("%d values", values)
		}
	}
}

// TestZ41Spent: what is remembered of refused states is bounded.
func TestZ41Spent(t *testing.T) {
	var s Spent
	now := time.Now()
	for i := range 2 * maxSpent {
		s.Add(now, fmt.Sprint(i), now.Unix()+60)
	}
	if len(s.all) != maxSpent || !s.Has(fmt.Sprint(2*maxSpent-1)) {
		t.Errorf("%d states", len(s.all))
	}
}
