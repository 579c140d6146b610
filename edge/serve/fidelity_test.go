package serve_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/source"
)

// odd is JSON that a decoder and an encoder would not give back as it was.
const odd = `{ "z":1 ,"a":12345678901234567890,
	"neg":-9007199254740993,"float":1.10,"exp":1E+2, "small":0.1e-7,"text":"\u00e9é\/\ud83d\ude00😀","empty":{ },"list":[ ,1 , [ ] ],
	"A":"another","":"no name","nested":{"b":{"a":null},"a":[true ,false]} }`

// oddJSON is odd with valid lists.
var oddJSON = strings.ReplaceAll(odd, "[ ,1", "[ 0 ,1")

// oddResult is a result with what no revision defines, within what it does.
var oddResult = `{"content" : [ {"type":"hologram","data":{"depth":9007199254740993}}, {"type":"text","text":"a\u0000b","annotations":{"x":1}} ],
	"unknown":` + oddJSON + `,"isError":false,"_meta":{"vendor.example/key":` + oddJSON + `,"plain":1},"structuredContent":{"n":18446744073709551616,"m":1.0}}`

// large returns JSON of at least a mebibyte, deeply nested.
func large() string {
	var b strings.Builder
	b.WriteString(`{"deep":` + strings.Repeat(`[{"x":`, 400) + `1` + strings.Repeat(`}]`, 400) + `,"wide":[`)
	for i := 0; b.Len() < 1<<20; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":%d, "name":"item \u00e9 %d","tags":["a","b",{"c":[]}],"score":%d.50}`, i, i, i)
	}
	b.WriteString(`]}`)
	return b.String()
}

// Within an era nothing changes: the backend reads the bytes that the client
// wrote, and the client those that the backend wrote.
func TestBytesWithinAnEra(t *testing.T) {
	t.Parallel()
	big := large()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		for _, c2 := range []struct{ name, arguments, result string }{
			{"odd", oddJSON, oddResult},
			{"a mebibyte", big, `{"content":[],"structuredContent":` + big + `}`},
			{"an empty object", `{}`, `{}`},
			{"a number", `{"a":1}`, `12345678901234567890.000`},
			{"an array", `{"a":1}`, `[1 , 2]`},
		} {
			t.Run(era.String()+", "+c2.name, func(t *testing.T) {
				t.Parallel()
				f := newFront(t, era)
				c := f.callerOf(t, era, "")
				body, head := c.message(`"id\u0041é"`, "tools/call", edgetest.CallParams("echo", c2.arguments), `"vendor":`+oddJSON)
				body = "\r\n\t " + strings.Replace(body, `"jsonrpc":"2.0",`, `"extra":[1.0], "jsonrpc" : "2.0" , `, 1) + " \n"
				answer := " {\n \"result\" : " + c2.result + ",\t\"id\": \"id\\u0041é\", \"jsonrpc\":\"2.0\", \"more\":1.0 }\r\n"
				failure := `{"jsonrpc":"2.0", "error":{"data":` + oddJSON + `, "code":-32099,"message":"n\u00e9", "x":1} ,"id":"id\u0041é"}`

				f.back.Once("tools/call", func(c *edgetest.Call) { c.JSON(200, answer) })
				r := c.Post(body, head...)
				if r.Status != 200 || string(r.Body) != answer {
					t.Errorf("status %d: the answer is\n%s\nwant\n%s", r.Status, clip(string(r.Body)), clip(answer))
				}
				if got := f.back.Requests("tools/call")[0].Body; string(got) != body {
					t.Errorf("the backend read\n%s\nwant\n%s", clip(string(got)), clip(body))
				}

				f.back.Once("tools/call", func(c *edgetest.Call) { c.JSON(200, failure) })
				if r := c.Post(body, head...); string(r.Body) != failure {
					t.Errorf("status %d: the error is\n%s\nwant\n%s", r.Status, clip(string(r.Body)), clip(failure))
				}

				// As events: line ends within the data are LF then, as the standard has it.
				event := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(answer)
				frame := func(text, end string) string {
					var b strings.Builder
					for line := range strings.SplitSeq(text, "\n") {
						b.WriteString("data: " + line + end)
					}
					return b.String() + end
				}
				framings := []struct{ name, text string }{
					{"LF", "event: message\n" + frame(event, "\n")},
					{"CRLF", "\ufeff: a comment\r\nid: 7\r\nretry: 10\r\n" + frame(event, "\r\n")},
					{"CR", frame(event, "\r") + "\n"},
					{"no space", strings.ReplaceAll(frame(event, "\n"), "data: ", "data:")},
					{"an event without data before", "id: 1\n\n" + frame(event, "\n")},
				}
				if len(event) > 1<<20 {
					framings = framings[:1]
				}
				for _, framing := range framings {
					text := event
					if framing.name == "no space" {
						text = strings.ReplaceAll(event, "\n ", "\n") // the space that a reader takes off
						text = strings.TrimPrefix(text, " ")
					}
					f.back.Once("tools/call", func(c *edgetest.Call) { c.Raw(framing.text) })
					if r := c.Post(body, head...); r.Stream() || string(r.Body) != text {
						t.Errorf("%s: status %d:\n%q\nwant\n%q", framing.name, r.Status, clip(string(r.Body)), clip(text))
					}
					// After a notification the client's own answer is a stream.
					f.back.Once("tools/call", func(c *edgetest.Call) {
						c.Raw("data: {\"jsonrpc\":\"2.0\", \"method\":\"notifications/x\",\"params\":{\"n\":1.0}}\n\n" + framing.text)
					})
					all := c.Post(body, head...).Rest()
					if len(all) != 2 || string(all[0].Data) != `{"jsonrpc":"2.0", "method":"notifications/x","params":{"n":1.0}}` || string(all[1].Data) != text {
						t.Errorf("%s: %d events: %q", framing.name, len(all), clip(fmt.Sprint(all)))
					}
				}
			})
		}
	}
}

