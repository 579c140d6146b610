package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/scripting/workflow"
)

// The rows of a workflow again, through an edge: real HTTP before and behind it, real policies,
// rate limits and time-outs. Every row has a composite of its own for its steps and for the
// program of them as a script, and for clients of both eras. The tools that it calls are its
// own too, so that the backend knows whose calls it sees: w.echo of row 7 is w.echo_7a.

// fast is by how much the times of a row are shorter here than with the fake host, in which
// time passes when nothing else does.
const fast = 5

// other rows are faster, or have no time at all that an edge could be asked for.
var paces = map[string]int{
	"the time of a step, unless given":              0, // 5 minutes
	"nobody answers within ten minutes":             0,
	"skip_remaining withdraws a question":           0, // which question is asked first is left to chance there
	"retry never waits longer than 60 times":        60,
	"nobody answers: as cancelled":                  60,
	"waiting for others is not the step's time":     1, // which a busy machine needs for a call
	"X19 retries end with the step":                 1,
	"X41 retry of a limit waits as long as it says": 1,
}

// elsewhere is what differs at an edge, as a pattern.
var elsewhere = map[string]string{
	"the workflow":     `^\{"x":"running 1 26 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"\}$`,
	"how long it took": `^\{"x":"[2-9]\d\d\d"\}$`,
}

// raced are rows in which calls end at the same moment as the workflow: their outcomes, and
// whether they begin at all, are left to chance.
var raced = map[string]bool{
	"an item that fails":                 true,
	"an item that fails ends the others": true,
	"abort cancels what is under way":    true,
}

// scene is one run of a row through an edge.
type scene struct {
	row    row
	key    string
	client edgetest.Era
	script bool
	pace   int
	tool   *v1beta1.CompositeTool

	got   string // as told() has it, with the names of the row
	raw   string // the result
	asked []string
	fault error // of the test itself
}

var (
	toolName = regexp.MustCompile(`\b(w\.[a-z]+|advertised)\b`)
	timeOf   = regexp.MustCompile(`(timeout: |retryDelay: |timed out after |ran longer than |answered within )(\d+s|1m)\b`)
	tookOf   = regexp.MustCompile(` (\d+h)?(\d+m)?\d+(\.\d+)?m?s\b`)
)

// paced are the times in a text at a pace.
func paced(text string, pace int) string {
	return timeOf.ReplaceAllStringFunc(text, func(s string) string {
		m := timeOf.FindStringSubmatch(s)
		d, _ := time.ParseDuration(m[2])
		d /= time.Duration(pace)
		if d >= time.Second {
			return m[1] + strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
		}
		return m[1] + d.String()
	})
}

// scenes are all that are run at one edge.
func scenes(t *testing.T) (out []*scene) {
	for i, r := range rows() {
		pace, ok := paces[r.name]
		if !ok {
			pace = fast
		}
		if pace == 0 {
			continue
		}
		for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			for _, script := range []bool{false, true} {
				s := &scene{row: r, key: fmt.Sprintf("_%d%c%c", i, client.String()[0], map[bool]byte{false: 'a', true: 'b'}[script]), client: client, script: script, pace: pace}
				s.tool = composite(t, toolName.ReplaceAllString(paced(r.yaml, pace), "${1}"+s.key))
				if script {
					s.tool = asScript(parse(t, s.tool), s.tool)
				}
				s.tool.Name = "flow" + s.key
				out = append(out, s)
			}
		}
	}
	return out
}

// stage is an edge with all scenes, before a server that has their tools.
type stage struct {
	edge *edgetest.Edge
	back *edgetest.Server
	log  string

	mu    sync.Mutex
	calls map[string][]string // by key
}

var called = regexp.MustCompile(`^([a-z]+)(_\d+[a-z]+)$`)

