package guest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// outsider is a filter of the module that asks others.
func outsider(t testing.TB, name, grants string, rules ...string) filter {
	t.Helper()
	p, err := caller()
	if err != nil {
		t.Fatal(err)
	}
	return filter{name: name, path: p, more: "grants: {" + grants + "}", rules: rules}
}

// everything is grants of all that the module imports; hosts and tools are what of
// these.
func everything(hosts, tools string) string {
	return fmt.Sprintf("http: [%s], tools: [%s], events: true", hosts, tools)
}

// peer is another party that programs call.
func peer(t *testing.T, h http.HandlerFunc) (*httptest.Server, string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s, strings.TrimPrefix(s.URL, "http://")
}

// TestHTTPCall has a program ask another party before a call goes on.
func TestHTTPCall(t *testing.T) {
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		var asked atomic.Pointer[http.Request]
		_, host := peer(t, func(w http.ResponseWriter, r *http.Request) {
			asked.Store(r)
			body, _ := io.ReadAll(r.Body)
			w.WriteHeader(201)
			fmt.Fprintf(w, "%s %s", r.Method, body)
		})
		f := outsider(t, "f", everything(`"http://`+host+`"`, "none"),
			"sub|on_call_request|blocking=1|pointer=/n",
			"on_call_request|*|fetch|PUT http://"+host+"/p?q=1|body of $selected:0|X-Say: so|Content-Type: text/plain|Authorization: Key k",
			"on_call_request|got=201 PUT body of 3|set_arg|/got|$quoted",
			"on_call_request|got~201|set_header|x-got|$got",
		)
		back := edgetest.NewServer(t, of)
		c := newClient(start(t, manifest(t, backs{"back": back}, []filter{f})), era)
		if got := text(t, c.call(t, "echo", `{"n":3}`)); edgetest.Member(got, "got") != `"201 PUT body of 3"` {
			t.Errorf("the program got %s", got)
		}
		r := asked.Load()
		if r.URL.String() != "/p?q=1" || r.Header.Get("X-Say") != "so" || r.Header.Get("Content-Type") != "text/plain" || r.Header.Get("Authorization") != "Key k" || r.Header.Get("User-Agent") == "" {
			t.Errorf("the other party was asked %s %v", r.URL, r.Header)
		}
	})
}

