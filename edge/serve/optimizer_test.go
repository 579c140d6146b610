package serve_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// finds is YAML that turns the optimizer on, by keywords alone; more are further fields of it.
func finds(more ...string) string {
	return "optimizer: {" + strings.Join(append([]string{`hybridSearchSemanticRatio: "0"`}, more...), ", ") + "}"
}

// answerOf is an answer of find_tool taken apart.
type answerOf struct {
	Tools   []json.RawMessage
	Names   []string
	Metrics struct {
		Baseline int     `json:"baseline_tokens"`
		Returned int     `json:"returned_tokens"`
		Saved    float64 `json:"savings_percent"`
	}
	Search string
	Scores []struct {
		Name            string
		Keyword, Vector float64
		Words           []string
	}
	Raw string // of the result
}

// find asks for tools.
func (c caller) find(t *testing.T, text string, meta ...string) answerOf {
	t.Helper()
	arguments, _ := json.Marshal(map[string]string{"tool_description": text})
	return readFound(t, c, c.request(t, "1", "tools/call", edgetest.CallParams("find_tool", string(arguments)), meta...))
}

// readFound takes an answer apart, whose shape must be sound.
func readFound(t *testing.T, c caller, r *edgetest.Response) answerOf {
	t.Helper()
	if r.Status != 200 {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	a, err := foundIn(c, r.Result())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// foundIn is readFound for any goroutine.
func foundIn(c caller, text string) (answerOf, error) {
	var got struct {
		ResultType        string
		IsError           bool
		Content           []struct{ Type, Text string }
		StructuredContent json.RawMessage
		Meta              struct {
			Search string          `json:"weir.dev/search"`
			Scores json.RawMessage `json:"weir.dev/scores"`
		} `json:"_meta"`
	}
	a := answerOf{Raw: text}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		return a, fmt.Errorf("%w: %s", err, text)
	}
	var structured struct {
		Tools   []json.RawMessage
		Metrics json.RawMessage `json:"token_metrics"`
	}
	if err := json.Unmarshal(got.StructuredContent, &structured); err != nil || structured.Tools == nil || got.IsError {
		return a, fmt.Errorf("%v: %s", err, text)
	}
	if err := json.Unmarshal(structured.Metrics, &a.Metrics); err != nil {
		return a, err
	}
	if (got.ResultType == "complete") != (c.era() == edgetest.Modern) || len(got.Content) != 1 || got.Content[0].Text != string(got.StructuredContent) {
		return a, fmt.Errorf("the answer is not sound: %s", text)
	}
	a.Tools, a.Search = structured.Tools, got.Meta.Search
	for _, one := range a.Tools {
		a.Names = append(a.Names, strings.Trim(edgetest.Member(string(one), "name"), `"`))
	}
	if len(got.Meta.Scores) > 0 {
		return a, json.Unmarshal(got.Meta.Scores, &a.Scores)
	}
	return a, nil
}

// listedIn is the bytes of the list of tools that a client sees, as one array.
func listedIn(t *testing.T, c caller) string {
	t.Helper()
	return edgetest.Member(c.request(t, "9", "tools/list", "").Result(), "tools")
}

// through is the parameters of call_tool for a tool.
func through(tool, parameters string) string {
	return edgetest.CallParams("call_tool", fmt.Sprintf(`{"tool_name":%q,"parameters":%s}`, tool, parameters))
}

var library = []tool{
	{"read_file", "Reads a file from the disk and returns its text.", []string{"path"}, 1},
	{"write_file", "Writes text to a file on the disk.", []string{"path", "text"}, 2},
	{"list_directory", "Lists what a directory holds.", []string{"path"}, 1},
	{"send_mail", "Sends a message to somebody.", []string{"to", "subject"}, 2},
	{"search_issues", "Searches the issues of a repository.", []string{"query"}, 1},
}

// TestFindTool: clients of both eras are listed two tools, find the others with the
// definitions that a list without the optimizer has, and call them; by their own names the
// others are unknown.
func TestFindTool(t *testing.T) {
	eachCell(t, []string{finds("maxToolsToReturn: 2")}, library, nil, func(t *testing.T, f *front, c caller) {
		listed := c.request(t, "1", "tools/list", "").Result()
		var names []string
		for name := range c.As(c.era(), "").Listed("tools") {
			names = append(names, name)
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"call_tool", "find_tool"}) || edgetest.Member(listed, "nextCursor") != "" {
			t.Errorf("the list is %s", listed)
		}
		without := edgetest.Start(t, edgetest.Manifest(f.back))
		plain := (&front{Edge: without, back: f.back, client: without.NewClient()}).callerOf(t, c.era(), "")
		all := listedIn(t, plain)

		a := c.find(t, "read the text of a file", `"weir.dev/explain":true`)
		if len(a.Names) != 2 || a.Names[0] != "read_file" || a.Search != "keyword" {
			t.Errorf("found %v by %q", a.Names, a.Search)
		}
		for _, one := range a.Tools {
			if !strings.Contains(all, string(one)) {
				t.Errorf("the list has no %s", one)
			}
		}
		if a.Metrics.Baseline != len(all)/4 {
			t.Errorf("the baseline is %d tokens, and the list has %d bytes", a.Metrics.Baseline, len(all))
		}
		if s := a.Scores; len(s) != 2 || s[0].Name != "read_file" || s[0].Keyword <= s[1].Keyword || s[0].Vector != 0 || !slices.Contains(s[0].Words, "file") {
			t.Errorf("scores %+v", s)
		}
		if strings.Contains(c.find(t, "mail").Raw, "scores") {
			t.Error("scores that nobody asked for")
		}
		if none := c.find(t, "zebra"); len(none.Tools) != 0 || none.Metrics.Returned != 0 || none.Metrics.Saved != 100 && none.Metrics.Saved < 99 {
			t.Errorf("found for a zebra: %s", none.Raw)
		}
		if got := c.tool(t, "5", "call_tool", `{"tool_name":"read_file","parameters":{"path":"a"}}`); edgetest.Member(got, "structuredContent") != `{"path":"a"}` {
			t.Errorf("call_tool answers %s", got)
		}
		if got := c.tool(t, "6", "call_tool", `{"parameters":{"tool_name":"read_file","path":"b"}}`); edgetest.Member(got, "structuredContent") != `{"path":"b"}` {
			t.Errorf("call_tool with the name within parameters answers %s", got)
		}
		if got := c.tool(t, "7", "call_tool", `{"tool_name":"nope","parameters":{}}`); !strings.Contains(got, "tool not found: nope; find_tool tells what there is") || edgetest.Member(got, "isError") != "true" {
			t.Errorf("a tool that is not there: %s", got)
		}
		status := map[edgetest.Era]int{edgetest.Legacy: 200, edgetest.Modern: 400}[c.era()]
		fails(t, c.request(t, "8", "tools/call", edgetest.CallParams("read_file", "{}")), status, -32602, "8")
		if n := f.back.Count("tools/call"); n != 2 {
			t.Errorf("the backend got %d calls", n)
		}
	})
}

