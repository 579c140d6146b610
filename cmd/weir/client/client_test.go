package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/edge/demo"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/oauth/login"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// net/http keeps a connection whose body it did not read for half a
		// second, so that the peer reads the answer before the reset.
		goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// dial connects with connections that end with the test.
func dial(t *testing.T, o Options) (*Client, error) {
	t.Helper()
	if o.HTTP == nil {
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		o.HTTP = &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	if o.Era == "" {
		o.Era = Auto
	}
	o.Name, o.Version = "test", "1"
	c, err := Connect(t.Context(), o)
	if err == nil {
		t.Cleanup(c.Close)
	}
	return c, err
}

func mustDial(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := dial(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func startDemo(t *testing.T) string {
	t.Helper()
	s, err := demo.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.URL()
}

// fake serves MCP by hand: each message goes to the handler of its method, and
// one without a handler gets the answer of a server that does not know it.
type fake map[string]func(w http.ResponseWriter, r *http.Request, m *mcp.Message)

func (f fake) start(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			if h := f[r.Method]; h != nil {
				h(w, r, nil)
				return
			}
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		m, err := mcp.Decode(body)
		if err != nil {
			t.Errorf("the client sent %s: %v", body, err)
			return
		}
		key := m.Method
		if m.Kind == mcp.Result || m.Kind == mcp.Failure {
			key = "answer"
		}
		switch h := f[key]; {
		case h != nil:
			h(w, r, m)
		case m.Kind == mcp.Notification:
			w.WriteHeader(http.StatusAccepted)
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write(mcp.AppendError(nil, m.IDText(), mcp.CodeMethodNotFound, "no such method", nil))
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/mcp"
}

// result answers with JSON text.
func result(text string) func(http.ResponseWriter, *http.Request, *mcp.Message) {
	return func(w http.ResponseWriter, _ *http.Request, m *mcp.Message) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(mcp.AppendResult(nil, m.IDText(), []byte(text)))
	}
}

// status answers with an HTTP status, a type and a body.
func status(code int, kind, body string, header ...string) func(http.ResponseWriter, *http.Request, *mcp.Message) {
	return func(w http.ResponseWriter, _ *http.Request, m *mcp.Message) {
		w.Header().Set("Content-Type", kind)
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, strings.ReplaceAll(body, "ID", string(m.IDText())))
	}
}

const (
	discovered  = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}`
	initialized = `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"f","version":"1"}}`
	noTools     = `{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}`
)

func TestCallsTheDemoInBothEras(t *testing.T) {
	url := startDemo(t)
	for era, want := range map[Era]mcp.Era{Auto: mcp.Modern, Modern: mcp.Modern, Legacy: mcp.Legacy} {
		t.Run(string(era), func(t *testing.T) {
			var told []string
			c := mustDial(t, Options{
				URL: url, Era: era,
				Notify: func(m *mcp.Message) { told = append(told, m.Method+" "+m.Text("message")) },
				Ask: func(_ context.Context, params []byte) ([]byte, error) {
					if got := mcp.String(mcp.Lookup(params, "message")); got != "What is your name?" {
						t.Errorf("asks %q", got)
					}
					return []byte(`{"action":"accept","content":{"name":"Ada"}}`), nil
				},
			})
			if c.Era() != want {
				t.Errorf("speaks the %s era, want %s", c.Era(), want)
			}
			pages, err := c.Tools(t.Context())
			if err != nil || len(pages) != 1 || len(mcp.Elements(mcp.Lookup(pages[0], "tools"))) != 5 {
				t.Errorf("tools are %s, %v", pages, err)
			}
			for _, call := range []struct{ tool, arguments, path, want string }{
				{"echo", `{"text":"hi"}`, "text", "hi"},
				{"countdown", `{"from":1}`, "text", "Lift-off!"},
				{"ask_name", `{}`, "text", "Hello, Ada!"},
			} {
				r, err := c.CallTool(t.Context(), call.tool, []byte(call.arguments))
				if err != nil {
					t.Fatal(err)
				}
				content := mcp.Elements(mcp.Lookup(r, "content"))
				if len(content) != 1 || mcp.String(mcp.Lookup(content[0], call.path)) != call.want {
					t.Errorf("%s answers %s, want %q", call.tool, r, call.want)
				}
			}
			if want := []string{"notifications/progress 1 …"}; !reflect.DeepEqual(told, want) {
				t.Errorf("was told %q, want %q", told, want)
			}
		})
	}
}

func TestResultsKeepTheirBytes(t *testing.T) {
	const odd = `{ "content" : [ {"type":"hologram","n":12345678901234567890123} ],"z":1.0,"a":"\u0041",
  "resultType":"complete"}`
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			var arguments string
			url := fake{
				"server/discover": result(discovered),
				"tools/list":      result(noTools),
				"tools/call": func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
					arguments = string(m.Get("arguments").Of(m.Raw))
					answer := mcp.AppendResult(nil, m.IDText(), []byte(odd))
					if stream {
						w.Header().Set("Content-Type", "text/event-stream")
						_, _ = w.Write(mcp.AppendEvent(nil, "", "", answer))
						return
					}
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write(answer)
				},
			}.start(t)
			r, err := mustDial(t, Options{URL: url}).CallTool(t.Context(), "x", []byte(`{"b": 1.50,  "a":98765432109876543210}`))
			if err != nil || string(r) != odd {
				t.Errorf("result %s, %v", r, err)
			}
			if want := `{"b": 1.50,  "a":98765432109876543210}`; arguments != want {
				t.Errorf("arguments arrived as %s, want %s", arguments, want)
			}
		})
	}
}

// Which answers to server/discover make a server a modern one (2026-07-28,
// versioning); every server here could be greeted in the legacy way.
func TestEraOfAServer(t *testing.T) {
	const fail = `{"jsonrpc":"2.0","id":ID,"error":{"code":%d,"message":"no"}}`
	for _, test := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request, *mcp.Message)
		want   string // an era, or a part of the error
	}{
		{"speaks it", result(discovered), "modern"},
		{"knows the method, not the revision", result(`{"supportedVersions":["2025-11-25","2025-06-18"]}`), "legacy"},
		{"method not found with 404", status(404, "application/json", fmt.Sprintf(fail, -32601)), "modern"},
		{"method not found with 200", status(200, "application/json", fmt.Sprintf(fail, -32601)), "legacy"},
		{"not initialized", status(400, "application/json", fmt.Sprintf(fail, -32000)), "legacy"},
		{"unsupported revision", status(400, "application/json", fmt.Sprintf(fail, -32022)), "legacy"},
		{"header mismatch", status(400, "application/json", fmt.Sprintf(fail, -32020)), "error -32020"},
		{"plain text", status(400, "text/plain", "no session"), "legacy"},
		{"page not found", status(404, "text/html", "<html>"), "legacy"},
		{"not allowed", status(405, "text/plain", ""), "legacy"},
		{"not implemented", status(501, "text/plain", ""), "legacy"},
		{"no token", status(401, "application/json", fmt.Sprintf(fail, -32000)), "--bearer-token-file"},
		{"out of order", status(500, "text/plain", "boom"), "the log of the server"},
		{"a page", status(200, "text/html", "<html>"), "no message of MCP"},
	} {
		t.Run(test.name, func(t *testing.T) {
			url := fake{"server/discover": test.answer, "initialize": result(initialized)}.start(t)
			c, err := dial(t, Options{URL: url})
			got := fmt.Sprint(err)
			if err == nil {
				got = c.Era().String()
			}
			if !strings.Contains(got, test.want) {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

func TestModernAskedForAndNotSpoken(t *testing.T) {
	url := fake{"server/discover": status(400, "text/plain", "no session"), "initialize": result(initialized)}.start(t)
	_, err := dial(t, Options{URL: url, Era: Modern})
	if want := url + ": does not speak 2026-07-28: it answered with status 400: leave --era away, or give --era legacy"; fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestHeadersOfAModernCall(t *testing.T) {
	var got http.Header
	url := fake{
		"server/discover": result(discovered),
		"tools/list": result(`{"resultType":"complete","tools":[{"name":"größe","inputSchema":{"type":"object","properties":{
			"region":{"type":"string","x-mcp-header":"Region"},
			"n":{"type":"integer","x-mcp-header":"N"},
			"on":{"type":"boolean","x-mcp-header":"On"},
			"none":{"type":"string","x-mcp-header":"None"},
			"null":{"type":"string","x-mcp-header":"Null"},
			"deep":{"type":"object","properties":{"er":{"type":"string","x-mcp-header":"Deeper"}}}}}}]}`),
		"tools/call": func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
			got = r.Header.Clone()
			result(`{"content":[]}`)(w, r, m)
		},
	}.start(t)
	c := mustDial(t, Options{URL: url, Header: http.Header{"Authorization": {"Bearer t"}}})
	if _, err := c.CallTool(t.Context(), "größe", []byte(`{"region":" Köln","n":7,"on":true,"null":null,"deep":{"er":"x"}}`)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"MCP-Protocol-Version": "2026-07-28",
		"Mcp-Method":           "tools/call",
		"Mcp-Name":             "=?base64?Z3LDtsOfZQ==?=",
		"Mcp-Param-Region":     "=?base64?IEvDtmxu?=",
		"Mcp-Param-N":          "7",
		"Mcp-Param-On":         "true",
		"Mcp-Param-Deeper":     "x",
		"Mcp-Param-None":       "",
		"Mcp-Param-Null":       "",
		"Authorization":        "Bearer t",
		"Accept":               "application/json, text/event-stream",
		"Mcp-Session-Id":       "",
	} {
		if got.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.Get(name), want)
		}
	}
}

func TestInputRequired(t *testing.T) {
	var rounds []string
	url := fake{
		"server/discover": result(discovered),
		"tools/list":      result(noTools),
		"tools/call": func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
			rounds = append(rounds, fmt.Sprintf("%s %s %s %s", m.IDText(),
				m.Get("arguments").Of(m.Raw), m.Get("inputResponses").Of(m.Raw), m.Get("requestState").Of(m.Raw)))
			switch len(rounds) {
			case 1:
				result(`{"resultType":"input_required","inputRequests":{"a\"b":{"method":"elicitation/create","params":{"message":"?"}}},"requestState":"s1"}`)(w, r, m)
			case 2:
				result(`{"resultType":"input_required","requestState":"s2"}`)(w, r, m)
			default:
				result(`{"resultType":"complete","content":[]}`)(w, r, m)
			}
		},
	}.start(t)
	c := mustDial(t, Options{URL: url, Ask: func(context.Context, []byte) ([]byte, error) { return []byte(`{"action":"decline"}`), nil }})
	if _, err := c.CallTool(t.Context(), "x", []byte(`{"k":1}`)); err != nil {
		t.Fatal(err)
	}
	want := []string{`3 {"k":1}  `, `4 {"k":1} {"a\"b":{"action":"decline"}} "s1"`, `5 {"k":1}  "s2"`}
	if !reflect.DeepEqual(rounds, want) {
		t.Errorf("rounds %q, want %q", rounds, want)
	}
}

func TestQuestionsWithoutEnd(t *testing.T) {
	url := fake{
		"server/discover": result(discovered),
		"tools/list":      result(noTools),
		"tools/call":      result(`{"resultType":"input_required","requestState":"s"}`),
	}.start(t)
	_, err := mustDial(t, Options{URL: url}).CallTool(t.Context(), "x", []byte(`{}`))
	if err == nil || !strings.Contains(err.Error(), "still asked after 10 rounds") {
		t.Errorf("error %v", err)
	}
}

func TestQuestionThatWasNotOffered(t *testing.T) {
	url := fake{
		"server/discover": result(discovered),
		"tools/list":      result(noTools),
		"tools/call":      result(`{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}`),
	}.start(t)
	_, err := mustDial(t, Options{URL: url}).CallTool(t.Context(), "x", []byte(`{}`))
	if refused := new(ProtocolError); !errors.As(err, &refused) || !strings.Contains(err.Error(), `"roots/list", which this client did not offer`) {
		t.Errorf("error %v", err)
	}
}

func TestPages(t *testing.T) {
	var cursors []string
	pages := map[string]string{``: `{"tools":[],"nextCursor":""}`, `""`: `{"tools":[],"nextCursor":"b"}`, `"b"`: `{"tools":[]}`}
	url := fake{
		"initialize": result(initialized),
		"tools/list": func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
			cursor := string(m.Get("cursor").Of(m.Raw))
			cursors = append(cursors, cursor)
			result(pages[cursor])(w, r, m)
		},
	}.start(t)
	c := mustDial(t, Options{URL: url, Era: Legacy})
	got, err := c.Tools(t.Context())
	if err != nil || len(got) != 3 || !reflect.DeepEqual(cursors, []string{``, `""`, `"b"`}) {
		t.Errorf("pages %q after cursors %q, %v", got, cursors, err)
	}
	pages[`"b"`] = `{"tools":[],"nextCursor":""}`
	if _, err := c.Tools(t.Context()); err == nil || !strings.Contains(err.Error(), "same cursor twice") {
		t.Errorf("a list without end: %v", err)
	}
}

func TestLegacySession(t *testing.T) {
	type seen struct{ method, session, version string }
	var got []seen
	note := func(next func(http.ResponseWriter, *http.Request, *mcp.Message)) func(http.ResponseWriter, *http.Request, *mcp.Message) {
		return func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
			what := r.Method
			if m != nil {
				what = m.Method
			}
			got = append(got, seen{what, r.Header.Get("Mcp-Session-Id"), r.Header.Get("MCP-Protocol-Version")})
			next(w, r, m)
		}
	}
	url := fake{
		"initialize":                note(status(200, "application/json", `{"jsonrpc":"2.0","id":ID,"result":`+initialized+`}`, "Mcp-Session-Id", "s-1")),
		"notifications/initialized": note(status(202, "", "")),
		"tools/list":                note(result(`{"tools":[]}`)),
		"DELETE":                    note(func(w http.ResponseWriter, _ *http.Request, _ *mcp.Message) {}),
	}.start(t)
	c := mustDial(t, Options{URL: url, Era: Legacy})
	if _, err := c.Tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Close()
	want := []seen{
		{"initialize", "", ""},
		{"notifications/initialized", "s-1", "2025-11-25"},
		{"tools/list", "s-1", "2025-11-25"},
		{"DELETE", "s-1", "2025-11-25"},
	}
	if !reflect.DeepEqual(got[:4], want) {
		t.Errorf("sent %v, want %v", got, want)
	}
}

func TestUnknownRevision(t *testing.T) {
	url := fake{"initialize": result(`{"protocolVersion":"2019-01-01"}`)}.start(t)
	if _, err := dial(t, Options{URL: url, Era: Legacy}); err == nil || !strings.Contains(err.Error(), `speaks revision "2019-01-01"`) {
		t.Errorf("error %v", err)
	}
}

// A server of 2025-11-25 may end a stream early and expect a GET with the id of
// the last event (SEP-1699).
func TestStreamIsTakenUpAgain(t *testing.T) {
	var id []byte
	url := fake{
		"initialize": result(initialized),
		"tools/call": func(w http.ResponseWriter, _ *http.Request, m *mcp.Message) {
			id = m.IDText()
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "id: e1\nretry: 1\ndata:\n\n")
		},
		"GET": func(w http.ResponseWriter, r *http.Request, _ *mcp.Message) {
			w.Header().Set("Content-Type", "text/event-stream")
			switch r.Header.Get("Last-Event-ID") {
			case "e1":
				_, _ = io.WriteString(w, "id: e2\ndata:\n\n")
			case "e2":
				_, _ = w.Write(mcp.AppendEvent(nil, "", "e3", mcp.AppendResult(nil, id, []byte(`{"content":[]}`))))
			default:
				t.Errorf("takes up after %q", r.Header.Get("Last-Event-ID"))
			}
		},
	}.start(t)
	r, err := mustDial(t, Options{URL: url, Era: Legacy}).CallTool(t.Context(), "x", []byte(`{}`))
	if err != nil || string(r) != `{"content":[]}` {
		t.Errorf("result %s, %v", r, err)
	}
}

func TestStreamWithoutAnswer(t *testing.T) {
	for _, era := range []Era{Legacy, Modern} {
		url := fake{
			"initialize":      result(initialized),
			"server/discover": result(discovered),
			"tools/list":      result(noTools),
			"tools/call":      status(200, "text/event-stream", ": nothing\n\n"),
		}.start(t)
		_, err := mustDial(t, Options{URL: url, Era: era}).CallTool(t.Context(), "x", []byte(`{}`))
		if err == nil || !strings.Contains(err.Error(), "ended before the answer came") {
			t.Errorf("%s: error %v", era, err)
		}
	}
}

// TestQuestionsThatAreWithdrawn: a server of the legacy era is heard while the user is asked. What it
// withdraws, and what is open when the answer comes, is asked no more and gets no answer.
func TestQuestionsThatAreWithdrawn(t *testing.T) {
	const silence = 200 * time.Millisecond
	asked, ended, answered := make(chan string), make(chan error), make(chan string, 10)
	url := fake{
		"initialize": result(initialized),
		"answer": func(w http.ResponseWriter, _ *http.Request, m *mcp.Message) {
			answered <- string(m.Raw)
			w.WriteHeader(http.StatusAccepted)
		},
		"tools/call": func(w http.ResponseWriter, _ *http.Request, m *mcp.Message) {
			w.Header().Set("Content-Type", "text/event-stream")
			send := func(message []byte) {
				_, _ = w.Write(mcp.AppendEvent(nil, "", "", message))
				w.(http.Flusher).Flush()
			}
			for _, q := range []string{"open", "waits", "yes", "late"} {
				send(mcp.AppendRequest(nil, []byte(`"`+q+`"`), "elicitation/create", []byte(`{"message":"`+q+`"}`)))
			}
			send(mcp.AppendRequest(nil, []byte(`"p"`), "ping", nil))
			if q := <-asked; q != "open" {
				t.Errorf("asks %q", q)
			}
			for _, q := range []string{"waits", "open"} {
				send(mcp.AppendRequest(nil, nil, "notifications/cancelled", []byte(`{"requestId":"`+q+`"}`)))
			}
			if err := <-ended; err != errWithdrawn {
				t.Errorf("ends with %v", err)
			}
			if got := <-answered; !strings.Contains(got, `"id":"yes"`) {
				t.Errorf("answers %s", got)
			}
			if q := <-asked; q != "late" {
				t.Errorf("asks %q", q)
			}
			time.Sleep(2 * silence) // of the server, which waits for the user
			send(mcp.AppendResult(nil, m.IDText(), []byte(`{"content":[]}`)))
			if err := <-ended; err != errWithdrawn {
				t.Errorf("ends with %v", err)
			}
		},
	}.start(t)
	var told []string
	c := mustDial(t, Options{URL: url, Era: Legacy, Silence: silence,
		Notify: func(m *mcp.Message) { told = append(told, m.Method) },
		Ask: func(ctx context.Context, params []byte) ([]byte, error) {
			q := mcp.String(mcp.Lookup(params, "message"))
			if q == "yes" {
				return []byte(`{"action":"accept"}`), nil
			}
			asked <- q
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil, context.Cause(ctx)
		}})
	if r, err := c.CallTool(t.Context(), "x", []byte(`{}`)); err != nil || string(r) != `{"content":[]}` {
		t.Errorf("result %s, %v", r, err)
	}
	if got := <-answered; len(told) != 2 || len(answered) > 0 || !strings.Contains(got, `"id":"p"`) {
		t.Errorf("hears %q, answers %s and %d more", told, got, len(answered))
	}
}

// A request of the server is answered under its id, on a POST of its own.
func TestRequestsOfALegacyServer(t *testing.T) {
	answers := make(chan string, 3)
	var got []string
	url := fake{
		"initialize": result(initialized),
		"answer": func(w http.ResponseWriter, _ *http.Request, m *mcp.Message) {
			answers <- string(m.Raw)
			w.WriteHeader(http.StatusAccepted)
		},
		"tools/call": func(w http.ResponseWriter, _ *http.Request, m *mcp.Message) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, method := range []string{"ping", "elicitation/create", "sampling/createMessage"} {
				_, _ = w.Write(mcp.AppendEvent(nil, "", "", mcp.AppendRequest(nil, []byte(`"q-`+method+`"`), method, nil)))
				w.(http.Flusher).Flush()
				got = append(got, <-answers)
			}
			_, _ = w.Write(mcp.AppendEvent(nil, "", "", mcp.AppendResult(nil, m.IDText(), []byte(`{}`))))
		},
	}.start(t)
	c := mustDial(t, Options{URL: url, Era: Legacy, Ask: func(context.Context, []byte) ([]byte, error) { return []byte(`{"action":"cancel"}`), nil }})
	if _, err := c.CallTool(t.Context(), "x", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(got, "\n")
	for _, want := range []string{
		`{"jsonrpc":"2.0","id":"q-ping","result":{}}`,
		`{"jsonrpc":"2.0","id":"q-elicitation/create","result":{"action":"cancel"}}`,
		`"id":"q-sampling/createMessage","error":{"code":-32601`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("answers %s lack %s", all, want)
		}
	}
}

func TestGivingUp(t *testing.T) {
	for _, era := range []Era{Legacy, Modern} {
		t.Run(string(era), func(t *testing.T) {
			called, cancelled, left := make(chan string, 1), make(chan string, 1), make(chan struct{})
			url := fake{
				"initialize":      result(initialized),
				"server/discover": result(discovered),
				"tools/list":      result(noTools),
				"tools/call": func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
					called <- string(m.IDText())
					<-r.Context().Done()
					close(left)
				},
				"notifications/cancelled": func(w http.ResponseWriter, _ *http.Request, m *mcp.Message) {
					cancelled <- string(m.Get("requestId").Of(m.Raw))
					w.WriteHeader(http.StatusAccepted)
				},
			}.start(t)
			c := mustDial(t, Options{URL: url, Era: era})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error)
			go func() { // ends when the call does
				_, err := c.CallTool(ctx, "x", []byte(`{}`))
				ended <- err
			}()
			id := <-called
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			<-left // the connection is closed in both eras
			select {
			case got := <-cancelled:
				if era == Modern || got != id {
					t.Errorf("cancels %s in the %s era, want %s", got, era, id)
				}
			default:
				if era == Legacy {
					t.Error("the server was not told")
				}
			}
		})
	}
}

func TestSilence(t *testing.T) {
	url := fake{
		"server/discover": result(discovered),
		"tools/list":      result(noTools),
		"tools/call": func(_ http.ResponseWriter, r *http.Request, _ *mcp.Message) {
			<-r.Context().Done()
		},
	}.start(t)
	_, err := mustDial(t, Options{URL: url, Silence: 50 * time.Millisecond}).CallTool(t.Context(), "x", []byte(`{}`))
	if want := url + ": no word for 50ms: give it more time with --timeout"; fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// The server of this test is an independent one, of the transport that GETs a
// stream first.
func TestOldestTransport(t *testing.T) {
	s := sdk.NewServer(&sdk.Implementation{Name: "old", Version: "1"}, nil)
	type in struct {
		Text string `json:"text"`
	}
	sdk.AddTool(s, &sdk.Tool{Name: "echo"}, func(_ context.Context, _ *sdk.CallToolRequest, i in) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: i.Text}}}, nil, nil
	})
	web := httptest.NewServer(sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return s }, nil))
	t.Cleanup(web.Close)
	c := mustDial(t, Options{URL: web.URL + "/sse"})
	r, err := c.CallTool(t.Context(), "echo", []byte(`{"text":"hi"}`))
	if err != nil || !strings.Contains(string(r), `"text":"hi"`) {
		t.Errorf("result %s, %v", r, err)
	}
	c.Close()
}

func TestOldestTransportStaysWithItsHost(t *testing.T) {
	url := fake{"GET": func(w http.ResponseWriter, _ *http.Request, _ *mcp.Message) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: endpoint\ndata: http://127.0.0.2:1/steal\n\n")
	}, "initialize": status(405, "text/plain", "")}.start(t)
	_, err := dial(t, Options{URL: url, Era: Legacy, Header: http.Header{"Authorization": {"Bearer t"}}})
	if want := url + ": answered 405 Method Not Allowed: check the path of the URL: an edge answers on /mcp, or /servers/NAME/mcp when it has several servers"; fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	plain := fake{}.start(t)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it will not like the client that does not trust it
	secure.StartTLS()
	t.Cleanup(secure.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	answering := func(f func(http.ResponseWriter, *http.Request, *mcp.Message)) string {
		return fake{"initialize": f}.start(t)
	}
	closes := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })) // as what knows TLS alone may
	t.Cleanup(closes.Close)
	for _, test := range []struct{ name, url, want string }{
		{"closed", closes.URL, "it closed the connection without an answer: write https:// if it speaks TLS"},
		{"nobody there", gone.URL, "nobody listens there: start an edge with `weir serve`"},
		{"no such host", "http://nowhere.invalid/mcp", `no address for host "nowhere.invalid": check how the host is spelt`},
		{"TLS to a plain server", strings.Replace(plain, "http:", "https:", 1), "it does not speak TLS: write http:// instead of https://"},
		{"a certificate of nobody", secure.URL, "its certificate is not trusted"},
		{"redirect", answering(status(307, "", "", "Location", "https://u:p@new.example/mcp?x=y")), "points to https://new.example/mcp: name that place as the URL"},
		{"no token", answering(status(401, "text/plain", "", "WWW-Authenticate", "Bearer scope=\"a\"")), "answered 401 Unauthorized: log in with --auth, or give a token with --bearer-token-file"},
		{"forbidden", answering(status(403, "text/plain", "no\x1b[2J")), "answered 403 Forbidden: ask whoever runs"},
		{"too often", answering(status(429, "text/plain", "", "Retry-After", "7")), "answered 429 Too Many Requests: try again in 7 s"},
		{"busy", answering(status(503, "text/plain", "")), "try again later"},
		{"teapot", answering(status(418, "text/plain", "")), "check that the URL is one of an MCP server"},
		{"not JSON", answering(status(200, "application/json", "{")), "sent what is no message of MCP"},
		{"another's answer", answering(status(200, "application/json", `{"jsonrpc":"2.0","id":77,"result":{}}`)), "no message of MCP"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := dial(t, Options{URL: test.url, Era: Legacy})
			if e := new(ConnectionError); !errors.As(err, &e) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %s", err, test.want)
			}
		})
	}
	_, err := dial(t, Options{URL: answering(status(200, "application/json", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"bad day","data":{"x":1}}}`)), Era: Legacy})
	if want := `initialize: bad day (error -32603): {"x":1}`; fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// A certificate that is none for the host, or not now, is no matter of authorities: what to do says