// TestHTTPCallRefused holds whom a program may call, and how.
func TestHTTPCallRefused(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int32
	_, other := peer(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	s, host := peer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "http://"+other+"/", http.StatusFound)
		case "/large":
			_, _ = w.Write(make([]byte, 600<<10))
		case "/full":
			_, _ = io.WriteString(w, strings.Repeat("x", 100<<10))
		case "/heads":
			for i := range 200 {
				w.Header().Add(fmt.Sprint("X-", i), strings.Repeat("y", 100))
			}
		case "/slow":
			<-r.Context().Done()
		case "/broken":
			panic(http.ErrAbortHandler)
		}
	})
	port := host[strings.LastIndexByte(host, ':'):]
	closed := edgetest.FreeAddress(t)
	secret := httptest.NewUnstartedServer(http.NotFoundHandler())
	secret.Config.ErrorLog = log.New(io.Discard, "", 0)
	secret.StartTLS()
	defer secret.Close()
	untrusted := secret.Listener.Addr().String()
	back := edgetest.NewServer(t, edgetest.Modern)
	f := outsider(t, "f", everything(`"http://`+host+`", api.example, "http://169.254.169.254", "http://`+closed+`", "`+host+`", "`+untrusted+`"`, "none"),
		"sub|on_call_request|blocking=1|header=x-a,x-b",
		"on_call_request|header:x-a~http|fetch|GET $header:x-a|",
		"on_call_request|header:x-b=head|fetch|GET http://"+host+"/|x|X-A: aCRLFX-B: b",
		"on_call_request|header:x-b=host|fetch|GET http://"+host+"/|x|Host: other",
		"on_call_request|header:x-b=length|fetch|GET http://"+host+"/|x|Content-Length: 100",
		"on_call_request|header:x-b=chunked|fetch|GET http://"+host+"/|x|Transfer-Encoding: chunked",
		"on_call_request|header:x-b=forwarded|fetch|GET http://"+host+"/|x|X-Forwarded-For: 127.0.0.1",
		"on_call_request|header:x-b=name|fetch|GET http://"+host+"/|x|a b: c",
		"on_call_request|header:x-b=method|fetch|CONNECT http://"+host+"/|x",
		"on_call_request|header:x-b=split|fetch|GE\tT http://"+host+"/|x",
		"on_call_request|header:x-b=often|again|17|fetch|GET http://"+host+"/|",
		"on_call_request|header:x-b=sixteen|again|16|fetch|GET http://"+host+"/|",
		"on_call_request|header:x-b=soon|fetch|GET http://"+host+"/slow||timeout: 50",
		"on_call_request|*|set_arg|/got|$quoted",
	)
	f.limits = "fuel: 5000000000"
	e := start(t, manifest(t, backs{"back": back}, []filter{f}))
	c := newClient(e, edgetest.Modern)
	got := func(header ...string) string {
		t.Helper()
		r := c.call(t, "echo", "{}", header...)
		var s string
		if err := json.Unmarshal([]byte(edgetest.Member(text(t, r), "got")), &s); err != nil {
			t.Fatalf("%v: %s", err, r.Body)
		}
		return s
	}
	for to, want := range map[string]string{
		s.URL + "/":                             "200 ",
		"http://" + strings.ToUpper(host):       "200 ",
		"http://" + other + "/":                 "failed -2", // another port
		"http://" + untrusted + "/":             "failed -2", // another scheme
		"http://" + closed + "/":                "failed -7",
		"https://" + host + "/":                 "failed -9", // speaks no TLS
		"https://" + untrusted + "/":            "failed -9", // nobody known has signed its certificate
		"http://localhost" + port + "/":         "failed -2", // another name for it
		"http://0x7f.1" + port + "/":            "failed -2",
		"http://2130706433" + port + "/":        "failed -2",
		"http://[::ffff:127.0.0.1]" + port:      "failed -2",
		"http://127.0.0.1./":                    "failed -2",
		"http://evil@" + host + "/":             "failed -4",
		"http://" + host + "@evil.example/":     "failed -4",
		"http://" + host + "#@evil.example":     "failed -4",
		"http://evil.example#" + host:           "failed -4",
		"http://evil.example/" + host:           "failed -2",
		"http:/" + host:                         "failed -4",
		"http://api.example/":                   "failed -2", // named for https alone
		"https://api.example:444/":              "failed -2",
		"https://api.example.evil/":             "failed -2",
		"https://sub.api.example/":              "failed -2",
		"http://169.254.169.254/latest":         "failed -5", // named, and never to be had
		"http://" + host + "/a b":               "200 ",
		s.URL + "/away":                         "302 ",
		s.URL + "/large":                        "failed -3",
		s.URL + "/full":                         "200 " + strings.Repeat("x", 100<<10),
		s.URL + "/heads":                        "200 ",
		s.URL + "/broken":                       "failed -5",
		s.URL + "/" + strings.Repeat("x", 9000): "failed -4",
	} {
		if is := got("X-A", to); is != want && !(to == s.URL+"/away" && strings.HasPrefix(is, want)) {
			t.Errorf("%.60s: got %.60q, want %.60q", to, is, want)
		}
	}
	for word, want := range map[string]string{
		"head": "failed -4", "host": "failed -4", "length": "failed -4", "chunked": "failed -4", "forwarded": "failed -4", "name": "failed -4",
		"method": "failed -4", "split": "failed -4", "often": "failed -3", "sixteen": "200 ", "soon": "failed -6",
	} {
		if is := got("X-B", word); is != want {
			t.Errorf("%s: got %.60q, want %q", word, is, want)
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("who is not on the list was called %d times", n)
	}
	if log := e.Log(); !strings.Contains(log, "name it in grants.http") || !strings.Contains(log, "host=evil.example") {
		t.Error("the log does not say what to grant")
	}
	if log := e.Log(); !strings.Contains(log, "got no answer") || strings.Contains(log, "/broken") || strings.Contains(log, "/latest") {
		t.Error("the log does not tell of a request without an answer, or tells its path, which may hold a secret")
	}
}

