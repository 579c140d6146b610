package items_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// All pages of a backend are walked, its cursors passed on as they are, the
// empty one included, and a backend whose cursors go round in a circle costs a
// few requests and not the list.
func TestItem13(t *testing.T) {
	for _, back := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		t.Run(back.String(), func(t *testing.T) {
			t.Parallel()
			pages, loop, fine := edgetest.NewServer(t, back), edgetest.NewServer(t, back), edgetest.NewServer(t, edgetest.Legacy)
			cursors := []string{"", `"a\"b/+=é"`, `""`, `"null"`}
			pages.Always("tools/list", func(c *edgetest.Call) {
				for i, cursor := range cursors {
					if param(c.Request, "cursor") != cursor {
						continue
					}
					next := ""
					if i+1 < len(cursors) {
						next = `,"nextCursor":` + cursors[i+1]
					}
					c.Result(done(pages, "public", `"tools":[`+tool(fmt.Sprintf("page%d", i))+`]`+next))
					return
				}
				c.Error(200, -32602, "invalid cursor")
			})
			loop.Always("tools/list", func(c *edgetest.Call) {
				c.Result(done(loop, "public", `"tools":[`+tool("round")+`],"nextCursor":"again"`))
			})
			f := open(t, servers{"pages": pages, "loop": loop, "fine": fine})
			for _, era := range eras {
				c := f.as(era, "")
				want := "fine_echo pages_page0 pages_page1 pages_page2 pages_page3"
				if got := strings.ReplaceAll(c.tools(t), " loop_round", ""); got != want {
					t.Errorf("%s: tools %s, want %s", era, got, want)
				}
				c.CallTool("1", "pages_page3", "{}").Result()
				fails(t, c.Ask("2", "tools/list", `{"cursor":"of somebody else"}`), map[edgetest.Era]int{edgetest.Legacy: 200, edgetest.Modern: 400}[era], -32602)
			}
			if n := loop.Count("tools/list"); n > 10 {
				t.Errorf("the circle was walked %d times", n)
			}
		})
	}
}

// A backend that is down, slow, unauthenticated or talks nonsense leaves the
// list of the others whole and in time; when all of them are, the answer is an
// error that names them and no empty list.
func TestItem14(t *testing.T) {
	t.Parallel()
	bad := func() servers {
		backs := servers{}
		for name, script := range map[string]edgetest.Script{
			"fault":   func(c *edgetest.Call) { c.Error(200, -32603, "out of order") },
			"slow":    func(c *edgetest.Call) { c.Wait(make(chan struct{})) },
			"strange": func(c *edgetest.Call) { c.Result(`{"tools":"none"}`) },
			"torn":    (*edgetest.Call).Abort,
			"html":    func(c *edgetest.Call) { c.Text(200, "text/html", "<html>please sign in</html>") },
		} {
			backs[name] = edgetest.NewServer(t, edgetest.Legacy)
			backs[name].Always("tools/list", script)
		}
		backs["locked"] = edgetest.NewServer(t, edgetest.Legacy)
		backs["locked"].Always("*", func(c *edgetest.Call) {
			c.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://elsewhere.example/"`)
			c.Text(401, "", "")
		})
		backs["dead"] = edgetest.NewServer(t, edgetest.Legacy)
		backs["dead"].Close()
		return backs
	}
	t.Run("one is well", func(t *testing.T) {
		t.Parallel()
		backs := bad()
		backs["well"] = edgetest.NewServer(t, edgetest.Legacy)
		f := open(t, backs)
		for _, era := range eras {
			c := f.as(era, "")
			began := time.Now()
			if got := c.tools(t); got != "well_echo" {
				t.Errorf("%s: tools %q", era, got)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("%s: the list took %s", era, took)
			}
			c.CallTool("1", "well_echo", "{}").Result()
			backendAway(t, c, c.CallTool("2", "dead_echo", "{}"))
		}
		for _, b := range f.status(t).DiscoveredBackends {
			if b.Name != "slow" && (b.Name == "well") != (b.Message == "") {
				t.Errorf("%s: status %s, message %q", b.Name, b.Status, b.Message)
			}
		}
	})
	for _, mode := range []string{"fail", "best_effort"} {
		t.Run("none is well, "+mode, func(t *testing.T) {
			t.Parallel()
			f := open(t, bad(), "operational: {failureHandling: {partialFailureMode: "+mode+"}}")
			for _, era := range eras {
				r := f.as(era, "").Ask("1", "tools/list", "")
				m := fails(t, r, map[edgetest.Era]int{edgetest.Legacy: 200, edgetest.Modern: 502}[era], 502)
				if m.Error != nil && edgetest.Member(string(m.Error.Data), "missing") != `["dead","fault","html","locked","slow","strange","torn"]` {
					t.Errorf("%s: %s", era, m.Error.Data)
				}
			}
		})
	}
}