// so. Where an authority is lacking, the flag is the one of the command.
func TestCertificatesThatDoNotHold(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, test := range []struct {
		name        string
		host        string
		from, until time.Duration
		trusted     bool // as by --ca
		want        string
	}{
		{"another host", "127.0.0.2", -time.Hour, time.Hour, true, "name the server in its URL as its certificate does"},
		{"another host, of nobody", "127.0.0.2", -time.Hour, time.Hour, false, "name the server in its URL as its certificate does"},
		{"expired", "127.0.0.1", -2 * time.Hour, -time.Hour, true, "have whoever runs the server get a new certificate; check the clock of this machine"},
		{"not yet", "127.0.0.1", time.Hour, 2 * time.Hour, true, "check the clock of this machine, or wait"},
		{"of nobody", "127.0.0.1", -time.Hour, time.Hour, false, "name the authority that signed it with --ca FILE"},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := &x509.Certificate{
				SerialNumber: big.NewInt(1), NotBefore: now.Add(test.from), NotAfter: now.Add(test.until), IPAddresses: []net.IP{net.ParseIP(test.host)},
				IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			}
			der, err := x509.CreateCertificate(rand.Reader, text, text, key.Public(), key)
			if err != nil {
				t.Fatal(err)
			}
			s := httptest.NewUnstartedServer(http.NotFoundHandler())
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
			s.StartTLS()
			defer s.Close()
			roots := x509.NewCertPool()
			if made, err := x509.ParseCertificate(der); err != nil {
				t.Fatal(err)
			} else if test.trusted {
				roots.AddCert(made)
			}
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
			defer transport.CloseIdleConnections()
			_, err = dial(t, Options{URL: s.URL, Era: Legacy, HTTP: &http.Client{Transport: transport}})
			known := new(ConnectionError)
			if !errors.As(err, &known) || known.Next != test.want && !strings.HasPrefix(known.Next, test.want+", or ") {
				t.Fatalf("error %v, want %s", err, test.want)
			}
			login := Unreachable(t.Context(), &login.UnreachableError{URL: s.URL, Err: known.Err})
			if want := strings.Replace(known.Next, "--ca FILE", "--ca-bundle FILE", 1); !errors.As(login, &known) || known.Next != want {
				t.Errorf("a login: %v, want %s", login, want)
			}
		})
	}
}

