package mcp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
)

// What clients refuse a whole list for, one item of each kind and one fault at a time, and what
// they take, byte for byte.
func TestCheckItem(t *testing.T) {
	tool := func(more string) string { return `{"name":"t","inputSchema":{"type":"object"}` + more + `}` }
	schema := func(s string) string { return `{"name":"t","inputSchema":` + s + `}` }
	for _, row := range []struct{ method, item, clean, changed, why string }{
		{"tools", tool(``), "", "", ""},
		{"tools", ` { "name" : "t" , "x":1.50, "inputSchema":{"type":"object" ,"additionalProperties":false,"oneOf":3,"properties":{"a":{},"b":true,"c":[]},"required":[]} } `, "", "", ""},
		{"tools", tool(`,"annotations":{"vendor":1,"readOnlyHint":true,"title":""},"_meta":{"a/b":null},"icons":[]`), "", "", ""},
		{"tools", tool(`,"outputSchema":{"type":"array","items":null},"execution":{"taskSupport":"optional"}`), "", "", ""},
		{"tools", tool(`,"title":null,"outputSchema":null`), tool(``), "", ""},
		{"tools", tool(`,"annotations":{"title":null, "readOnlyHint":true }`), tool(`,"annotations":{"readOnlyHint":true}`), "", ""},
		{"tools", tool(`,"icons":[{"src":"a"}, {"src":"b","sizes":null}]`), tool(`,"icons":[{"src":"a"},{"src":"b"}]`), "", ""},
		{"tools", `{"name":"t"}`, `{"inputSchema":{"type":"object"},"name":"t"}`, "it.inputSchema is missing", ""},
		{"tools", schema(`null`), tool(``), "it.inputSchema is missing", ""},
		{"tools", schema(`true`), "", "", "it.inputSchema must be an object"},
		{"tools", schema(`"x"`), "", "", "it.inputSchema must be an object"},
		{"tools", schema(`{}`), tool(``), "it.inputSchema.type is missing", ""},
		{"tools", schema(`{"type":["object"]}`), "", "", `it.inputSchema.type must be "object"`},
		{"tools", schema(`{"type":"object","required":"a"}`), tool(``), "it.inputSchema.required must be an array", ""},
		{"tools", schema(`{"type":"object","required":[1]}`), tool(``), "it.inputSchema.required[0] must be a text", ""},
		{"tools", schema(`{"type":"object","properties":[]}`), tool(``), "it.inputSchema.properties must be an object", ""},
		{"tools", schema(`{"type":"object","properties":{"a":"x"}}`), schema(`{"type":"object","properties":{"a":{}}}`), "it.inputSchema.properties.a must be a schema", ""},
		{"tools", schema(`{"type":"object","properties":{"a":{"x": 1}, "b" : null},"required":["a"]}`), schema(`{"type":"object","properties":{"a":{"x": 1}, "b" : {}},"required":["a"]}`), "it.inputSchema.properties.b must be a schema", ""},
		{"tools", schema(`{"type":"object","$schema":7}`), tool(``), "it.inputSchema.$schema must be a text", ""},
		{"tools", tool(`,"description":5`), tool(``), "it.description must be a text", ""},
		{"tools", tool(`,"title":{}`), tool(``), "it.title must be a text", ""},
		{"tools", tool(`,"annotations":"x"`), tool(``), "it.annotations must be an object", ""},
		{"tools", tool(`,"annotations":{"readOnlyHint":"yes"}`), tool(`,"annotations":{}`), "it.annotations.readOnlyHint must be true or false", ""},
		{"tools", tool(`,"icons":"x"`), tool(``), "it.icons must be an array", ""},
		{"tools", tool(`,"icons":[{"src":3}]`), tool(``), "it.icons[0].src must be a text", ""},
		{"tools", tool(`,"icons":[{"src":"a","theme":"blue"}]`), tool(`,"icons":[{"src":"a"}]`), `it.icons[0].theme must be "light" or "dark"`, ""},
		{"tools", tool(`,"_meta":[]`), tool(``), "it._meta must be an object", ""},
		{"tools", tool(`,"execution":"x"`), tool(``), "it.execution must be an object", ""},
		{"tools", tool(`,"outputSchema":"x"`), tool(``), "it.outputSchema must be an object", ""},
		{"tools", tool(`,"outputSchema":{"type":"object","properties":null,"required":null}`), tool(`,"outputSchema":{"type":"object"}`), "", ""},
		{"tools", tool(`,"outputSchema":{"type":"object","properties":{"a":"x"}}`), tool(`,"outputSchema":{"type":"object","properties":{"a":{}}}`), "it.outputSchema.properties.a must be a schema", ""},
		{"tools", tool(`,"outputSchema":{"t\u0079pe":"object","required":[1]}`), tool(`,"outputSchema":{"t\u0079pe":"object"}`), "it.outputSchema.required[0] must be a text", ""},
		{"tools", tool(`,"outputSchema":{"type":["object"],"properties":null,"required":"a"}`), "", "", ""},
		{"tools", tool(`,"outputSchema":{"properties":null}`), "", "", ""},
		{"tools", tool(`,"outputSchema":{"type":"array","$schema":7}`), tool(`,"outputSchema":{"type":"array"}`), "it.outputSchema.$schema must be a text", ""},
		{"prompts", `{"name":"p","arguments":[{"name":"a","required":true,"title":7}]}`, "", "", ""},
		{"prompts", `{"name":"p","arguments":null}`, `{"name":"p"}`, "", ""},
		{"prompts", `{"name":"p","arguments":"x"}`, `{"name":"p"}`, "it.arguments must be an array", ""},
		{"prompts", `{"name":"p","arguments":[{"name":5}]}`, `{"name":"p"}`, "it.arguments[0].name must be a text", ""},
		{"prompts", `{"name":"p","description":7}`, `{"name":"p"}`, "it.description must be a text", ""},
		{"resources", `{"uri":"not a uri","name":"","size":1e3,"annotations":{"audience":["user"],"priority":0.5,"lastModified":"2025-01-12T15:00:58.5+02:00"}}`, "", "", ""},
		{"resources", `{"uri":"a:b"}`, `{"name":"a:b","uri":"a:b"}`, "it.name is missing", ""},
		{"resources", `{"uri":"a:b","name":null,"size":null}`, `{"uri":"a:b","name":"a:b"}`, "it.name is missing", ""},
		{"resources", `{"uri":"a:b","name":5}`, "", "", "it.name must be a text"},
		{"resources", `{"uri":"a:b","name":"n","mimeType":1}`, `{"uri":"a:b","name":"n"}`, "it.mimeType must be a text", ""},
		{"resources", `{"uri":"a:b","name":"n","size":"big"}`, `{"uri":"a:b","name":"n"}`, "it.size must be a number", ""},
		{"resources", `{"uri":"a:b","name":"n","size":1e400}`, `{"uri":"a:b","name":"n"}`, "it.size must be a number", ""},
		{"resources", `{"uri":"a:b","name":"n","size":-1.7976931348623157e308}`, "", "", ""},
		{"resources", `{"uri":"a:b","name":"n","annotations":{"lastModified":"2025-02-30T10:00:00Z"}}`, `{"uri":"a:b","name":"n","annotations":{}}`, "it.annotations.lastModified must be a time as 2025-01-12T15:00:58Z", ""},
		{"resources", `{"uri":"a:b","name":"n","annotations":{"lastModified":"2025-02-29T10:00Z"}}`, `{"uri":"a:b","name":"n","annotations":{}}`, "it.annotations.lastModified must be a time as 2025-01-12T15:00:58Z", ""},
		{"resources", `{"uri":"a:b","name":"n","annotations":{"lastModified":"2024-02-29T10:00Z"}}`, "", "", ""},
		{"resources", `{"uri":"a:b","name":"n","annotations":{"priority":2}}`, `{"uri":"a:b","name":"n","annotations":{}}`, "it.annotations.priority must be a number from 0 to 1", ""},
		{"resources", `{"uri":"a:b","name":"n","annotations":{"audience":["all"]}}`, `{"uri":"a:b","name":"n","annotations":{}}`, `it.annotations.audience[0] must be "user" or "assistant"`, ""},
		{"resources", `{"uri":"a:b","name":"n","annotations":{"lastModified":"2025-01-12"}}`, `{"uri":"a:b","name":"n","annotations":{}}`, "it.annotations.lastModified must be a time as 2025-01-12T15:00:58Z", ""},
		{"resources/templates", `{"uriTemplate":"{","name":"q"}`, "", "", ""},
		{"resources/templates", `{"uriTemplate":"a:{b}"}`, `{"name":"a:{b}","uriTemplate":"a:{b}"}`, "it.name is missing", ""},
	} {
		item := strings.TrimSpace(row.item)
		clean, changed, why := mcp.CheckItem(row.method+"/list", []byte(item))
		want := row.clean
		if want == "" {
			want = item
		}
		if string(clean) != want || changed != row.changed || why != row.why {
			t.Errorf("%s %s:\n%s, %q, %q\nwant %s, %q, %q", row.method, item, clean, changed, why, want, row.changed, row.why)
		}
	}
}