// What the edge does not own passes as it is: _meta, annotations, icons,
// structured content, schemas and fields that nobody knows yet, of tools, of
// calls and of results; integers keep their digits and ids their form.
func TestItem15(t *testing.T) {
	t.Parallel()
	const extras = `"title":"Title é","description":"d\u0041","annotations":{"readOnlyHint":true,"own":1.0},"icons":[{"src":"data:image/png;base64,AA==","sizes":["any"]}],"outputSchema":{"type":"object","properties":{"n":{"type":"integer","maximum":9223372036854775807}}},"_meta":{"vendor/x":{"k":12345678901234567890}},"own":[1.10,  1e2]`
	const result = `"content":[{"type":"text","text":"t","annotations":{"priority":1.0}},{"type":"resource_link","uri":"test://x","name":"n"},{"type":"hologram","z":1}],"structuredContent":{"n":9223372036854775807, "m":-0.0},"_meta":{"vendor/y":"é"},"isError":false,"own":{}`
	backs := servers{"a": edgetest.NewServer(t, edgetest.Legacy), "b": edgetest.NewServer(t, edgetest.Modern), "c": edgetest.NewServer(t, edgetest.SSE)}
	for _, s := range backs {
		offers(s, "tools", tool("echo", extras))
		s.Always("tools/call", answer(s, result))
	}
	f := open(t, backs)
	for _, era := range eras {
		c := f.as(era, "")
		if n := strings.Count(c.Ask("1", "tools/list", "").Result(), extras); n != 3 {
			t.Errorf("%s: %d of 3 tools as they were sent", era, n)
		}
		for i, id := range []string{"9007199254740993", `"1"`, "-5", `"é\u0000"`} {
			name := names(backs)[i%3]
			const arguments = `{"big":12345678901234567890,"f":1.10, "s":"\u00e9"}`
			r := c.CallTool(id, name+"_echo", arguments, `"vendor/z":{"n":1.0}`)
			text := string(r.Answer())
			if got := edgetest.Member(text, "id"); got != id {
				t.Errorf("%s: id %s came back as %s", era, id, got)
			}
			if !strings.Contains(text, result) {
				t.Errorf("%s of %s: %s", era, name, text)
			}
			calls := backs[name].Requests("tools/call")
			last := calls[len(calls)-1]
			if param(last, "arguments") != arguments || param(last, "_meta", "vendor/z") != `{"n":1.0}` {
				t.Errorf("%s: the backend got %s", name, last.Body)
			}
		}
	}
}

