package serve_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/heavy"
)

// TestZ03Members: params and _meta with more members than any message has are
// refused, quickly, in both eras; arguments may have as many as they like.
func TestZ03Members(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	e := edgetest.Start(t, edgetest.Manifest(back))
	f := &front{Edge: e, client: e.NewClient()}
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		c := f.callerOf(t, era, "")
		wide := heavy.Value("wide", 2<<20, 1)
		if r := c.request(t, "1", "tools/call", edgetest.CallParams("echo", wide)); r.Status != 200 {
			t.Errorf("%s: wide arguments: status %d: %.300s", era, r.Status, r.Body)
		}
		inside := strings.Trim(wide, "{}")
		from := heavy.Process()
		fails(t, c.request(t, "2", "tools/call", `{"name":"echo",`+inside+`,"arguments":{}}`), 400, -32600, "2")
		fails(t, c.request(t, "3", "tools/call", edgetest.CallParams("echo", "{}"), inside), 400, -32600, "3")
		if took := heavy.Process() - from; took > 4*time.Second {
			t.Errorf("%s: two messages of 2 MiB took %v", era, took)
		}
	}
}

// TestZ03Subscriptions: a subscription names so many resources, and no more, also
// before a single legacy backend, which is asked for each of them.
func TestZ03Subscriptions(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Legacy)
	e := edgetest.Start(t, edgetest.Manifest(back))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	f.introduced(t)
	var uris []string
	for i := range 100_000 {
		uris = append(uris, fmt.Sprintf("x://h/%d", i))
	}
	list, err := json.Marshal(uris)
	if err != nil {
		t.Fatal(err)
	}
	r := f.callerOf(t, edgetest.Modern, "").request(t, "1", "subscriptions/listen", `{"notifications":{"resourceSubscriptions":`+string(list)+`}}`)
	fails(t, r, 400, -32602, "1")
	if n := back.Count("resources/subscribe"); n > 0 {
		t.Errorf("the backend was asked for %d", n)
	}
}

// TestZ05Front has clients of both eras ask for resources by twisted URIs, before
// one backend and before several: none reaches a backend, and the answer is that
// of any denial.
func TestZ05Front(t *testing.T) {
	const rules = `incomingAuth:
  type: anonymous
  authz:
    type: policy
    policies:
    - permit(principal, action, resource is Resource) when { resource.uri like "file:///public/*" };
    - permit(principal, action == Action::"call_tool", resource);
`
	resources := func(s *edgetest.Server) {
		s.Always("resources/list", func(c *edgetest.Call) {
			c.Result(`{"resources":[{"uri":"file:///public/a","name":"a"},{"uri":"file:///public//../secret","name":"twisted"},{"uri":"file:///public/%2e%2e/secret","name":"escaped"}]}`)
		})
		s.Always("resources/read", func(c *edgetest.Call) { c.Result(`{"contents":[]}`) })
	}
	for _, several := range []bool{false, true} {
		t.Run(fmt.Sprintf("several backends %v", several), func(t *testing.T) {
			t.Parallel()
			back, other := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern)
			resources(back)
			yaml := edgetest.Manifest(back)
			if several {
				yaml = group(map[string]*edgetest.Server{"a": back, "b": other}, bestEffort)
			}
			e := edgetest.Start(t, strings.Replace(yaml, "incomingAuth: {type: anonymous}\n", rules, 1))
			f := &front{Edge: e, client: e.NewClient()}
			for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
				c := f.callerOf(t, era, "")
				if r := c.request(t, "1", "resources/read", `{"uri":"file:///public/a"}`); r.Status != 200 {
					t.Errorf("%s: status %d: %s", era, r.Status, r.Body)
				}
				for _, uri := range []string{"file:///public//../secret", "file:///public/?/../../secret", "file:///public/..;/secret", "file:///public/%c0%ae%c0%ae/secret", "file:///public/%2e%2e/secret"} {
					fails(t, c.request(t, "2", "resources/read", `{"uri":"`+uri+`"}`), 403, 403, "2")
					fails(t, c.request(t, "3", "completion/complete", `{"ref":{"type":"ref/resource","uri":"`+uri+`"},"argument":{"name":"a","value":""}}`), 403, 403, "3")
				}
				if several {
					if body := string(c.request(t, "4", "resources/list", "").Body); !strings.Contains(body, "file:///public/a") || strings.Contains(body, "secret") {
						t.Errorf("%s: %s", era, body)
					}
				}
			}
			for _, method := range []string{"resources/read", "completion/complete"} {
				for _, r := range back.Requests(method) {
					if strings.Contains(string(r.Message.Params), "secret") {
						t.Errorf("the backend saw %s", r.Message.Params)
					}
				}
			}
		})
	}
}