// A scope that a token lacks is named, and the challenge is kept for whoever asks; neither steers
// a terminal, is endless, or repeats a credential.
func TestScopesThatAreLacking(t *testing.T) {
	const text = `{"jsonrpc":"2.0","id":ID,"error":{"code":403,"message":"not you"}}`
	for _, test := range []struct{ challenge, next, asks string }{
		{`Bearer error="insufficient_scope", scope="tools:read tools:write"`, "get a token with the scope tools:read tools:write, or ask whoever runs the server for access", `Bearer error="insufficient_scope", scope="tools:read tools:write"`},
		{`Bearer scope="a"`, "ask whoever runs the server for access", `Bearer scope="a"`},
		{`Bearer error="insufficient_scope"`, "ask whoever runs the server for access", `Bearer error="insufficient_scope"`},
		{`Bearer error="insufficient_scope", scope="planted-token x"`, "get a token with the scope (hidden) x, or ask whoever runs the server for access", `Bearer error="insufficient_scope", scope="(hidden) x"`},
		{`Bearer error="insufficient_scope", scope="` + strings.Repeat("s", 300) + `"`, "get a token with the scope " + strings.Repeat("s", 200) + "…, or ask whoever runs the server for access", `Bearer error="insufficient_scope", scope="` + strings.Repeat("s", 200-len(`Bearer error="insufficient_scope", scope="`)) + "…"},
		{"", "ask whoever runs the server for access", ""},
	} {
		url := fake{"initialize": status(403, "application/json", text, "WWW-Authenticate", test.challenge)}.start(t)
		_, err := dial(t, Options{URL: url, Era: Legacy, Header: http.Header{"Authorization": {"Bearer planted-token"}}})
		if e := new(ProtocolError); !errors.As(err, &e) || e.Next != test.next || e.Asks != test.asks || !strings.HasSuffix(e.Error(), ": "+test.next) {
			t.Errorf("%s: error %v, asks %q", test.challenge, err, e.Asks)
		}
	}
}

