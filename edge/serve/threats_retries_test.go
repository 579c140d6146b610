package serve_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/edge/serve"
)

// retrying is an edge before one backend or two, the first of which is of an era.
func retrying(t *testing.T, era edgetest.Era, several bool, more ...string) (f *front, tool, backend string) {
	t.Helper()
	back := edgetest.NewServer(t, era)
	edgetest.Offer(back, "back")
	back.Always("tools/call", func(c *edgetest.Call) {
		if era == edgetest.Modern {
			c.Result(`{"resultType":"complete","content":[]}`)
			return
		}
		c.Result(`{"content":[]}`)
	})
	yaml := edgetest.Manifest(back, more...)
	if several {
		other := edgetest.NewServer(t, edgetest.Modern)
		edgetest.Offer(other, "other")
		yaml = group(map[string]*edgetest.Server{"back": back, "other": other}, append(more, "aggregation: {conflictResolution: priority, conflictResolutionConfig: {priorityOrder: [back, other]}}", bestEffort)...)
	}
	e := edgetest.Start(t, yaml, local)
	return &front{Edge: e, back: back, client: e.NewClient()}, "back_tool", "back"
}

// TestZ47 sends requests that say they go on with a call, and lead to none: in
// every cell, before one backend and several, of clients that can be asked and that
// cannot. None of them begins a call.
func TestZ47(t *testing.T) {
	t.Parallel()
	strangers, err := serve.NewSealer()
	if err != nil {
		t.Fatal(err)
	}
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.SSE, edgetest.Modern} {
		for _, several := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s backend, several %v", era, several), func(t *testing.T) {
				t.Parallel()
				f, tool, backend := retrying(t, era, several)
				plain := fmt.Sprintf(`{"name":%q,"arguments":{"n":1}}`, tool)
				first, err := mcp.Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + plain + `}`))
				if err != nil {
					t.Fatal(err)
				}
				own, soon := f.Serve.Sealer(), time.Now().Add(time.Hour).Unix()
				good := route.State{Call: "gone", Server: "edgetest", Backend: backend, Digest: route.Digest(first), Expires: soon}
				of := func(change func(*route.State)) string {
					s := good
					change(&s)
					return quote(own.Seal(s))
				}
				sealed := own.Seal(good)
				states := map[string]string{
					"forged":                        `"weir1.AAAA"`,
					"nothing but the mark":          `"weir1."`,
					"cut":                           quote(sealed[:len(sealed)-5]),
					"longer":                        quote(sealed + "A"),
					"of another edge":               quote(strangers.Seal(good)),
					"its call gone":                 quote(sealed),
					"expired":                       of(func(s *route.State) { s.Expires = time.Now().Add(-time.Minute).Unix() }),
					"of somebody else":              of(func(s *route.State) { s.Principal = "issuer\x00somebody" }),
					"of another server":             of(func(s *route.State) { s.Server = "other" }),
					"of another backend":            of(func(s *route.State) { s.Backend = "other" }),
					"of another request":            of(func(s *route.State) { s.Digest = []byte("other") }),
					"of another node":               of(func(s *route.State) { s.Node = "0123456789abcdef" }),
					"of no call, somebody else's":   of(func(s *route.State) { s.Call, s.Inner, s.Principal = "", "own", "issuer\x00somebody" }),
					"of no call, another request's": of(func(s *route.State) { s.Call, s.Inner, s.Digest = "", "own", nil }),
					"a number":                      "7", "an object": `{"weir1.":1}`, "a list": "[]", "null": "null", "true": "true",
					"a mebibyte": `"weir1.` + strings.Repeat("A", 1<<20) + `"`,
				}
				if era != edgetest.Modern || several {
					states["made up"], states["empty"], states["a mebibyte of another"] = `"made up"`, `""`, `"`+strings.Repeat("A", 1<<20)+`"`
					states["an inner state, unsealed"] = `"own"`
				}
				if era != edgetest.Modern { // a state from when the backend was of the other era
					states["of no call"] = of(func(s *route.State) { s.Call, s.Inner = "", "own" })
				}
				for name, state := range states {
					for _, responses := range []string{"", `,"inputResponses":{}`, `,"inputResponses":{"input_1":{"roots":[]}}`} {
						for _, caps := range []string{"{}", asks} {
							params := plain[:len(plain)-1] + `,"requestState":` + state + responses + "}"
							r := f.client.Modern(`"r"`, "tools/call", params, edgetest.Capabilities(caps))
							m := edgetest.Parse(t, r.Answer())
							if r.Status != 400 || m.Error == nil || m.Error.Code != -32602 || string(m.ID) != `"r"` {
								t.Errorf("%s, capabilities %s%s: status %d: %.300s", name, caps, responses, r.Status, r.Body)
							}
						}
					}
					// A legacy client has no such thing at all.
					s := f.client.Initialize(asks)
					fails(t, s.Request("1", "tools/call", plain[:len(plain)-1]+`,"requestState":`+state+"}"), 200, -32602, "1")
					s.Delete()
				}
				// Of every method that may be gone on with.
				for _, a := range edgetest.Askings() {
					if !mcp.MethodOf(a.Method).Interactive {
						continue
					}
					for _, name := range []string{"forged", "cut", "expired", "of somebody else", "its call gone", "a number", "made up"} {
						state := states[name]
						if state == "" {
							continue // the backend's own to judge
						}
						params := strings.ReplaceAll(a.Params, "BACK", "back")
						fails(t, f.client.Modern("1", a.Method, params[:len(params)-1]+`,"requestState":`+state+`}`), 400, -32602, "1")
					}
				}
				// What is said twice, or in another spelling, is no message.
				for _, twice := range []string{`,"requestState":"a","requestState":"b"`, `,"RequestState":"a"`, `,"request\u0053tate":"a"`, `,"InputResponses":{}`} {
					if r := f.client.Modern("1", "tools/call", plain[:len(plain)-1]+twice+"}"); r.Status != 400 {
						t.Errorf("%s: status %d: %s", twice, r.Status, r.Body)
					}
				}
				// Answers are an object.
				for _, responses := range []string{"[]", "7", `"x"`, "null"} {
					fails(t, f.client.Modern("1", "tools/call", plain[:len(plain)-1]+`,"inputResponses":`+responses+"}"), 400, -32602, "1")
				}
				// Elsewhere there is nothing to go on with.
				for _, a := range edgetest.Askings() {
					if a.Notification() || !a.Modern || mcp.MethodOf(a.Method).Interactive || !mcp.MethodOf(a.Method).Known {
						continue
					}
					for _, more := range []string{`"requestState":"x"`, `"inputResponses":{}`} {
						params := strings.ReplaceAll(a.Params, "BACK", "back")
						if strings.Contains(params, "inputResponses") && strings.Contains(more, "inputResponses") {
							continue // answers to the questions of a task
						}
						if params = params[:len(params)-1] + "," + more + "}"; params[1] == ',' {
							params = "{" + params[2:]
						}
						fails(t, f.client.Modern("1", a.Method, params), 400, -32602, "1")
					}
				}
				for _, kind := range []string{"tools/call", "prompts/get", "resources/read", "completion/complete", "tasks/get", "tasks/update", "tasks/cancel"} {
					if n := f.back.Count(kind); n != 0 {
						t.Errorf("the backend got %d of %s", n, kind)
					}
				}
				// The same request without a state is a call.
				if r := f.client.Modern("1", "tools/call", plain); r.Status != 200 || f.back.Count("tools/call") != 1 {
					t.Errorf("status %d: %s", r.Status, r.Body)
				}
			})
		}
	}
}

