package serve_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
)

// required is an input_required result as a modern client reads it.
type required struct {
	ResultType    string
	InputRequests map[string]struct {
		Method string
		Params json.RawMessage
	}
	RequestState string
}

func inputRequired(t *testing.T, r *edgetest.Response) required {
	t.Helper()
	var out required
	text := r.Result()
	if err := json.Unmarshal([]byte(text), &out); err != nil || out.ResultType != "input_required" || len(out.InputRequests) == 0 || out.RequestState == "" {
		t.Fatalf("status %d: %s (%v)", r.Status, text, err)
	}
	return out
}

// key is the one question that is asked.
func (r required) key(t *testing.T) string {
	t.Helper()
	if len(r.InputRequests) != 1 {
		t.Fatalf("%d questions", len(r.InputRequests))
	}
	for k := range r.InputRequests {
		return k
	}
	return ""
}

// retry calls echo again with an answer.
func retry(c caller, id, arguments, responses, state string) *edgetest.Response {
	params := fmt.Sprintf(`{"name":"echo","arguments":%s,"inputResponses":%s,"requestState":%s}`, arguments, responses, quote(state))
	body, head := c.message(id, "tools/call", params, edgetest.Capabilities(asks))
	return c.Post(body, head...)
}

func quote(s string) string {
	text, _ := json.Marshal(s)
	return string(text)
}

// asking is a modern client before a legacy backend whose tool asks.
func asking(t *testing.T, script edgetest.Script, options ...edgetest.Option) (*front, caller) {
	t.Helper()
	f := newFront(t, edgetest.Legacy, options...)
	f.back.Always("tools/call", script)
	return f, f.callerOf(t, edgetest.Modern, "")
}

func (f *front) begin(t *testing.T, c caller, arguments string) required {
	t.Helper()
	return inputRequired(t, c.call(t, `"first"`, arguments, edgetest.Capabilities(asks)))
}

// A legacy server asks in the middle of a call; a modern client is told that
// input is required, and its retry goes on with the same call.
func TestQuestionOfALegacyBackendToAModernClient(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, era)
			c := f.callerOf(t, edgetest.Modern, "")
			const params = `{"message":"Who? é","requestedSchema":{"type":"object","x":1.0}}`
			f.back.Always("tools/call", func(c *edgetest.Call) {
				one := c.Ask(`"q"`, "elicitation/create", params)
				two := c.Ask(`7`, "roots/list", "")
				c.Result(`{"content":[],"one":` + string(one.Result) + `,"two":` + string(two.Result) + `,"x":1.0}`)
			})
			first := f.begin(t, c, `{"n":1.0}`)
			key := first.key(t)
			if q := first.InputRequests[key]; q.Method != "elicitation/create" || string(q.Params) != params {
				t.Errorf("%s %s", q.Method, q.Params)
			}
			const answer = `{"action":"accept", "content":{"n":12345678901234567890}}`
			second := inputRequired(t, retry(c, `"second"`, `{"n":1.0}`, `{"`+key+`":`+answer+`}`, first.RequestState))
			if again := second.key(t); second.InputRequests[again].Method != "roots/list" || second.RequestState == first.RequestState {
				t.Errorf("%+v", second)
			}
			r := retry(c, `"third"`, `{"n":1.0}`, `{"`+second.key(t)+`":{"roots":[ ]}}`, second.RequestState)
			m := r.Message()
			if want := `{"resultType":"complete","content":[],"one":` + answer + `,"two":{"roots":[ ]},"x":1.0}`; string(m.Result) != want || string(m.ID) != `"third"` || r.Status != 200 {
				t.Errorf("%s under %s, want %s", m.Result, m.ID, want)
			}
			calls := f.back.Requests("tools/call")
			if len(calls) != 1 || strings.Contains(string(calls[0].Body), "inputResponses") {
				t.Errorf("%d calls", len(calls))
			}
			inits := f.back.Requests("initialize")
			if got := edgetest.Member(string(inits[len(inits)-1].Message.Params), "capabilities"); got != `{"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}}}` {
				t.Errorf("declared %s", got)
			}
		})
	}
}