// TestZ23TryAgain says when to try again, whichever way a server says it, and
// keeps what else it said for whoever asks.
func TestZ23TryAgain(t *testing.T) {
	const limited = `{"jsonrpc":"2.0","id":ID,"error":{"code":429,"message":"too often","data":%s}}`
	for _, test := range []struct{ name, header, data, want string }{
		{"data", "", `{"retryAfterSeconds":60}`, "try again in 60 s"},
		{"data before header", "5", `{"retryAfterSeconds":60}`, "try again in 60 s"},
		{"header", "5", `{"x":1}`, `{"x":1}: try again in 5 s`},
		{"neither", "", `{"x":1}`, `{"x":1}: try again later`},
		{"a part of a second", "", `{"retryAfterSeconds":0.2}`, "try again in 1 s"},
		{"minutes", "", `{"retryAfterSeconds":121}`, "try again in 3 min"},
		{"hours", "86400", `{}`, "{}: try again in 24 h"},
		{"a past date", "Mon, 02 Jan 2006 15:04:05 GMT", `{}`, "{}: try again in 1 s"},
		{"negative", "-3", `{}`, "{}: try again later"},
		{"for ever", "1e300", `{}`, "{}: try again later"},
		{"no number", "soon", `{}`, "{}: try again later"},
		{"text", "", `{"retryAfterSeconds":"7"}`, "try again later"},
	} {
		t.Run(test.name, func(t *testing.T) {
			url := fake{"initialize": result(initialized), "tools/call": status(429, "application/json", fmt.Sprintf(limited, test.data), "Retry-After", test.header)}.start(t)
			_, err := mustDial(t, Options{URL: url, Era: Legacy}).CallTool(t.Context(), "x", []byte(`{}`))
			if want := "tools/call: too often (error 429): " + test.want; fmt.Sprint(err) != want {
				t.Errorf("error %v, want %s", err, want)
			}
			if e := new(ProtocolError); !errors.As(err, &e) || string(e.Data)+string(e.More) != test.data {
				t.Errorf("data %s", e.Data)
			}
		})
	}
	url := fake{"initialize": status(401, "text/plain", "no\x1b[2J", "WWW-Authenticate", `Bearer scope="a"`)}.start(t)
	_, err := dial(t, Options{URL: url, Era: Legacy})
	if e := new(ConnectionError); !errors.As(err, &e) || e.Asks != `Bearer scope="a"` || e.Body != "no\x1b[2J" || strings.Contains(err.Error(), "Bearer") {
		t.Errorf("error %#v", err)
	}
	url = fake{"initialize": status(403, "application/json", `{"jsonrpc":"2.0","id":ID,"error":{"code":403,"message":"not you"}}`)}.start(t)
	if _, err := dial(t, Options{URL: url, Era: Legacy}); fmt.Sprint(err) != "initialize: not you (error 403): ask whoever runs the server for access" {
		t.Errorf("error %v", err)
	}
	for what, next := range map[string]string{"unavailable": "`weir status` says why, where the edge runs", "gave an answer that cannot be read": "the log of the edge says why"} {
		url = fake{"initialize": result(initialized), "tools/call": status(502, "application/json", `{"jsonrpc":"2.0","id":ID,"error":{"code":502,"message":"backend \"a\" `+what+`"}}`)}.start(t)
		if _, err := mustDial(t, Options{URL: url, Era: Legacy}).CallTool(t.Context(), "x", []byte(`{}`)); fmt.Sprint(err) != "tools/call: backend \"a\" "+what+" (error 502): "+next {
			t.Errorf("error %v", err)
		}
	}
}

