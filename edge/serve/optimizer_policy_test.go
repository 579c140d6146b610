package serve_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// permitting is YAML of incomingAuth with policies that permit anonymous clients calls of tools.
func permitting(tools ...string) string {
	var rules []string
	for _, name := range tools {
		rules = append(rules, fmt.Sprintf(`    - permit(principal, action == Action::"call_tool", resource == Tool::%q);`, name))
	}
	return "incomingAuth:\n  type: anonymous\n  authz:\n    type: policy\n    policies:\n" + strings.Join(rules, "\n") + "\n"
}

// under is an edge with policies.
func under(t *testing.T, back *edgetest.Server, rules string, more ...string) *front {
	t.Helper()
	e := edgetest.Start(t, strings.Replace(edgetest.Manifest(back, more...), "incomingAuth: {type: anonymous}\n", rules, 1))
	return &front{Edge: e, back: back, client: e.NewClient()}
}

// TestC09FindToolPolicy: what a policy hides is not found, by its name, its description or a
// typo, and each answer is that of a server which never had it (rows C09, C10, Q01).
func TestC09FindToolPolicy(t *testing.T) {
	t.Parallel()
	back, less := edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Modern)
	secret := tool{"secret_vault", "Opens the vault of the house with a code.", []string{"code"}, 1}
	offersTools(back, append([]tool{secret}, library...)...)
	offersTools(less, library...)
	results(back, echoes)
	var names []string
	for _, one := range library {
		names = append(names, one.name)
	}
	f, alone := under(t, back, permitting(names...), finds()), under(t, less, permitting(names...), finds())
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		c, d := f.callerOf(t, era, ""), alone.callerOf(t, era, "")
		for _, text := range []string{"secret_vault", "secret vault", secret.description, "sekret valt", "code", "file", "opens a file with a code", "house"} {
			got, want := c.find(t, text, `"weir.dev/explain":true`), d.find(t, text, `"weir.dev/explain":true`)
			if got.Raw != want.Raw || strings.Contains(got.Raw, "vault_") || strings.Contains(strings.Join(got.Names, " "), "secret") {
				t.Errorf("%q: %s\nwant %s", text, got.Raw, want.Raw)
			}
		}
		// What it calls is judged as the direct call is: nobody learns whether there is such a
		// tool.
		for _, name := range []string{"secret_vault", "nothing", "find_tool"} {
			m := fails(t, c.request(t, "3", "tools/call", through(name, `{"code":"1"}`)), 403, 403, "3")
			if m.Error.Message != "denied by authorization policy" {
				t.Errorf("%s: %s", name, m.Error.Message)
			}
		}
		if got := c.tool(t, "4", "call_tool", `{"tool_name":"read_file","parameters":{"path":"a"}}`); edgetest.Member(got, "structuredContent") != `{"path":"a"}` {
			t.Errorf("a tool that is permitted answers %s", got)
		}
		fails(t, c.request(t, "5", "tools/call", edgetest.CallParams("read_file", "{}")), 403, 403, "5")
	}
	if n := back.Count("tools/call"); n != 2 {
		t.Errorf("the backend got %d calls", n)
	}
}