// What comes before the answer keeps its bytes as well.
func TestNotificationsWithinAnEra(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		f := newFront(t, era)
		c := f.callerOf(t, era, "")
		progress := `{"params":{"progress":1.50, "progressToken":"tok\u0041","vendor":` + strings.Join(strings.Fields(oddJSON), " ") + `}, "jsonrpc":"2.0","method":"notifications/progress"}`
		f.back.Always("tools/call", func(c *edgetest.Call) { c.Whole(progress, `{"jsonrpc":"2.0","id":1,"result":{}}`) })
		all := c.call(t, "1", "{}", `"progressToken":"tokA"`).Rest()
		if len(all) != 2 || string(all[0].Data) != progress {
			t.Errorf("%s: %q\nwant %q", era, all, progress)
		}
	}
}

// Across the eras only that differs which the revisions define differently.
func TestBytesAcrossEras(t *testing.T) {
	t.Parallel()
	big := large()
	for _, arguments := range []string{oddJSON, big} {
		for _, asEvent := range []bool{false, true} {
			name := fmt.Sprintf(", %d bytes, event %t", len(arguments), asEvent)
			send := func(c *edgetest.Call, result string) {
				text := `{"jsonrpc":"2.0","id":` + c.ID() + `, "result":` + result + `}`
				if asEvent {
					c.Whole(strings.ReplaceAll(text, "\n", " "))
				} else {
					c.JSON(200, text)
				}
			}
			line := func(s string) string {
				if asEvent {
					return strings.ReplaceAll(s, "\n", " ")
				}
				return s
			}
			result := oddResult
			if arguments == big {
				result = `{"content":[],"structuredContent":` + big + `}`
			}
			params := `{"x":[1.0], "name":"echo" ,"arguments":` + arguments + `,"y":{}}`

			t.Run("legacy client"+name, func(t *testing.T) {
				t.Parallel()
				f := newFront(t, edgetest.Modern)
				c := f.callerOf(t, edgetest.Legacy, `{"roots":{"listChanged":true},"experimental":{"a":1}}`)
				f.back.Always("tools/call", func(c *edgetest.Call) {
					send(c, `{"resultType":"complete",`+result[1:])
				})
				got := c.request(t, "1", "tools/call", params).Result()
				same(t, "result", members(t, got), members(t, line(result)))
				f.back.Always("tools/call", func(c *edgetest.Call) {
					meta := `{"io.modelcontextprotocol/serverInfo":{"name":"x"},`
					if !strings.Contains(result, `"_meta":{`) {
						send(c, result[:len(result)-1]+`,"_meta":`+meta[:len(meta)-1]+`},"resultType":"complete"}`)
						return
					}
					send(c, strings.Replace(result, `"_meta":{`, `"resultType":"complete","_meta":`+meta, 1))
				})
				got = c.request(t, "1", "tools/call", params).Result()
				same(t, "result with serverInfo", members(t, got), members(t, line(result)))

				sent := members(t, string(f.back.Requests("tools/call")[0].Message.Params))
				same(t, "params", without(sent, "_meta"), members(t, params))
				meta := members(t, sent[0].value)
				if sent[0].name != "_meta" || len(without(meta, "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities", "io.modelcontextprotocol/clientInfo", edgetest.LogLevel)) != 0 {
					t.Errorf("_meta %s", sent[0].value)
				}
				if got := edgetest.Member(sent[0].value, "io.modelcontextprotocol/clientCapabilities"); got != `{"roots":{"listChanged":true}}` {
					t.Errorf("capabilities %s", got)
				}
				if got := edgetest.Member(sent[0].value, edgetest.LogLevel); got != `"info"` {
					t.Errorf("log level %s", got)
				}
				if got := edgetest.Member(sent[0].value, "io.modelcontextprotocol/clientInfo"); got != `{"name":"edgetest","version":"1"}` {
					t.Errorf("clientInfo %s", got)
				}
				f.back.Forget()
				c.request(t, "2", "tools/call", params, `"vendor/key":`+oddJSON, `"progressToken":"t"`)
				sent = members(t, edgetest.Member(string(f.back.Requests("tools/call")[0].Message.Params), "_meta"))
				same(t, "_meta", without(sent, "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities", "io.modelcontextprotocol/clientInfo", edgetest.LogLevel),
					[]member{{"vendor/key", oddJSON}, {"progressToken", `"t"`}})
			})

			t.Run("modern client"+name, func(t *testing.T) {
				t.Parallel()
				f := newFront(t, edgetest.Legacy)
				c := f.callerOf(t, edgetest.Modern, "")
				f.back.Always("tools/call", func(c *edgetest.Call) { send(c, result) })
				got := members(t, c.request(t, "1", "tools/call", params, `"vendor/key":`+oddJSON).Result())
				same(t, "result", without(got, "resultType"), members(t, line(result)))
				if got[0] != (member{"resultType", `"complete"`}) {
					t.Errorf("first %+v", got[0])
				}
				sent := members(t, string(f.back.Requests("tools/call")[0].Message.Params))
				same(t, "params", without(sent, "_meta"), members(t, params))
				same(t, "_meta", members(t, sent[len(sent)-1].value), []member{{"vendor/key", oddJSON}})
			})
		}
	}
}