// TestZ23Lists reads the lists of resources and prompts page by page, and takes
// a server without one of them for one that has nothing on it.
func TestZ23Lists(t *testing.T) {
	pages := func(kind string) func(http.ResponseWriter, *http.Request, *mcp.Message) {
		return func(w http.ResponseWriter, r *http.Request, m *mcp.Message) {
			if !m.Get("cursor").OK() {
				result(`{"`+kind+`":[{"name":"a"}],"nextCursor":"2"}`)(w, r, m)
				return
			}
			result(`{"`+kind+`":[{"name":"b"}]}`)(w, r, m)
		}
	}
	all := fake{
		"initialize":               result(initialized),
		"resources/list":           pages("resources"),
		"resources/templates/list": pages("resourceTemplates"),
		"prompts/list":             pages("prompts"),
	}
	for _, test := range []struct {
		without            string
		resources, prompts int // pages
	}{{"", 4, 2}, {"resources/list", 2, 2}, {"resources/templates/list", 2, 2}, {"prompts/list", 4, 0}} {
		f := maps.Clone(all)
		delete(f, test.without)
		c := mustDial(t, Options{URL: f.start(t), Era: Legacy})
		resources, err := c.Resources(t.Context())
		prompts, err2 := c.Prompts(t.Context())
		if err != nil || err2 != nil || len(resources) != test.resources || len(prompts) != test.prompts {
			t.Errorf("without %q: %q, %v, %q, %v", test.without, resources, err, prompts, err2)
		}
	}
}