// TestFindToolArguments: wrong arguments are told to the model, with what is wrong (Q04).
func TestFindToolArguments(t *testing.T) {
	t.Parallel()
	f := scripted(t, edgetest.Modern, []string{finds()}, library, nil)
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		c := f.callerOf(t, era, "")
		many, _ := json.Marshal(make([]string, 33))
		for _, one := range []struct{ tool, arguments, want string }{
			{"find_tool", `{}`, "/tool_description: missing"},
			{"find_tool", `null`, "/tool_description: missing"},
			{"find_tool", `{"tool_description":""}`, "/tool_description: empty"},
			{"find_tool", `{"tool_description":7}`, "/tool_description: not a string"},
			{"find_tool", `{"tool_description":"` + strings.Repeat("a", 4097) + `"}`, "/tool_description: longer than 4096 bytes"},
			{"find_tool", `{"tool_description":"a","tool_keywords":"b"}`, "/tool_keywords: not an array"},
			{"find_tool", `{"tool_description":"a","tool_keywords":` + string(many) + `}`, "/tool_keywords: more than 32"},
			{"find_tool", `{"tool_description":"a","tool_keywords":["b",7]}`, "/tool_keywords/1: not a string"},
			{"find_tool", `{"tool_description":"a","tool_keywords":["` + strings.Repeat("b", 129) + `"]}`, "/tool_keywords/0: longer than 128 bytes"},
			{"find_tool", `{"tool_description":"a","max/~":1}`, "/max~1~0: there is no such argument: there are tool_description and tool_keywords"},
			{"call_tool", `{}`, "/tool_name: missing"},
			{"call_tool", `{"tool_name":7,"parameters":{}}`, "/tool_name: not a string"},
			{"call_tool", `{"tool_name":"read_file","parameters":[]}`, "/parameters: not an object"},
			{"call_tool", `{"tool_name":"read_file","path":"x"}`, "/path: there is no such argument: there are tool_name and parameters"},
		} {
			got := c.tool(t, "1", one.tool, one.arguments)
			if edgetest.Member(got, "isError") != "true" || !strings.Contains(got, "invalid arguments: "+one.want) {
				t.Errorf("%s %s: %s\nwant %s", one.tool, clip(one.arguments), got, one.want)
			}
		}
		for _, text := range []string{strings.Repeat("a", 4096), "the of and", "?!", "اقرأ الملف", "🙂", strings.Repeat("a ", 2048), `"NEAR"`, "file*", "file AND NOT", "東京都"} {
			c.find(t, text)
		}
		for _, tool := range []string{"find_tool", "call_tool"} {
			status := map[edgetest.Era]int{edgetest.Legacy: 200, edgetest.Modern: 400}[era]
			fails(t, c.request(t, "2", "tools/call", edgetest.CallParams(tool, `[]`)), status, -32602, "2")
		}
		if a := readFound(t, c, c.request(t, "3", "tools/call", edgetest.CallParams("find_tool", `{"tool_description":"zebra","tool_keywords":["","mail"]}`))); !slices.Equal(a.Names, []string{"send_mail"}) {
			t.Errorf("by a keyword %v are found", a.Names)
		}
	}
	if n := f.back.Count("tools/call"); n != 0 {
		t.Errorf("the backend got %d calls", n)
	}
}