// Nothing of the client's HTTP request reaches the backend but what belongs to
// the protocol: no credential, no cookie, no header of its own making.
func TestHeadersOfTheClientStay(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		f := newFront(t, era)
		c := f.callerOf(t, era, "")
		body, head := c.message("1", "tools/call", edgetest.CallParams("echo", "{}"))
		c.Post(body, append(head, "Authorization", "Bearer secret", "Cookie", "a=b", "Proxy-Authorization", "Basic x", "X-Forwarded-For", "1.2.3.4",
			"X-Own", "y", "Accept-Language", "de", "User-Agent", "agent/1")...)
		got := f.back.Requests("tools/call")[0].Header
		want := map[string]bool{"Accept": true, "Content-Type": true, "Content-Length": true, "User-Agent": true, "Mcp-Protocol-Version": true}
		if era == edgetest.Modern {
			want["Mcp-Method"], want["Mcp-Name"] = true, true
		} else {
			want["Mcp-Session-Id"] = true
		}
		for name := range got {
			if !want[name] {
				t.Errorf("%s: header %s: %q reached the backend", era, name, got[name])
			}
			delete(want, name)
		}
		if len(want) > 0 || got.Get("User-Agent") != "weir/devel" || got.Get("Accept") != "application/json, text/event-stream" {
			t.Errorf("%s: %v; missing %v", era, got, want)
		}
		if got.Get("Mcp-Session-Id") != "" && got.Get("Mcp-Session-Id") == c.session.ID {
			t.Error("the client's session id reached the backend")
		}
	}
}