// Only what belongs to the parked call leads back to it; everything else is
// one error, and the call goes on waiting.
func TestRequestStateThatIsWrong(t *testing.T) {
	t.Parallel()
	f, c := asking(t, func(c *edgetest.Call) {
		m := c.Ask("1", "roots/list", "")
		c.Result(`{"content":[],"said":` + string(m.Result) + `}`)
	})
	first := f.begin(t, c, `{"n":1}`)
	other := f.begin(t, c, `{"n":2}`)
	key := first.key(t)
	yes := `{"` + key + `":{"roots":[]}}`
	state := first.RequestState
	altered := []byte(state)
	altered[len(altered)/2] ^= 1
	for name, one := range map[string]struct{ arguments, state string }{
		"altered":                  {`{"n":1}`, string(altered)},
		"cut":                      {`{"n":1}`, state[:len(state)-4]},
		"longer":                   {`{"n":1}`, state + "AAAA"},
		"empty":                    {`{"n":1}`, ""},
		"made up":                  {`{"n":1}`, "weir1.AAAA"},
		"of somebody else's":       {`{"n":1}`, "opaque"},
		"huge":                     {`{"n":1}`, "weir1." + strings.Repeat("A", 100<<10)},
		"of another call":          {`{"n":1}`, other.RequestState},
		"with other arguments":     {`{"n":3}`, state},
		"with the same, rewritten": {`{"n":1.0}`, state},
	} {
		r := retry(c, `"x"`, one.arguments, yes, one.state)
		if m := r.Message(); r.Status != 400 || m.Error == nil || m.Error.Code != -32602 || string(m.ID) != `"x"` {
			t.Errorf("%s: status %d: %s", name, r.Status, r.Body)
		}
	}
	// Another method with the same state.
	body, head := c.message("1", "prompts/get", `{"name":"echo","arguments":{"n":1},"inputResponses":`+yes+`,"requestState":`+quote(state)+`}`, edgetest.Capabilities(asks))
	if r := c.Post(body, head...); r.Status != 400 {
		t.Errorf("another method: status %d", r.Status)
	}
	// A state that is no string.
	body, head = c.message("1", "tools/call", `{"name":"echo","arguments":{"n":1},"requestState":7}`, edgetest.Capabilities(asks))
	if r := c.Post(body, head...); r.Status != 400 {
		t.Errorf("a number: status %d", r.Status)
	}
	if r := retry(c, "2", `{"n":1}`, yes, state); r.Message().Error != nil {
		t.Fatalf("the call is gone: %s", r.Answer())
	}
	// Used once.
	if r := retry(c, "3", `{"n":1}`, yes, state); r.Status != 400 || r.Message().Error.Code != -32602 {
		t.Errorf("used twice: status %d: %s", r.Status, r.Body)
	}
	if n := f.back.Count("tools/call"); n != 2 {
		t.Errorf("%d calls for two", n)
	}
}

// What the client leaves unanswered is asked again; what it was not asked is
// ignored.
func TestAnswersThatAreMissing(t *testing.T) {
	t.Parallel()
	f, c := asking(t, func(c *edgetest.Call) {
		m := c.Ask("1", "roots/list", `{"_meta":{"a":1}}`)
		c.Result(`{"content":[],"said":` + string(m.Result) + `}`)
	})
	first := f.begin(t, c, `{}`)
	second := inputRequired(t, retry(c, "2", `{}`, `{"other":{"roots":[]}}`, first.RequestState))
	if second.key(t) != first.key(t) {
		t.Errorf("asked under %q, then %q", first.key(t), second.key(t))
	}
	if got := retry(c, "3", `{}`, `{"`+second.key(t)+`":{"roots":[1.0]}}`, second.RequestState).Result(); edgetest.Member(got, "said") != `{"roots":[1.0]}` {
		t.Errorf("%s", got)
	}
}

// Questions that are asked side by side come in one round.
func TestQuestionsOfOneRound(t *testing.T) {
	t.Parallel()
	both := make(chan struct{})
	f, c := asking(t, func(c *edgetest.Call) {
		said := make(chan edgetest.Message, 1)
		go func() { said <- c.Ask("1", "roots/list", "") }()
		two := c.Ask("2", "sampling/createMessage", `{"messages":[]}`)
		one := <-said
		close(both)
		c.Result(`{"content":[],"one":` + string(one.Result) + `,"two":` + string(two.Result) + `}`)
	})
	round := f.begin(t, c, `{}`)
	for id := 2; ; id++ {
		responses := "{"
		for key, q := range round.InputRequests {
			if len(responses) > 1 {
				responses += ","
			}
			responses += quote(key) + `:{"for":"` + q.Method + `"}`
		}
		r := retry(c, fmt.Sprint(id), `{}`, responses+"}", round.RequestState)
		if got := r.Result(); edgetest.Member(got, "resultType") == `"complete"` {
			if edgetest.Member(got, "one") != `{"for":"roots/list"}` || edgetest.Member(got, "two") != `{"for":"sampling/createMessage"}` {
				t.Errorf("%s", got)
			}
			break
		}
		round = inputRequired(t, r)
	}
	<-both
}

