package words

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/mcp"
)

// schemas are by name, those that words are typed by in tests.
func schemas() map[string]string {
	return map[string]string{
		"none": `{}`,
		"flat": `{"type":"object","properties":{"s":{"type":"string"},"i":{"type":"integer"},"n":{"type":"number"},"b":{"type":"boolean"},` +
			`"z":{"type":"null"},"o":{"type":"object"},"c":{"enum":["red","green",3]},"k":{"const":"x"},"any":{},"yes":true,"größe":{"type":"string"}},"additionalProperties":false}`,
		"lists": `{"properties":{"s":{"type":"array","items":{"type":"string"}},"i":{"type":"array","items":{"type":"integer"}},"any":{"type":"array"},` +
			`"one":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]},"deep":{"type":"array","items":{"type":"array","items":{"type":"number"}}}}}`,
		"choices": `{"properties":{"in":{"type":["integer","null"]},"ni":{"type":["null","integer"]},"is":{"type":["integer","string"]},"si":{"type":["string","integer"]},` +
			`"optional":{"anyOf":[{"type":"integer"},{"type":"null"}]},"one":{"oneOf":[{"const":"a","title":"A"},{"const":"b"}]},"bounded":{"type":"integer","anyOf":[{"minimum":3},{"maximum":1}]},` +
			`"level":{"$ref":"#/$defs/level"},"model":{"anyOf":[{"$ref":"#/$defs/model"},{"type":"null"}]},"all":{"allOf":[{"$ref":"#/$defs/level"}],"description":"x"}},` +
			`"$defs":{"level":{"type":"string","enum":["low","high"]},"model":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}}`,
		"nested": `{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"integer"},"c":{"type":"object","properties":{"d":{"type":"boolean"},"e":{"type":"string"}},` +
			`"required":["e"]}},"required":["b"],"additionalProperties":false},"x.y":{"type":"integer"},"free":{"type":"object","additionalProperties":{"type":"number"}}}}`,
		"needs":   `{"type":"object","properties":{"a":{"type":"number","description":"The first.\nMore."},"b":{"enum":["x","y"]},"l":{"type":"array","items":{"type":"string"}},"o":{}},"required":["a","b","l","o"]}`,
		"pattern": `{"type":"object","patternProperties":{"^x-":{}},"additionalProperties":false}`,
		"either":  `{"anyOf":[{"properties":{"a":{"type":"integer"}},"additionalProperties":false},{"properties":{"b":{"type":"boolean"}}}]}`,
		"away":    `{"type":"object","properties":{"a":{"$ref":"https://example.com/schema"}}}`,
		"circle":  `{"type":"object","properties":{"a":{"$ref":"#/properties/a"}}}`,
		"bush":    `{"anyOf":[{"$ref":"#"},{"$ref":"#"},{"$ref":"#"}]}`,
		"well":    `{"properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"array","items":{"$ref":"#/$defs/a"}}}}`,
		"esc":     `{"properties":{"a":{"$ref":"#/$defs/x~1y%20z"}},"$defs":{"x/y z":{"type":"integer"}}}`,
	}
}

