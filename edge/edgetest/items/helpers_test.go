package items_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
)

// servers are backends by name.
type servers map[string]*edgetest.Server

// group is the YAML of a server before several backends, in the order of their
// names. more is further YAML of its configuration.
func group(backends servers, more ...string) string {
	var b strings.Builder
	b.WriteString("name: edgetest\ngroupRef: edgetest\nincomingAuth: {type: anonymous}\nbackends:\n")
	for _, name := range names(backends) {
		transport := compile.StreamableHTTP
		if backends[name].Era == edgetest.SSE {
			transport = compile.SSE
		}
		fmt.Fprintf(&b, "- {name: %s, url: %q, transport: %s}\n", name, backends[name].URL, transport)
	}
	b.WriteString(strings.Join(more, "\n"))
	return b.String()
}

func names(backends servers) []string {
	var all []string
	for name := range backends {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

const bestEffort = "operational: {failureHandling: {partialFailureMode: best_effort}}"

// stage is a running edge before several backends.
type stage struct {
	*edgetest.Edge
	backs servers
}

// open starts an edge before backends that is content with what it gets of
// their lists.
func open(t *testing.T, backs servers, more ...string) *stage {
	t.Helper()
	if !slices.ContainsFunc(more, func(s string) bool { return strings.HasPrefix(s, "operational:") }) {
		more = append(more, bestEffort)
	}
	return &stage{Edge: edgetest.Start(t, group(backs, more...)), backs: backs}
}

// eras are those of clients.
var eras = []edgetest.Era{edgetest.Legacy, edgetest.Modern}

// caller is a client of one era.
type caller struct{ edgetest.Caller }

// as returns a client. can is JSON text of its capabilities; "" for none.
func (s *stage) as(era edgetest.Era, can string) caller { return caller{s.NewClient().As(era, can)} }

// later calls a tool on a goroutine, and gives what came of it.
func (c caller) later(t *testing.T, id, tool, arguments string, meta ...string) <-chan *edgetest.Response {
	out := make(chan *edgetest.Response, 1)
	go func() {
		r, err := c.TryAsk(id, "tools/call", edgetest.CallParams(tool, arguments), meta...)
		if err != nil {
			t.Errorf("%s: %v", tool, err)
		}
		out <- r
	}()
	return out
}

// list returns what a client sees of a kind: "tools", "prompts", "resources",
// "resourceTemplates"; key is the member that tells them apart.
func (c caller) list(t *testing.T, kind, key string) []string {
	t.Helper()
	method := kind + "/list"
	if kind == "resourceTemplates" {
		method = "resources/templates/list"
	}
	var out []string
	for params := ""; ; {
		var page []map[string]json.RawMessage
		r := c.Ask(`"list"`, method, params)
		if e := r.Message().Error; e != nil && params != "" && e.Message == "invalid cursor" {
			out, params = nil, "" // the list is another one by now, as that of a backend that is late to answer makes it
			continue
		}
		text := r.Result()
		if err := json.Unmarshal([]byte(edgetest.Member(text, kind)), &page); err != nil {
			t.Fatalf("%s: %v: %s", method, err, text)
		}
		for _, one := range page {
			var name string
			if err := json.Unmarshal(one[key], &name); err != nil {
				t.Fatalf("%s: %v: %s", method, err, text)
			}
			out = append(out, name)
		}
		next := edgetest.Member(text, "nextCursor")
		if next == "" {
			return out
		}
		params = `{"cursor":` + next + `}`
	}
}

// tools returns the names of the tools that a client sees.
func (c caller) tools(t *testing.T) string {
	t.Helper()
	return strings.Join(c.list(t, "tools", "name"), " ")
}

// tool is JSON text of a tool with further members.
func tool(name string, more ...string) string {
	return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}%s}`, name, strings.Join(append([]string{""}, more...), ","))
}

// done puts before a result what a modern server says in each.
func done(s *edgetest.Server, scope, members string) string {
	if s.Era != edgetest.Modern {
		return "{" + members + "}"
	}
	return `{"resultType":"complete","ttlMs":60000,"cacheScope":"` + scope + `",` + members + `}`
}

// offers has a server list things of a kind, JSON text of each.
func offers(s *edgetest.Server, kind string, things ...string) {
	method := kind + "/list"
	if kind == "resourceTemplates" {
		method = "resources/templates/list"
	}
	list := done(s, "public", `"`+kind+`":[`+strings.Join(things, ",")+`]`)
	s.Always(method, func(c *edgetest.Call) { c.Result(list) })
}

// has is an option of a fake server: its tools, by name.
func has(tools ...string) func(*edgetest.Server) {
	return func(s *edgetest.Server) {
		var all []string
		for _, name := range tools {
			all = append(all, tool(name))
		}
		s.Tools = "[" + strings.Join(all, ",") + "]"
	}
}

// can is an option of a fake server: its capabilities, as JSON text.
func can(capabilities string) func(*edgetest.Server) {
	return func(s *edgetest.Server) { s.Capabilities = capabilities }
}

// answer is a script that answers with this content of a tool.
func answer(s *edgetest.Server, members string) edgetest.Script {
	complete := ""
	if s.Era == edgetest.Modern {
		complete = `"resultType":"complete",`
	}
	return func(c *edgetest.Call) { c.Result(`{` + complete + members + `}`) }
}

// fails checks that an answer is an error with this status and code.
func fails(t *testing.T, r *edgetest.Response, status, code int) edgetest.Message {
	t.Helper()
	m := r.Message()
	if r.Status != status || m.Error == nil || m.Error.Code != code {
		t.Errorf("status %d: %s; want status %d and code %d", r.Status, r.Body, status, code)
	}
	return m
}

// backendAway checks that an answer says that the backend cannot be reached: of
// a name with its prefix nobody knows whether there is such a tool.
func backendAway(t *testing.T, c caller, r *edgetest.Response) {
	t.Helper()
	status := 200
	if c.Session == nil {
		status = 502
	}
	fails(t, r, status, 502)
}

// unknownTool checks that an answer says that there is no such tool.
func unknownTool(t *testing.T, c caller, r *edgetest.Response) {
	t.Helper()
	status := 200
	if c.Session == nil {
		status = 400
	}
	fails(t, r, status, -32602)
}

// param returns a member of the params of a request that a backend got.
func param(r *edgetest.Request, path ...string) string {
	return edgetest.Member(string(r.Message.Params), path...)
}

// heard waits until the edge listens to a legacy backend for changes. It does so
// on a session of its own, for which it can answer nothing; the sessions over
// which it sends calls have streams, too.
func heard(s *edgetest.Server) {
	s.Until("the edge's own stream", func() bool {
		return slices.ContainsFunc(s.Sessions(), func(one *edgetest.ServerSession) bool {
			return one.Listening() && edgetest.Member(one.Params, "capabilities") == "{}" && edgetest.Member(one.Params, "clientInfo", "name") == `"weir"`
		})
	})
}

// status returns what the edge says of itself.
func (s *stage) status(t *testing.T) state {
	t.Helper()
	var out state
	text := s.NewClient().Do("GET", "/status", "", "Connection", "close").Body // some ask for a minute
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("/status: %v: %s", err, text)
	}
	return out
}

// met waits until the edge knows what every backend is and can do.
func (s *stage) met(t *testing.T) {
	t.Helper()
	edgetest.Until(t, "the introductions of all backends", func() bool {
		for _, b := range s.status(t).DiscoveredBackends {
			if b.Era == "" {
				return false
			}
		}
		return true
	})
}

// subscriptions are those that are open at a modern server.
type subscriptions struct {
	mu  sync.Mutex
	all map[*edgetest.Call]chan string
}

// cut ends every subscription.
func (l *subscriptions) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, wire := range l.all {
		close(wire)
	}
	clear(l.all)
}

// listening has a modern server take subscriptions.
func listening(s *edgetest.Server) *subscriptions {
	l := &subscriptions{all: map[*edgetest.Call]chan string{}}
	s.Always("subscriptions/listen", func(c *edgetest.Call) {
		wire := make(chan string, 16)
		c.Notify("notifications/subscriptions/acknowledged", `{"_meta":{"`+subscription+`":`+c.ID()+`},"notifications":`+param(c.Request, "notifications")+`}`)
		l.mu.Lock()
		l.all[c] = wire
		l.mu.Unlock()
		for {
			select {
			case text, more := <-wire:
				if !more {
					return
				}
				c.Event(strings.ReplaceAll(text, "SUBSCRIPTION", c.ID()))
			case <-c.Gone():
				l.mu.Lock()
				delete(l.all, c)
				l.mu.Unlock()
				return
			}
		}
	})
	return l
}

// tell puts a notification on every subscription.
func (l *subscriptions) tell(method, params string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, wire := range l.all {
		wire <- `{"jsonrpc":"2.0","method":"` + method + `","params":{` + params + `"_meta":{"` + subscription + `":SUBSCRIPTION}}}`
	}
}

// of waits for a subscription to what text names.
func (l *subscriptions) of(t *testing.T, text string) {
	t.Helper()
	edgetest.Until(t, "a subscription to "+text, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for c := range l.all {
			if strings.Contains(param(c.Request, "notifications"), text) {
				return true
			}
		}
		return false
	})
}

const subscription = "io.modelcontextprotocol/subscriptionId"

// state is the part of /status that the tests look at.
type state struct {
	Phase    string
	Withheld []string
	Sessions int
	Inflight int64
	Reload   string
	Reloads  int64

	DiscoveredBackends []struct {
		Name                string
		Status              string
		Message             string
		CircuitBreakerState string
		Era                 string
		Tools               int
		Prompts             int
		Resources           int
	}
}

// of returns the status and the breaker's state of a backend.
func (s state) of(name string) (status, circuit string) {
	for _, b := range s.DiscoveredBackends {
		if b.Name == name {
			return b.Status, b.CircuitBreakerState
		}
	}
	return "", ""
}