// Progress reaches whichever request waits for the call, under its own token.
func TestProgressOfAParkedCall(t *testing.T) {
	t.Parallel()
	f, c := asking(t, func(c *edgetest.Call) {
		c.Progress(1)
		c.Ask("1", "roots/list", "")
		c.Progress(2)
		c.Notify("notifications/message", `{"level":"info","data":1}`)
		c.Result(`{"content":[]}`)
	})
	r := c.call(t, "1", "{}", edgetest.Capabilities(asks), `"progressToken":"one"`)
	if m := r.NextMessage(); edgetest.Member(string(m.Params), "progressToken") != `"one"` {
		t.Errorf("%s", m.Params)
	}
	var first required
	if err := json.Unmarshal([]byte(r.Result()), &first); err != nil {
		t.Fatal(err)
	}
	body, head := c.message("2", "tools/call", `{"name":"echo","arguments":{},"inputResponses":{"`+first.key(t)+`":{"roots":[]}},"requestState":`+quote(first.RequestState)+`}`,
		edgetest.Capabilities(asks), `"progressToken":2`)
	all := c.Post(body, head...).Rest()
	if len(all) != 2 || edgetest.Member(string(all[0].Data), "params") != `{"progressToken":2,"progress":2}` {
		t.Errorf("%s", all)
	}
	f.Stop()
}

// A client that does not come back ends its call.
func TestClientThatDoesNotComeBack(t *testing.T) {
	t.Parallel()
	t.Run("in time", func(t *testing.T) {
		t.Parallel()
		f, c := asking(t, func(c *edgetest.Call) { c.Ask("1", "roots/list", "") }, edgetest.Settings(func(s *serve.Settings) { s.ParkTTL = time.Second }))
		first := f.begin(t, c, `{}`)
		f.back.Await("notifications/cancelled", 1)
		if r := retry(c, "2", `{}`, `{"`+first.key(t)+`":{"roots":[]}}`, first.RequestState); r.Status != 400 || r.Message().Error.Code != -32602 {
			t.Errorf("status %d: %s", r.Status, r.Body)
		}
	})
	t.Run("because it leaves in its retry", func(t *testing.T) {
		t.Parallel()
		again := make(chan struct{}, 1)
		f, c := asking(t, func(c *edgetest.Call) {
			c.Ask("1", "roots/list", "")
			c.Progress(1)
			again <- struct{}{}
			c.Wait(nil)
		})
		first := inputRequired(t, c.call(t, "1", "{}", edgetest.Capabilities(asks), `"progressToken":1`))
		body, head := c.message("2", "tools/call", `{"name":"echo","arguments":{},"inputResponses":{"`+first.key(t)+`":{"roots":[]}},"requestState":`+quote(first.RequestState)+`}`,
			edgetest.Capabilities(asks), `"progressToken":1`)
		r := c.Post(body, head...)
		edgetest.Receive(t, again, "the call")
		r.Close()
		f.back.Await("notifications/cancelled", 1)
	})
	t.Run("because the edge ends", func(t *testing.T) {
		t.Parallel()
		f, c := asking(t, func(c *edgetest.Call) { c.Ask("1", "roots/list", "") })
		f.begin(t, c, `{}`)
		f.Stop()
	})
}

// There is a limit to how many calls wait for their clients.
func TestTooManyParkedCalls(t *testing.T) {
	t.Parallel()
	f, c := asking(t, func(c *edgetest.Call) {
		c.Ask("1", "roots/list", "")
		c.Result(`{"content":[]}`)
	}, edgetest.Settings(func(s *serve.Settings) { s.MaxParked = 1 }))
	first := f.begin(t, c, `{}`)
	r := c.call(t, "2", "{}", edgetest.Capabilities(asks))
	fails(t, r, 503, 503, "2")
	if r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if r := retry(c, "3", `{}`, `{"`+first.key(t)+`":{"roots":[]}}`, first.RequestState); r.Message().Error != nil {
		t.Errorf("%s", r.Answer())
	}
	inputRequired(t, c.call(t, "4", "{}", edgetest.Capabilities(asks)))
}

