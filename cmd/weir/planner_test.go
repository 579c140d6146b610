package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/demo"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// planner is a server of the SDK whose one tool has a schema of every kind of
// argument and answers with what it was given, with a resource of text and one
// of bytes, and a prompt of two messages.
func planner(t *testing.T) string {
	t.Helper()
	s := sdk.NewServer(&sdk.Implementation{Name: "planner", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "plan", InputSchema: json.RawMessage(`{"type":"object","properties":{` +
		`"title":{"type":"string","description":"What it is called."},"days":{"type":"integer","description":"How long it takes."},"budget":{"type":"number"},` +
		`"urgent":{"type":"boolean"},"level":{"type":"string","enum":["low","high"]},"tags":{"type":"array","items":{"type":"string"}},` +
		`"where":{"type":"object","properties":{"city":{"type":"string"},"floor":{"type":"integer"}},"required":["city"]}},` +
		`"required":["title","days"],"additionalProperties":false}`)},
		func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(r.Params.Arguments)}}}, nil
		})
	s.AddTool(&sdk.Tool{Name: "note", InputSchema: json.RawMessage(`{"type":"object","properties":{"text":{}}}`)},
		func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(r.Params.Arguments)}}}, nil
		})
	for uri, contents := range map[string]*sdk.ResourceContents{
		"plan://notes": {MIMEType: "text/plain", Text: "one\x1b[31m\r\ntwo"},
		"plan://logo":  {MIMEType: "image/png", Blob: []byte("\x89PNG\r\n\x00\xff")},
	} {
		contents.URI = uri
		s.AddResource(&sdk.Resource{URI: uri, Name: strings.TrimPrefix(uri, "plan://"), Description: "Of the plan.\nMore."},
			func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
				return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{contents}}, nil
			})
	}
	s.AddPrompt(&sdk.Prompt{Name: "review", Description: "Reviews the plan.", Arguments: []*sdk.PromptArgument{
		{Name: "who", Description: "Who reviews it.", Required: true}, {Name: "tone"},
	}}, func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{
			{Role: "user", Content: &sdk.TextContent{Text: "Review it as " + r.Params.Arguments["who"] + "\x1b[2J would."}},
			{Role: "assistant", Content: &sdk.ImageContent{MIMEType: "image/png", Data: []byte("hello")}},
		}}, nil
	})
	web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
	t.Cleanup(web.Close)
	return web.URL
}

// places are the edges that commands of these tests talk to, by the variables
// that stand for their URLs: before the planner and the demo, one that wants a
// token, one that lets a call in and then none for an hour, one that runs scripts, one with
// composite tools, and nobody.
func places(t *testing.T) map[string]string {
	t.Helper()
	d, err := demo.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	m := edgetest.NewMint(t, "weir")
	manifest := func(url string, more ...string) string {
		return edgetest.ManifestFor(url, compile.StreamableHTTP, more...)
	}
	locked := strings.Replace(manifest(d.URL()), "incomingAuth: {type: anonymous}", fmt.Sprintf(
		"incomingAuth: {type: oidc, oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true}}", m.URL, m.URL+"/keys"), 1)
	return map[string]string{
		"$PLAN":   edgetest.Start(t, manifest(planner(t))).URL(),
		"$DEMO":   edgetest.Start(t, manifest(d.URL())).URL(),
		"$LOCKED": edgetest.Start(t, locked).URL(),
		"$BUSY": edgetest.Start(t, manifest(d.URL(), "rateLimiting: {tools: [{name: echo, shared: {maxTokens: 1, refillPeriod: 1h}}]}"),
			edgetest.Settings(func(s *serve.Settings) { s.LocalRateLimits = true })).URL(),
		"$SCRIPTS": edgetest.Start(t, manifest(d.URL(), "codeMode: {enabled: true, stepLimit: 5000}")).URL(),
		"$FLOWS": edgetest.Start(t, manifest(d.URL(), `compositeTools:
- name: sum
  description: Adds, and says so.
  parameters: {type: object, properties: {a: {type: integer}, b: {type: integer, default: 2}}, required: [a], additionalProperties: false}
  steps:
  - {id: add, tool: add, arguments: {a: "{{.params.a}}", b: "{{.params.b}}"}}
  - {id: say, tool: echo, arguments: {text: "it is {{.steps.add.output.sum}}"}, condition: "{{ne .params.a 0}}"}
  output: {properties: {sum: {type: integer, value: "{{.steps.add.output.sum}}"}}}
- name: wait
  steps:
  - {id: wait, tool: slow, arguments: {seconds: 21}, onError: {action: retry, retryCount: 1, retryDelay: 1ms}}
- name: greet
  steps:
  - {id: who, type: elicitation, message: "Who are you?", schema: {type: object, properties: {name: {type: string}}, required: [name]}}
  - {id: say, tool: echo, arguments: {text: "Hello, {{.steps.who.content.name}}!"}}`)).URL(),
		"$NOBODY": "http://127.0.0.1:1/mcp", // a port that no system gives to who asks for any
	}
}