func TestUsable(t *testing.T) {
	for _, test := range []struct{ schema, want string }{
		{`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}}`, ""},
		{`{"type":"object","properties":{"o":{"type":"object","properties":{"a":{"type":"integer","x-mcp-header":"A"}}}}}`, ""},
		{`{"type":"object","properties":{"x-mcp-header":{"type":"string"}}}`, ""},
		{`{"type":"object","default":{"x-mcp-header":"A"},"properties":{}}`, ""},
		{`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":""}}}`, "not a header name"},
		{`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A B"}}}`, "not a header name"},
		{`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":7}}}`, "not a header name"},
		{`{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"A"}}}`, "not on a string"},
		{`{"type":"object","properties":{"a":{"type":["string","null"],"x-mcp-header":"A"}}}`, "not on a string"},
		{`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`, "another argument has"},
		{`{"type":"object","x-mcp-header":"A"}`, "need not be"},
		{`{"type":"object","properties":{"l":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}`, "need not be"},
		{`{"type":"object","anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}`, "need not be"},
		{`{"type":"object","if":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`, "need not be"},
		{`{"type":"object","$defs":{"d":{"type":"string","x-mcp-header":"A"}}}`, "need not be"},
	} {
		err := Usable([]byte(`{"name":"t","inputSchema":` + test.schema + `}`))
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.schema, err, test.want)
		}
	}
}