// Names have their prefix whoever else is there; a name that is too long has a
// short form that is the same every time; and a name leads back by the catalog
// and not by its parts.
func TestItem16(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("very_", 30) + "long"
	a := edgetest.NewServer(t, edgetest.Legacy, has("b_c", "x", long, "sp ace"))
	ab := edgetest.NewServer(t, edgetest.Legacy, has("c", "d_e", long))
	one := open(t, servers{"a": a})
	f, again := open(t, servers{"a": a, "a_b": ab}), open(t, servers{"a_b": ab, "a": a})
	c := f.as(edgetest.Modern, "")
	all := c.tools(t)
	if other := again.as(edgetest.Legacy, "").tools(t); other != all {
		t.Errorf("tools %s, and then %s", all, other)
	}
	if alone := one.as(edgetest.Modern, "").list(t, "tools", "name"); !strings.HasPrefix(alone[0], "a_") {
		t.Errorf("a backend alone has tools %s", alone)
	}
	var short []string
	for _, name := range strings.Fields(all) {
		if len(name) > 128 {
			t.Errorf("a name of %d characters", len(name))
		}
		if strings.Contains(name, "very_") {
			short = append(short, name)
		}
	}
	if len(short) != 2 || !strings.Contains(all, "a_x") || !strings.Contains(all, "a_sp_ace") || !strings.Contains(all, "a_b_d_e") {
		t.Fatalf("tools %s", all)
	}
	for name, want := range map[string]struct {
		back *edgetest.Server
		name string
	}{"a_x": {a, "x"}, "a_sp_ace": {a, "sp ace"}, "a_b_d_e": {ab, "d_e"}, short[0]: {ab, long}, short[1]: {a, long}} {
		a.Forget()
		ab.Forget()
		c.CallTool("1", name, "{}").Result()
		calls := want.back.Requests("tools/call")
		if len(calls) != 1 || param(calls[0], "name") != fmt.Sprintf("%q", want.name) || a.Count("tools/call")+ab.Count("tools/call") != 1 {
			t.Errorf("%s led to %d calls of a, %d of a_b", name, a.Count("tools/call"), ab.Count("tools/call"))
		}
	}
	// Two tools that would have one name are there for nobody.
	unknownTool(t, c, c.CallTool("2", "a_b_c", "{}"))
	if strings.Contains(" "+all+" ", " a_b_c ") {
		t.Errorf("tools %s", all)
	}
}

