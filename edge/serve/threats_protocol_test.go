package serve_test

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/edge/serve"
)

// What the header of a modern request says has to be what its body says.
func TestHeadersOfAModernRequest(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	if r := f.client.Modern("0", "tools/call", edgetest.CallParams("safe", "{}")); r.Status != 200 {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	f.back.Forget()
	body, _ := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("evil", "{}"), edgetest.Meta())
	version := []string{"MCP-Protocol-Version", edgetest.ModernVersion}
	with := func(head ...string) []string { return append(append([]string{}, version...), head...) }
	for _, row := range []struct {
		id   string
		head []string
	}{
		{"M02", with("Mcp-Method", "tools/list", "Mcp-Name", "evil")},
		{"M02", with("Mcp-Method", "TOOLS/CALL", "Mcp-Name", "evil")},
		{"M03", with("Mcp-Method", "tools/call", "Mcp-Name", "safe")},
		{"M03", with("Mcp-Method", "tools/call", "Mcp-Name", "Evil")},
		{"M03", with("Mcp-Method", "tools/call", "Mcp-Name", "=?base64?c2FmZQ==?=")},
		{"M03", with("Mcp-Method", "tools/call", "Mcp-Name", "=?base64?ZXZpbA?=")},
		{"M03", with("Mcp-Method", "tools/call", "Mcp-Name", "=?base64?ZXZpbB==?=")},
		{"M03", with("Mcp-Method", "tools/call", "Mcp-Name", "=?base64?!!!!?=")},
		{"M03", with("Mcp-Method", "tools/call", "Mcp-Name", "=?BASE64?ZXZpbA==?=")},
		{"M03", with("Mcp-Method", "tools/call", "Mcp-Name", "=?base64?PT9iYXNlNjQ/WlhacGJBPT0/PQ==?=")},
		{"M03", with("Mcp-Method", "tools/call", "Mcp-Name", "=?base64?ZXZpbA==?= ?=")},
		{"M03", with("Mcp-Method", "tools/call", "Mcp-Name", "ev\xffil")},
		{"M04", with()},
		{"M04", with("Mcp-Method", "tools/call")},
		{"M04", with("Mcp-Name", "evil")},
	} {
		t.Run(row.id, func(t *testing.T) { fails(t, f.client.Post(body, row.head...), 400, -32020, "1") })
	}
	if n := f.back.Count(""); n != 0 {
		t.Errorf("the backend got %d requests", n)
	}
	t.Run("M03, the same in base64", func(t *testing.T) {
		if r := f.client.Post(body, with("Mcp-Method", "tools/call", "Mcp-Name", "=?base64?ZXZpbA==?=")...); r.Status != 200 {
			t.Errorf("status %d: %s", r.Status, r.Body)
		}
	})
}

// A legacy client may write the headers of the newer revision as it likes: the
// body counts, and they reach nobody.
func TestM05(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	sent := w.passed(t, w.framed("MCP-Protocol-Version: 2025-11-25\r\nMcp-Name: safe\r\nMcp-Method: ping\r\nMcp-Param-Region: us\r\n", echo))
	if edgetest.Member(sent.body, "params", "name") != `"echo"` || edgetest.Member(sent.body, "method") != `"tools/call"` {
		t.Errorf("%s", sent.body)
	}
}

