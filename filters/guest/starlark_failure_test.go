package guest_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// hostile is a script whose every function does what its caller names.
const hostile = `
subscribe("map_identity")
subscribe("outgoing_auth", headers = ["x-bad"])

FROZEN = []

def bad(what):
    if what == "loop":
        while True:
            pass
    elif what == "text":
        return "x" * 1073741824
    elif what == "fail":
        fail("no more")
    elif what == "frozen":
        FROZEN.append(1)
    elif what == "wrong":
        return "no operation"
    elif what == "misplaced":
        return rename(0, "x")

def map_identity(c):
    return bad(c.claims.get("bad"))

def on_call_request(c):
    return bad(c.args.get("bad"))

def on_call_response(c):
    return bad(c.result.get("bad"))

def outgoing_auth(c):
    return bad(c.headers.get("x-bad"))
`

// TestX43AtTheEdge: a script that fails refuses the message, or lets it pass where that is
// said; hooks of identity refuse in any case. Nobody else's message is concerned.
func TestX43AtTheEdge(t *testing.T) {
	t.Parallel()
	m := edgetest.NewMint(t, "weir")
	back := edgetest.NewServer(t, edgetest.Modern)
	ways := []string{"loop", "text", "fail", "frozen", "wrong", "misplaced"}
	for _, onError := range []string{"deny", "continue"} {
		e := guarded(t, m, scripted(t, backs{"back": back}, []script{{name: "f", text: hostile, more: "limits: {}, onError: " + onError}}))
		c := newClient(e, edgetest.Modern)
		bearer := func(who string) []string { return m.BearerOf(who, map[string]any{}) }
		for _, what := range ways {
			fails(t, c.call(t, "echo", "{}", m.BearerOf("mapped-"+what, map[string]any{"bad": what})...), 503, 503, `filter "f" is not available`)
			fails(t, c.call(t, "echo", "{}", append(bearer("out-"+what), "X-Bad", what)...), 503, 503, `filter "f" is not available`)
			r := c.call(t, "echo", fmt.Sprintf(`{"bad":%q}`, what), bearer("called-"+what)...)
			if onError == "deny" {
				fails(t, r, 503, 503, `filter "f" is not available`)
			} else {
				text(t, r)
			}
			text(t, c.call(t, "echo", "{}", bearer("another")...))
		}
		log := e.Log()
		for _, want := range []string{
			"map_identity: deadline: f.star:", "map_identity: memory: f.star:12:20: a value of more than 8 MiB", "map_identity: trap: f.star:14:13: fail: no more",
			"append: cannot append to frozen list", "abi: it returned string: return None, an operation, or a list of operations", "abi: operation rename is not allowed at this hook",
		} {
			if !strings.Contains(log, want) {
				t.Errorf("%s: the log lacks %q", onError, want)
			}
		}
		if strings.Contains(log, "goroutine") {
			t.Error("the log has frames of the interpreter")
		}
	}
}

// TestObservedScript is asked and changes nothing, and one that is off is not asked.
func TestObservedScript(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	deny := "def on_call_request(c):\n    return deny(403, 'no')"
	for _, mode := range []string{"observe", `"off"`} {
		e := start(t, scripted(t, backs{"back": back}, []script{{name: "f", text: deny, more: "mode: " + mode}}))
		text(t, newClient(e, edgetest.Modern).call(t, "echo", "{}"))
		if observed := strings.Contains(e.Log(), "a filter that is observed would change a message"); observed != (mode == "observe") {
			t.Errorf("%s: observed %v", mode, observed)
		}
	}
}