// TestBlocking holds that a program waits for others where it said that it does,
// and nowhere else, and that waiting has an end.
func TestBlocking(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	_, host := peer(t, func(w http.ResponseWriter, _ *http.Request) { calls.Add(1) })
	back := edgetest.NewServer(t, edgetest.Modern)
	f := outsider(t, "f", everything(`"http://`+host+`"`, "'*'"),
		"on_call_request|*|fetch|GET http://"+host+"/|",
		"on_call_request|*|set_arg|/one|$quoted",
		"on_call_request|*|tool|other|{}",
		"on_call_request|*|set_arg|/two|$quoted",
		"on_http_request|*|fetch|GET http://"+host+"/|",
		"on_http_request|got=failed -2|set_header|x-a|as it should be",
		"sub|on_call_request|header=x-a",
		"on_call_request|*|set_arg|/three|\"$header:x-a\"",
	)
	c := newClient(start(t, manifest(t, backs{"back": back}, []filter{f})), edgetest.Modern)
	got := text(t, c.call(t, "echo", "{}"))
	if strings.Count(got, `"failed -2"`) != 2 || !strings.Contains(got, `"three":"as it should be"`) || calls.Load() != 0 || back.Count("tools/call") != 1 {
		t.Errorf("it did not say that it waits: %s, %d calls", got, calls.Load())
	}
}

// TestHTTPCallsAtATime has many wait for another party at once: they are bounded,
// none fails, and a client that leaves ends its own.
func TestHTTPCallsAtATime(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int32
	release, full := make(chan struct{}), make(chan struct{})
	filled := sync.OnceFunc(func() { close(full) }) // there may be as many again after the release
	gone := make(chan struct{}, 100)
	_, host := peer(t, func(_ http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
		}
		if n == 16 {
			filled()
		}
		select {
		case <-release:
		case <-r.Context().Done():
			gone <- struct{}{}
		}
	})
	back := edgetest.NewServer(t, edgetest.Modern)
	f := outsider(t, "f", everything(`"http://`+host+`"`, "none"), "sub|on_call_request|blocking=1",
		"on_call_request|*|fetch|GET http://"+host+"/|", "on_call_request|*|set_arg|/got|$quoted")
	e := start(t, manifest(t, backs{"back": back}, []filter{f}))
	body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Meta())
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 40)
	one := func(ctx context.Context) {
		q, err := http.NewRequestWithContext(ctx, "POST", "http://"+e.Addr()+"/mcp", strings.NewReader(body))
		if err != nil {
			done <- err
			return
		}
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Accept", "application/json, text/event-stream")
		for i := 0; i < len(head); i += 2 {
			q.Header.Set(head[i], head[i+1])
		}
		r, err := http.DefaultClient.Do(q)
		if err == nil {
			text, _ := io.ReadAll(r.Body)
			r.Body.Close()
			if !strings.Contains(string(text), `200 `) {
				err = fmt.Errorf("%d %s", r.StatusCode, text)
			}
		}
		done <- err
	}
	go one(ctx)
	edgetest.Until(t, "the first", func() bool { return now.Load() == 1 })
	leave()
	<-gone // its request ended with it
	<-done
	edgetest.Until(t, "what the log says of it", func() bool { return strings.Contains(e.Log(), "has no answer: the call was cancelled") })
	if strings.Contains(e.Log(), "got no answer") {
		t.Error("a client that left counts as trouble on the way to another party")
	}
	for range 24 {
		go one(t.Context())
	}
	<-full
	close(release)
	for range 24 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := most.Load(); n > 16 {
		t.Errorf("%d at a time", n)
	}
}

