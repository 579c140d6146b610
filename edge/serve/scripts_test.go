package serve_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/codemode"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/sandbox"
)

// codeMode is YAML that turns code mode on; more are further fields of it.
func codeMode(more ...string) string {
	return "codeMode: {" + strings.Join(append([]string{"enabled: true"}, more...), ", ") + "}"
}

// tool is a tool of a fake server: its name, the properties of its input schema in order,
// and those of them that it requires.
type tool struct {
	name, description string
	properties        []string
	required          int
}

// offersTools has a fake server list tools.
func offersTools(s *edgetest.Server, tools ...tool) {
	var all []string
	for _, t := range tools {
		var properties []string
		for _, p := range t.properties {
			properties = append(properties, fmt.Sprintf(`%q:{"type":"string"}`, p))
		}
		required, _ := json.Marshal(append([]string{}, t.properties[:t.required]...))
		all = append(all, fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object","properties":{%s},"required":%s}}`,
			t.name, t.description, strings.Join(properties, ","), required))
	}
	list := `{"tools":[` + strings.Join(all, ",") + `]}`
	if s.Era == edgetest.Modern {
		list = `{"resultType":"complete","ttlMs":60000,"cacheScope":"public","tools":[` + strings.Join(all, ",") + `]}`
	}
	s.Always("tools/list", func(c *edgetest.Call) { c.Result(list) })
}

// results has a fake server answer calls of tools with results, JSON text by name of the
// tool; "*" is for all others. ARGUMENTS stands for those of the call.
func results(s *edgetest.Server, by map[string]string) {
	s.Always("tools/call", func(c *edgetest.Call) {
		name := strings.Trim(edgetest.Member(string(c.Message.Params), "name"), `"`)
		result, ok := by[name]
		if !ok {
			result = by["*"]
		}
		arguments := edgetest.Member(string(c.Message.Params), "arguments")
		if s.Era == edgetest.Modern {
			result = `{"resultType":"complete",` + result[1:]
		}
		c.Result(strings.ReplaceAll(result, "ARGUMENTS", arguments))
	})
}

// echoes answers with the arguments as structured content.
var echoes = map[string]string{"*": `{"content":[{"type":"text","text":"said"}],"structuredContent":ARGUMENTS}`}

// scripted is an edge with code mode before one fake server.
// Its backend offers tools and answers with results; nil for those of echoes.
func scripted(t *testing.T, era edgetest.Era, yaml []string, tools []tool, by map[string]string, options ...edgetest.Option) *front {
	t.Helper()
	back := edgetest.NewServer(t, era)
	offersTools(back, tools...)
	if by == nil {
		by = echoes
	}
	results(back, by)
	e := edgetest.Start(t, edgetest.Manifest(back, yaml...), append([]edgetest.Option{engine()}, options...)...)
	return &front{Edge: e, back: back, client: e.NewClient()}
}

// outcome is the result of a script taken apart.
type outcome struct {
	Result  json.RawMessage
	Logs    []string
	IsError bool
	Error   struct {
		Message, Tool string
		Line, Column  int
	}
	Texts []string // of the content
	Stats struct {
		Steps, Calls, MemoryBytes int64
		CPUMs                     float64
	}
	Raw string
}

// script runs a script. data is JSON text; "" for none.
func (c caller) script(t *testing.T, text, data string, meta ...string) outcome {
	t.Helper()
	return read(t, c, c.request(t, "1", "tools/call", scriptParams(text, data), meta...))
}

func scriptParams(text, data string) string {
	arguments := map[string]any{"script": text}
	if data != "" {
		arguments["data"] = json.RawMessage(data)
	}
	all, err := json.Marshal(arguments)
	if err != nil {
		panic(err)
	}
	return edgetest.CallParams("execute_tool_script", string(all))
}