// A header that mirrors an argument has to be what the argument is, before a server of either
// era: the modern one here runs whatever it gets. It counts once a list has passed.
func TestM06(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back, other := edgetest.NewServer(t, era), edgetest.NewServer(t, edgetest.Modern)
			back.Tools = `[{"name":"echo","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"}}}}]`
			for name, yaml := range map[string]string{"echo": edgetest.Manifest(back), "a_echo": group(map[string]*edgetest.Server{"a": back, "b": other})} {
				e := edgetest.Start(t, yaml)
				c := e.NewClient()
				if r := c.Modern("1", "tools/list", ""); !strings.Contains(string(r.Answer()), `"`+name+`"`) {
					t.Fatalf("status %d: %s", r.Status, r.Body)
				}
				back.Forget()
				call := func(arguments string) (string, []string) {
					return edgetest.ModernRequest("2", "tools/call", edgetest.CallParams(name, arguments), edgetest.Meta())
				}
				for _, row := range []struct {
					arguments string
					params    []string
					says      string // of the refusal; "" for none
				}{
					{`{"region":"eu"}`, []string{"Region", "us"}, "header Mcp-Param-Region does not match the body"},
					{`{"region":"eu"}`, nil, "header Mcp-Param-Region is missing"},
					{`{"region":null}`, []string{"Region", "eu"}, "header Mcp-Param-Region does not match the body"},
					{`{}`, []string{"Region", "eu"}, "header Mcp-Param-Region does not match the body"},
					{`{"region":["eu"]}`, []string{"Region", "eu"}, "header Mcp-Param-Region does not match the body"},
					{`{"n":9007199254740993}`, []string{"N", "9007199254740992"}, "header Mcp-Param-N does not match the body"},
					{`{"n":5}`, []string{"N", "0x5"}, "header Mcp-Param-N does not match the body"},
					{`{"region":"eu","n":5}`, []string{"Region", "=?base64?ZXU=?=", "N", "5.0", "Other", "x"}, ""},
					{`{"region":null}`, nil, ""},
				} {
					body, head := call(row.arguments)
					for i := 0; i < len(row.params); i += 2 {
						head = append(head, "Mcp-Param-"+row.params[i], row.params[i+1])
					}
					before := back.Count("tools/call")
					r := c.Post(body, head...)
					if row.says == "" {
						if r.Status != 200 || back.Count("tools/call") != before+1 {
							t.Errorf("%s, %s, %q: status %d: %s", name, row.arguments, row.params, r.Status, r.Answer())
						}
						continue
					}
					if m := fails(t, r, 400, -32020, "2"); m.Error.Message != row.says || back.Count("tools/call") != before {
						t.Errorf("%s, %s, %q: %s", name, row.arguments, row.params, m.Error.Message)
					}
				}

				// One name on two lines, in any spelling, and also one that no tool wants.
				for _, twice := range []string{"Mcp-Param-Region: eu\r\nmcp-param-REGION: us\r\n", "Mcp-Param-Region: eu\r\nMcp-Param-Other: 1\r\nMcp-Param-Other: 1\r\n"} {
					before := back.Count("tools/call")
					body, head := call(`{"region":"eu"}`)
					for i := 0; i < len(head); i += 2 {
						twice += head[i] + ": " + head[i+1] + "\r\n"
					}
					raw := e.Dial()
					raw.Write("POST /mcp HTTP/1.1\r\nHost: " + e.Addr() + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" + twice + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body)
					if h, text := raw.Read(); h.StatusCode != 400 || !strings.Contains(text, "-32020") || !strings.Contains(text, "is there twice") || back.Count("tools/call") != before {
						t.Errorf("%q: status %d: %s", twice, h.StatusCode, text)
					}
				}
			}
		})
	}
}

// A batch is refused by the revisions that have none; in the older ones each
// message in it is judged by itself.
func TestM07(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	batch := `[` + echo + `,{"jsonrpc":"2.0","id":2,"method":"server/discover"},` + strings.Replace(echo, `"id":1`, `"id":3`, 1) + `]`
	for _, version := range []string{"2025-06-18", "2025-11-25"} {
		s := f.client.InitializeAs(version, "")
		fails(t, s.Send(batch), 400, -32600, "")
	}
	fails(t, f.client.Post(batch, "MCP-Protocol-Version", edgetest.ModernVersion), 400, -32600, "")
	if n := f.back.Count("tools/call"); n != 0 {
		t.Errorf("%d calls reached the backend", n)
	}
	var answers []edgetest.Message
	r := f.client.InitializeAs("2025-03-26", "").Send(batch)
	if err := json.Unmarshal(r.Answer(), &answers); err != nil || len(answers) != 3 {
		t.Fatalf("%v: %s", err, r.Body)
	}
	if answers[0].Error != nil || answers[1].Error == nil || answers[2].Error != nil || f.back.Count("server/discover") > 1 || f.back.Count("tools/call") != 2 {
		t.Errorf("%s", r.Body)
	}
}