// What the manifest forwards of a client's header goes with all that its session with a backend
// carries, from the opening to the end, and with nothing of a session that several share.
func TestForwardedHeadersOfASession(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, era)
			e := edgetest.Start(t, edgetest.Manifest(back, "passthroughHeaders: [X-Tenant]"))
			back.Await("notifications/initialized", 1)
			back.Forget()
			c := e.NewClient()
			c.Header.Set("X-Tenant", "blue")
			s := c.Initialize(`{"roots":{"listChanged":true},"sampling":{}}`)
			stream := s.Listen() // which opens the session at the backend, before any call
			defer stream.Close()
			back.Await("notifications/initialized", 1)
			if era == edgetest.Legacy {
				back.Await("GET", 1)
			}
			s.Notify("notifications/roots/list_changed", "")
			back.Await("notifications/roots/list_changed", 1)
			want := []string{"initialize", "notifications/initialized", "tools/call", "notifications/roots/list_changed", "notifications/cancelled"}
			entered := make(chan struct{}, 1)
			back.Once("tools/call", func(c *edgetest.Call) {
				c.Progress(1)
				entered <- struct{}{}
				c.Wait(nil)
			})
			r := s.Request("2", "tools/call", `{"name":"echo","arguments":{},"_meta":{"progressToken":1}}`)
			edgetest.Receive(t, entered, "the call")
			s.Notify("notifications/cancelled", `{"requestId":2}`)
			r.Rest()
			back.Await("notifications/cancelled", 1)
			if era == edgetest.Legacy {
				back.Once("tools/call", func(c *edgetest.Call) {
					c.Ask("7", "sampling/createMessage", `{"messages":[],"maxTokens":1}`)
					c.Result(`{"content":[]}`)
				})
				r := s.Call("1", "echo", "{}")
				s.Reply(r.NextMessage().ID, `{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}`)
				r.Rest()
				back.Once("tools/call", func(c *edgetest.Call) { c.Raw("id: 1\nretry: 10\ndata: \n\n") })
				back.Once("GET", func(c *edgetest.Call) {
					id := string(back.Requests("tools/call")[2].Message.ID)
					c.Raw("data: {\"jsonrpc\":\"2.0\",\"id\":" + id + ",\"result\":{\"content\":[]}}\n\n")
				})
				s.Call("3", "echo", "{}").Result()
				if n := back.Count("GET"); n != 2 {
					t.Errorf("%d times GET", n)
				}
				s.Delete()
				back.Await("DELETE", 1)
				want = append(want, "response", "GET", "DELETE")
			}
			for _, kind := range want {
				if back.Count(kind) == 0 {
					t.Errorf("no %s", kind)
				}
			}
			for _, r := range back.Requests("") {
				if got := r.Header.Get("X-Tenant"); got != "blue" && r.Kind != "ping" { // by which the edge looks after it
					t.Errorf("%s: X-Tenant %q", r.Kind, got)
				}
			}

			// What comes last holds, and what no longer comes is no longer sent.
			for _, tenant := range []string{"green", ""} {
				c := e.NewClient()
				c.Header.Set("X-Tenant", "blue")
				s := c.Initialize("")
				s.Call("1", "echo", "{}").Result()
				if c.Header.Set("X-Tenant", tenant); tenant == "" {
					c.Header.Del("X-Tenant")
				}
				s.Call("2", "echo", "{}").Result()
				back.Forget()
				s.Notify("notifications/roots/list_changed", "")
				if got := back.Await("notifications/roots/list_changed", 1).Header.Get("X-Tenant"); got != tenant {
					t.Errorf("X-Tenant %q, want %q", got, tenant)
				}
			}

			// Modern clients share a session.
			back.Forget()
			c.Modern("1", "tools/call", edgetest.CallParams("echo", "{}"), `"`+edgetest.LogLevel+`":"info"`).Result()
			if back.Count("initialize") != 1 || back.Count("tools/call") != 1 {
				t.Errorf("%d sessions, %d calls", back.Count("initialize"), back.Count("tools/call"))
			}
			for _, r := range back.Requests("") {
				if got := r.Header.Get("X-Tenant"); (got != "") != (r.Kind == "tools/call") {
					t.Errorf("%s in a session of several: X-Tenant %q", r.Kind, got)
				}
			}
		})
	}
}

// A filter that keeps a header of clients from a backend keeps it from the session there, too, that is
// opened for a stream, of which filters are not asked.
func TestForwardedHeadersThatAFilterKeeps(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	manifest := `apiVersion: weir.dev/v1beta1
kind: EdgeFilter
metadata: {name: keeps}
spec:
  type: starlark
  source:
    inline: |
      def on_upstream_request(c):
          return del_header("x-tenant")
` + strings.Replace(edgetest.Object("edgetest", back), "  config:\n", "  passthroughHeaders: [X-Tenant]\n  filterRefs: [{name: keeps}]\n  config:\n", 1)
	opened := source.OpenWith(write(t, filepath.Join(t.TempDir(), "weir.yaml"), manifest))
	if opened.Err() != nil {
		t.Fatal(opened.Findings)
	}
	e := edgetest.StartPlan(t, opened.Plan, engine())
	back.Await("notifications/initialized", 1)
	back.Forget()
	c := e.NewClient()
	c.Header.Set("X-Tenant", "blue")
	s := c.Initialize("")
	stream := s.Listen()
	defer stream.Close()
	back.Await("GET", 1)
	s.Call("1", "echo", "{}").Result()
	for _, r := range back.Requests("") {
		if got := r.Header.Get("X-Tenant"); got != "" {
			t.Errorf("%s: X-Tenant %q", r.Kind, got)
		}
	}
}

// Headers that mirror a tool's parameters go on as they are between modern
// client and backend.
func TestParameterHeadersPass(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", `{"region":"eu","city":"Zürich"}`), edgetest.Meta())
	f.client.Post(body, append(head, "Mcp-Param-Region", "eu", "Mcp-Param-City", "=?base64?WsO8cmljaA==?=")...)
	got := f.back.Requests("tools/call")[0].Header
	if got.Get("Mcp-Param-Region") != "eu" || got.Get("Mcp-Param-City") != "=?base64?WsO8cmljaA==?=" {
		t.Errorf("%v", got)
	}
}
