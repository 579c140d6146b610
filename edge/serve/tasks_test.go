package serve_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// beginsTasks makes a backend answer calls with tasks, of which it tells anybody who knows
// the id.
func beginsTasks(back *edgetest.Server, era edgetest.Era) {
	complete := ""
	if era == edgetest.Modern {
		complete = `"resultType":"complete",`
	}
	var mu sync.Mutex
	var begun []string
	back.Always("tools/call", func(c *edgetest.Call) {
		mu.Lock()
		defer mu.Unlock()
		id := fmt.Sprintf("t%d", len(begun)+1)
		begun = append(begun, fmt.Sprintf(`{"taskId":%q,"status":"working"}`, id))
		if era == edgetest.Modern {
			c.Result(fmt.Sprintf(`{"resultType":"task","taskId":%q,"status":"working"}`, id))
			return
		}
		c.Result(fmt.Sprintf(`{"task":{"taskId":%q,"status":"working","ttl":1000}}`, id))
	})
	for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel", "tasks/update"} {
		back.Always(method, func(c *edgetest.Call) { c.Result(`{` + complete + `"taskId":"t1","status":"completed"}`) })
	}
	back.Always("tasks/list", func(c *edgetest.Call) {
		mu.Lock()
		defer mu.Unlock()
		c.Result(`{"note":"kept","tasks":[` + strings.Join(begun, ",") + `],"nextCursor":"n"}`)
	})
}

// TestTasksOfABareServer: a bare server's backend does not know whose a task is, and the edge
// does: nobody reads, ends, lists or hears of the tasks of somebody else.
func TestTasksOfABareServer(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			m, back := newMint(t), edgetest.NewServer(t, era)
			beginsTasks(back, era)
			yaml := strings.Replace(edgetest.Manifest(back, ""), "incomingAuth: {type: anonymous}", fmt.Sprintf(
				"incomingAuth: {type: oidc, oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true}}", m.URL, m.URL+"/keys"), 1)
			e := edgetest.Start(t, yaml)
			as := func(who string) edgetest.Caller {
				c := e.NewClient()
				c.Header.Set("Authorization", "Bearer "+m.token(t, who, "weir", nil))
				edgetest.Until(t, "the keys", func() bool { return c.Do("GET", "/status", "").Status == 200 })
				return c.As(era, "")
			}
			ada, eve := as("ada"), as("eve")
			call := strings.Replace(edgetest.CallParams("echo", "{}"), "{", `{"task":{"ttl":1000},`, 1)
			ada.Ask("1", "tools/call", call).Result() // t1
			eve.Ask("1", "tools/call", call).Result() // t2
			ask := func(c edgetest.Caller, method, params string) edgetest.Message {
				return edgetest.Parse(t, c.Ask("2", method, params).Answer())
			}
			methods := []string{"tasks/get", "tasks/cancel", "tasks/result"}
			if era == edgetest.Modern {
				methods = []string{"tasks/get", "tasks/cancel", "tasks/update"}
			}
			for _, method := range methods {
				if a := ask(eve, method, `{"taskId":"t1"}`); a.Error == nil || a.Error.Code != -32602 || a.Error.Message != "task not found" {
					t.Errorf("%s of somebody else's task: %+v", method, a)
				}
				if n := back.Count(method); n != 0 {
					t.Errorf("the backend had %s %d times", method, n)
				}
				if a := ask(ada, method, `{"taskId":"t1"}`); a.Error != nil {
					t.Errorf("%s of an own task: %+v", method, a.Error)
				}
			}
			if era == edgetest.Modern {
				if a := ask(eve, "subscriptions/listen", `{"notifications":{"taskIds":["t2","t1"]}}`); a.Error == nil || a.Error.Message != "task not found" {
					t.Errorf("listen to somebody else's task: %+v", a)
				}
				return
			}
			for c, want := range map[*edgetest.Caller]string{
				&ada: `{"note":"kept","tasks":[{"taskId":"t1","status":"working"}],"nextCursor":"n"}`,
				&eve: `{"note":"kept","tasks":[{"taskId":"t2","status":"working"}],"nextCursor":"n"}`,
			} {
				if a := ask(*c, "tasks/list", `{}`); string(a.Result) != want {
					t.Errorf("the list is %s, want %s", a.Result, want)
				}
			}
		})
	}
}

// TestTasksOfOneID: where two backends give one client the same task id, neither of them is asked
// about the task that may be the other's.
func TestTasksOfOneID(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			one, two := edgetest.NewServer(t, era), edgetest.NewServer(t, era)
			for _, s := range []*edgetest.Server{one, two} {
				offers(s, "echo")
				beginsTasks(s, era)
			}
			e := edgetest.Start(t, group(map[string]*edgetest.Server{"one": one, "two": two}, bestEffort))
			f := &front{Edge: e, client: e.NewClient()}
			c := f.callerOf(t, era, "")
			begin := func(id, tool string) {
				c.request(t, id, "tools/call", edgetest.CallParams(tool, "{}")).Result()
			}
			begin("1", "one_echo")
			c.request(t, "2", "tasks/get", `{"taskId":"t1"}`).Result()
			if n := one.Count("tasks/get"); n != 1 {
				t.Errorf("%d times tasks/get", n)
			}
			begin("3", "two_echo")
			for _, method := range []string{"tasks/get", "tasks/cancel"} {
				if m := c.request(t, "4", method, `{"taskId":"t1"}`).Message(); m.Error == nil || m.Error.Code != -32602 || m.Error.Message != "task not found" {
					t.Errorf("%s: %+v", method, m)
				}
			}
			begin("5", "one_echo")
			c.request(t, "6", "tasks/get", `{"taskId":"t2"}`).Result()
			if a, b := one.Count("tasks/get"), two.Count("tasks/get")+one.Count("tasks/cancel")+two.Count("tasks/cancel"); a != 2 || b != 0 {
				t.Errorf("one was asked %d times, and %d times what may be another's", a, b)
			}
		})
	}
}

// TestTasksAfterAReload: the tasks that clients have begun are theirs when their server is
// served from another manifest.
func TestTasksAfterAReload(t *testing.T) {
	t.Parallel()
	old, other := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern)
	for _, s := range []*edgetest.Server{old, other} {
		offers(s, "echo")
	}
	beginsTasks(old, edgetest.Legacy)
	backs := map[string]*edgetest.Server{"old": old, "other": other}
	e := edgetest.Start(t, group(backs, bestEffort))
	f := &front{Edge: e, client: e.NewClient()}
	c := f.callerOf(t, edgetest.Legacy, "")
	c.request(t, "1", "tools/call", edgetest.CallParams("old_echo", "{}")).Result()
	if err := e.Serve.Reload(edgetest.Plan(t, group(backs, "operational: {failureHandling: {partialFailureMode: best_effort, statusReportingInterval: 1s}}"))); err != nil {
		t.Fatal(err)
	}
	if out := c.request(t, "2", "tasks/get", `{"taskId":"t1"}`).Result(); !strings.Contains(out, "completed") {
		t.Error(out)
	}
}
