package workflow

import (
	"runtime"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weir-edge/weir/scripting"
)

// bothWays compiles a schema, and says whether its form and the library take a value.
func bothWays(schema, value string) (of *form, quick, fits bool, err error) {
	s, err := compileSchema([]byte(schema), false)
	if err != nil {
		return nil, false, false, err
	}
	v, err := scripting.Plain([]byte(value))
	if err != nil {
		return nil, false, false, err
	}
	return s.form, s.form != nil && s.form.fits(v), s.compiled.Validate(v) == nil, nil
}

// TestForm: the usual schemas are seen to fit without the library; what does not fit, and what
// says more, is left to it.
func TestForm(t *testing.T) {
	const usual = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{
		"owner":{"type":"string","description":"who","default":"me"},"count":{"type":"integer"},"share":{"type":"number"},
		"deep":{"type":"object","properties":{"yes":{"type":"boolean"}},"required":["yes"],"additionalProperties":false},
		"any":{},"all":{"type":"array"},"none":{"type":"null"}},"required":["owner"]}`
	for _, c := range []struct {
		schema, value    string
		form, quick, fit bool
	}{
		{usual, `{"owner":"a"}`, true, true, true},
		{usual, `{"owner":"a","count":-7,"share":7,"any":[1],"all":[],"none":null,"more":1}`, true, true, true},
		{usual, `{"owner":"a","share":0.5,"deep":{"yes":true}}`, true, true, true},
		{usual, `{"owner":"a","count":7e0}`, true, true, true}, // the reader writes 7
		{usual, `{"owner":"a","count":0.5}`, true, false, false},
		{usual, `{"count":1}`, true, false, false},
		{usual, `{"owner":7}`, true, false, false},
		{usual, `{"owner":"a","deep":{"yes":true,"no":1}}`, true, false, false},
		{usual, `{"owner":"a","deep":{}}`, true, false, false},
		{usual, `{"owner":"a","none":0}`, true, false, false},
		{usual, `{"owner":null}`, true, false, false},
		{usual, `[]`, true, false, false},
		{`{"type":"string","minLength":2}`, `"abc"`, false, false, true},
		{`{"type":["string","null"]}`, `"abc"`, false, false, true},
		{`{"properties":{"a":true}}`, `{"a":1}`, false, false, true},
		{`{"properties":{"a":{"enum":[1]}}}`, `{"a":1}`, false, false, true},
		{`{"additionalProperties":{"type":"string"}}`, `{"a":1}`, false, false, false},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","format":"date"}`, `"x"`, false, false, false},
		{`{"required":["a"]}`, `"an object alone must have it"`, true, true, true},
		{`{}`, `1.5`, true, true, true},
	} {
		of, quick, fits, err := bothWays(c.schema, c.value)
		if err != nil || (of != nil) != c.form || quick != c.quick || fits != c.fit {
			t.Errorf("%s, %s: form %v, fits by it %v, by the library %v, %v", c.schema, c.value, of != nil, quick, fits, err)
		}
	}
}

// FuzzForm: what fits by the form of a schema fits by the schema.
func FuzzForm(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}`, `{"a":1}`)
	f.Add(`{"$schema":"http://json-schema.org/draft-04/schema#","type":"integer"}`, `1.0`)
	f.Add(`{"$id":"x","type":"number","$defs":{}}`, `1e400`)
	f.Fuzz(func(t *testing.T, schema, value string) {
		if of, quick, fits, err := bothWays(schema, value); err == nil && quick && !fits {
			t.Errorf("%s: %s fits by %+v alone", schema, value, of)
		}
	})
}

// An answer is held to the format of its texts, as clients hold it, and so is a default.
func TestAnswersOfAFormat(t *testing.T) {
	for format, texts := range map[string][2]string{
		"date":      {"2024-02-29", "2023-02-29"},
		"date-time": {"2024-02-29T12:00:00Z", "2024-02-29"},
		"email":     {"a@example.com", "a"},
		"uri":       {"https://example.com/a?b#c", "a b"},
	} {
		s, err := questionSchema([]byte(`{"type":"object","properties":{"x":{"type":"string","format":"` + format + `"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.reply([]byte(`{"x":"` + texts[0] + `"}`)); err != nil {
			t.Errorf("%s: %s: %v", format, texts[0], err)
		}
		if err := s.reply([]byte(`{"x":"` + texts[1] + `"}`)); err == nil || !strings.HasPrefix(err.Error(), "/x: ") {
			t.Errorf("%s: %s: %v", format, texts[1], err)
		}
		if _, err := questionSchema([]byte(`{"type":"object","properties":{"x":{"type":"string","format":"` + format + `","default":"` + texts[1] + `"}}}`)); err == nil {
			t.Errorf("%s: a default of %s", format, texts[1])
		}
	}
}

// TestLongChainOfSchemas: schemas that refer to each other in a long line take memory by their
// number, not by its square.
func TestLongChainOfSchemas(t *testing.T) {
	chain := make([]jsonschema.Schema, 200_000)
	for i := range chain[1:] {
		chain[i].Ref = &chain[i+1]
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	found := circular(&chain[0])
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; found != nil || took > 64<<20 {
		t.Errorf("%v, after %d bytes", found != nil, took)
	}
	chain[len(chain)-1].AllOf = []*jsonschema.Schema{{}, &chain[100_000]}
	if circular(&chain[0]) != &chain[100_000] {
		t.Error("a circle at the end of a long line was not found")
	}
}