// Of two backends with one URI the first by name has it; a URI that different
// templates of both fit belongs to none; completion goes to whose template it is; links
// within results lead where they say; and the change of a resource is told by
// the backend that has it.
func TestItem17(t *testing.T) {
	t.Parallel()
	a, b := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern)
	for name, s := range map[string]*edgetest.Server{"a": a, "b": b} {
		offers(s, "resources", `{"uri":"test://both","name":"r"}`, `{"uri":"test://only/`+name+`","name":"r"}`)
		offers(s, "resourceTemplates", `{"uriTemplate":"test://shared/{`+name+`}","name":"t"}`, `{"uriTemplate":"`+name+`://own/{id}","name":"t"}`)
		offers(s, "prompts", `{"name":"p"}`)
		s.Always("resources/read", func(c *edgetest.Call) {
			c.Result(done(s, "public", `"contents":[{"uri":`+param(c.Request, "uri")+`,"text":"of `+name+`"}]`))
		})
		s.Always("completion/complete", answer(s, `"completion":{"values":["of `+name+`"]}`))
		s.Always("tools/call", answer(s, `"content":[{"type":"resource_link","uri":"`+name+`://own/7","name":"n"},{"type":"resource","resource":{"uri":"test://only/`+name+`","text":"x"}}]`))
	}
	told := listening(b)
	f := open(t, servers{"a": a, "b": b})
	f.met(t)
	for _, era := range eras {
		c := f.as(era, "")
		if got := strings.Join(c.list(t, "resources", "uri"), " "); got != "test://both test://only/a test://only/b" {
			t.Errorf("%s: resources %s", era, got)
		}
		c.list(t, "resourceTemplates", "uriTemplate")
		read := func(uri string) *edgetest.Response { return c.Ask("1", "resources/read", `{"uri":"`+uri+`"}`) }
		for uri, of := range map[string]string{"test://both": "a", "test://only/a": "a", "test://only/b": "b", "a://own/1": "a", "b://own/1": "b"} {
			if text := read(uri).Result(); !strings.Contains(text, `"of `+of+`"`) || !strings.Contains(text, `"`+uri+`"`) {
				t.Errorf("%s: %s is %s", era, uri, text)
			}
		}
		status := map[edgetest.Era]int{edgetest.Legacy: 200, edgetest.Modern: 400}[era]
		for _, uri := range []string{"test://shared/1", "test://none", "c://own/1"} {
			m := fails(t, read(uri), status, -32602)
			if m.Error != nil && edgetest.Member(string(m.Error.Data), "uri") != `"`+uri+`"` {
				t.Errorf("%s: %s", uri, m.Error.Data)
			}
		}
		for _, name := range []string{"a", "b"} {
			for _, ref := range []string{`{"type":"ref/prompt","name":"` + name + `_p"}`, `{"type":"ref/resource","uri":"` + name + `://own/{id}"}`} {
				if text := c.Ask("2", "completion/complete", `{"ref":`+ref+`,"argument":{"name":"id","value":""}}`).Result(); !strings.Contains(text, `"of `+name+`"`) {
					t.Errorf("%s: completion of %s: %s", era, ref, text)
				}
			}
			// The links of a result can be read.
			text := c.CallTool("3", name+"_echo", "{}").Result()
			for _, uri := range []string{name + "://own/7", "test://only/" + name} {
				if !strings.Contains(text, `"`+uri+`"`) {
					t.Errorf("%s: the result is %s", era, text)
				}
				read(uri).Result()
			}
		}
	}
	c := f.as(edgetest.Modern, "")
	heard(a)
	r := c.Ask("1", "subscriptions/listen", `{"notifications":{"resourceSubscriptions":["test://both","test://only/b","test://shared/1"]}}`)
	if m := r.NextMessage(); edgetest.Member(string(m.Params), "notifications", "resourceSubscriptions") != `["test://both","test://only/b"]` {
		t.Errorf("%+v", m)
	}
	told.of(t, "test://only/b")
	told.tell("notifications/resources/updated", `"uri":"test://both",`) // not by whose it is
	told.tell("notifications/resources/updated", `"uri":"test://only/b",`)
	if m := r.NextMessage(); edgetest.Member(string(m.Params), "uri") != `"test://only/b"` {
		t.Errorf("%s", m.Params)
	}
	tellAll(a, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://both"}}`)
	if m := r.NextMessage(); edgetest.Member(string(m.Params), "uri") != `"test://both"` {
		t.Errorf("%s", m.Params)
	}
}