// Two clients that use the same ids at the same time get their own answers.
func TestM08(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, edgetest.Legacy)
			clients := []caller{f.callerOf(t, era, ""), f.callerOf(t, era, "")}
			var all sync.WaitGroup
			for n, c := range clients {
				all.Go(func() {
					for i := range 1000 {
						mine := fmt.Sprintf(`{"client":%d,"i":%d}`, n, i)
						r, err := c.try("7", "tools/call", edgetest.CallParams("echo", mine))
						if err != nil {
							t.Error(err)
							return
						}
						text, err := r.TryAnswer()
						if err != nil || edgetest.Member(string(text), "id") != "7" || !strings.Contains(string(text), quote(mine)) {
							t.Errorf("client %d got %s, %v", n, text, err)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// An id is answered as it was written, or refused.
func TestM09(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	with := func(id string) string { return strings.Replace(echo, `"id":1`, `"id":`+id, 1) }
	for _, id := range []string{`null`, `1.5`, `1e400`, `1e2`, `true`, `{}`, `[1]`, `"` + strings.Repeat("x", 1<<20) + `"`, `-`, `1,"id":2`, `1,"ID":2`} {
		w.malformed(t, id[:min(len(id), 20)], with(id), -32600, -32700)
	}
	for _, id := range []string{`0`, `-1`, `9007199254740993`, `""`, `"\u0061\"\\"`, `"é"`, `"null"`} {
		got := w.send(t, w.framed("", with(id)))
		if len(got) != 1 || got[0].status != 200 || !strings.Contains(got[0].body, `"id":`+id+`,`) {
			t.Errorf("%s: %+v", id, got)
		}
	}
}

// A session is found by its id alone, to the byte; without one there is none,
// though there be only one.
func TestSessionIDs(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	good := w.framed("", echo)
	swap := func(id string) string {
		return strings.Replace(good, "Mcp-Session-Id: "+w.session.ID, "Mcp-Session-Id: "+id, 1)
	}
	t.Run("M12", func(t *testing.T) {
		id := w.session.ID
		if len(id) < 22 { // 128 bits in base64
			t.Errorf("an id of %d bytes", len(id))
		}
		seen := map[string]bool{}
		for range 200 {
			seen[w.client.Initialize("").ID] = true
		}
		if len(seen) != 200 {
			t.Errorf("%d ids of 200", len(seen))
		}
		back := w.back.Sessions()
		w.tap.forget()
		for _, c := range []struct {
			id     string
			status []int
		}{
			{"../" + id, []int{404}}, {"*", []int{404}}, {id[:8] + "*", []int{404}}, {strings.ToUpper(id), []int{404}}, {id + "A", []int{404}}, {id[:len(id)-1], []int{404}},
			{id + "," + id, []int{404}}, {back[len(back)-1].ID, []int{404}}, {"\x00", []int{400}}, {id + "\x00", []int{400}}, {strings.Repeat("x", 8<<10), []int{404}}, {strings.Repeat("x", 64<<10), []int{431}}, {"", []int{400, 404}},
		} {
			got := w.send(t, swap(c.id))
			ok := false
			for _, s := range c.status {
				ok = ok || len(got) == 1 && got[0].status == s
			}
			if !ok {
				t.Errorf("%.80q: %.300s, want %v", c.id, fmt.Sprint(got), c.status)
			}
		}
		for i := range 2000 {
			if r := w.client.Post(ping, "Mcp-Session-Id", fmt.Sprintf("%022d", i)); r.Status != 404 {
				t.Fatalf("guess %d: status %d", i, r.Status)
			}
		}
	})
	t.Run("M13", func(t *testing.T) {
		got := w.send(t, strings.Replace(good, "Mcp-Session-Id: "+w.session.ID+"\r\n", "", 1))
		if len(got) != 1 || got[0].status != 400 {
			t.Errorf("%+v", got)
		}
	})
	if n := len(w.tap.requests(t)); n != 0 {
		t.Errorf("the backend got %d requests", n)
	}
}

// Sessions that nobody ends are bounded in number and in age.
func TestM15(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.MaxSessions, s.SessionTTL = 500, time.Hour }))
	refused := 0
	for range 2000 {
		if r := f.client.Post(handshake); r.Status != 200 {
			refused++
		}
		if n := f.Serve.Sessions(); n > 500 {
			t.Fatalf("%d sessions", n)
		}
	}
	t.Logf("%d of 2000 were refused", refused)
	f.Serve.Beat(time.Now().Add(2 * time.Hour))
	edgetest.Until(t, "the end of the sessions", func() bool { return f.Serve.Sessions() == 0 })
	if r := f.client.Post(handshake); r.Status != 200 {
		t.Errorf("afterwards: status %d", r.Status)
	}
}

// What is on a stream besides the answer does not become part of it, and what
// cannot be read ends it.
func TestM17(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	f.back.Once("tools/list", func(c *edgetest.Call) {
		c.Notify("notifications/tools/list_changed", "")
		c.Event(`{"jsonrpc":"2.0","id":` + c.ID() + `,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[]}}`)
	})
	if got := edgetest.Member(f.client.Modern("1", "tools/list", "").Result(), "tools"); got != "[]" {
		t.Errorf("tools %s", got)
	}
	f.back.Once("tools/list", func(c *edgetest.Call) {
		c.Raw("data: unfiltered\n\n")
		c.Event(`{"jsonrpc":"2.0","id":` + c.ID() + `,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[]}}`)
	})
	if text := string(fails(t, f.client.Modern("1", "tools/list", ""), 502, 502, "1").Error.Message); strings.Contains(text, "unfiltered") {
		t.Error(text)
	}
}

// An event is read as the rules for server-sent events say, however it is cut
// into lines; one above the limit is a fault of the backend.
func TestM18(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern, edgetest.Settings(func(s *serve.Settings) { s.MaxMessage = 4 << 20 }))
	const result = `{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[]}`
	for name, write := range map[string]func(id string) string{
		"several data lines": func(id string) string {
			return "data: {\"jsonrpc\":\"2.0\",\ndata:\"id\":" + id + ",\ndata: \"result\":\ndata: " + result + "}\n\n"
		},
		"CRLF": func(id string) string {
			return "data: {\"jsonrpc\":\"2.0\",\"id\":" + id + ",\r\ndata: \"result\":" + result + "}\r\n\r\n"
		},
		"CR": func(id string) string {
			return "data: {\"jsonrpc\":\"2.0\",\"id\":" + id + ",\rdata: \"result\":" + result + "}\r\r"
		},
		"all mixed": func(id string) string {
			return ":x\r\nevent: message\rdata: {\"jsonrpc\":\"2.0\",\"id\":" + id + ",\ndata: \"result\":" + result + "}\r\n\n"
		},
		"BOM": func(id string) string {
			return "\xef\xbb\xbfdata: {\"jsonrpc\":\"2.0\",\"id\":" + id + ",\"result\":" + result + "}\n\n"
		},
		"NUL in id": func(id string) string {
			return "id: a\x00b\ndata: {\"jsonrpc\":\"2.0\",\"id\":" + id + ",\"result\":" + result + "}\n\n"
		},
		"odd fields": func(id string) string {
			return "retry: x\nfoo\ndata: {\"jsonrpc\":\"2.0\",\"id\":" + id + ",\"result\":" + result + "}\n\n"
		},
	} {
		f.back.Once("tools/list", func(c *edgetest.Call) { c.Raw(write(c.ID())) })
		t.Run(name, func(t *testing.T) {
			if got := edgetest.Member(f.client.Modern("1", "tools/list", "").Result(), "tools"); got != "[]" {
				t.Errorf("tools %s", got)
			}
		})
	}
	t.Run("too large", func(t *testing.T) {
		f.back.Once("tools/list", func(c *edgetest.Call) {
			c.Raw("data: {\"jsonrpc\":\"2.0\",\"id\":" + c.ID() + ",\"result\":{\"x\":\"" + strings.Repeat("x", 5<<20) + "\"}}\n\n")
		})
		fails(t, f.client.Modern("1", "tools/list", ""), 502, 502, "1")
	})
}

// The server of the older transport says where to post, at its own address.
func TestM19(t *testing.T) {
	t.Parallel()
	thief := edgetest.NewServer(t, edgetest.Modern)
	back := edgetest.NewServer(t, edgetest.SSE)
	back.Always("GET", func(c *edgetest.Call) {
		c.Raw("event: endpoint\ndata: http://" + thief.Addr() + "/messages\n\n")
		c.Wait(nil)
	})
	e := edgetest.Start(t, edgetest.ManifestFor(back.URL, compile.SSE))
	fails(t, e.NewClient().Modern("1", "tools/list", ""), 502, 502, "1")
	if n := thief.Count(""); n != 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}

// A modern client that closes its stream ends what the backend does for it.
func TestM20(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	entered, gone := make(chan struct{}, 1), make(chan time.Time, 1)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		entered <- struct{}{}
		if !c.Wait(nil) {
			gone <- time.Now()
		}
	})
	r := f.client.Modern("1", "tools/call", edgetest.CallParams("echo", "{}"), `"progressToken":1`)
	edgetest.Receive(t, entered, "the call")
	r.Next()
	left := time.Now()
	r.Close()
	if took := edgetest.Receive(t, gone, "the end of the backend's request").Sub(left); took > 5*time.Second {
		t.Errorf("it ended %s after the client", took)
	}
	edgetest.Until(t, "the end of the exchange", func() bool { return f.Serve.Underway() == 0 })
}

