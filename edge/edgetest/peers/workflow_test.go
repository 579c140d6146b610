package peers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// composites are tools of an edge before four servers of others: files (npm
// server-filesystem), every (npm server-everything), both over standard input and output
// behind the npm bridge, go (the conformance server of the go-sdk, modern) and old (the same,
// legacy).
const composites = `    compositeTools:
    - name: tour
      description: writes a note when somebody agrees, and says what three servers think of it
      parameters:
        type: object
        properties: {dir: {type: string}, text: {type: string}, numbers: {type: array, items: {type: integer}}}
        required: [dir, text, numbers]
      steps:
      - {id: simple, tool: go.test_simple_text}
      - id: sure
        type: elicitation
        message: "Sure to write {{.params.text}}?"
        schema: {type: object, properties: {name: {type: string}}, required: [name]}
        onDecline: {action: skip_remaining}
      - {id: write, tool: files.write_file, dependsOn: [sure], arguments: {path: "{{.params.dir}}/note.txt", content: "{{.params.text}} by {{.steps.sure.content.name}}"}}
      - {id: read, tool: files.read_text_file, dependsOn: [write], arguments: {path: "{{.params.dir}}/note.txt"}, defaultResults: {content: nothing}}
      - {id: sums, type: forEach, collection: "{{json .params.numbers}}", maxParallel: 3, step: {tool: every.get-sum, arguments: {a: "{{.forEach.item}}", b: 1}}, dependsOn: [simple]}
      - {id: weather, tool: every.get-structured-content, arguments: {location: "New York"}}
      output:
        properties:
          note: {type: string, value: "{{.steps.read.output.content}}"}
          simple: {type: string, value: "{{.steps.simple.output.text}}"}
          sums: {type: integer, value: "{{.steps.sums.output.completed}}"}
          last: {type: string, value: "{{(index .steps.sums.output.iterations 2).output.text}}"}
          warm: {type: number, value: "{{.steps.weather.output.temperature}}"}
          agreed: {type: string, value: "{{.steps.sure.output.action}}"}
        required: [simple, agreed]
    - name: hasty
      steps: [{id: sure, type: elicitation, message: "Sure?", timeout: 500ms, onCancel: {action: continue}, schema: {type: object, properties: {name: {type: string}}}}]
    - name: both
      steps:
      - {id: first, type: elicitation, message: "First?", schema: {type: object, properties: {name: {type: string}}, required: [name]}}
      - {id: second, type: elicitation, message: "Second?", schema: {type: object, properties: {name: {type: string}}, required: [name]}}
      - {id: said, tool: every.echo, arguments: {message: "{{.steps.first.content.name}} and {{.steps.second.content.name}}"}}
    - name: relayed
      description: a server asks in a step
      steps:
      - {id: asks, tool: BACKEND}
      - {id: said, tool: every.echo, arguments: {message: "{{.steps.asks.output.text}}"}}
`

// spoken is what a client of a composite saw.
type spoken struct {
	Asked  []string
	Result struct {
		Content           []struct{ Text string }
		StructuredContent json.RawMessage
		IsError           bool
	}
}

// say is what a client does: it calls a tool and answers by the first word of a question; nil
// for a client that cannot be asked, a nil answer never comes.
type say struct {
	Mode      string                    `json:"mode"`
	Name      string                    `json:"name"`
	Arguments args                      `json:"arguments,omitempty"`
	Answers   map[string]map[string]any `json:"answers,omitempty"`
}

// bySDK has the go-sdk say one after the other.
func bySDK(ctx context.Context, url string, all []say) (out []spoken, err error) {
	for _, s := range all {
		one, err := oneBySDK(ctx, url, s)
		if err != nil {
			return out, fmt.Errorf("%s: %w", s.Name, err)
		}
		out = append(out, one)
	}
	return out, nil
}

func oneBySDK(ctx context.Context, url string, s say) (out spoken, err error) {
	options := &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}}
	over := make(chan struct{})
	var asked sync.Mutex // the client answers several questions at once
	if s.Answers != nil {
		options.ElicitationHandler = func(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked.Lock()
			out.Asked = append(out.Asked, r.Params.Message)
			asked.Unlock()
			a := s.Answers[strings.FieldsFunc(r.Params.Message, func(r rune) bool { return r == ' ' || r == '?' })[0]]
			if a == nil {
				<-over // the end of the session would wait for it
				return nil, errors.New("nobody answered")
			}
			content, _ := a["content"].(map[string]any)
			return &mcp.ElicitResult{Action: a["action"].(string), Content: content}, nil
		}
	}
	connections := http.DefaultTransport.(*http.Transport).Clone()
	defer connections.CloseIdleConnections()
	version := legacyVersion
	if s.Mode == "modern" {
		version = modernVersion
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "peer-workflow-go", Version: "1.0.0"}, options).
		Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: connections}}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: s.Name, Arguments: s.Arguments})
	close(over)
	if err != nil {
		return out, err
	}
	text, err := json.Marshal(result)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(text, &out.Result)
}