// A backend gets headers that fit the message as it gets it: its own name of
// the tool, and the parameters of its own schema; a client's must fit the
// message as it sent it; and annotations that would set another header of the
// request take their tool away.
func TestItem18(t *testing.T) {
	t.Parallel()
	region := `"inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`
	evil := func(name, header string) string {
		return `{"name":"` + name + `","inputSchema":{"type":"object","properties":{"p":{"type":"string","x-mcp-header":` + header + `}}}}`
	}
	a, b := edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Modern)
	old := edgetest.NewServer(t, edgetest.Legacy)
	offers(old, "tools", `{"name":"plain",`+region+`}`)
	offers(a, "tools", `{"name":"hé llo",`+region+`}`, evil("empty", `""`), evil("break", `"A\r\nAuthorization"`), evil("space", `"A B"`), evil("colon", `"A:B"`), evil("number", `1`),
		`{"name":"object","inputSchema":{"type":"object","properties":{"p":{"type":"object","x-mcp-header":"P"}}}}`,
		`{"name":"twice","inputSchema":{"type":"object","properties":{"p":{"type":"string","x-mcp-header":"P"},"q":{"type":"string","x-mcp-header":"p"}}}}`)
	offers(b, "tools", `{"name":"plain",`+region+`}`)
	f := open(t, servers{"a": a, "b": b, "old": old})
	for _, era := range eras {
		c := f.as(era, "")
		if got := c.tools(t); got != "a_h__llo b_plain old_plain" && got != "a_h_llo b_plain old_plain" {
			t.Errorf("%s: tools %q", era, got)
		}
	}
	for _, s := range []*edgetest.Server{a, b} { // as such a server must
		s.Always("tools/call", func(c *edgetest.Call) {
			if fmt.Sprintf("%q", c.Request.Header.Get("Mcp-Param-Region")) != param(c.Request, "arguments", "region") {
				c.Error(400, -32020, "Mcp-Param-Region does not match")
				return
			}
			c.Result(`{"resultType":"complete","content":[]}`)
		})
	}
	shown := strings.Fields(f.as(edgetest.Modern, "").tools(t))[0]
	c := f.as(edgetest.Modern, "")
	send := func(shown, region, value string, header ...string) *edgetest.Response {
		body, head := c.Message("1", "tools/call", edgetest.CallParams(shown, `{"region":"`+region+`"}`))
		return c.Post(body, append(append(head, "Mcp-Param-Region", value), header...)...)
	}
	send(shown, "eu", "eu").Result()
	send("b_plain", "eu", "eu").Result()
	send("old_plain", "eu", "eu").Result()
	f.as(edgetest.Legacy, "").CallTool("1", shown, `{"region":"eu"}`).Result()
	for _, want := range []struct {
		back *edgetest.Server
		name string
	}{{a, "=?base64?aMOpIGxsbw==?="}, {b, "plain"}} {
		calls := want.back.Requests("tools/call")
		if last := calls[len(calls)-1].Header; last.Get("Mcp-Name") != want.name || last.Get("Mcp-Param-Region") != "eu" || last.Get("Mcp-Method") != "tools/call" {
			t.Errorf("the backend got %v", last)
		}
	}
	fails(t, send("b_plain", "eu", "us"), 400, -32020)
	b.Forget()
	fails(t, send("b_plain", "eu", "eu", "Mcp-Name", "plain"), 400, -32020) // the backend's name is not the client's
	if n := b.Count("tools/call"); n != 0 {
		t.Errorf("a call of another name reached the backend %d times", n)
	}
	// Nothing of the client's own credentials and connection goes on.
	send("b_plain", "eu", "eu", "Authorization", "Bearer of-the-client", "Cookie", "a=b", "Proxy-Authorization", "Basic x", "Mcp-Session-Id", "x", "X-Forwarded-For", "1.2.3.4").Result()
	got := b.Requests("tools/call")[0].Header
	for _, name := range []string{"Authorization", "Cookie", "Proxy-Authorization", "Mcp-Session-Id", "Te", "Upgrade", "X-Forwarded-For"} {
		if got.Get(name) != "" {
			t.Errorf("the backend got %s: %s", name, got.Get(name))
		}
	}
}