// A modern server asks nobody on a stream.
func TestM21(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Event(`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}`)
		c.Result(`{"resultType":"complete","content":[]}`)
	})
	r := f.client.Modern("1", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Capabilities(`{"sampling":{}}`))
	if text := string(r.Answer()); strings.Contains(text, "sampling") || edgetest.Member(text, "result") == "" {
		t.Errorf("%s", text)
	}
	if !strings.Contains(f.Log(), "sampling/createMessage") {
		t.Error("the log says nothing of it")
	}
}

// The events of a session's stream are nobody else's, whoever knows their ids.
func TestM22(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		c.Result(`{"content":[],"secret":1}`)
	})
	a, b := f.callerOf(t, edgetest.Legacy, ""), f.callerOf(t, edgetest.Legacy, "")
	first := a.call(t, "1", "{}", `"progressToken":1`).Next()
	if first.ID == "" {
		t.Fatalf("no id: %+v", first)
	}
	for _, id := range []string{first.ID, first.ID + "0", "*", "../" + first.ID} {
		if r := resumed(b, id); r.Stream() || r.Status < 400 || strings.Contains(string(r.Body), "secret") {
			t.Errorf("%q: status %d: %s", id, r.Status, r.Body)
		}
	}
	e, err := resumed(a, first.ID).TryNext()
	if err != nil && err != io.EOF || !strings.Contains(string(e.Data), "secret") {
		t.Errorf("its own client gets %s, %v", e.Data, err)
	}
}