// TestCallTool has a program call tools for its client: as the client could, and
// judged, counted, recorded and seen by all other programs as the client's own calls are.
func TestCallTool(t *testing.T) {
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		log := filepath.Join(t.TempDir(), "audit.log")
		one, two := edgetest.NewServer(t, of), edgetest.NewServer(t, edgetest.Modern)
		offers(one, "echo", "look", "secret", "fails")
		offers(two, "far")
		one.Always("tools/call", func(c *edgetest.Call) {
			if edgetest.Member(string(c.Message.Params), "name") == `"fails"` {
				c.Error(200, -32000, "it is broken")
				return
			}
			c.Result(`{"resultType":"complete","content":[{"type":"text","text":` + fmt.Sprintf("%q", edgetest.Member(string(c.Message.Params), "arguments")) + `}]}`)
		})
		f := outsider(t, "first", everything("none.example", "'*_look', '*_secret', two_*, '*_fails', '*_none'"),
			"sub|on_call_request|blocking=1|header=x-a",
			"on_call_request|header:x-a~_|tool|$header:x-a|{\"asked\":1}",
			"on_call_request|*|set_arg|/got|$quoted",
		)
		second := filter{name: "second", rules: []string{
			"on_call_request|tool~_look|set_arg|/second|\"$tool\"",
			"on_call_response|tool~_look|patch_result|/seen|true",
		}}
		yaml := manifest(t, backs{"one": one, "two": two}, []filter{f, second})
		yaml = strings.Replace(yaml, "incomingAuth: {type: anonymous}", `incomingAuth: {type: anonymous, authzConfig: {type: inline, inline: {policies: ['permit(principal, action, resource);', 'forbid(principal, action == Action::"call_tool", resource == Tool::"one_secret");']}}}`, 1)
		yaml = strings.Replace(yaml, "  config:\n    backends", "  config:\n    audit: {enabled: true, logFile: \""+log+"\"}\n    backends", 1)
		c := newClient(start(t, yaml), era)
		got := func(name string) string {
			t.Helper()
			var s string
			r := c.call(t, "one_echo", "{}", "X-A", name)
			var out struct{ Got string }
			if err := json.Unmarshal([]byte(text(t, r)), &out); err != nil {
				t.Fatalf("%v: %s", err, r.Body)
			}
			s = out.Got
			return s
		}
		if is := got("one_look"); !strings.HasPrefix(is, "result {") || !strings.Contains(is, `\"asked\":1`) || !strings.Contains(is, `\"second\":\"one_look\"`) || !strings.Contains(is, `"seen":true`) {
			t.Errorf("a tool: %s", is)
		}
		if is := got("two_far"); !strings.HasPrefix(is, "result {") {
			t.Errorf("of another backend: %s", is)
		}
		if is := got("one_fails"); !strings.HasPrefix(is, "error {") || !strings.Contains(is, "it is broken") {
			t.Errorf("one that fails: %s", is)
		}
		if is := got("one_secret"); !strings.HasPrefix(is, "error {") || !strings.Contains(is, "denied by authorization policy") {
			t.Errorf("what the client may not: %s", is)
		}
		if is := got("one_none"); !strings.HasPrefix(is, "error {") || !strings.Contains(is, "denied") {
			t.Errorf("what is not there: %s", is)
		}
		if is := got("one_echo"); is != "failed -2" {
			t.Errorf("what is not granted: %s", is)
		}
		for _, r := range one.Requests("tools/call") {
			if edgetest.Member(string(r.Message.Params), "name") == `"secret"` {
				t.Error("a tool was called that the client may not call")
			}
		}
		edgetest.Until(t, "the records", func() bool {
			text, err := os.ReadFile(log)
			return err == nil && strings.Count(string(text), `"inner":true`) == 5 && strings.Count(string(text), `"outcome":"denied"`) == 2
		})
	})
}

// TestCallToolEnds holds that programs which call tools come to an end: none is
// asked about its own calls, and how far they lead each other on has a bound.
func TestCallToolEnds(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	var filters []filter
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		filters = append(filters, outsider(t, name, everything("none.example", "'*'"),
			"sub|on_call_request|blocking=1",
			"on_call_request|*|tool|echo|{}",
			"on_call_request|*|set_arg|/"+name+"|$quoted",
		))
	}
	c := newClient(start(t, manifest(t, backs{"back": back}, filters)), edgetest.Modern)
	got := text(t, c.call(t, "echo", "{}"))
	if !strings.Contains(got, "failed -3") || !strings.Contains(got, "result") {
		t.Errorf("five that lead each other on: %.300s", got)
	}
	if n := back.Count("tools/call"); n > 5*4*3*2+5*4*3+5*4+5+1 {
		t.Errorf("%d calls of one", n)
	}
	if n := back.Count("tools/call"); n < 5 {
		t.Errorf("only %d calls", n)
	}
}

