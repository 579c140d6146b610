package edgetest

import (
	"fmt"
	"slices"
	"strings"
)

// Asking is a way in which a client may ask for something: a method with params
// that lead to a thing, in one of the ways that the protocol has.
type Asking struct {
	Method string
	How    string // "" for the plain way
	Params string // JSON text; BACK stands for the name of a backend

	Legacy, Modern bool // clients of the era send it, with an id or, of a notification, without
	Alone          bool // only a server that serves its one backend as it is takes it
	Aside          bool // a legacy client says it of its own session, and no filter is asked

	// Who is asked before it is done: webhooks and programs, policies, rate limits,
	// and the rules of what is visible.
	Filters, Policies, Limits, Visible bool

	Result string // what a legacy server answers; "" where no backend is asked
}

// Asked reports whether webhooks and programs are asked about it when a client of an
// era sends it. They are about notifications that go nowhere, too.
func (a *Asking) Asked(e Era) bool {
	return a.Filters || a.Aside && e == Modern || a.Notification() && !a.In(e)
}

// Name is how a test calls it.
func (a *Asking) Name() string { return strings.TrimSpace(a.Method + " " + a.How) }

// Notification reports whether it has no id.
func (a *Asking) Notification() bool { return strings.HasPrefix(a.Method, "notifications/") }

// In reports whether clients of an era send it.
func (a *Asking) In(e Era) bool { return a.Modern && e == Modern || a.Legacy && e != Modern }

// Askings is every method of both eras, those among them that only servers send,
// and one that no revision has. Offer has servers offer what they lead to.
func Askings() []Asking {
	both := func(a Asking) Asking { a.Legacy, a.Modern, a.Filters = true, true, true; return a }
	legacy := func(a Asking) Asking { a.Legacy, a.Filters = true, true; return a }
	thing := func(a Asking) Asking { a.Policies = true; return a }
	task := func(method string) Asking {
		return thing(Asking{Method: method, Params: `{"taskId":"BACK_task"}`, Result: `{"taskId":"BACK_task","status":"working","createdAt":"2026-01-01T00:00:00Z","ttl":null}`})
	}
	all := []Asking{
		// What asks for one thing.
		both(thing(Asking{Method: "tools/call", Limits: true, Visible: true, Params: `{"name":"BACK_tool","arguments":{}}`, Result: `{"content":[]}`})),
		both(thing(Asking{Method: "tools/call", How: "as a task", Limits: true, Visible: true, Params: `{"name":"BACK_tool","arguments":{},"task":{"ttl":1000}}`, Result: `{"content":[]}`})),
		both(thing(Asking{Method: "prompts/get", Params: `{"name":"BACK_prompt","arguments":{}}`, Result: `{"messages":[]}`})),
		both(thing(Asking{Method: "prompts/get", How: "as a task", Params: `{"name":"BACK_prompt","task":{}}`, Result: `{"messages":[]}`})),
		both(thing(Asking{Method: "resources/read", Params: `{"uri":"BACK:///thing"}`, Result: `{"contents":[]}`})),
		both(thing(Asking{Method: "resources/read", How: "by a template", Params: `{"uri":"BACK:///of/1"}`, Result: `{"contents":[]}`})),
		both(thing(Asking{Method: "resources/read", How: "as a task", Params: `{"uri":"BACK:///thing","task":{}}`, Result: `{"contents":[]}`})),
		both(thing(Asking{Method: "completion/complete", How: "of a prompt", Params: `{"ref":{"type":"ref/prompt","name":"BACK_prompt"},"argument":{"name":"a","value":"x"}}`, Result: `{"completion":{"values":[]}}`})),
		both(thing(Asking{Method: "completion/complete", How: "of a template", Params: `{"ref":{"type":"ref/resource","uri":"BACK:///of/{n}"},"argument":{"name":"n","value":"x"}}`, Result: `{"completion":{"values":[]}}`})),
		both(thing(Asking{Method: "completion/complete", How: "of a resource", Params: `{"ref":{"type":"ref/resource","uri":"BACK:///thing"},"argument":{"name":"n","value":"x"}}`, Result: `{"completion":{"values":[]}}`})),
		legacy(thing(Asking{Method: "resources/subscribe", Params: `{"uri":"BACK:///thing"}`, Result: `{}`})),
		legacy(thing(Asking{Method: "resources/subscribe", How: "by a template", Params: `{"uri":"BACK:///of/2"}`, Result: `{}`})),
		legacy(thing(Asking{Method: "resources/unsubscribe", Params: `{"uri":"BACK:///thing"}`, Result: `{}`})),
		{Method: "subscriptions/listen", Modern: true, Filters: true, Policies: true, Params: `{"notifications":{"resourceSubscriptions":["BACK:///thing","BACK:///of/3"]}}`},

		// What asks for the work of an earlier call.
		both(task("tasks/get")), both(task("tasks/cancel")), legacy(task("tasks/result")),
		{Method: "tasks/update", Modern: true, Filters: true, Policies: true, Params: `{"taskId":"BACK_task","inputResponses":{}}`, Result: `{}`},
		{Method: "tasks/list", Legacy: true, Alone: true, Filters: true, Params: `{}`, Result: `{"tasks":[]}`},

		// What lists things, of which each is judged.
		both(Asking{Method: "tools/list", Params: `{}`}), both(Asking{Method: "prompts/list", Params: `{}`}),
		both(Asking{Method: "resources/list", Params: `{}`}), both(Asking{Method: "resources/templates/list", Params: `{}`}),

		// What does nothing to anything.
		legacy(Asking{Method: "ping", Params: `{}`}), legacy(Asking{Method: "logging/setLevel", Params: `{"level":"error"}`}),
		{Method: "server/discover", Modern: true, Filters: true, Params: `{}`},
		{Method: "initialize", Legacy: true, Aside: true, Params: `{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"again","version":"1"}}`},

		// What no revision has is for the one backend of a server.
		{Method: "vendor/thing", Legacy: true, Modern: true, Alone: true, Filters: true, Params: `{"name":"BACK_tool"}`, Result: `{"a":1}`},

		// What a server asks a client.
		{Method: "sampling/createMessage", Params: `{"messages":[],"maxTokens":1}`},
		{Method: "roots/list", Params: `{}`},
		{Method: "elicitation/create", Params: `{"message":"m","requestedSchema":{"type":"object","properties":{}}}`},

		// What clients tell: of their session and its calls, and of what a server hears of.
		{Method: "notifications/initialized", Legacy: true, Aside: true, Params: `{}`},
		{Method: "notifications/cancelled", Legacy: true, Modern: true, Aside: true, Params: `{"requestId":"none of this session"}`},
		both(Asking{Method: "notifications/progress", Params: `{"progressToken":"p","progress":1}`}),
		both(Asking{Method: "notifications/roots/list_changed", Params: `{}`}),
		legacy(Asking{Method: "notifications/tasks/status", Params: `{"taskId":"BACK_task","status":"completed","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":null}`}),
	}
	// What servers tell, and what nobody does.
	for _, name := range []string{"message", "resources/updated", "resources/list_changed", "tools/list_changed", "prompts/list_changed",
		"elicitation/complete", "subscriptions/acknowledged", "tasks", "vendor/thing", ""} {
		all = append(all, Asking{Method: "notifications/" + name, Params: `{"uri":"BACK:///thing"}`})
	}
	// Methods that a reader who is not strict would take for others.
	for _, name := range []string{"Tools/Call", "tools/call ", "/tools/call", "TOOLS/CALL", "\u00a0tools/call"} {
		all = append(all, Asking{Method: name, Params: `{"name":"BACK_tool","arguments":{}}`})
	}
	return all
}