// at puts the URLs of places into a command line.
func at(places map[string]string, line string) []string {
	words := strings.Fields(line)[1:]
	for i, w := range words {
		if url, ok := places[w]; ok {
			words[i] = url
		}
	}
	return words
}

// timeless is what a command said without what depends on the time: how long calls took, and
// how far a call is, of which a client is told at most ten times a second.
func timeless(said string) string {
	said = regexp.MustCompile(`(?m)^[0-9]+/[0-9]+ step .*\n`).ReplaceAllString(said, "")
	return regexp.MustCompile(`[0-9.]+ ms\b`).ReplaceAllString(said, "N ms")
}

// TestZ23Mistakes holds what typical mistakes are answered with where there is
// no terminal, and the exit codes.
func TestZ23Mistakes(t *testing.T) {
	mistakesAt(t, "client", nil, places(t), func(_ *testing.T, args []string) (string, int) {
		var out strings.Builder
		code := runWeir(args, &out, &out, "TERM=xterm")
		return timeless(out.String()), code
	})
}

// TestZ23ThroughAnEdge sends arguments of every type through an edge in both eras, and
// reads what a server offers beside tools.
func TestZ23ThroughAnEdge(t *testing.T) {
	where := places(t)
	file := filepath.Join(t.TempDir(), "logo.png")
	for _, test := range []struct{ line, want string }{
		{`weir call $PLAN plan title=3 days=3`, `{"title":"3","days":3}` + "\n"},
		{`weir call $PLAN plan title=x days=12345678901234567890 budget=1.50 urgent=true level=low tags=a tags=b where.city=Ulm where.floor=2`,
			`{"title":"x","days":12345678901234567890,"budget":1.50,"urgent":true,"level":"low","tags":["a","b"],"where":{"city":"Ulm","floor":2}}` + "\n"},
		{`weir call $PLAN plan title:="x" days:=3 tags:=["a"]`, `{"title":"x","days":3,"tags":["a"]}` + "\n"},
		{`weir resources $PLAN`, "plan://logo   logo   Of the plan.\nplan://notes  notes  Of the plan.\n"},
		{`weir read $PLAN plan://notes`, "one\x1b[31m\r\ntwo"},
		{`weir read $PLAN plan://logo`, "\x89PNG\r\n\x00\xff"},
		{`weir read $PLAN plan://logo -o ` + file, ""},
		{`weir prompts $PLAN`, "review  who=VALUE [tone=VALUE]  Reviews the plan.\n"},
		{`weir prompt $PLAN review who=Ada`, "user: Review it as Ada\x1b[2J would.\nassistant: [image, image/png, 5 bytes]\n"},
		{`weir resources $DEMO`, "demo://weather/today   weather-today  A made-up weather report for every city that this server knows.\n" +
			"demo://weather/{city}  weather-city   A made-up weather report for one city, such as demo://weather/oslo; complete the argument city for more.\n"},
	} {
		for _, era := range []string{"modern", "legacy"} {
			var out, err strings.Builder
			if code := runWeir(at(where, test.line+" --era "+era), &out, &err); code != 0 || out.String() != test.want {
				t.Errorf("%s: %s: exit code %d, %q, %s; want %q", test.line, era, code, out.String(), err.String(), test.want)
			}
		}
	}
	if saved, err := os.ReadFile(file); err != nil || string(saved) != "\x89PNG\r\n\x00\xff" {
		t.Errorf("saved %q, %v", saved, err)
	}
	for line, want := range map[string]string{
		"weir resources $PLAN --json":              `"resources":[`,
		"weir read $PLAN plan://logo --json":       `"blob":"iVBORw0KAP8="`,
		"weir prompts $PLAN --json":                `"prompts":[`,
		"weir prompt $PLAN review who=Ada --json":  `"messages":[`,
		"weir resources $DEMO --json --era=legacy": `"resourceTemplates":[`,
	} {
		var out, err strings.Builder
		if code := runWeir(at(where, line), &out, &err); code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit code %d, %s %s; want %s", line, code, &out, &err, want)
		}
	}
}