func newStage(t *testing.T, era edgetest.Era, all []*scene) *stage {
	s := &stage{calls: map[string][]string{}, log: filepath.Join(t.TempDir(), "audit.log")}
	s.back = edgetest.NewServer(t, era)

	// 1. The tools of the scenes, what is forbidden and what is limited.
	var tools, policies, limits, composites []string
	policies = append(policies, `"permit(principal, action, resource);"`)
	seen := map[string]bool{}
	for _, one := range all {
		text, err := json.Marshal(one.tool)
		if err != nil {
			t.Fatal(err)
		}
		composites = append(composites, "- "+string(text))
		for _, whole := range toolName.FindAllString(one.row.yaml, -1) {
			name := strings.TrimPrefix(whole, "w.")
			if seen[name+one.key] {
				continue
			}
			seen[name+one.key] = true
			schema := `{"type":"object"}`
			if name == "typed" {
				schema = typed
			}
			tools = append(tools, fmt.Sprintf(`{"name":%q,"inputSchema":%s}`, name+one.key, schema))
			switch name {
			case "denied":
				policies = append(policies, fmt.Sprintf("%q", fmt.Sprintf(`forbid(principal, action, resource == Tool::%q);`, name+one.key)))
			case "limited":
				limits = append(limits, fmt.Sprintf(`{name: %q, shared: {maxTokens: 1, refillPeriod: 5s}}`, name+one.key))
			}
		}
	}
	complete := ""
	if era == edgetest.Modern {
		complete = `"resultType":"complete","ttlMs":60000,"cacheScope":"public",`
	}
	s.back.Always("tools/list", func(c *edgetest.Call) { c.Result(`{` + complete + `"tools":[` + strings.Join(tools, ",") + `]}`) })
	s.back.Always("tools/call", s.answer)

	// 2. The edge.
	yaml := fmt.Sprintf(`name: edgetest
groupRef: edgetest
incomingAuth:
  type: anonymous
  authz: {type: policy, policies: [%s]}
aggregation:
  conflictResolution: priority
  conflictResolutionConfig: {priorityOrder: [w]}
backends:
- {name: w, url: %q, transport: streamable-http}
operational: {timeouts: {default: 7s}}
rateLimiting: {tools: [%s]}
audit: {enabled: true, logFile: %q}
compositeTools:
%s
`, strings.Join(policies, ", "), s.back.URL, strings.Join(limits, ", "), s.log, strings.Join(composites, "\n"))
	s.edge = edgetest.Start(t, yaml, edgetest.Settings(func(s *serve.Settings) { s.LocalRateLimits = true }), edgetest.Logging(100))
	return s
}

// answer does what world.call does, as a server.
func (s *stage) answer(c *edgetest.Call) {
	params := string(c.Message.Params)
	m := called.FindStringSubmatch(strings.Trim(edgetest.Member(params, "name"), `"`))
	if m == nil {
		c.Error(200, -32602, "no such tool")
		return
	}
	arguments := edgetest.Member(params, "arguments")
	s.mu.Lock()
	line := "w." + m[1]
	if strings.Contains(arguments, `"beforehand"`) {
		line = ""
	}
	n := 1
	for _, before := range s.calls[m[2]] {
		if strings.HasPrefix(before, line+"{") {
			n++
		}
	}
	if line != "" {
		s.calls[m[2]] = append(s.calls[m[2]], line+arguments)
	}
	s.mu.Unlock()
	wait := func(d time.Duration) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.Gone():
		}
	}
	result := func(text string) {
		if s.back.Era == edgetest.Modern {
			text = `{"resultType":"complete",` + text[1:]
		}
		c.Result(text)
	}
	w := &world{attempts: map[string]int{"w." + m[1]: n - 1}}
	switch m[1] {
	case "denied":
		c.Error(200, -32603, "a denied tool was called")
		return
	case "limited":
		result(`{"content":[],"structuredContent":{}}`)
		return
	case "down":
		if n <= 2 {
			c.Text(http.StatusBadGateway, "text/plain", "down")
			return
		}
	case "half":
		if n == 1 {
			c.Raw("event: message\ndata: {\"jsonrpc\":")
			c.Abort()
		}
	case "wrong":
		c.Error(200, -32602, "wrong arguments")
		return
	case "unknown":
		c.Error(200, -32601, "method not found")
		return
	case "late", "stuck":
		if n == 1 {
			<-c.Gone()
			return
		}
	case "hang":
		<-c.Gone()
		return
	case "slow":
		wait(10 * time.Second / fast)
		result(`{"content":[],"structuredContent":` + arguments + `}`)
		return
	case "slower":
		wait(15 * time.Second / fast)
		result(`{"content":[],"structuredContent":` + arguments + `}`)
		return
	case "advertised":
		result(`{"content":[],"structuredContent":` + arguments + `}`)
		return
	}
	// The fake host says the rest.
	a := w.call(context.Background(), &workflow.Call{Tool: "w." + m[1], Arguments: []byte(arguments)})
	if a.Error != nil {
		c.Error(200, -32603, a.Error.Message)
		return
	}
	result(string(a.Result))
}