// byNode has one of the TypeScript SDKs say one after the other.
func byNode(kit peers.Kit) func(context.Context, string, []say) ([]spoken, error) {
	return func(ctx context.Context, url string, all []say) (out []spoken, err error) {
		text, err := peers.Run(peers.Command(ctx, kit.Node, filepath.Join(kit.Dir(), "clients", "workflow.mjs"), url, encode(all)))
		if err != nil {
			return out, err
		}
		return out, json.Unmarshal(text, &out)
	}
}

// workflowEdge starts the servers and an edge with the composites before them. It returns the
// URL of the edge and the process of server-everything.
func workflowEdge(t *testing.T, shop *peers.Shop, dir, yaml string) (url string, every *peers.Process) {
	t.Helper()
	bridge := peers.Bridges()[1]
	files := lasting(t)(shop.StartBridge(t.Context(), bridge, "filesystem", dir))
	every, at, err := shop.StartBridge(t.Context(), bridge, "everything", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = every.Stop() }) // a test may have stopped it
	modern := lasting(t)(shop.Start(t.Context(), peers.GoServer(peers.Modern)))
	old := lasting(t)(shop.Start(t.Context(), peers.GoServer(peers.Legacy)))
	program := edgeProgram(t, shop)
	url = lasting(t)(peers.StartEdgeWith(t.Context(), program, t.TempDir(), fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: peers}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: peers}
spec:
  groupRef: {name: peers}
  incomingAuth: {type: anonymous}
  config:
    aggregation: {conflictResolution: prefix}
    backends:
    - {name: files, url: %q, transport: streamable-http}
    - {name: every, url: %q, transport: streamable-http}
    - {name: go, url: %q, transport: streamable-http}
    - {name: old, url: %q, transport: streamable-http}