// TestZ23Words types words by schemas.
func TestZ23Words(t *testing.T) {
	for _, test := range []struct {
		schema, words string // words are divided by bars
		want          string // JSON; what begins with ! is a part of an error, with ? of a warning
	}{
		{"flat", `s=hello`, `{"s":"hello"}`},
		{"flat", `s=`, `{"s":""}`},
		{"flat", `s=3|i=3|n=3|b=true|z=null`, `{"s":"3","i":3,"n":3,"b":true,"z":null}`},
		{"flat", `s=a=b:=c`, `{"s":"a=b:=c"}`},
		{"flat", "s=say \"hi\"\n\\", `{"s":"say \"hi\"\n\\"}`},
		{"flat", `größe=ü`, `{"größe":"ü"}`},
		{"flat", `i=123456789012345678901234567890`, `{"i":123456789012345678901234567890}`},
		{"flat", `n=1.50e+3`, `{"n":1.50e+3}`},
		{"flat", `i=15e1`, `{"i":15e1}`},
		{"flat", `i=1.50e1|n=-0`, `{"i":1.50e1,"n":-0}`},
		{"flat", `i=1.5`, `!argument i must be of type integer`},
		{"flat", `i=1e-1`, `!argument i must be of type integer`},
		{"flat", `n=1,5`, `!argument n must be of type number`},
		{"flat", `n=0x10`, `!argument n must be of type number`},
		{"flat", `n=NaN`, `!argument n must be of type number`},
		{"flat", `n=+1`, `!argument n must be of type number`},
		{"flat", `n=`, `!argument n must be of type number`},
		{"flat", `n="3"`, `!argument n must be of type number`},
		{"flat", `b=yes`, `!argument b: give true or false`},
		{"flat", `z=nil`, `!argument z must be of type null`},
		{"flat", `o={"a": 1}`, `{"o":{"a": 1}}`},
		{"flat", `o=x`, `!argument o: give a JSON object, or its members as o.KEY=VALUE`},
		{"flat", `o.a=x`, `{"o":{"a":"x"}}`},
		{"flat", `c=red`, `{"c":"red"}`},
		{"flat", `c=3`, `{"c":3}`},
		{"flat", `c=blue`, `!argument c: give one of red, green, 3`},
		{"flat", `k=x`, `{"k":"x"}`},
		{"flat", `k=y`, `!argument k: give one of x`},
		{"flat", `any=3|yes=true`, `{"any":"3","yes":"true"}`},
		{"flat", `any:=3|s:=[1]`, `{"any":3,"s":[1]}`},
		{"flat", `s:=hello`, `!s: not JSON: after := comes JSON, such as s:=3`},
		{"flat", `any:={"a":1,"a":2}`, `!any: not JSON`},
		{"flat", `s=a|s=b`, `!argument s is given twice and is not an array`},
		{"flat", `s:=1|s:=2`, `!argument s is given twice and is not an array`},
		{"flat", `S=a`, `!tool "t" has no argument "S": did you mean s?`},
		{"flat", `somethingelse=a`, `!tool "t" has no argument "somethingelse": it has s, i, n, b, z, o, c, k, any, yes, größe`},
		{"flat", `hello`, `!"hello" is not KEY=VALUE, such as text=hello`},
		{"flat", `=x`, `!"=x" is not KEY=VALUE`},
		{"flat", `:=3`, `!":=3" is not KEY=VALUE`},
		{"flat", "s=\xff", `!s: not UTF-8`},
		{"none", `a=1|b:=1`, `{"a":"1","b":1}`},
		{"none", `a=1`, `?tool "t" names no argument "a", which is sent all the same`},
		{"needs", `a=1|b=x|l=|o=|p=1`, `{"a":1,"b":"x","l":[""],"o":"","p":"1"}`},
		{"needs", `a=1|b=x|l=|o=|bb=1`, `?names no argument "bb", which is sent all the same: did you mean b?`},
		{"needs", `a=1`, "!tool \"t\" needs 3 arguments more:\n  b (one of x, y)\n  l (array of string)\n  o (string)"},
		{"needs", `l=x|o=|b=x`, "!tool \"t\" needs 1 argument more:\n  a (number): The first."},
		{"pattern", `x-a=1`, `{"x-a":"1"}`},
		{"lists", `s=a`, `{"s":["a"]}`},
		{"lists", `s=a|i=1|s=b|i=2`, `{"s":["a","b"],"i":[1,2]}`},
		{"lists", `s=["a","b"]`, `{"s":["a","b"]}`},
		{"lists", `s=[a|s=["b"]`, `{"s":["[a","[\"b\"]"]}`},
		{"lists", `s=[]`, `{"s":[]}`},
		{"lists", `any=1|any:=2`, `{"any":["1",2]}`},
		{"lists", `i=1|i=x`, `!argument i must be of type array of integer`},
		{"lists", `one=a`, `{"one":"a"}`},
		{"lists", `one=a|one=b`, `{"one":["a","b"]}`},
		{"lists", `deep=[1]|deep=[2,3]`, `{"deep":[[1],[2,3]]}`},
		{"lists", `deep=1|deep=2`, `{"deep":[[1],[2]]}`},
		{"choices", `in=3|ni=3|is=3|si=3`, `{"in":3,"ni":3,"is":3,"si":"3"}`},
		{"choices", `in=null|ni=null|is=null`, `{"in":null,"ni":null,"is":"null"}`},
		{"choices", `in=x`, `!argument in must be of type integer or null`},
		{"choices", `optional=7`, `{"optional":7}`},
		{"choices", `optional=null`, `{"optional":null}`},
		{"choices", `optional=x`, `!argument optional must be of type integer or null`},
		{"choices", `one=b`, `{"one":"b"}`},
		{"choices", `one=c`, `!argument one: give one of a, b`},
		{"choices", `bounded=x`, `!argument bounded must be of type integer`},
		{"choices", `level=low|all=high`, `{"level":"low","all":"high"}`},
		{"choices", `level=mid`, `!argument level: give one of low, high`},
		{"choices", `model.n=3`, `{"model":{"n":3}}`},
		{"choices", `model=null`, `{"model":null}`},
		{"nested", `a.b=1|a.c.d=true|a.c.e=x`, `{"a":{"b":1,"c":{"d":true,"e":"x"}}}`},
		{"nested", `a={"b":1}`, `{"a":{"b":1}}`},
		{"nested", `a={"b":1}|a.b=2`, `!argument a is given as a whole and in parts: leave one out`},
		{"nested", `a.b=x`, `!argument a.b must be of type integer`},
		{"nested", `a.bb=1`, `!tool "t" has no argument "a.bb": did you mean a.b?`},
		{"nested", `a.c.d=true`, "!tool \"t\" needs 2 arguments more:\n  a.b (integer)\n  a.c.e (string)"},
		{"nested", `x.y=3`, `{"x.y":3}`},
		{"nested", `free.a=1|free.b=2.5`, `{"free":{"a":1,"b":2.5}}`},
		{"nested", `free.a=x`, `!argument free.a must be of type number`},
		{"nested", `q.r=1`, `{"q.r":"1"}`},
		{"either", `a=1|b=true|c=x`, `{"a":1,"b":true,"c":"x"}`},
		{"away", `a=1`, `{"a":"1"}`},
		{"esc", `a=1`, `{"a":1}`},
		{"circle", `a=1`, `!too large or too involved`},
		{"bush", `a=1`, `!too large or too involved`},
		{"well", `a=[1]|a=[2]`, `{"a":[[1],[2]]}`},
		{"well", `a=x`, `!argument a must be of type array of array`},
	} {
		t.Run(test.schema+" "+test.words, func(t *testing.T) {
			words, err := Read(strings.Split(test.words, "|"))
			var object []byte
			var warnings []string
			if err == nil {
				f := form{what: `tool "t"`, schema: []byte(schemas()[test.schema])}
				object, warnings, err = f.arguments(words)
			}
			part, wantError := strings.CutPrefix(test.want, "!")
			warning, wantWarning := strings.CutPrefix(test.want, "?")
			switch {
			case wantError && (err == nil || !strings.Contains(err.Error(), part)):
				t.Errorf("%s, %v; want error %s", object, err, part)
			case wantError:
			case err != nil:
				t.Error(err)
			case wantWarning && !strings.Contains(strings.Join(warnings, "\n"), warning):
				t.Errorf("warnings %q, want %q", warnings, warning)
			case !wantWarning && string(object) != test.want:
				t.Errorf("%s, want %s", object, test.want)
			}
		})
	}
}