// TestScriptAsks has a script ask another party and call a tool, where its subscription says
// that it waits, and keep a count, within what is granted.
func TestScriptAsks(t *testing.T) {
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		_, host := peer(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Say", "hello")
			w.WriteHeader(203)
			_, _ = w.Write([]byte(r.Method + " " + r.URL.Path))
		})
		back := edgetest.NewServer(t, of)
		offers(back, "echo", "other")
		f := script{name: "f", text: `
subscribe("on_call_request", tools = ["echo"], blocking = True)

def on_call_request(c):
    answer = fetch(config["url"] + "/path", method = "POST")
    elsewhere = attempt(lambda: fetch("http://127.0.0.1:1/"))
    called = call_tool("other", {"by": c.tool})
    refused = attempt(lambda: call_tool("none"))
    return set_arg("/got", [answer.status, answer.headers["x-say"], answer.body, elsewhere["error"]["message"], called["content"][0]["type"], refused["error"]["code"], kv_add("calls", 1, 60000)])
`, more: fmt.Sprintf(`config: {url: "http://%[1]s"}, grants: {http: ["http://%[1]s"], tools: [other], kv: true}`, host)}
		c := newClient(start(t, scripted(t, backs{"back": back}, []script{f})), era)
		for n := range 2 {
			want := fmt.Sprintf(`[203,"hello","POST /path","fetch: not granted","text",-2,%d]`, n+1)
			if got := edgetest.Member(text(t, c.call(t, "echo", `{}`)), "got"); got != want {
				t.Errorf("the script got %s, want %s", got, want)
			}
		}
		if n := back.Count("tools/call"); n != 4 {
			t.Errorf("the backend got %d calls", n)
		}
	})
}

// TestStoreOfFilters: a filter that fills its share of the store is told so, as the log is, once a
// minute, and the one beside it keeps what it likes.
func TestStoreOfFilters(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	e := start(t, scripted(t, backs{"back": back}, []script{{name: "greedy", more: "grants: {kv: true}", text: `
def on_call_request(c):
    kept = [n for n in range(300) if attempt(lambda: kv_set("k%d" % n, "x" * 65536, 60000))["ok"]]
    return [set_arg("/kept", len(kept)), set_arg("/code", attempt(lambda: kv_set("k", "x" * 65536, 60000))["error"]["code"])]
`}, {name: "other", more: "grants: {kv: true}", text: `
def on_call_request(c):
    kv_set("k", "x" * 65536, 60000)
    return set_arg("/count", kv_add("n", 1, 60000))
`}}))
	got := text(t, newClient(e, edgetest.Modern).call(t, "echo", "{}"))
	if kept := edgetest.Member(got, "kept"); kept != "255" || edgetest.Member(got, "code") != "-3" || edgetest.Member(got, "count") != "1" {
		t.Errorf("255 values of 64 KiB have room in a quarter of 64 MiB, then it is -3; the other counts to 1: %s", got)
	}
	if log := e.Log(); strings.Count(log, "a filter's share of the store in memory is full") > 2 || !strings.Contains(log, "ttl_ms") || !strings.Contains(log, "guest=greedy") || strings.Contains(log, "guest=other") {
		t.Errorf("the log does not say once whose share is full: %s", log)
	}
}

// TestScriptReload swaps a script while calls come by the clock, 2,000 a second where the
// machine can: each is judged by the one or the other, and none fails. make storm
// ROW=starlark holds the rate for a minute, from outside of the process.
func TestScriptReload(t *testing.T) {
	const rate = 2000 // calls a second
	calls := 4 * rate
	if testing.Short() || raceFactor > 1 {
		calls = 800
	}
	back := edgetest.NewServer(t, edgetest.Modern)
	text := func(n int) string {
		return fmt.Sprintf("def on_call_request(c):\n    return set_arg('/seen', %d)", n)
	}
	yaml := func(n int) string { return scripted(t, backs{"back": back}, []script{{name: "f", text: text(n)}}) }
	e := start(t, yaml(0))
	const clients = 16
	began := time.Now()
	var (
		work sync.WaitGroup
		made atomic.Int64
		most atomic.Int64
		mu   sync.Mutex
	)
	wrong := map[string]int{}
	for range clients {
		c := newClient(e, edgetest.Modern)
		work.Go(func() {
			for {
				number := made.Add(1)
				if number > int64(calls) {
					return
				}
				time.Sleep(time.Until(began.Add(time.Duration(number) * time.Second / rate))) // its turn
				least := most.Load()
				r, err := c.try("tools/call", edgetest.CallParams("echo", `{"text":"hi"}`))
				n := int64(-1)
				if err == nil && r.Status == 200 {
					_, after, _ := strings.Cut(string(r.Body), `seen\":`) // within the text that the backend answers with
					number, _, _ := strings.Cut(after, ",")
					n, err = strconv.ParseInt(number, 10, 64)
				}
				if err != nil || r.Status != 200 || n < least {
					mu.Lock()
					wrong[fmt.Sprintf("%v %.300s, seen %d after %d", err, r.Body, n, least)]++
					mu.Unlock()
				}
			}
		})
	}
	reloads := int64(0)
	for made.Load() < int64(calls) {
		reloads++
		if err := e.Serve.Reload(edgetest.Plan(t, yaml(int(reloads)))); err != nil {
			t.Fatal(err)
		}
		most.Store(reloads)
		time.Sleep(20 * time.Millisecond) // what a reload takes is not the calls'
	}
	work.Wait()
	t.Logf("%d calls and %d reloads, %.0f calls a second of %d", calls, reloads, float64(calls)/time.Since(began).Seconds(), rate)
	if len(wrong) > 0 || reloads < 3 {
		t.Errorf("of %d calls and %d reloads: %v", calls, reloads, wrong)
	}
}

