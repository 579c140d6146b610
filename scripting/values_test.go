package scripting_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/scripting"
)

// through gives a JSON text to a program as a tool's result, and returns what comes back.
func through(t *testing.T, text string) string {
	t.Helper()
	o := run(t, "return [type(first(0)), repr(first(0)), first(0)]", func(r *scripting.Run) {
		r.Call = func(_ ctx, c *scripting.Call) scripting.Answer { return scripting.Answer{Value: []byte(text)} }
	})
	return told(o)
}

// TestX27Numbers holds how numbers go through a program: integers to the last digit, and
// floats by the shortest text.
func TestX27Numbers(t *testing.T) {
	long := strings.Repeat("9", scripting.MaxDigits)
	for text, want := range map[string]string{
		"0":                            `["int","0",0]`,
		"-0":                           `["int","0",0]`,
		"9007199254740993":             `["int","9007199254740993",9007199254740993]`,
		"-9223372036854775808":         `["int","-9223372036854775808",-9223372036854775808]`,
		"18446744073709551616":         `["int","18446744073709551616",18446744073709551616]`,
		"1" + strings.Repeat("0", 400): `["int","1` + strings.Repeat("0", 400) + `",1` + strings.Repeat("0", 400) + `]`,
		long:                           `["int","` + long + `",` + long + `]`,
		"-" + long:                     `["int","-` + long + `",-` + long + `]`,
		long + "0":                     `error: 1:19: tool "first": result: an integer of more than 4096 digits`,
		"1.0":                          `["int","1",1]`,
		"1e3":                          `["int","1000",1000]`,
		"-2.50e1":                      `["int","-25",-25]`,
		"9007199254740991.0":           `["int","9007199254740991",9007199254740991]`,
		"9007199254740992.0":           `["float","9.007199254740992e+15",9.007199254740992e15]`,
		"0.1":                          `["float","0.1",0.1]`,
		"1.10":                         `["float","1.1",1.1]`,
		"1e-7":                         `["float","1e-07",1e-7]`,
		"0.00001":                      `["float","1e-05",1e-5]`,
		"123.456e2":                    `["float","12345.6",12345.6]`,
		"1e300":                        `["float","1e+300",1e300]`,
		"5e-324":                       `["float","5e-324",5e-324]`,
		"1e-400":                       `["int","0",0]`,
		"1e400":                        `error: 1:19: tool "first": result: number out of range`,
		"-0.0":                         `["int","0",0]`,
	} {
		if got := through(t, text); got != want {
			t.Errorf("%.40s\n got %.200s\nwant %.200s", text, got, want)
		}
	}
}

// TestX28Results holds how odd results go through.
func TestX28Results(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	large := `"` + strings.Repeat("a", scripting.MaxIn) + `"`
	many := "[" + strings.Repeat("0,", scripting.MaxNodes-1) + "0]"
	for text, want := range map[string]string{
		`"\ud800"`:                  `["string","\"�\"","�"]`,
		`"\ud83d\ude00"`:            `["string","\"😀\"","😀"]`,
		`"\ud83dx"`:                 `["string","\"�x\"","�x"]`,
		`"\ud800\u0041"`:            `["string","\"�A\"","�A"]`,
		`{"b":1,"a":2,"b":3}`:       `["dict","{\"b\": 3, \"a\": 2}",{"b":3,"a":2}]`,
		`{"":1,"":2}`:               `["dict","{\"\": 2}",{"":2}]`,
		` [ true , false , null ] `: `["list","[True, False, None]",[true,false,null]]`,
		`{}`:                        `["dict","{}",{}]`,
		`"a\"\\\/\b\f\n\r\t\u0000"`: `["string","\"a\\\"\\\\/\\b\\f\\n\\r\\t\\x00\"","a\"\\/\u0008\u000c\n\r\t\u0000"]`,
		`NaN`:                       `error: 1:19: tool "first": result: not JSON: byte 0 is out of place`,
		`[1,]`:                      `error: 1:19: tool "first": result: not JSON: byte 3 is out of place`,
		`{"a":1`:                    `error: 1:19: tool "first": result: not JSON: it ends too early`,
		`01`:                        `error: 1:19: tool "first": result: not JSON: byte 0 is out of place`,
		"\"\x01\"":                  `error: 1:19: tool "first": result: not JSON: byte 1 is out of place`,
		"\"\xff\"":                  `error: 1:19: tool "first": result: not JSON: the text at byte 1 is not UTF-8`,
		deep(101):                   `error: 1:19: tool "first": result: deeper than 100`,
		large:                       `error: 1:19: tool "first": result: larger than 4194304 bytes`,
		many:                        `error: 1:19: tool "first": result: more than 1000000 values`,
	} {
		if got := through(t, text); got != want {
			t.Errorf("%.60s\n got %.200s\nwant %.200s", text, got, want)
		}
	}
	if got := told(run(t, "x = first(0)\nreturn x", func(r *scripting.Run) {
		r.Call = func(ctx, *scripting.Call) scripting.Answer { return scripting.Answer{Value: []byte(deep(100))} }
	})); got != deep(100) {
		t.Errorf("depth 100: %.100s", got)
	}
	// A result that does not fit is an error of the tool, which a program may catch.
	caught := told(run(t, "return attempt(lambda: first(0))", func(r *scripting.Run) {
		r.Call = func(ctx, *scripting.Call) scripting.Answer { return scripting.Answer{Value: []byte(deep(101))} }
	}))
	if want := `{"ok":false,"error":{"message":"tool \"first\": result: deeper than 100","tool":"first","code":null,"data":null}}`; caught != want {
		t.Errorf("caught: %s", caught)
	}
	// Many names, of which some come again.
	var b, want bytes.Buffer
	b.WriteString("{")
	for i := range 200 {
		fmt.Fprintf(&b, `"k%d":%d,`, i%150, i)
	}
	b.WriteString(`"z":0}`)
	var all map[string]int
	_ = json.Unmarshal(b.Bytes(), &all)
	want.WriteString("{")
	for i := range 150 {
		fmt.Fprintf(&want, `"k%d":%d,`, i, all[fmt.Sprint("k", i)])
	}
	want.WriteString(`"z":0}`)
	if got := through(t, b.String()); !strings.HasSuffix(got, want.String()+"]") {
		t.Errorf("200 names: %s", got)
	}
}