// TestCallToolIsLimited counts calls of programs like those of their client, and
// one that is observed makes none.
func TestCallToolIsLimited(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	offers(back, "echo", "look")
	f := outsider(t, "f", everything("none.example", "look"),
		"sub|on_call_request|blocking=1|tool=echo", "on_call_request|*|tool|look|{}", "on_call_request|*|tool|look|[]", "on_call_request|*|set_arg|/bad|$quoted",
		"on_call_request|*|tool|look|{}", "on_call_request|*|set_arg|/got|$quoted")
	observed := f
	observed.more += ", mode: observe"
	c := newClient(start(t, manifest(t, backs{"back": back}, []filter{observed})), edgetest.Modern)
	if got := text(t, c.call(t, "echo", "{}")); got != "{}" || back.Count("tools/call") != 1 {
		t.Errorf("observed: %s, %d calls", got, back.Count("tools/call"))
	}
	yaml := manifest(t, backs{"back": back}, []filter{f}) + "    rateLimiting: {tools: [{name: look, shared: {maxTokens: 1, refillPeriod: 1h}}]}\n"
	e := edgetest.StartPlan(t, edgetest.LocalPlan(t, yaml), edgetest.Settings(guests.Cached), edgetest.Settings(func(s *serve.Settings) { s.LocalRateLimits = true }))
	c = newClient(e, edgetest.Modern)
	got := text(t, c.call(t, "echo", "{}"))
	if !strings.Contains(edgetest.Member(got, "got"), "Rate limit exceeded") || edgetest.Member(got, "bad") != `"failed -4"` {
		t.Errorf("the second: %s", got)
	}
}

// mostInASecond is how many lines of a log with a text are of one second, when all
// of them are; the bound is one of each second, and a slow machine takes several.
func mostInASecond(log, text string) (n int) {
	second := ""
	for line := range strings.Lines(log) {
		_, at, _ := strings.Cut(line, "time=")
		if !strings.Contains(line, text) || len(at) < len("2006-01-02T15:04:05") {
			continue
		}
		if at = at[:len("2006-01-02T15:04:05")]; n > 0 && at != second {
			return 0
		}
		second = at
		n++
	}
	return n
}

// TestEmit has programs tell of events: in the audit log without their secrets,
// else in that of the process; bounded in size and number, and not from on_event.
func TestEmit(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	f := outsider(t, "f", everything("none.example", "none"),
		"sub|on_call_request|header=x-a,x-b|pointer=/n",
		`on_call_request|header:x-a=one|emit|seen|{"n":$selected:0,"token":"ghp_0123456789abcdefghijklmnopqrstuvwxyz01"}`,
		"on_call_request|header:x-a=large|emit|large|\""+strings.Repeat("x", 4<<10)+"\"",
		"on_call_request|header:x-a=name|emit|Bad Name|{}",
		"on_call_request|header:x-a=nameless|emit||{}",
		"on_call_request|header:x-a=junk|emit|junk|{",
		"on_call_request|header:x-a=often|again|100|emit|often|{}",
		"on_call_request|*|set_arg|/got|$quoted",
		"on_event|*|emit|again|{}",
		"on_event|*|fetch|GET http://none.example/|",
	)
	log := filepath.Join(t.TempDir(), "audit.log")
	yaml := manifest(t, backs{"back": back}, []filter{f})
	audited := strings.Replace(yaml, "  config:\n", "  config:\n    audit: {enabled: true, logFile: \""+log+"\"}\n", 1)
	without := strings.ReplaceAll(yaml, `on_event|*`, `on_session_end|*`)
	for kind, yaml := range map[string]string{"audited": audited, "without an audit log": without} {
		e := start(t, yaml)
		c := newClient(e, edgetest.Modern)
		for _, one := range []struct{ word, want string }{
			{"one", `"0"`}, {"large", `"failed -3"`}, {"name", `"failed -4"`}, {"nameless", `"failed -4"`}, {"junk", `"failed -4"`}, {"often", `"failed -3"`},
		} {
			if got := edgetest.Member(text(t, c.call(t, "echo", `{"n":7}`, "X-A", one.word)), "got"); got != one.want {
				t.Errorf("%s: %s: %s, want %s", kind, one.word, got, one.want)
			}
		}
		if kind != "audited" {
			if text := e.Log(); !strings.Contains(text, "event=seen") || !strings.Contains(text, `\"n\":7`) || strings.Contains(text, "ghp_0123") || mostInASecond(text, "event=often") > 64 {
				t.Errorf("%s: the log lacks the event, has its secret, or has it too often", kind)
			}
			continue
		}
		var text string
		edgetest.Until(t, "the record", func() bool {
			b, err := os.ReadFile(log)
			text = string(b)
			return err == nil && strings.Contains(text, `"type":"filter_event"`) && strings.Contains(text, `"name":"seen"`) && strings.Count(text, `"mcp_tool_call"`) == 6
		})
		if !strings.Contains(text, `"data":{"event":{"n":7,`) || !strings.Contains(text, `"component":"f"`) || strings.Contains(text, "ghp_0123") || strings.Contains(text, `"name":"again"`) {
			t.Errorf("the records: %s", text)
		}
		if n := strings.Count(text, `"name":"often"`); n == 0 || n > 128 {
			t.Errorf("%d events of one call", n)
		}
	}
}