// TestFindToolReload: what a reload forbids or hides is gone from the next answer.
func TestFindToolReload(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	offersTools(back, library...)
	all := []string{"read_file", "write_file", "list_directory", "send_mail", "search_issues"}
	text := func(rules, more string) string {
		return strings.Replace(edgetest.Manifest(back, finds(), more), "incomingAuth: {type: anonymous}\n", rules, 1)
	}
	e := edgetest.Start(t, text(permitting(all...), ""))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	c := f.callerOf(t, edgetest.Modern, "")
	for i := range 20 {
		if a := c.find(t, "read a file"); a.Names[0] != "read_file" {
			t.Fatalf("%d: found %v", i, a.Names)
		}
		if err := e.Serve.Reload(edgetest.Plan(t, text(permitting(all[1:]...), ""))); err != nil {
			t.Fatal(err)
		}
		if a := c.find(t, "read a file"); strings.Contains(a.Raw, "read_file") {
			t.Fatalf("%d: what is denied is found: %v", i, a.Names)
		}
		hidden := strings.Replace(text(permitting(all...), ""), "aggregation:\n", "aggregation:\n  tools: [{workload: back, filter: [send_mail, write_file]}]\n", 1)
		if err := e.Serve.Reload(edgetest.Plan(t, hidden)); err != nil {
			t.Fatal(err)
		}
		if a := c.find(t, "read a file"); strings.Contains(a.Raw, "read_file") || len(a.Names) == 0 {
			t.Fatalf("%d: what is hidden is found: %v", i, a.Names)
		}
		if err := e.Serve.Reload(edgetest.Plan(t, text(permitting(all...), ""))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestR09CallToolLimits: a call by call_tool takes tokens of the tool, and call_tool has those
// of its own name alone (row R09).
func TestR09CallToolLimits(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	offersTools(back, library...)
	results(back, echoes)
	yaml := edgetest.Manifest(back, finds(), "rateLimiting: {tools: [{name: read_file, shared: "+bucket(2)+"}, {name: call_tool, shared: "+bucket(5)+"}]}")
	e := edgetest.StartPlan(t, edgetest.LocalPlan(t, yaml))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	c := f.callerOf(t, edgetest.Modern, "")
	for range 2 {
		c.tool(t, "1", "call_tool", `{"tool_name":"read_file","parameters":{}}`)
	}
	limited(t, c.request(t, "2", "tools/call", through("read_file", "{}")), "2")
	for range 2 { // the limited call has cost call_tool a token
		c.tool(t, "3", "call_tool", `{"tool_name":"send_mail","parameters":{}}`)
	}
	limited(t, c.request(t, "4", "tools/call", through("send_mail", "{}")), "4")
	if a := c.find(t, "mail"); len(a.Names) == 0 {
		t.Error("find_tool has no limit, and found nothing")
	}
}

// TestQ02ManyUsers: 50 users of ten policies ask at the same time over a thousand tools, 200
// questions each, with a reload in between: nobody is told of a tool that a list without the
// optimizer would not show, the baseline is that list, and what the reload forbids is in no
// answer to a question that was asked after it.
func TestQ02ManyUsers(t *testing.T) {
	t.Parallel()
	const policies, forbidden = 10, "tool_500"
	const users, tools, questions = 50, 1000, 200
	back := edgetest.NewServer(t, edgetest.Modern)
	var all []tool
	for i := range tools {
		all = append(all, tool{fmt.Sprintf("tool_%d", i), fmt.Sprintf("Does the thing number %d of kind%d with files, mails and pages.", i, i%37), []string{"path"}, 0})
	}
	offersTools(back, all...)
	results(back, echoes)
	mint := edgetest.NewMint(t, "weir")
	yaml := func(optimizer, but string) string {
		var rules []string
		for p := range policies {
			var names []string
			for i := range tools {
				if (i*7+p)%policies < 3 {
					names = append(names, fmt.Sprintf("Tool::\"tool_%d\"", i))
				}
			}
			rules = append(rules, fmt.Sprintf(`'permit(principal in THVGroup::"g%d", action == Action::"call_tool", resource) when {[%s].contains(resource)};'`, p, strings.Join(names, ", ")))
		}
		if but != "" {
			rules = append(rules, fmt.Sprintf(`'forbid(principal, action == Action::"call_tool", resource == Tool::%q);'`, but))
		}
		return guardedBy(mint, back, strings.Join(rules, ", "), optimizer)
	}
	listsOf := func(e *edgetest.Edge) []string {
		lists := make([]string, policies)
		for p := range policies {
			lists[p] = wholeList(e.NewClient(), mint.Bearer("lister", fmt.Sprint("g", p)))
		}
		return lists
	}
	e := edgetest.Start(t, yaml(finds(), ""), edgetest.Logging(slog.LevelWarn))
	before, after := listsOf(edgetest.Start(t, yaml("", ""))), listsOf(edgetest.Start(t, yaml("", forbidden)))
	var work sync.WaitGroup
	var asked atomic.Int64
	var reloaded atomic.Bool
	for u := range users {
		head := mint.Bearer(fmt.Sprint("user", u), fmt.Sprint("g", u%policies))
		work.Go(func() {
			c := caller{Client: e.NewClient()}
			r := rand.New(rand.NewPCG(uint64(u), 1))
			for q := range questions {
				n := r.IntN(tools)
				text := []string{fmt.Sprintf("tool_%d", n), fmt.Sprintf("thing number %d", n), fmt.Sprintf("kind%d", n%37), "files and mails", forbidden}[q%5]
				body, more := c.message("1", "tools/call", edgetest.CallParams("find_tool", fmt.Sprintf(`{"tool_description":%q}`, text)))
				late := reloaded.Load()
				answer, err := c.Try("POST", "/mcp", body, append(more, head...)...)
				asked.Add(1)
				if err != nil || answer.Status != 200 {
					t.Errorf("user %d: %v %v", u, err, answer)
					return
				}
				a, err := foundIn(c, edgetest.Member(string(answer.Body), "result"))
				if err != nil {
					t.Error(err)
					return
				}
				lists := []string{before[u%policies], after[u%policies]}
				if late {
					lists = lists[1:]
				}
				told := func(list string) string {
					if a.Metrics.Baseline != len(list)/4 {
						return fmt.Sprintf("the baseline is %d, and the list has %d bytes", a.Metrics.Baseline, len(list))
					}
					for _, one := range a.Tools {
						if !strings.Contains(list, string(one)) {
							return "told of " + string(one)
						}
					}
					return ""
				}
				if !slices.ContainsFunc(lists, func(list string) bool { return told(list) == "" }) {
					t.Errorf("user %d, after the reload: %t: %s", u, late, told(lists[len(lists)-1]))
					return
				}
			}
		})
	}
	work.Go(func() {
		edgetest.Until(t, "half of the questions", func() bool { return t.Failed() || asked.Load() >= users*questions/2 })
		if err := e.Serve.Reload(edgetest.Plan(t, yaml(finds(), forbidden))); err != nil {
			t.Error(err)
		}
		reloaded.Store(true)
	})
	work.Wait()
	if strings.Contains(strings.Join(after, ""), `"`+forbidden+`"`) || !strings.Contains(strings.Join(before, ""), `"`+forbidden+`"`) {
		t.Error("the reload forbids nothing")
	}
}

// wholeList is the list of tools that a modern client sees, all pages as one array.
func wholeList(c *edgetest.Client, head []string) string {
	var pages []string
	for cursor := ""; ; {
		params := "{}"
		if cursor != "" {
			params = `{"cursor":` + cursor + `}`
		}
		body, more := edgetest.ModernRequest("1", "tools/list", params, edgetest.Meta())
		text := c.Post(body, append(more, head...)...).Result()
		page := edgetest.Member(text, "tools")
		pages = append(pages, page[1:len(page)-1])
		if cursor = edgetest.Member(text, "nextCursor"); cursor == "" {
			return "[" + strings.Join(pages, ",") + "]"
		}
	}
}