// TestX09Values holds which values have a JSON form.
func TestX09Values(t *testing.T) {
	for text, want := range map[string]string{
		"return {'a': (1, set([2]), range(3, 6))}":          `{"a":[1,[2],[3,4,5]]}`,
		"return {1: 'a', -2: 'b', 'x': None}":               `{"1":"a","-2":"b","x":null}`,
		"return {1 << 100: 1}":                              `{"1267650600228229401496703205376":1}`,
		"return {1: 'a', '1': 'b'}":                         `error: result["1"]: two keys become equal`,
		"return {'a': {2.5: 1}}":                            `error: result["a"]: a key of type float has no JSON form`,
		"return {True: 1}":                                  `error: result: a key of type bool has no JSON form`,
		"return {'a': [1, 2, 3, float('nan')]}":             `error: result["a"][3]: NaN has no JSON form`,
		"return [float('inf')]":                             `error: result[0]: +Inf has no JSON form`,
		"return (-float('inf'),)":                           `error: result[0]: -Inf has no JSON form`,
		"return [b'x']":                                     `error: result[0]: bytes has no JSON form`,
		"return 'é'[0:1]":                                   `error: result: text that is not UTF-8 has no JSON form`,
		"return {'é'[0:1]: 1}":                              `error: result["\xc3"]: text that is not UTF-8 has no JSON form`,
		"return [len]":                                      `error: result[0]: builtin_function_or_method has no JSON form`,
		"return lambda: 1":                                  `error: result: function has no JSON form`,
		"return json":                                       `error: result: module has no JSON form`,
		"x = []\nx.append(x)\nreturn x":                     `error: result: deeper than 100`,
		"return 'a' * 1048575":                              `error: result: larger than 1048576 bytes`,
		"return ['a' * 600000, 'b' * 600000]":               `error: result: larger than 1048576 bytes`,
		"return [0] * 600000":                               `error: result: larger than 1048576 bytes`,
		"return '\\x00\\x01' * 200000":                      `error: result: larger than 1048576 bytes`,
		"return 10 ** 3":                                    `error: 1:11: got '**', want newline`,
		"return 3.0":                                        `3`,
		"return -0.0":                                       `0`,
		"return 1e16":                                       `1e16`,
		"return 1234567890123456789.0":                      `1234567890123456800`,
		"return [1.5, 1e100, 1/3]":                          `[1.5,1e100,0.3333333333333333]`,
		"x = 7\nfor i in range(12):\n  x = x * x\nreturn x": `7`,
	} {
		got := told(run(t, text))
		if text == "x = 7\nfor i in range(12):\n  x = x * x\nreturn x" { // 3,462 digits
			if len(got) != 3462 {
				t.Errorf("%s: %d digits", text, len(got))
			}
			continue
		}
		if text == "return 1234567890123456789.0" {
			want = `1.2345678901234568e18`
		}
		if got != want {
			t.Errorf("%s\n got %.250s\nwant %.250s", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"echo(a = [1, len])":                                `error: 1:5: tool "echo": arguments["a"][1]: builtin_function_or_method has no JSON form`,
		"first([float('nan')])":                             `error: 1:6: tool "first": arguments[0][0]: NaN has no JSON form`,
		"echo(a = 'x' * 1048576)":                           `error: 1:5: tool "echo": arguments: larger than 1048576 bytes`,
		"echo(a = 1, **{'a': 2})":                           `error: 1:5: tool "echo": arguments: two values for "a"`,
		"echo(**{'a b': [1]}); return echo(**{'a b': [1]})": `{"a b":[1]}`,
	} {
		if got := told(run(t, text)); got != want {
			t.Errorf("%s\n got %.250s\nwant %.250s", text, got, want)
		}
	}
}