// TestZ47Charged has requests that lead to no call cost what a call does.
func TestZ47Charged(t *testing.T) {
	t.Parallel()
	for _, several := range []bool{false, true} {
		f, tool, _ := retrying(t, edgetest.Legacy, several, "rateLimiting: {shared: "+bucket(6)+"}")
		for i, more := range []string{`"requestState":"weir1.AAAA"`, `"requestState":"x"`, `"requestState":7`, `"requestState":""`, `"requestState":"x","inputResponses":[]`} {
			fails(t, f.client.Modern(fmt.Sprint(i), "tools/call", `{"name":"`+tool+`",`+more+`}`), 400, -32602, fmt.Sprint(i))
		}
		// Answers to what was asked without a state, such as to open a page, come with
		// a call of their own.
		if r := f.client.Modern("1", "tools/call", `{"name":"`+tool+`","inputResponses":{}}`); r.Status != 200 {
			t.Errorf("status %d: %s", r.Status, r.Body)
		}
		limited(t, f.client.Modern("1", "tools/call", `{"name":"`+tool+`"}`), "1")
		if n := f.back.Count("tools/call"); n != 1 {
			t.Errorf("%d calls", n)
		}
	}
}

// TestZ47BackendThatBecomesLegacy: a state of a backend that was of the modern era
// begins no call when it has become a legacy one, whenever the edge finds out.
func TestZ47BackendThatBecomesLegacy(t *testing.T) {
	t.Parallel()
	for _, several := range []bool{false, true} {
		f, tool, _ := retrying(t, edgetest.Modern, several)
		f.back.Once("tools/call", func(c *edgetest.Call) {
			c.Result(`{"resultType":"input_required","inputRequests":{"q":{"method":"roots/list","params":{}}},"requestState":"own"}`)
		})
		params := `{"name":"` + tool + `","arguments":{}}`
		state := edgetest.Member(f.client.Modern("1", "tools/call", params, edgetest.Capabilities(asks)).Result(), "requestState")
		if several == (state == `"own"`) {
			t.Fatalf("state %s", state)
		}
		addr := f.back.Addr()
		f.back.Close()
		now := edgetest.NewServer(t, edgetest.Legacy, func(s *edgetest.Server) { s.Address = addr })
		edgetest.Offer(now, "back")
		retry := params[:len(params)-1] + `,"inputResponses":{"q":{"roots":[]}},"requestState":` + state + `}`
		for _, caps := range []string{"{}", asks} {
			var last *edgetest.Response
			edgetest.Until(t, "an answer of the backend as it is", func() bool {
				last = f.client.Modern("2", "tools/call", retry, edgetest.Capabilities(caps))
				return last.Status == 400
			})
			fails(t, last, 400, -32602, "2")
		}
		for _, r := range now.Requests("tools/call") {
			if r.Session != "" { // without one it refused what was for a modern server
				t.Errorf("it ran %s", r.Body)
			}
		}
	}
}

