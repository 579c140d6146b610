package workflow_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/workflow"
)

// world is the outside of a workflow in tests: tools that do what their names say.
type world struct {
	t       testing.TB
	replies []*workflow.Reply // to questions, in turn; nil hangs; none refuses
	gone    map[string]bool   // tools that are not there
	lose    map[string]string // tools that are gone once another was called

	mu       sync.Mutex
	attempts map[string]int
	calls    []string
	open     int // under way
	most     int
	asked    []string
	events   []string
	all      []workflow.Event
}

func result(structured string) workflow.Answer {
	return workflow.Answer{Result: []byte(`{"content":[],"structuredContent":` + structured + `}`)}
}

func fault(code int, message string) workflow.Answer {
	return workflow.Answer{Error: &workflow.Fault{Message: message, Code: code}}
}

// typed is the schema of w.typed.
const typed = `{"type":"object","properties":{"i":{"type":"integer"},"f":{"type":"number"},"b":{"type":"boolean"},"o":{"type":"object"},"l":{"type":"array"},"s":{"type":"string"},"n":{"type":["integer","null"]},"m":{"anyOf":[{"type":"array"},{"type":"null"}]},"u":{"type":["integer","string"]},` +
	`"ri":{"$ref":"#/$defs/int"},"rl":{"anyOf":[{"$ref":"#/$defs/list"},{"type":"null"}]},"ra":{"allOf":[{"$ref":"#/$defs/int"}],"default":1},"rp":{"$ref":"#/properties/m/anyOf/0"},"rb":{"$ref":"#/$defs/a~1b%20c"},` +
	`"r8":{"$ref":"#/$defs/c7"},"r9":{"$ref":"#/$defs/c8"},"rr":{"$ref":"#/properties/rr"},"ro":{"$ref":"#int"},"rn":{"$ref":"#/$defs/none"}},` +
	`"$defs":{"int":{"$anchor":"int","type":"integer"},"list":{"type":"array"},"a/b c":{"type":"boolean"},"c1":{"$ref":"#/$defs/int"},"c2":{"$ref":"#/$defs/c1"},"c3":{"$ref":"#/$defs/c2"},"c4":{"$ref":"#/$defs/c3"},"c5":{"$ref":"#/$defs/c4"},"c6":{"$ref":"#/$defs/c5"},"c7":{"$ref":"#/$defs/c6"},"c8":{"$ref":"#/$defs/c7"}}}`

func (w *world) tool(name string) (*workflow.Tool, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone[name] {
		return nil, false
	}
	out := &workflow.Tool{}
	if name == "w.typed" {
		out.InputSchema = []byte(typed)
	}
	yes := true
	if name == "w.echo" {
		out.Hints = workflow.Hints{ReadOnly: &yes, OpenWorld: new(bool)}
	}
	return out, strings.HasPrefix(name, "w.") || name == "advertised"
}