// A requestState that was altered, belongs to another call or is too old leads
// nowhere, and the call itself waits on.
func TestM23(t *testing.T) {
	t.Parallel()
	sealer, err := serve.NewSealer()
	if err != nil {
		t.Fatal(err)
	}
	f, c := asking(t, func(c *edgetest.Call) {
		c.Ask("1", "roots/list", "")
		c.Result(`{"content":[]}`)
	})
	r := f.begin(t, c, `{"n":1}`)
	yes := `{"` + r.key(t) + `":{"roots":[]}}`
	for i := range len(r.RequestState) {
		if i%7 != 0 {
			continue
		}
		altered := []byte(r.RequestState)
		altered[i] ^= 1
		fails(t, retry(c, "2", `{"n":1}`, yes, string(altered)), 400, -32602, "2")
	}
	forged := sealer.Seal(route.State{Call: "1", Backend: "back", Expires: time.Now().Add(time.Hour).Unix()})
	fails(t, retry(c, "2", `{"n":1}`, yes, forged), 400, -32602, "2")
	if r := retry(c, "3", `{"n":1}`, yes, r.RequestState); r.Message().Error != nil {
		t.Errorf("%s", r.Answer())
	}
	old := sealer.Seal(route.State{Call: "1", Expires: time.Now().Add(-2 * time.Second).Unix()})
	if v, ok := sealer.Open(old); ok {
		t.Errorf("an old state opens: %+v", v)
	}
}