// TestEdgeBeforeAnEdge parks a call at an edge that is the one backend of another:
// a state that looks like one of its own comes back to the edge that sealed it, and
// to nobody who changes it.
func TestEdgeBeforeAnEdge(t *testing.T) {
	t.Parallel()
	for _, several := range []bool{false, true} {
		back := edgetest.NewServer(t, edgetest.Legacy)
		edgetest.Offer(back, "back")
		back.Always("tools/call", func(c *edgetest.Call) {
			m := c.Ask("1", "roots/list", "")
			c.Result(`{"content":[],"said":` + string(m.Result) + `}`)
		})
		inner := edgetest.Start(t, edgetest.Manifest(back))
		yaml := edgetest.ManifestFor(inner.URL(), "streamable-http")
		if several {
			other := edgetest.NewServer(t, edgetest.Modern)
			edgetest.Offer(other, "other")
			yaml = strings.Replace(group(map[string]*edgetest.Server{"back": back, "other": other}, "aggregation: {conflictResolution: priority, conflictResolutionConfig: {priorityOrder: [back, other]}}", bestEffort), back.URL, inner.URL(), 1)
		}
		outer := edgetest.Start(t, yaml)
		c := outer.NewClient()
		params := `{"name":"back_tool","arguments":{}}`
		first := inputRequired(t, c.Modern("1", "tools/call", params, edgetest.Capabilities(asks)))
		retry := func(state string) *edgetest.Response {
			return c.Modern("2", "tools/call", params[:len(params)-1]+`,"inputResponses":{"`+first.key(t)+`":{"roots":[ 1 ]}},"requestState":`+quote(state)+`}`, edgetest.Capabilities(asks))
		}
		fails(t, retry(first.RequestState[:len(first.RequestState)-2]), 400, -32602, "2")
		fails(t, retry("weir1.AAAA"), 400, -32602, "2")
		if got := retry(first.RequestState).Result(); edgetest.Member(got, "said") != `{"roots":[ 1 ]}` {
			t.Errorf("%s", got)
		}
		if n := back.Count("tools/call"); n != 1 {
			t.Errorf("%d calls", n)
		}
	}
}