// TestScriptFile reads a script from a file, and again when it has changed. One that is wrong
// changes nothing.
func TestScriptFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules.star")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	back := edgetest.NewServer(t, edgetest.Modern)
	yaml := strings.Replace(scripted(t, backs{"back": back}, []script{{name: "f", text: "TEXT"}}), `inline: "TEXT"`, fmt.Sprintf("path: %q", file), 1)
	write("def on_call_request(c):\n    return deny(403, 'one')")
	e := start(t, yaml, edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = time.Second }))
	c := newClient(e, edgetest.Modern)
	fails(t, c.call(t, "echo", "{}"), 403, 403, "one")
	plan := edgetest.Plan(t, yaml)
	write("def on_call_request(c):\n    return deny(403, nothing)")
	if err := e.Serve.Reload(plan); err == nil || !strings.Contains(err.Error(), `filter "f": source: rules.star:2:22: undefined: nothing`) {
		t.Errorf("a script that is wrong: %v", err)
	}
	fails(t, c.call(t, "echo", "{}"), 403, 403, "one")
	write("def on_call_request(c):\n    return deny(403, 'two')")
	if err := e.Serve.Reload(plan); err != nil {
		t.Fatal(err)
	}
	fails(t, c.call(t, "echo", "{}"), 403, 403, "two")
}

// TestScriptInAConfigMap serves a script that stands in a ConfigMap, if it has its digest.
func TestScriptInAConfigMap(t *testing.T) {
	t.Parallel()
	const rules = "def on_call_request(c):\n    return deny(403, 'mapped')\n"
	back := edgetest.NewServer(t, edgetest.Modern)
	yaml := strings.Replace(scripted(t, backs{"back": back}, []script{{name: "f", text: "TEXT", more: "sha256: " + digest([]byte(rules))}}), `inline: "TEXT"`, "configMapRef: {name: rules, key: f.star}", 1)
	yaml += fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: rules}\ndata: {f.star: %q}\n", rules)
	fails(t, newClient(start(t, yaml), edgetest.Modern).call(t, "echo", "{}"), 403, 403, "mapped")
}

// TestScriptAnswersWithWhatAToolSaid: what a tool said to a script becomes the client's answer
// as far as the client's era has it.
func TestScriptAnswersWithWhatAToolSaid(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.Modern)
			offers(back, "echo", "other", "late")
			back.Always("tools/call", func(c *edgetest.Call) {
				c.Result(`{"resultType":"complete","content":[{"type":"text","text":"said"}],"structuredContent":[1,2]}`)
			})
			f := script{name: "f", text: `
subscribe("on_call_request", tools = ["echo"], blocking = True)
subscribe("on_call_response", tools = ["late"], blocking = True)

def on_call_request(c):
    said = call_tool("other", {})
    if said["structuredContent"] != [1, 2]:
        fail("it got", said)
    return respond(said)

def on_call_response(c):
    return respond(call_tool("other", {}))
`, more: "grants: {tools: [other]}"}
			c := newClient(start(t, scripted(t, backs{"back": back}, []script{f})), era)
			for _, name := range []string{"echo", "late"} {
				result := c.call(t, name, "{}").Result()
				structured, kind := edgetest.Member(result, "structuredContent"), edgetest.Member(result, "resultType")
				if era == edgetest.Legacy && (structured != "" || kind != "") || era == edgetest.Modern && (structured != "[1,2]" || kind != `"complete"`) {
					t.Errorf("%s: %s", name, result)
				}
			}
		})
	}
}