// A server may ask only for what the client declared with the request.
func TestQuestionThatTheClientCannotAnswer(t *testing.T) {
	t.Parallel()
	f, c := asking(t, func(c *edgetest.Call) {
		m := c.Ask("1", "sampling/createMessage", `{"messages":[]}`)
		c.Result(fmt.Sprintf(`{"content":[],"code":%d,"says":%q}`, m.Error.Code, m.Error.Message))
	})
	r := c.call(t, "1", "{}", edgetest.Capabilities(`{"roots":{}}`)).Result()
	if edgetest.Member(r, "code") != "-32601" || edgetest.Member(r, "says") != `"the client takes no sampling/createMessage, or none like this"` {
		t.Errorf("%s", r)
	}
	inits := f.back.Requests("initialize")
	if got := edgetest.Member(string(inits[len(inits)-1].Message.Params), "capabilities"); got != `{"roots":{}}` {
		t.Errorf("declared %s", got)
	}
	// One that takes it, but no stream on which it could come.
	mute := f.NewClient().Initialize(`{"sampling":{}}`).Send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":`+edgetest.CallParams("echo", "{}")+`}`, "Accept", "application/json").Result()
	if edgetest.Member(mute, "code") != "-32601" || edgetest.Member(mute, "says") != `"the client cannot be asked"` {
		t.Errorf("%s", mute)
	}
}

// Clients that can be asked have a session for each of their calls that are
// under way, so that no question can be taken for another's.
func TestParkedCallsOfTwoClients(t *testing.T) {
	t.Parallel()
	f, _ := asking(t, func(c *edgetest.Call) {
		who := edgetest.Member(string(c.Message.Params), "arguments", "who")
		m := c.Ask("1", "roots/list", `{"who":`+who+`}`)
		c.Result(`{"content":[],"who":` + who + `,"said":` + string(m.Result) + `}`)
	})
	var states []required
	var callers []caller
	const n = 5
	for i := range n {
		c := f.callerOf(t, edgetest.Modern, "")
		one := f.begin(t, c, fmt.Sprintf(`{"who":%d}`, i))
		if got := edgetest.Member(string(one.InputRequests[one.key(t)].Params), "who"); got != fmt.Sprint(i) {
			t.Errorf("client %d is asked for %s", i, got)
		}
		states, callers = append(states, one), append(callers, c)
	}
	for i := range n {
		got := retry(callers[i], "9", fmt.Sprintf(`{"who":%d}`, i), fmt.Sprintf(`{%q:{"from":%d}}`, states[i].key(t), i), states[i].RequestState).Result()
		if edgetest.Member(got, "who") != fmt.Sprint(i) || edgetest.Member(got, "said", "from") != fmt.Sprint(i) {
			t.Errorf("client %d: %s", i, got)
		}
	}
	sessions := map[string]bool{}
	for _, r := range f.back.Requests("tools/call") {
		sessions[r.Session] = true
	}
	if len(sessions) != n {
		t.Errorf("%d sessions for %d calls at a time", len(sessions), n)
	}
}

// TestRetryOfAStampedCall: a filter that makes something else of the arguments each time keeps no
// client from answering a question.
func TestRetryOfAStampedCall(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	manifest := `apiVersion: weir.dev/v1beta1
kind: EdgeFilter
metadata: {name: stamps}
spec:
  type: starlark
  source:
    inline: |
      def on_call_request(c):
          return set_arg("/at", c.request_id)
` + strings.Replace(edgetest.Object("edgetest", back), "  config:\n", "  filterRefs: [{name: stamps}]\n  config:\n", 1)
	opened := source.OpenWith(write(t, filepath.Join(t.TempDir(), "weir.yaml"), manifest))
	if opened.Err() != nil {
		t.Fatal(opened.Findings)
	}
	f := &front{Edge: edgetest.StartPlan(t, opened.Plan, engine()), back: back}
	back.Always("tools/call", func(c *edgetest.Call) {
		c.Ask("1", "elicitation/create", `{"message":"sure?","requestedSchema":{"type":"object","properties":{}}}`)
		c.Result(`{"content":[]}`)
	})
	c := f.callerOf(t, edgetest.Modern, "")
	first := f.begin(t, c, `{"x":1}`)
	answers := `{` + quote(first.key(t)) + `:{"action":"accept","content":{}}}`
	if r := retry(c, "2", `{"x":2}`, answers, first.RequestState); r.Message().Error == nil {
		t.Errorf("other arguments of the client's are taken for the same: %s", r.Body)
	}
	if r := retry(c, "3", `{"x":1}`, answers, first.RequestState); edgetest.Member(r.Result(), "resultType") != `"complete"` {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	if at := edgetest.Member(string(back.Requests("tools/call")[0].Message.Params), "arguments", "at"); at == "" {
		t.Error("the filter stamped nothing")
	}
}