%s`, files, at, modern, old, yaml)))
	edgetest.Until(t, "the tools of all", func() bool {
		said, err := peers.Command(t.Context(), program, "tools", url).Output()
		return err == nil && strings.Contains(string(said), "every_echo") && strings.Contains(string(said), "files_write_file") && strings.Contains(string(said), "go_test_simple_text") && strings.Contains(string(said), "old_test_simple_text")
	})
	return url, every
}

// TestWorkflowsOfPeers: composite tools before servers of others, called by clients of others
// that accept, decline, cancel and never answer.
func TestWorkflowsOfPeers(t *testing.T) {
	kit, shop := bridgeKit(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	relayed := strings.Replace(composites, "BACKEND", "old.test_elicitation, arguments: {message: Name}", 1) +
		strings.Replace(composites[strings.Index(composites, "    - name: relayed"):], "relayed", "relayed_modern", 1)
	relayed = strings.Replace(relayed, "BACKEND", "go.test_input_required_result_elicitation", 1)
	url, every := workflowEdge(t, shop, dir, relayed+dying())
	t.Run("clients", func(t *testing.T) { workflowClients(t, kit, url, dir) })
	t.Run("a server that dies", func(t *testing.T) { workflowsThatDie(t, url, every) })
}

// workflowClients has clients of others call composites in every way.
func workflowClients(t *testing.T, kit peers.Kit, url, dir string) {
	yes := func(name string) map[string]any {
		return map[string]any{"action": "accept", "content": args{"name": name}}
	}
	type client struct {
		name, mode string
		say        func(context.Context, string, []say) ([]spoken, error)
	}
	clients := []client{{"typescript v1", "legacy", byNode(kit)}, {"typescript v2", "modern", byNode(kit)}, {"go-sdk", "legacy", bySDK}, {"go-sdk", "modern", bySDK}}
	for i, c := range clients {
		t.Run(c.name+" "+c.mode, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(dir, fmt.Sprint(i))
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			note := filepath.Join(folder, "note.txt")
			tour := args{"dir": folder, "text": "hello", "numbers": []int{1, 2, 40}}
			type answers = map[string]map[string]any
			asks := map[string]string{"legacy": "relayed", "modern": "relayed_modern"}[c.mode]
			do := func(all ...say) []spoken {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), edgetest.Patience)
				defer cancel()
				for i := range all {
					all[i].Mode = c.mode
				}
				out, err := c.say(ctx, url, all)
				if err != nil || len(out) != len(all) {
					t.Fatalf("%v %+v", err, out)
				}
				return out
			}

			// 1. It cannot be asked, cancels, and declines.
			out := do(say{Name: "tour", Arguments: tour},
				say{Name: "tour", Arguments: tour, Answers: answers{"Sure": {"action": "cancel"}}},
				say{Name: "tour", Arguments: tour, Answers: answers{"Sure": {"action": "decline"}}})
			for i, want := range []string{`step "sure": the client cannot be asked`, `step "sure": the user said: cancel`} {
				if r := out[i].Result; !r.IsError || !strings.Contains(r.Content[0].Text, want) {
					t.Errorf("%+v, want %s", r, want)
				}
			}
			if r := out[2].Result; r.IsError || edgetest.Member(string(r.StructuredContent), "agreed") != `"decline"` || edgetest.Member(string(r.StructuredContent), "note") != `"nothing"` {
				t.Errorf("declined: %s %+v", r.StructuredContent, r.Content)
			}
			if _, err := os.Stat(note); err == nil {
				t.Error("a note was written all the same")
			}

			// 2. It agrees, is asked two things in one round, and is asked by a server in a step.
			out = do(say{Name: "tour", Arguments: tour, Answers: answers{"Sure": yes(c.mode)}},
				say{Name: "both", Answers: answers{"First": yes("Ann"), "Second": yes("Bob")}},
				say{Name: asks, Answers: answers{"Name": {"action": "accept", "content": args{"username": "weir"}}, "What": yes("weir")}})
			want := fmt.Sprintf(`{"agreed":"accept","last":"The sum of 40 and 1 is 41.","note":"hello by %s","simple":"This is a simple text response for testing.","sums":3,"warm":33}`, c.mode)
			if got := string(out[0].Result.StructuredContent); !sameJSON(want, got) || !slices.Equal(out[0].Asked, []string{"Sure to write hello?"}) {
				t.Errorf("agreed: %s %+v, want %s, asked %q", got, out[0].Result.Content, want, out[0].Asked)
			}
			if text, err := os.ReadFile(note); err != nil || string(text) != "hello by "+c.mode {
				t.Errorf("the note: %q %v", text, err)
			}
			if r := out[1].Result; r.IsError || !strings.Contains(r.Content[0].Text, "Echo: Ann and Bob") || len(out[1].Asked) != 2 {
				t.Errorf("two questions: %+v %q", r, out[1].Asked)
			}
			if r := out[2].Result; r.IsError || !strings.Contains(r.Content[0].Text, "weir") || len(out[2].Asked) != 1 {
				t.Errorf("a server asks: %+v %q", r, out[2].Asked)
			}

			// 3. It never answers. A modern client that has not answered yet has no call under way.
			if c.mode == "legacy" {
				if r := do(say{Name: "hasty", Answers: answers{"Nobody": nil}})[0].Result; r.IsError || !sameJSON(`{"action":"cancel"}`, string(r.StructuredContent)) {
					t.Errorf("never answers: %s %+v", r.StructuredContent, r.Content)
				}
			}
		})
	}
}

// sameJSON reports whether two texts have one value.
func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && encode(x) == encode(y)
}

// longCall is a call that a server is in the middle of when it is killed.
const longCall = `tool: every.trigger-long-running-operation, arguments: {duration: 600, steps: 2}`

// dyingKinds are steps of each kind that wait for a server, and what comes of its death.
var dyingKinds = map[string]struct{ yaml, want string }{
	"call":    {`{id: a, ` + longCall + `}`, `step "a": tool "every.trigger-long-running-operation": `},
	"default": {`{id: a, ` + longCall + `, onError: {action: continue}, defaultResults: {text: none}}`, `{"text":"none"}`},
	"retry":   {`{id: a, ` + longCall + `, onError: {action: retry, retryCount: 2, retryDelay: 10ms}}`, `step "a": tool "every.trigger-long-running-operation": `},
	"items":   {`{id: a, type: forEach, collection: "[1,2]", step: {` + longCall + `}}`, `step "a": item `},
	"lenient": {`{id: a, type: forEach, collection: "[1,2]", step: {` + longCall + `, onError: {action: continue}}}`, `"failed":2`},
	"besides": {`{id: a, ` + longCall + `, onError: {action: continue}}, {id: b, tool: go.test_simple_text, dependsOn: [a]}`, `This is a simple text response`},
}

// dying are the composites of dyingKinds.
func dying() (yaml string) {
	for name, kind := range dyingKinds {
		yaml += "    - {name: " + name + ", steps: [" + kind.yaml + "]}\n"
	}
	return yaml
}

// workflowsThatDie has a server killed while a step of each kind waits for it.
func workflowsThatDie(t *testing.T, url string, every *peers.Process) {
	type ending struct {
		name string
		mode string
		out  spoken
		err  error
	}
	ends := make(chan ending, 2*len(dyingKinds))
	ctx, cancel := context.WithTimeout(t.Context(), edgetest.Patience)
	defer cancel()
	for name := range dyingKinds {
		for _, mode := range []string{"legacy", "modern"} {
			go func() {
				out, err := oneBySDK(ctx, url, say{Mode: mode, Name: name})
				ends <- ending{name, mode, out, err}
			}()
		}
	}
	<-time.After(2 * time.Second) // all of them wait for the server, which tells nobody
	_ = every.Stop()              // it is to go however it likes
	for range 2 * len(dyingKinds) {
		e := edgetest.Receive(t, ends, "an answer")
		text := ""
		if len(e.out.Result.Content) > 0 {
			text = e.out.Result.Content[0].Text
		}
		if e.err != nil || !strings.Contains(text, dyingKinds[e.name].want) || strings.Contains(text, "127.0.0.1") {
			t.Errorf("%s, %s: %v %s", e.name, e.mode, e.err, text)
		}
	}
}