func (w *world) call(ctx context.Context, c *workflow.Call) workflow.Answer {
	w.mu.Lock()
	w.attempts[c.Tool]++
	n := w.attempts[c.Tool]
	w.open++
	w.most = max(w.most, w.open)
	w.calls = append(w.calls, c.Tool+string(c.Arguments))
	if next := w.lose[c.Tool]; next != "" {
		w.gone = map[string]bool{next: true}
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.open--
		w.mu.Unlock()
	}()
	wait := func(d time.Duration) bool {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	switch c.Tool {
	case "w.text":
		return workflow.Answer{Result: []byte(`{"content":[{"type":"text","text":"hello"}]}`)}
	case "w.many":
		return workflow.Answer{Result: []byte(`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"},{"type":"image","data":"aW1n","mimeType":"image/png"},{"type":"resource","resource":{"uri":"x:1","text":"r"}}]}`)}
	case "w.json":
		return workflow.Answer{Result: []byte(`{"content":[{"type":"text","text":"{\"k\":[1,2]}"}]}`)}
	case "w.fail":
		return workflow.Answer{Result: []byte(`{"content":[{"type":"text","text":"boom"}],"isError":true}`)}
	case "w.odd": // fails the first time
		if n == 1 {
			return workflow.Answer{Result: []byte(`{"content":[{"type":"text","text":"not yet"}],"isError":true}`)}
		}
	case "w.down": // twice
		if n <= 2 {
			return fault(502, `tool "w.down": backend is down`)
		}
	case "w.half":
		if n == 1 {
			return fault(502, `tool "w.half": the backend ended its answer too early`)
		}
	case "w.late":
		if n == 1 {
			return fault(504, `tool "w.late": timed out after 30s`)
		}
	case "w.stuck": // the first time
		if n == 1 {
			<-ctx.Done()
			return fault(0, `tool "w.stuck": cancelled`)
		}
	case "w.limited":
		if n == 1 {
			return workflow.Answer{Error: &workflow.Fault{Message: `tool "w.limited": rate limit exceeded, retry after 7s`, Code: 429, After: 7 * time.Second}}
		}
	case "w.denied":
		return fault(403, `tool "w.denied": denied by authorization policy`)
	case "w.wrong":
		return fault(-32602, `tool "w.wrong": wrong arguments`)
	case "w.unknown":
		return fault(-32601, `tool "w.unknown": method not found`)
	case "w.slow":
		if !wait(10 * time.Second) {
			return fault(0, `tool "w.slow": cancelled`)
		}
	case "w.slower":
		if !wait(20 * time.Second) {
			return fault(0, `tool "w.slower": cancelled`)
		}
	case "w.hang":
		<-ctx.Done()
		return fault(0, `tool "w.hang": cancelled`)
	case "w.odds": // fails for odd values of i
		if strings.Contains(string(c.Arguments), `"1"`) || strings.Contains(string(c.Arguments), `"3"`) {
			return workflow.Answer{Result: []byte(`{"content":[{"type":"text","text":"odd"}],"isError":true}`)}
		}
	case "w.rich":
		return result(`{"n":3,"f":0.1,"big":` + big + `,"l":[1,"two",null],"o":{"k":"v"},"t":"text","z":null,"yes":true,"sci":1e25}`)
	case "w.list":
		return result(`{"result":[1,2]}`)
	case "w.deep":
		return result(`{"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}")
	case "w.huge":
		return result(`{"x":"` + strings.Repeat("x", 5<<20) + `"}`)
	case "w.evil":
		return result(`{"x":"{{.params.secret}} \"}}{{\" ') + fail('\n"}`)
	}
	return result(string(c.Arguments))
}

// big is 10^60 and 7.
const big = "1000000000000000000000000000000000000000000000000000000000007"

// unanswered is a question that nobody answers.
const unanswered = "hello?"

func (w *world) ask(ctx context.Context, q *workflow.Question) (*workflow.Reply, error) {
	if q.Message == unanswered {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	w.mu.Lock()
	w.asked = append(w.asked, q.Step+": "+q.Message)
	var r *workflow.Reply
	some := len(w.replies) > 0
	if some {
		r, w.replies = w.replies[0], w.replies[1:]
	}
	w.mu.Unlock()
	switch {
	case !some:
		return nil, errors.New("the client cannot be asked")
	case r == nil:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return r, nil
}

func (w *world) observe(e workflow.Event) {
	s := string(e.Kind)
	if e.Step != "" {
		s += " " + e.Step
	}
	if e.Item >= 0 {
		s += fmt.Sprintf("[%d]", e.Item)
	}
	if e.Attempt > 1 {
		s += fmt.Sprintf(" #%d", e.Attempt)
	}
	if e.Took > 0 {
		s += " " + e.Took.String()
	}
	if e.Error != "" {
		s += ": " + e.Error
	}
	w.events = append(w.events, s)
	w.all = append(w.all, e)
}

func (w *world) host() *workflow.Host {
	h := &workflow.Host{
		Tool: w.tool, Call: w.call, Ask: w.ask, Observe: w.observe,
		Other: func(context.Context, scripting.Kind, string) scripting.Answer {
			return scripting.Answer{Value: []byte(`["w.echo"]`)}
		},
		Random: func() float64 { return 0.5 },
	}
	return h
}

// composite reads a composite tool from YAML, and gives it a name.
func composite(t testing.TB, text string) *v1beta1.CompositeTool {
	t.Helper()
	var (
		tool v1beta1.CompositeTool
		any  any
	)
	err := yaml.Unmarshal([]byte(text), &any)
	if err == nil {
		var plain []byte
		if plain, err = json.Marshal(any); err == nil {
			dec := json.NewDecoder(bytes.NewReader(plain))
			dec.DisallowUnknownFields()
			err = dec.Decode(&tool)
		}
	}
	if err != nil {
		t.Fatalf("%s\n%s", err, text)
	}
	if tool.Name == "" {
		tool.Name = "flow"
	}
	return &tool
}

func parse(t testing.TB, tool *v1beta1.CompositeTool) *workflow.Workflow {
	t.Helper()
	w, err := workflow.Parse(tool)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// asScript is the same tool with the program of its steps as script.
func asScript(w *workflow.Workflow, tool *v1beta1.CompositeTool) *v1beta1.CompositeTool {
	out := tool.DeepCopy()
	out.Steps, out.Output, out.Script = nil, nil, w.Show()
	return out
}

// play runs a workflow in a bubble of its own, where time passes when nothing else does.
func play(t *testing.T, w *workflow.Workflow, arguments string, change func(*world)) (out *workflow.Outcome, seen *world) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		seen = &world{t: t, attempts: map[string]int{}}
		if change != nil {
			change(seen)
		}
		var given []byte
		if arguments != "" {
			given = []byte(arguments)
		}
		var err error
		if out, err = w.Run(t.Context(), given, seen.host()); err != nil {
			t.Fatal(err)
		}
	})
	return out, seen
}

// told is the outcome as one text.
func told(o *workflow.Outcome) string {
	switch {
	case o.Arguments != "":
		return "arguments " + o.Arguments
	case o.TimedOut:
		return "timeout " + o.Error.Message
	case o.Error != nil:
		return "failed " + o.Error.Message
	}
	return string(o.Value)
}