// TestGrantsOfOutside refuses modules that ask others and may not.
func TestGrantsOfOutside(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	for grants, want := range map[string]string{
		"tools: [a], events: true":        "weir_v1.http_call: grant http",
		"http: [a.example], events: true": "weir_v1.call_tool: grant tools",
		"http: [a.example], tools: [a]":   "weir_v1.emit: grant events",
	} {
		if got := refused(t, manifest(t, backs{"back": back}, []filter{outsider(t, "f", grants)})); !strings.Contains(got, want) {
			t.Errorf("%s: %s", grants, got)
		}
	}
}

// TestOutsideMetrics counts what programs ask of others.
func TestOutsideMetrics(t *testing.T) {
	t.Parallel()
	_, host := peer(t, func(http.ResponseWriter, *http.Request) {})
	back := edgetest.NewServer(t, edgetest.Modern)
	nobody := edgetest.FreeAddress(t)
	f := outsider(t, "f", everything(`"http://`+host+`", "http://169.254.169.254", "http://`+nobody+`"`, "none"), "sub|on_call_request|blocking=1",
		"on_call_request|*|fetch|GET http://"+nobody+"/|", "on_call_request|*|fetch|GET http://"+host+"/|", "on_call_request|*|fetch|GET http://169.254.169.254/|", "on_call_request|*|tool|echo|{}", "on_call_request|*|emit|seen|{}")
	e := start(t, manifest(t, backs{"back": back}, []filter{f}), edgetest.Settings(func(s *serve.Settings) { s.AdminListen = "127.0.0.1:0" }))
	text(t, newClient(e, edgetest.Modern).call(t, "echo", "{}"))
	got := string(edgetest.NewClient(t, "http://"+e.Serve.AdminAddr()).Do("GET", "/metrics", "").Body)
	for want, n := range map[string]int{`function="http_call",outcome="ok"`: 1, `function="http_call",outcome="failed"`: 2, `function="call_tool",outcome="refused"`: 1, `function="emit",outcome="ok"`: 1} {
		if !strings.Contains(got, fmt.Sprintf(`weir_guest_outside_total{filter="f",%s,server="s"} %d`, want, n)) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// TestEventsEnd holds that the end of an edge does not wait for a program that
// waits for others on account of every record.
func TestEventsEnd(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	_, host := peer(t, func(_ http.ResponseWriter, r *http.Request) { calls.Add(1); <-r.Context().Done() })
	back := edgetest.NewServer(t, edgetest.Modern)
	f := outsider(t, "f", everything(`"http://`+host+`"`, "none"), "sub|on_event|blocking=1", "on_event|*|fetch|GET http://"+host+"/|")
	yaml := manifest(t, backs{"back": back}, []filter{f})
	yaml = strings.Replace(yaml, "  config:\n", fmt.Sprintf("  config:\n    audit: {enabled: true, logFile: %q}\n", filepath.Join(t.TempDir(), "audit.log")), 1)
	e := start(t, yaml)
	c := newClient(e, edgetest.Modern)
	for range 20 {
		text(t, c.call(t, "echo", "{}"))
	}
	edgetest.Until(t, "the first record to be shown", func() bool { return calls.Load() > 0 })
	began := time.Now()
	e.Stop()
	if took := time.Since(began); took > edgetest.Patience/2 {
		t.Errorf("the edge took %v to end", took)
	}
}

// TestZ38OptionalGrants has a module that calls functions behind grants which it
// does not have: it does not load, unless its manifest calls these grants optional.
// Then the functions say that they are denied.
func TestZ38OptionalGrants(t *testing.T) {
	t.Parallel()
	file, err := caller()
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	back := edgetest.NewServer(t, edgetest.Modern)
	rules := []string{
		"sub|on_call_request|blocking=1",
		"on_call_request|*|fetch|GET https://example.com/|",
		"on_call_request|*|set_arg|/fetched|$quoted",
		"on_call_request|*|tool|echo|{}",
		"on_call_request|*|set_arg|/called|$quoted",
		"on_call_request|*|emit|seen|{}",
		"on_call_request|*|set_arg|/told|$quoted",
	}
	packed := func(says string) string {
		body := append([]byte{byte(len("weir.manifest"))}, "weir.manifest"+says...)
		path := filepath.Join(t.TempDir(), "packed.wasm")
		if err := os.WriteFile(path, append(append(append([]byte{}, module...), 0, byte(len(body))), body...), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	yaml := func(says string) string {
		return manifest(t, backs{"back": back}, []filter{{name: "f", path: packed(says), rules: rules}})
	}
	if got := refused(t, yaml(`{"optionalGrants":["http","events"]}`)); !strings.Contains(got, "the module calls weir_v1.call_tool: grant tools, or use another module") {
		t.Errorf("without a grant that is not optional: %s", got)
	}
	if got := refused(t, yaml(`{}`)); !strings.Contains(got, "the module calls weir_v1.http_call: grant http, or use another module") {
		t.Errorf("with nothing optional: %s", got)
	}
	e := start(t, yaml(`{"optionalGrants":["http","events","tools"]}`))
	if got := text(t, newClient(e, edgetest.Modern).call(t, "echo", "{}")); got != `{"told":"failed -2","called":"failed -2","fetched":"failed -2"}` {
		t.Errorf("what is not granted: %s", got)
	}
}

// TestOwnCallsLeaveUnasked: a program that calls a tool, and holds its instance meanwhile, is not
// asked about what leaves for that call: it would wait for itself.
func TestOwnCallsLeaveUnasked(t *testing.T) {
	for _, isolation := range []string{"per_session", "shared"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.Legacy)
			offers(back, "echo", "look")
			f := outsider(t, "f", everything("none.example", "look, '*_look'"), "sub|on_call_request|blocking=1|tool=*echo", "sub|on_upstream_request",
				`on_call_request|*|tool|look|{}`, `on_call_request|*|set_arg|/got|$quoted`, "on_upstream_request|*|set_header|x-left|yes")
			f.limits = "instances: 1, isolation: " + isolation
			c := newClient(start(t, manifest(t, backs{"back": back}, []filter{f})), edgetest.Legacy)
			began := time.Now()
			if r := c.call(t, "echo", "{}"); r.Status != 200 || strings.Contains(string(r.Answer()), "not available") {
				t.Errorf("%d %s", r.Status, r.Answer())
			}
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("the call took %s", took)
			}
			for _, r := range back.Requests("tools/call") {
				asked := edgetest.Member(string(r.Message.Params), "name") == `"echo"`
				if left := r.Header.Get("X-Left"); (left == "yes") != asked {
					t.Errorf("%s left with %q", r.Message.Params, left)
				}
			}
		})
	}
}