// No client is sent to a page that is no web page, in any era.
func TestM27(t *testing.T) {
	t.Parallel()
	const can = `{"elicitation":{"form":{},"url":{}}}`
	for _, page := range []string{"javascript:alert(1)", "JavaScript:alert(1)", "file:///etc/passwd", "data:text/html,x", "vscode://x", "//evil.example", "", "http:", " javascript:x"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			params := `{"mode":"url","message":"m","elicitationId":"e","url":` + quote(page) + `}`
			told := make(chan edgetest.Message, 2)
			legacy := newFront(t, edgetest.Legacy)
			legacy.back.Always("tools/call", func(c *edgetest.Call) {
				told <- c.Ask(`"q"`, "elicitation/create", params)
				c.Result(`{"content":[]}`)
			})
			modern := newFront(t, edgetest.Modern)
			modern.back.Always("tools/call", func(c *edgetest.Call) {
				c.Result(`{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":` + params + `}},"requestState":"s"}`)
			})
			for _, f := range []*front{legacy, modern} {
				for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
					text := string(f.callerOf(t, era, can).call(t, "1", "{}", edgetest.Capabilities(can)).Answer())
					if strings.Contains(text, "elicitation/create") || page != "" && strings.Contains(text, page) {
						t.Errorf("%s before %s: %s", era, f.back.Era, text)
					}
				}
			}
			legacy.back.Always("tools/call", func(c *edgetest.Call) {
				c.JSON(200, `{"jsonrpc":"2.0","id":`+c.ID()+`,"error":{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","message":"m","elicitationId":"d","url":"https://example.com/"},`+params+`]}}}`)
			})
			modern.back.Always("tasks/get", func(c *edgetest.Call) {
				c.Result(`{"resultType":"complete","taskId":"t","status":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":` + params + `}}}`)
			})
			for _, text := range []string{
				string(legacy.callerOf(t, edgetest.Legacy, can).call(t, "1", "{}").Answer()),
				string(legacy.callerOf(t, edgetest.Modern, can).call(t, "1", "{}", edgetest.Capabilities(can)).Answer()),
				string(modern.callerOf(t, edgetest.Modern, can).request(t, "1", "tasks/get", `{"taskId":"t"}`, edgetest.Capabilities(can)).Answer()),
			} {
				if strings.Contains(text, "elicitation") || !strings.Contains(text, "502") {
					t.Error(text)
				}
			}
			modern.back.Always("subscriptions/listen", func(c *edgetest.Call) {
				of := `"_meta":{"io.modelcontextprotocol/subscriptionId":` + c.ID() + `}`
				c.Notify("notifications/subscriptions/acknowledged", `{`+of+`,"notifications":{"taskIds":["t"]}}`)
				c.Notify("notifications/tasks", `{`+of+`,"taskId":"t","status":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":`+params+`}}}`)
				c.Notify("notifications/tasks", `{`+of+`,"taskId":"t","status":"working"}`)
				c.Result(`{"resultType":"complete",` + of + `}`)
			})
			heard := ""
			for _, e := range modern.callerOf(t, edgetest.Modern, can).request(t, "2", "subscriptions/listen", `{"notifications":{"taskIds":["t"]}}`, edgetest.Capabilities(can)).Rest() {
				heard += string(e.Data)
			}
			if strings.Contains(heard, "elicitation") || !strings.Contains(heard, "working") {
				t.Error(heard)
			}
			for range 2 {
				if m := edgetest.Receive(t, told, "the edge's answer"); m.Error == nil && edgetest.Member(string(m.Result), "action") == `"accept"` {
					t.Errorf("the server was told %+v", m)
				}
			}
		})
	}
}