func TestZ23LargeSchema(t *testing.T) {
	f := form{what: "tool", schema: []byte(`{"description":"` + strings.Repeat("x", maxSchema) + `"}`)}
	if _, _, err := f.arguments([]Word{{Key: "a", Value: "b"}}); !errors.Is(err, ErrInvolved) {
		t.Error(err)
	}
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf(`"a%d"`, i)
	}
	f = form{what: "tool", schema: []byte(`{"required":[` + strings.Join(names, ",") + `]}`)}
	_, _, err := f.arguments([]Word{{Key: "a7", Value: "b"}})
	if lines := strings.Split(fmt.Sprint(err), "\n"); len(lines) != maxNamed+2 || lines[0] != "tool needs 999 arguments more:" || lines[maxNamed+1] != "  …" {
		t.Error(err)
	}
}

// FuzzWords types words by schemas of strangers: what comes out is an object
// that holds each key once, or an error.
func FuzzWords(f *testing.F) {
	for _, schema := range schemas() {
		f.Add(schema, "a=1", "s=x", "a.b:=[1]")
	}
	f.Fuzz(func(t *testing.T, schema, a, b, c string) {
		if mcp.Valid([]byte(schema)) != nil {
			t.Skip()
		}
		words, err := Read([]string{a, b, c})
		if err != nil {
			return
		}
		form := form{what: "tool", schema: []byte(schema)}
		object, _, err := form.arguments(words)
		if (object == nil) == (err == nil) {
			t.Fatalf("%s, %v", object, err)
		}
		if err != nil {
			return
		}
		if err := mcp.Valid(object); err != nil || object[0] != '{' {
			t.Fatalf("%s: %v", object, err)
		}
		for _, w := range words {
			if !strings.Contains(w.Key, ".") && mcp.Lookup(object, strings.ToValidUTF8(w.Key, "")) == nil {
				t.Fatalf("%s lacks %q", object, w.Key)
			}
			if w.Raw && w.Key == words[0].Key && fmt.Sprint(words[0]) == fmt.Sprint(w) && !strings.Contains(string(object), w.Value) {
				t.Fatalf("%s lacks %s", object, w.Value)
			}
		}
	})
}