// Offer has a server offer what Askings lead to, under a name in the place of BACK.
func Offer(s *Server, name string) {
	complete := ""
	if s.Era == Modern {
		complete = `"resultType":"complete","ttlMs":60000,"cacheScope":"public",`
	}
	put := func(text string) string { return "{" + complete + strings.ReplaceAll(text, "BACK", name) + "}" }
	answer := func(method, result string) { s.Always(method, func(c *Call) { c.Result(result) }) }
	for _, a := range Askings() {
		if a.Result != "" {
			members := a.Result[1 : len(a.Result)-1]
			if members == "" {
				members = `"x":1`
			}
			answer(a.Method, put(members))
		}
	}
	s.Always("subscriptions/listen", func(c *Call) {
		c.Notify("notifications/subscriptions/acknowledged", fmt.Sprintf(`{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":%s}`,
			c.ID(), Member(string(c.Message.Params), "notifications")))
		select {
		case <-c.gone:
		case <-c.server.closing:
		}
	})
	answer("tools/list", put(`"tools":[{"name":"BACK_tool","inputSchema":{"type":"object"}}]`))
	answer("prompts/list", put(`"prompts":[{"name":"BACK_prompt"}]`))
	answer("resources/list", put(`"resources":[{"uri":"BACK:///thing","name":"thing"}]`))
	answer("resources/templates/list", put(`"resourceTemplates":[{"uriTemplate":"BACK:///of/{n}","name":"of"}]`))
}

// Form is how a message is sent: what of its envelope, and in what.
type Form struct {
	Name    string
	Swapped bool // with an id what should have none, without one what should have one
	Batch   bool // in a body of several
	Older   bool // over HTTP with SSE
}

// Forms returns all forms that clients of an era have, or that somebody might try.
func Forms(e Era) []Form {
	all := []Form{{Name: "plain"}, {Name: "swapped", Swapped: true}, {Name: "batch", Batch: true}, {Name: "swapped in a batch", Batch: true, Swapped: true}}
	if e != Modern {
		all = append(all, Form{Name: "older transport", Older: true}, Form{Name: "swapped, older transport", Older: true, Swapped: true})
	}
	return all
}

// Marked is the text of a message, whose _meta holds a mark to know it by, and the
// header that goes with it. id is JSON text; back is the name in the place of BACK.
func (a *Asking) Marked(e Era, f Form, id, back, mark string) (body string, header []string) {
	params := strings.ReplaceAll(a.Params, "BACK", back)
	if a.Notification() != f.Swapped {
		id = ""
	}
	meta := fmt.Sprintf(`{"mark":%q}`, mark)
	if e == Modern {
		meta = Meta(fmt.Sprintf(`"mark":%q`, mark))
		header = []string{"MCP-Protocol-Version", ModernVersion, "Mcp-Method", strings.TrimSpace(a.Method)}
		if name, ok := target(a.Method, params); ok {
			header = append(header, "Mcp-Name", name)
		}
	}
	body = request(id, a.Method, withMeta(params, meta))
	if f.Batch {
		body = "[" + body + "]"
	}
	return body, header
}

// Saw returns the requests of a server's that hold a mark.
func (s *Server) Saw(mark string) []*Request {
	return slices.DeleteFunc(s.Requests(""), func(r *Request) bool { return !strings.Contains(string(r.Body), mark) })
}