// TestQ03Nesting: neither find_tool nor call_tool is called by call_tool or by a script; a
// script and a composite tool are, once, and are found as tools are.
func TestQ03Nesting(t *testing.T) {
	const flow = `compositeTools: [{name: two_reads, description: "Reads two files, one after the other.", steps: [{id: a, tool: back.read_file, arguments: {path: x}}, {id: b, tool: back.read_file, arguments: {path: y}, dependsOn: [a]}]}]`
	eachCell(t, []string{finds(), codeMode(), flow}, library, nil, func(t *testing.T, f *front, c caller) {
		if a := c.find(t, "run a script"); len(a.Names) == 0 || a.Names[0] != "execute_tool_script" || !strings.Contains(a.Raw, "read_file(path)") {
			t.Errorf("found for a script: %s", a.Raw)
		}
		if a := c.find(t, "two reads one after the other"); len(a.Names) == 0 || a.Names[0] != "two_reads" {
			t.Errorf("found for two reads: %v", a.Names)
		}
		for _, tool := range []string{"find_tool", "call_tool"} {
			if got := c.tool(t, "1", "call_tool", fmt.Sprintf(`{"tool_name":%q,"parameters":{"tool_description":"file","tool_name":"read_file"}}`, tool)); !strings.Contains(got, "tool not found: "+tool) {
				t.Errorf("%s within call_tool: %s", tool, got)
			}
		}
		script := func(text string) string {
			arguments, _ := json.Marshal(map[string]string{"script": text})
			return c.tool(t, "2", "call_tool", `{"tool_name":"execute_tool_script","parameters":`+string(arguments)+`}`)
		}
		if got := script(`return [read_file("a"), two_reads(), [attempt(lambda: call_tool(n, tool_description="file"))["ok"] for n in ["find_tool", "call_tool", "execute_tool_script"]]]`); edgetest.Member(got, "structuredContent", "result") != `[{"path":"a"},{"path":"y"},[false,false,false]]` {
			t.Errorf("a script answers %s", got)
		}
		if got := c.tool(t, "3", "call_tool", `{"tool_name":"two_reads","parameters":{}}`); edgetest.Member(got, "structuredContent") != `{"path":"y"}` {
			t.Errorf("a composite tool answers %s", got)
		}
		if n := f.back.Count("tools/call"); n != 5 {
			t.Errorf("the backend got %d calls", n)
		}
	})
}