// read takes the answer to a script apart, whose shape must be sound.
func read(t *testing.T, c caller, r *edgetest.Response) outcome {
	t.Helper()
	if r.Status != 200 {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	text := r.Result()
	var got struct {
		ResultType        string
		IsError           bool
		Content           []struct{ Type, Text string }
		StructuredContent struct {
			Result json.RawMessage
			Logs   []string
			Error  json.RawMessage
		}
		Meta struct {
			Script json.RawMessage `json:"weir.dev/script"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if (got.ResultType == "complete") != (c.era() == edgetest.Modern) {
		t.Errorf("resultType %q for a %s client", got.ResultType, c.era())
	}
	out := outcome{Result: got.StructuredContent.Result, Logs: got.StructuredContent.Logs, IsError: got.IsError, Raw: text}
	for _, block := range got.Content {
		out.Texts = append(out.Texts, block.Text)
	}
	for from, to := range map[*json.RawMessage]any{&got.StructuredContent.Error: &out.Error, &got.Meta.Script: &out.Stats} {
		if len(*from) > 0 {
			if err := json.Unmarshal(*from, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !out.IsError && (len(out.Texts) == 0 || out.Texts[0] != string(out.Result)) {
		t.Errorf("the text says something else than the structured content: %s", text)
	}
	return out
}

// eachCell runs a test for each pair of eras of client and backend.
func eachCell(t *testing.T, yaml []string, tools []tool, by map[string]string, test func(t *testing.T, f *front, c caller)) {
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		for _, back := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			t.Run(client.String()+" client, "+back.String()+" backend", func(t *testing.T) {
				t.Parallel()
				f := scripted(t, back, yaml, tools, by)
				test(t, f, f.callerOf(t, client, ""))
			})
		}
	}
}

// TestScripts: a script calls tools in every cell, by functions, by name, at the same time,
// and what it returns is the result, with what it printed and what it cost.
func TestScripts(t *testing.T) {
	eachCell(t, []string{codeMode()}, []tool{{"read-file", "Reads a file.", []string{"path", "limit"}, 1}, {"plain", "", nil, 0}, {"bad", "", nil, 0}, {"nothing", "", nil, 0}, {"picture", "", nil, 0}, {"lone", "", nil, 0}}, map[string]string{
		"read-file": echoes["*"],
		"plain":     `{"content":[{"type":"image","data":"AA==","mimeType":"image/png"},{"type":"text","text":"not JSON"},{"type":"text","text":"{}"}]}`,
		"bad":       `{"content":[{"type":"text","text":"no such file"}],"isError":true}`,
		"nothing":   `{"content":[]}`,
		"picture":   `{"content":[{"type":"image","data":"AA==","mimeType":"image/png"}]}`,
		"lone":      `{"content":[{"type":"text","text":"7"}],"structuredContent":{"result":[1,2.5,"x"]}}`,
	}, func(t *testing.T, f *front, c caller) {
		out := c.script(t, `print("begin", 1)
both = parallel([lambda: read_file("a", limit="2"), lambda: call_tool("read-file", path="b")])
failed = attempt(lambda: bad())
return [both, plain(), nothing(), picture(), lone(), failed, call_tool_result("bad")["isError"], who]
`, `{"who":"ada"}`)
		want := `[[{"path":"a","limit":"2"},{"path":"b"}],"not JSON",null,[{"type":"image","data":"AA==","mimeType":"image/png"}],[1,2.5,"x"],` +
			`{"ok":false,"error":{"message":"tool \"bad\": no such file","tool":"bad","code":null,"data":null}},true,"ada"]`
		if out.IsError || string(out.Result) != want {
			t.Errorf("got\n%s\nwant\n%s", out.Raw, want)
		}
		if len(out.Logs) != 1 || out.Logs[0] != "begin 1" || len(out.Texts) != 2 || out.Texts[1] != "Script logs:\nbegin 1" {
			t.Errorf("logs %q, texts %q", out.Logs, out.Texts)
		}
		if out.Stats.Calls != 8 || out.Stats.Steps < 20 || out.Stats.CPUMs <= 0 || out.Stats.MemoryBytes <= 0 {
			t.Errorf("%+v", out.Stats)
		}
		out = c.script(t, "return 1", "")
		if string(out.Result) != "1" || len(out.Texts) != 1 || strings.Contains(out.Raw, "logs") {
			t.Errorf("nothing was printed: %s", out.Raw)
		}
	})
}

// TestScriptIsListed: the tool is listed for clients of both eras with a description that
// names the tools there are, how they are called and which are no functions (X24).
func TestScriptIsListed(t *testing.T) {
	eachCell(t, []string{codeMode()}, []tool{{"read-file", "Reads\n  a file " + strings.Repeat("long ", 40), []string{"path", "limit"}, 1},
		{"print", "", nil, 0}, {"lambda", "", nil, 0}, {"fail", "", nil, 0}, {"json", "", nil, 0}, {"parallel", "", nil, 0},
		{"call-tool", "", nil, 0}, {"a.b", "", nil, 0}, {"a_b", "", nil, 0}}, nil, func(t *testing.T, f *front, c caller) {
		description := described(t, c)
		for _, want := range []string{
			"- read_file(path, limit=…): Reads a file long long",
			"…\n", `call_tool("print", …)`, `call_tool("lambda", …)`, `call_tool("call-tool", …)`, `call_tool("a.b", …)`, `call_tool("a_b", …)`, "parallel([", "attempt(", "print(", "data",
		} {
			if !strings.Contains(description, want) {
				t.Errorf("%q is not in\n%s", want, description)
			}
		}
		out := c.script(t, `print("hi")
ran = [call_tool(n, n=1) for n in ["print", "lambda", "fail", "json", "parallel", "call-tool", "a.b", "a_b"]]
return [len(ran), ran[0], json.decode("[1]")]`, "")
		if string(out.Result) != `[8,{"n":1},[1]]` || len(out.Logs) != 1 {
			t.Error(out.Raw)
		}
		if out := c.script(t, "return a_b()", ""); !strings.Contains(out.Error.Message, "undefined: a_b") {
			t.Errorf("two tools share the name: %s", out.Raw)
		}
	})
}

// described returns the description of the tool as a client sees it.
func described(t *testing.T, c caller) string {
	t.Helper()
	var out struct {
		Tools []struct {
			Name, Description string
			InputSchema       json.RawMessage
			Annotations       struct{ ReadOnlyHint, DestructiveHint, OpenWorldHint *bool }
		}
	}
	text := c.request(t, "77", "tools/list", "").Result()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	for _, one := range out.Tools {
		if one.Name != "execute_tool_script" {
			continue
		}
		if a := one.Annotations; a.ReadOnlyHint == nil || *a.ReadOnlyHint || a.DestructiveHint == nil || !*a.DestructiveHint || edgetest.Member(string(one.InputSchema), "required") != `["script"]` {
			t.Errorf("%+v", one)
		}
		return one.Description
	}
	t.Fatalf("it is not listed: %s", text)
	return ""
}

// TestScriptErrors: what is wrong with a script comes as a result, with its place, the tool,
// and what was printed until then.
func TestScriptErrors(t *testing.T) {
	eachCell(t, []string{codeMode("stepLimit: 5000")}, []tool{{"food", "", []string{"a", "b"}, 1}, {"bad", "", nil, 0}}, map[string]string{"food": echoes["*"], "bad": `{"content":[{"type":"text","text":"no \u001b[31mroom\u0000"}],"isError":true}`}, func(t *testing.T, f *front, c caller) {
		for _, one := range []struct {
			script, message, tool string
			line, column          int
		}{
			{"x = 1\n  y = 2", "got indent", "", 2, 3},
			{"x = foo()", "undefined: foo (did you mean food?)", "", 1, 5},
			{"print('one')\ndef f():\n  return bad()\nreturn f()", `tool "bad": no [31mroom`, "bad", 3, 13},
			{"return food(1, 2, 3)", `tool "food": 3 values without names, and it takes 2: its parameters are a, b`, "food", 1, 12},
			{"return food(1, a=2)", `tool "food": "a" is given twice: its parameters are a, b`, "food", 1, 12},
			{`return call_tool("foot")`, `tool "foot": not found (did you mean food?)`, "foot", 1, 17},
			{`return call_tool("execute_tool_script", script="return 1")`, `tool "execute_tool_script": a script cannot run another`, "execute_tool_script", 1, 17},
			{"print('one')\nwhile True: pass", "too many steps (5000)", "", 0, 0},
			{"return attempt(lambda: [x for x in range(100000)])", "too many steps (5000)", "", 0, 0},
			{`fail("so", 1)`, "so 1", "", 1, 5},
			{"return print", "no JSON form", "", 0, 0},
			{`load("x.star", "y")`, "load", "", 1, 1},
		} {
			out := c.script(t, one.script, "")
			if !out.IsError || !strings.Contains(out.Error.Message, one.message) || out.Error.Tool != one.tool {
				t.Errorf("%s\n%s", one.script, out.Raw)
				continue
			}
			if one.line > 0 && (out.Error.Line != one.line || out.Error.Column != one.column) {
				t.Errorf("%s\nline %d, column %d", one.script, out.Error.Line, out.Error.Column)
			}
			if !strings.HasPrefix(out.Texts[0], "script execution failed: ") || !strings.Contains(out.Texts[0], out.Error.Message) {
				t.Errorf("%s\n%s", one.script, out.Texts[0])
			}
			if one.line > 0 && !strings.HasPrefix(out.Texts[0], fmt.Sprintf("script execution failed: script.star:%d:%d: ", one.line, one.column)) {
				t.Errorf("%s\n%s", one.script, out.Texts[0])
			}
			if strings.HasPrefix(one.script, "print('one')") && (len(out.Logs) != 1 || out.Logs[0] != "one" || len(out.Texts) != 2) {
				t.Errorf("%s\nlogs %q", one.script, out.Logs)
			}
			for _, hidden := range []string{"/work", ".go", "0xc0", "goroutine", "starlark.", "\x1b", "\x00"} {
				if strings.Contains(out.Raw, hidden) {
					t.Errorf("%s\nthe answer has %q: %s", one.script, hidden, out.Raw)
				}
			}
		}
	})
}

// nested is the JSON text of arrays within each other.
func nested(deep int) string { return strings.Repeat("[", deep) + strings.Repeat("]", deep) }

// TestX25: wrong arguments are a result that names them, before anything runs (rows X25,
// X29); what is no object is an error of the message.
func TestX25(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			runs := &countingEngine{}
			f := scripted(t, edgetest.Modern, []string{codeMode()}, []tool{{"read-file", "", nil, 0}}, nil, engineOf(runs.Run))
			c := f.callerOf(t, era, "")
			keys := make([]string, 10_000)
			for i := range keys {
				keys[i] = fmt.Sprintf(`"k%d":1`, i)
			}
			for arguments, want := range map[string]string{
				`{}`:           "/script: missing",
				`{"script":1}`: "/script: not a string",
				`{"script":"` + strings.Repeat(" ", 65537) + `"}`:                 "/script: longer than 65536 bytes",
				`{"script":"","data":[]}`:                                         "/data: not an object",
				`{"script":"","date":{}}`:                                         "/date: there is no such argument",
				`{"script":"","data":{"len":1}}`:                                  "/data/len: the name is taken by the language",
				`{"script":"","data":{"print":1}}`:                                "/data/print: the name is taken by the language",
				`{"script":"","data":{"a-b":1}}`:                                  "/data/a-b: not a name",
				`{"script":"","data":{"a/~b":1}}`:                                 "/data/a~1~0b: not a name",
				`{"script":"","data":{"read_file":1}}`:                            `/data/read_file: the name is taken by the tool "read-file"`,
				`{"script":"","data":{` + strings.Join(keys, ",") + `}}`:          "/data: more than 1000 keys",
				`{"script":"","data":{"x":"` + strings.Repeat("x", 2<<20) + `"}}`: "/data: longer than 1048576 bytes",
				`{"script":"","data":{"x":1,"y":[1e400]}}`:                        "/data/y: number out of range",
				`{"script":"","data":{"x":` + strings.Repeat("9", 4097) + `}}`:    "/data/x: an integer of more than 4096 digits",
				`{"script":"","data":{"x":` + nested(100) + `}}`:                  "/data/x: deeper than 100",
			} {
				r := c.request(t, "1", "tools/call", edgetest.CallParams("execute_tool_script", arguments))
				out := read(t, c, r)
				if !out.IsError || !strings.HasPrefix(out.Texts[0], "invalid arguments: "+want) {
					t.Errorf("%.60s: %.300s", arguments, out.Raw)
				}
			}
			status := 200
			if era == edgetest.Modern {
				status = 400
			}
			fails(t, c.request(t, "1", "tools/call", edgetest.CallParams("execute_tool_script", `[1]`)), status, -32602, "1")
			if n := runs.n.Load(); n != 0 {
				t.Errorf("%d ran", n)
			}
			if out := c.script(t, "return 1", ""); string(out.Result) != "1" || runs.n.Load() != 1 {
				t.Error(out.Raw)
			}
		})
	}
}

// post is the text of a POST.
func post(host, body string, head ...string) string {
	var b strings.Builder
	b.WriteString("POST /mcp HTTP/1.1\r\nHost: " + host + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n")
	for i := 0; i < len(head); i += 2 {
		fmt.Fprintf(&b, "%s: %s\r\n", head[i], head[i+1])
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	return b.String()
}

// await waits for something to happen.
func await(t *testing.T, what string, happened <-chan struct{}) {
	t.Helper()
	select {
	case <-happened:
	case <-time.After(edgetest.Patience):
		t.Fatalf("%s: not within %s", what, edgetest.Patience)
	}
}

// countingEngine counts what runs.
type countingEngine struct{ n atomic.Int64 }

func (e *countingEngine) Run(ctx context.Context, holder string, r *scripting.Run) (*scripting.Outcome, error) {
	e.n.Add(1)
	return sandboxed().Run(ctx, holder, r)
}

// engine has an edge run scripts in the sandbox that the tests of this package share, since
// it takes seconds to compile.
func engine() edgetest.Option { return engineOf(sandboxed().Run) }

// machineCode is a directory for the interpreter once it is compiled, so that the tests with a
// sandbox of their own do not compile it again. It is removed in the end.
var machineCode = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "weir-scripts-")
	if err != nil {
		panic(err)
	}
	return dir
})

var sandboxed = sync.OnceValue(func() *sandbox.Engine {
	e := sandbox.New(sandbox.Options{MostPerHolder: 32, CacheDir: machineCode()})
	_ = e.Ready(context.Background()) // who runs a script is told why it is not; and nothing of it goes on when the tests end
	return e
})

func engineOf(e codemode.Engine) edgetest.Option { return edgetest.With(serve.WithScripts(e)) }

// TestX08: a client that leaves stops its script and the calls of it, in both eras, and so
// does notifications/cancelled (rows X08 and X12: nothing is called again).
func TestX08(t *testing.T) {
	for _, way := range []string{"legacy leaves", "modern leaves", "legacy cancels"} {
		for _, back := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			t.Run(way+", "+back.String()+" backend", func(t *testing.T) {
				t.Parallel()
				f := scripted(t, back, []string{codeMode(), "telemetry: {enablePrometheusMetricsPath: true}"}, []tool{{"slow", "", nil, 0}}, nil)
				began, gone := make(chan struct{}, 10), make(chan struct{}, 10)
				f.back.Always("tools/call", func(c *edgetest.Call) {
					began <- struct{}{}
					<-c.Gone()
					gone <- struct{}{}
				})
				era := edgetest.Modern
				if strings.HasPrefix(way, "legacy") {
					era = edgetest.Legacy
				}
				c := f.callerOf(t, era, "")
				text := "slow()\nslow()\nreturn 1"
				conn := f.Dial()
				body, head := c.message("7", "tools/call", scriptParams(text, ""))
				conn.Write(post(f.Addr(), body, head...))
				await(t, "the call at the backend", began)
				at := time.Now()
				if way == "legacy cancels" {
					c.session.Notify("notifications/cancelled", `{"requestId":7}`)
				} else {
					conn.Close()
				}
				if back == edgetest.Modern {
					await(t, "the end of the call", gone)
				} else {
					f.back.Await("notifications/cancelled", 1)
				}
				if took := time.Since(at); took > time.Second {
					t.Errorf("it took %s", took)
				}
				edgetest.Until(t, "the end of the script", func() bool {
					return figure(t, string(f.client.Do("GET", "/metrics", "").Body), "weir_script_runs_total", `outcome="cancelled"`) == 1
				})
				if n := f.back.Count("tools/call"); n != 1 {
					t.Errorf("%d calls", n)
				}
				if n := figure(t, string(f.client.Do("GET", "/metrics", "").Body), "weir_script_calls_total"); n != 1 {
					t.Errorf("%v calls are counted", n)
				}
			})
		}
	}
}

// TestScriptOfABrokenConnection: a legacy client whose connection breaks during a script, and
// which opens the stream again, hears that the script has ended.
func TestScriptOfABrokenConnection(t *testing.T) {
	t.Parallel()
	f := scripted(t, edgetest.Modern, []string{codeMode()}, []tool{{"slow", "", nil, 0}}, nil)
	f.back.Always("tools/call", func(c *edgetest.Call) { <-c.Gone() })
	c := f.callerOf(t, edgetest.Legacy, "")
	r := c.request(t, "7", "tools/call", scriptParams("progress(1)\nreturn slow()", ""), `"progressToken":"p"`)
	seen := r.Next()
	f.back.Await("tools/call", 1)
	r.Close()
	events := resumed(c, seen.ID).Rest()
	const want = `{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"the script was stopped: the connection of its client broke"}}`
	if len(events) != 1 || string(events[0].Data) != want {
		t.Errorf("resumed: %q", events)
	}
}

func sha256Of(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// lines returns the lines of a file.
func lines(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// TestReadmeOfScripts: every configuration of the README of the room is served, and lists
// the tool.
func TestReadmeOfScripts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../codemode/README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n")[1:]
	if len(blocks) != 2 {
		t.Errorf("%d blocks", len(blocks))
	}
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		block += "operational: {failureHandling: {partialFailureMode: best_effort}}\n"
		e := edgetest.Start(t, block, engine())
		if strings.Contains(block, "oidc") {
			continue // nobody is let in
		}
		if got := listed(t, caller{Client: e.NewClient()}); len(got) != 1 || got[0] != "execute_tool_script" {
			t.Errorf("%s\n%s", got, block)
		}
	}
}