const asks = `{"elicitation":{"form":{}}}`

// play calls the composite of a scene, and answers what it asks.
func (s *stage) play(one *scene) error {
	c := s.edge.NewClient()
	replies := slices.Clone(one.row.replies)
	next := func(question string) (reply string, hang bool) {
		one.asked = append(one.asked, question)
		if len(replies) == 0 {
			return `{"action":"cancel"}`, false
		}
		r := replies[0]
		replies = replies[1:]
		switch {
		case r == nil:
			return "", true
		case r.Content == nil:
			return fmt.Sprintf(`{"action":%q}`, r.Action), false
		}
		return fmt.Sprintf(`{"action":%q,"content":%s}`, r.Action, r.Content), false
	}
	arguments := one.row.args
	if arguments == "" {
		arguments = "{}"
	}
	params := edgetest.CallParams(one.tool.Name, arguments)
	capabilities := "{}"
	if len(replies) > 0 {
		capabilities = asks
	}
	var session *edgetest.Session
	if one.client == edgetest.Legacy {
		var err error
		if session, err = c.TryInitialize(edgetest.LegacyVersion, capabilities); err != nil {
			return err
		}
	}
	if strings.Contains(one.row.yaml, "w.limited") { // which takes the place
		before := edgetest.CallParams("limited"+one.key, `{"beforehand":true}`)
		var r *edgetest.Response
		var err error
		if session != nil {
			r, err = session.TrySend(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":` + before + `}`)
		} else {
			r, err = c.TryModern("9", "tools/call", before)
		}
		if err != nil || r.Status != 200 {
			return fmt.Errorf("beforehand: %v %+v", err, r)
		}
	}
	var (
		text []byte
		err  error
	)
	if session != nil {
		text, err = legacyAnswer(session, params, next)
	} else {
		text, err = modernAnswer(c, params, capabilities, next)
	}
	if err != nil {
		return err
	}
	result := edgetest.Member(string(text), "result")
	if result == "" {
		return fmt.Errorf("no result: %.500s", text)
	}
	if one.client == edgetest.Modern {
		if edgetest.Member(result, "resultType") != `"complete"` {
			return fmt.Errorf("resultType: %.500s", result)
		}
		result = strings.Replace(strings.Replace(result, `"resultType":"complete",`, "", 1), `,"resultType":"complete"`, "", 1)
	}
	one.raw = strings.ReplaceAll(result, one.key, "")
	one.got = toldBy(one.raw)
	return nil
}

// legacyAnswer makes a call, whose questions come on its stream. One that it does not answer
// has to be withdrawn before the result.
func legacyAnswer(session *edgetest.Session, params string, next func(string) (string, bool)) ([]byte, error) {
	r, err := session.TrySend(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`)
	if err != nil {
		return nil, err
	}
	left := map[string]bool{}
	for r.Stream() {
		e, err := r.TryNext()
		if err != nil {
			return nil, err
		}
		switch edgetest.Member(string(e.Data), "method") {
		case `"elicitation/create"`:
		case `"notifications/cancelled"`:
			delete(left, edgetest.Member(string(e.Data), "params", "requestId"))
			continue
		default:
			if len(left) > 0 {
				return nil, fmt.Errorf("%d questions are open beside the answer %.500s", len(left), e.Data)
			}
			return e.Data, nil
		}
		reply, hang := next(edgetest.Member(string(e.Data), "params", "message"))
		if hang {
			left[edgetest.Member(string(e.Data), "id")] = true
			continue
		}
		answer, err := session.TrySend(`{"jsonrpc":"2.0","id":` + edgetest.Member(string(e.Data), "id") + `,"result":` + reply + `}`)
		if err != nil || answer.Status != 202 {
			return nil, fmt.Errorf("the answer was not taken: %v %+v", err, answer)
		}
	}
	return r.Body, nil
}

// modernAnswer makes a call, and makes it again with what it asks for.
func modernAnswer(c *edgetest.Client, params, capabilities string, next func(string) (string, bool)) ([]byte, error) {
	more := ""
	for turn := range 20 {
		r, err := c.TryModern(strconv.Itoa(turn+1), "tools/call", params[:len(params)-1]+more+"}", edgetest.Capabilities(capabilities))
		if err != nil {
			return nil, err
		}
		text, err := r.TryAnswer()
		if err != nil {
			return nil, err
		}
		result := edgetest.Member(string(text), "result")
		if edgetest.Member(result, "resultType") != `"input_required"` {
			return text, nil
		}
		var asked struct {
			InputRequests map[string]struct {
				Params struct{ Message json.RawMessage }
			}
			RequestState json.RawMessage
		}
		if err := json.Unmarshal([]byte(result), &asked); err != nil || len(asked.InputRequests) == 0 {
			return nil, fmt.Errorf("%w: %s", err, result)
		}
		var responses []string
		for key, q := range asked.InputRequests {
			reply, hang := next(string(q.Params.Message))
			if hang {
				return nil, errHang
			}
			responses = append(responses, fmt.Sprintf("%q:%s", key, reply))
		}
		more = `,"inputResponses":{` + strings.Join(responses, ",") + `},"requestState":` + string(asked.RequestState)
	}
	return nil, errors.New("it asks again and again")
}

var errHang = errors.New("the client never came back")

// toldBy is told() of a result.
func toldBy(result string) string {
	var r struct {
		Content           []struct{ Text string }
		StructuredContent json.RawMessage
		IsError           bool
	}
	if err := json.Unmarshal([]byte(result), &r); err != nil || len(r.Content) != 1 {
		return "no result: " + result
	}
	text := r.Content[0].Text
	if !r.IsError {
		if text != string(r.StructuredContent) {
			return "text and structured content differ: " + result
		}
		return text
	}
	if rest, ok := strings.CutPrefix(text, "invalid arguments: "); ok {
		return "arguments " + rest
	}
	var of struct{ Error struct{ Message string } }
	_ = json.Unmarshal(r.StructuredContent, &of)
	if text == "Workflow execution timeout exceeded" {
		return "timeout " + of.Error.Message
	}
	if rest, ok := strings.CutPrefix(text, "Workflow execution failed: "); ok && rest == of.Error.Message {
		return "failed " + rest
	}
	return "no failure: " + result
}

// TestRowsAtAnEdge holds every rule of a workflow through an edge: for clients and backends of
// both eras, by its steps and by the program of them as a script, with what the backend was
// called and what the audit log says.
func TestRowsAtAnEdge(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String()+" backend", func(t *testing.T) {
			t.Parallel()
			all := scenes(t)
			if len(all) < 4*100 {
				t.Errorf("%d scenes", len(all))
			}
			s := newStage(t, era, all)
			edgetest.Until(t, "the tools", func() bool { return s.back.Count("tools/list") > 0 })
			var group sync.WaitGroup
			places := make(chan struct{}, 64)
			longest := slices.Clone(all)
			slices.SortStableFunc(longest, func(a, b *scene) int { return a.waits() - b.waits() })
			for _, one := range longest {
				places <- struct{}{}
				group.Go(func() {
					defer func() { <-places }()
					one.fault = s.play(one)
				})
			}
			group.Wait()
			s.edge.Stop()
			trails := records(t, s.log)
			for _, one := range all {
				if one.script {
					continue
				}
				t.Run(one.row.name+", "+one.client.String()+" client", func(t *testing.T) {
					twin := all[slices.Index(all, one)+1]
					s.judge(t, one, trails[one.tool.Name])
					s.judge(t, twin, trails[twin.tool.Name])
					if one.raw != twin.raw && elsewhere[one.row.name] == "" {
						t.Errorf("steps:  %s\nscript: %s\n%s", one.raw, twin.raw, twin.tool.Script)
					}
					a, b := trails[one.tool.Name].plain(one), trails[twin.tool.Name].plain(twin)
					if !slices.Equal(a, b) {
						t.Errorf("records of steps:  %q\nrecords of script: %q", a, b)
					}
				})
			}
		})
	}
}

// waits is 0 for a scene that waits for seconds, and 1 for others.
func (s *scene) waits() int {
	if s.pace < fast || strings.Contains(s.row.yaml, "w.late") || strings.Contains(s.row.yaml, "w.slow") || strings.Contains(s.row.yaml, "retry") {
		return 0
	}
	return 1
}

// plain is a trail in an order of its own, without the names of the scene.
func (r *trail) plain(one *scene) []string {
	if r == nil {
		return nil
	}
	slices.Sort(r.outer) // one for each round of questions, of which a modern client may see more or fewer
	out := slices.Concat(r.events, slices.Compact(r.outer))
	if !raced[one.row.name] {
		out = append(out, r.inner...)
	}
	for i := range out {
		out[i] = strings.ReplaceAll(out[i], one.key, "")
	}
	slices.Sort(out)
	return out
}

// judge holds one scene to its row.
func (s *stage) judge(t *testing.T, one *scene, r *trail) {
	t.Helper()
	switch {
	case one.fault == errHang && one.client == edgetest.Modern:
	case one.fault != nil:
		t.Fatal(one.fault)
	default:
		want, pattern := paced(one.row.want, one.pace), elsewhere[one.row.name]
		if pattern == "" && one.got != want || pattern != "" && !regexp.MustCompile(pattern).MatchString(one.got) {
			t.Errorf("got  %.3000s\nwant %s%s\n%s", one.got, want, pattern, one.raw)
		}
	}
	s.mu.Lock()
	calls := strings.Join(s.calls[one.key], "|")
	s.mu.Unlock()
	if one.row.calls == "none" && calls != "" || one.row.calls != "none" && one.row.calls != "" && strings.ReplaceAll(one.row.calls, "w.denied{}", "") != calls {
		t.Errorf("calls: %q", calls)
	}
	if one.row.asked != "" && strings.Join(one.asked, "|") != `"`+one.row.asked[len("a: "):]+`"` {
		t.Errorf("asked: %q", one.asked)
	}
	if r == nil {
		if !strings.HasPrefix(one.row.want, "arguments ") {
			t.Error("the audit log has nothing of it")
		}
		return
	}
	rest := slices.Clone(r.events)
	for want := range strings.SplitSeq(one.row.events, "|") {
		want = paced(tookOf.ReplaceAllString(want, ""), one.pace)
		if want == "" || strings.HasPrefix(want, "step_retried") { // whose calls have records
			continue
		}
		i := slices.IndexFunc(rest, func(e string) bool { return strings.HasPrefix(strings.ReplaceAll(e, one.key, ""), want) })
		if i < 0 {
			t.Errorf("no event %q after those before it in %q", want, r.events)
			break
		}
		rest = rest[i+1:]
	}
}