func TestLegacyTool(t *testing.T) {
	for _, row := range [][2]string{
		{`{"name":"t","inputSchema":{"type":"object","properties":{"a":{"x": 1}}}}`, ""},
		{`{"inputSchema":{"type":"object", "properties":{"a":true,"b":{"c": 1},"d":false}}}`,
			`{"inputSchema":{"type":"object","properties":{"a":{},"b":{"c": 1},"d":{"not":{}}}}}`},
		{`{"name":"t","outputSchema":{"type":"array"}}`, `{"name":"t"}`},
		{`{"name":"t","outputSchema":{"type":"object","required":"a"}}`, `{"name":"t"}`},
		{`{"name":"t","outputSchema":{"type":"object","properties":null,"required":null,"x":null}}`, `{"name":"t","outputSchema":{"type":"object","x":null}}`},
		{`{"name":"t","outputSchema":{"required":null,"type":"object","properties":{"a" : true, "b":[]}}}`, `{"name":"t","outputSchema":{"type":"object","properties":{"a" : {}, "b":[]}}}`},
		{`{"inputSchema":{"type":"object","properties":{"a":true}},"outputSchema":{"type":"object","properties":{"b":false}}}`,
			`{"inputSchema":{"type":"object","properties":{"a":{}}},"outputSchema":{"type":"object","properties":{"b":{"not":{}}}}}`},
		{`{"name":"t","outputSchema":{"type":"object","properties":{"a":true}}}`, `{"name":"t","outputSchema":{"type":"object","properties":{"a":{}}}}`},
	} {
		want := row[1]
		if want == "" {
			want = row[0]
		}
		if got := string(mcp.LegacyTool([]byte(row[0]))); got != want {
			t.Errorf("%s:\n%s\nwant %s", row[0], got, want)
		}
	}
}

// The time for a tool is linear in its properties: the list of all clients waits for it.
func TestToolsOfManyProperties(t *testing.T) {
	tool := func(n int) []byte {
		var b []byte
		for i := range n {
			b = fmt.Appendf(b, `"x%d":true,`, i)
		}
		all := `"properties":{` + string(b) + `"y":{}},"required":null`
		return []byte(`{"name":"t",` + string(b) + `"inputSchema":{"type":"object",` + all + `},"outputSchema":{"type":"object",` + all + `}}`)
	}
	for name, f := range map[string]func([]byte){
		"LegacyTool": func(tool []byte) { mcp.LegacyTool(tool) },
		"CheckItem":  func(tool []byte) { mcp.CheckItem("tools/list", tool) },
	} {
		took := func(n int) time.Duration {
			text, start := tool(n), time.Now()
			f(text)
			return time.Since(start)
		}
		var few, many time.Duration
		for range 3 { // a busy machine may keep one waiting
			if few, many = took(1_500), took(24_000); many <= 80*max(few, time.Millisecond) {
				break
			}
		}
		if many > 80*max(few, time.Millisecond) {
			t.Errorf("%s: 16 times as many properties take %v instead of %v", name, many, few)
		}
	}
}