// A merged list may be kept by others as long as each part of it may, and is
// public only when every part is; the edge asks again when a part is too old;
// and an answer is never kept that a backend called private.
func TestItem19(t *testing.T) {
	t.Parallel()
	public, private, legacy := edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Legacy)
	public.Always("tools/list", func(c *edgetest.Call) {
		c.Result(`{"resultType":"complete","ttlMs":50000,"cacheScope":"public","tools":[` + tool("t") + `]}`)
	})
	private.Always("tools/list", func(c *edgetest.Call) {
		c.Result(`{"resultType":"complete","ttlMs":20000,"cacheScope":"private","tools":[` + tool("t") + `]}`)
	})
	for _, one := range []struct {
		backs servers
		scope string
		most  int
	}{
		{servers{"a": public, "b": public}, `"public"`, 50000},
		{servers{"a": public, "b": private}, `"private"`, 20000},
		{servers{"a": public, "b": legacy}, `"private"`, 50000},
	} {
		f := open(t, one.backs)
		text := f.as(edgetest.Modern, "").Ask("1", "tools/list", "").Result()
		var ttl int
		_, err := fmt.Sscan(edgetest.Member(text, "ttlMs"), &ttl)
		if edgetest.Member(text, "cacheScope") != one.scope || err != nil || ttl < 0 || ttl > one.most {
			t.Errorf("scope %s, ttl %s; want %s and at most %d", edgetest.Member(text, "cacheScope"), edgetest.Member(text, "ttlMs"), one.scope, one.most)
		}
		if text := f.as(edgetest.Legacy, "").Ask("1", "tools/list", "").Result(); strings.Contains(text, "cacheScope") || strings.Contains(text, "ttlMs") {
			t.Errorf("a legacy client got %s", text)
		}
	}
	// What a backend says of one resource to one client is asked for by each.
	offers(private, "resources", `{"uri":"test://x","name":"r"}`)
	reads := 0
	private.Always("resources/read", func(c *edgetest.Call) {
		reads++
		c.Result(fmt.Sprintf(`{"resultType":"complete","ttlMs":60000,"cacheScope":"private","contents":[{"uri":"test://x","text":"%d"}]}`, reads))
	})
	f := open(t, servers{"a": public, "b": private})
	for i := 1; i <= 2; i++ {
		text := f.as(edgetest.Modern, "").Ask("1", "resources/read", `{"uri":"test://x"}`).Result()
		if !strings.Contains(text, fmt.Sprintf(`"text":"%d"`, i)) || edgetest.Member(text, "cacheScope") != `"private"` {
			t.Errorf("client %d got %s", i, text)
		}
	}
	// A list that is old by its backend's own word is fetched anew.
	short := edgetest.NewServer(t, edgetest.Modern)
	short.Always("tools/list", func(c *edgetest.Call) {
		c.Result(`{"resultType":"complete","ttlMs":1,"cacheScope":"public","tools":[` + tool("t") + `]}`)
	})
	g := open(t, servers{"a": short, "b": public})
	c := g.as(edgetest.Modern, "")
	edgetest.Until(t, "another fetch", func() bool {
		c.tools(t)
		return short.Count("tools/list") > 1
	})
}

// A backend's 401 is between the edge and the backend: its challenge would send
// the client for a token of another's, and the edge that asks for none has no
// metadata of its own either.
func TestItem20(t *testing.T) {
	t.Parallel()
	a, b := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern)
	f := open(t, servers{"a": a, "b": b})
	for _, era := range eras {
		for _, status := range []int{401, 403} {
			c := f.as(era, "")
			c.tools(t)
			for name, s := range f.backs {
				s.Once("tools/call", func(c *edgetest.Call) {
					c.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://elsewhere.example/prm", scope="x"`)
					c.JSON(status, `{"error":"invalid_token","error_description":"secret-of-the-backend"}`)
				})
				r := c.CallTool("1", name+"_echo", "{}")
				if r.Status == 401 || r.Status == 403 || r.Header.Get("WWW-Authenticate") != "" || strings.Contains(string(r.Answer()), "secret-of") {
					t.Errorf("%s, %d of %s: status %d, %v, %s", era, status, name, r.Status, r.Header, r.Answer())
				}
				if r.Message().Error == nil {
					t.Errorf("%s, %d of %s: %s", era, status, name, r.Answer())
				}
			}
		}
	}
	for _, path := range []string{"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"} {
		if r := f.NewClient().Do("GET", path, ""); r.Status != http.StatusNotFound {
			t.Errorf("%s: status %d: %s", path, r.Status, r.Body)
		}
	}
}

// Before a legacy backend, which knows no such headers, the edge holds the
// headers of a tool's parameters against its arguments.
func TestItem18LegacyBackend(t *testing.T) {
	t.Parallel()
	a, b := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
	offers(a, "tools", `{"name":"plain","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}`)
	f := open(t, servers{"a": a, "b": b})
	c := f.as(edgetest.Modern, "")
	c.tools(t)
	body, head := c.Message("1", "tools/call", edgetest.CallParams("a_plain", `{"region":"eu"}`))
	fails(t, c.Post(body, append(head, "Mcp-Param-Region", "us")...), 400, -32020)
	fails(t, c.Post(body, head...), 400, -32020)
	if n := a.Count("tools/call"); n != 0 {
		t.Errorf("the backend got %d calls", n)
	}
	c.Post(body, append(head, "Mcp-Param-Region", "eu")...).Result()
}
