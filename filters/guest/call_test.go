package guest_test

import (
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestCalls has a program change, deny and answer calls, for clients and
// backends of both eras, before one backend and before several.
func TestCalls(t *testing.T) {
	rules := []string{
		"on_call_request|args~secret|deny|0|not here|{\"why\":1}",
		"on_call_request|args~slow|deny|3|later",
		"on_call_request|args~nobody|deny|1|say who you are",
		"on_call_request|args~wrong|deny|2|not so",
		"on_call_request|args~absent|deny|4|no such thing",
		"on_call_request|args~edit|set_arg|/added|{\"by\":\"$tool\"}",
		"on_call_request|args~edit|set_arg|/list/-|3",
		"on_call_request|args~edit|del_arg|/edit",
		"on_call_request|args~whole|set_arguments|{\"new\":true}",
		"on_call_request|args~known|respond|{\"content\":[{\"type\":\"text\",\"text\":\"at hand\"}]}",
		"on_call_request|args~head|set_header|X-Guest|$tool by $method",
		"on_call_request|args~twice|log_field|seen|$args",
	}
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		for _, several := range []bool{false, true} {
			back := edgetest.NewServer(t, of)
			all, tool := backs{"back": back}, "echo"
			if several {
				all, tool = backs{"a": back, "b": edgetest.NewServer(t, of)}, "a_echo"
			}
			e := start(t, manifest(t, all, []filter{{name: "f", rules: rules}}))
			c := newClient(e, era)
			if got := text(t, c.call(t, tool, `{"x":1}`)); got != `{"x":1}` {
				t.Errorf("a call that it says nothing to: %s", got)
			}
			if got, want := text(t, c.call(t, tool, `{"edit":1,"list":[1,2],"big":12345678901234567890}`)), `{"added":{"by":"`+tool+`"},"list":[1,2,3],"big":12345678901234567890}`; got != want {
				t.Errorf("edited arguments: %s, want %s", got, want)
			}
			if got := text(t, c.call(t, tool, `{"whole":1}`)); got != `{"new":true}` {
				t.Errorf("other arguments: %s", got)
			}
			r := c.call(t, tool, `{"secret":1}`)
			fails(t, r, 403, 403, "not here")
			if string(r.Message().Error.Data) != `{"why":1}` {
				t.Errorf("data of a denial: %s", r.Body)
			}
			fails(t, c.call(t, tool, `{"slow":1}`), 429, 429, "later")
			fails(t, c.call(t, tool, `{"nobody":1}`), 401, 401, "say who")
			status := 200
			if era == edgetest.Modern {
				status = 400
			}
			fails(t, c.call(t, tool, `{"wrong":1}`), status, -32602, "not so")
			fails(t, c.call(t, tool, `{"absent":1}`), status, -32602, "no such thing")
			before := len(back.Requests("tools/call"))
			r = c.call(t, tool, `{"known":1}`)
			if got := text(t, r); got != "at hand" || len(back.Requests("tools/call")) != before {
				t.Errorf("an answer at hand: %s, with %d requests to the backend", got, len(back.Requests("tools/call"))-before)
			}
			if complete := edgetest.Member(string(r.Message().Result), "resultType"); (complete == `"complete"`) != (era == edgetest.Modern) {
				t.Errorf("resultType of an answer at hand: %q", complete)
			}
			text(t, c.call(t, tool, `{"head":1}`))
			last := back.Requests("tools/call")
			if got := last[len(last)-1].Header.Get("X-Guest"); got != tool+" by tools/call" {
				t.Errorf("the header that it sets: %q", got)
			}
			text(t, c.call(t, tool, `{"twice":1}`))
			if !strings.Contains(e.Log(), `fields.seen="{\"twice\":1}"`) {
				t.Error("the log lacks what it notes")
			}
		}
	})
}

// TestAnotherTool has a program send calls elsewhere. Policies judge where they
// go, not where the client wanted them to.
func TestAnotherTool(t *testing.T) {
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		a, b := edgetest.NewServer(t, of), edgetest.NewServer(t, of)
		offers(a, "echo", "danger")
		offers(b, "echo")
		rules := []string{
			"on_call_request|args~evil|set_tool|a_danger",
			"on_call_request|args~none|set_tool|a_nothing",
			"on_call_request|args~over|set_backend|b",
			"on_call_request|args~void|set_backend|c",
			"on_call_request|args~back|set_backend|a",
		}
		policy := `incomingAuth: {type: anonymous, authzConfig: {type: inline, inline: {policies: ['permit(principal, action == Action::"call_tool", resource) unless { resource == Tool::"a_danger" };']}}}`
		yaml := strings.Replace(manifest(t, backs{"a": a, "b": b}, []filter{{name: "f", rules: rules}}), "incomingAuth: {type: anonymous}", policy, 1)
		c := newClient(start(t, yaml), era)
		text(t, c.call(t, "a_echo", `{"over":1}`))
		if len(a.Requests("tools/call")) != 0 || len(b.Requests("tools/call")) != 1 {
			t.Error("the call did not go to the other backend")
		}
		if got := edgetest.Member(string(b.Requests("tools/call")[0].Message.Params), "name"); got != `"echo"` {
			t.Errorf("it is called %s there", got)
		}
		fails(t, c.call(t, "a_echo", `{"evil":1}`), 403, 403, "denied by authorization policy")
		fails(t, c.call(t, "a_echo", `{"none":1}`), 403, 403, "denied by authorization policy")
		status := 200
		if era == edgetest.Modern {
			status = 400
		}
		fails(t, c.call(t, "a_echo", `{"void":1}`), status, -32602, `backend "c" has no tool of this name`)
		if len(a.Requests("tools/call")) != 0 {
			t.Error("a backend saw what is denied")
		}
	})
}

// TestReadyIsJudged: a program's own answer goes to those alone who may call.
func TestReadyIsJudged(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	policy := `incomingAuth: {type: anonymous, authzConfig: {type: inline, inline: {policies: ['forbid(principal, action, resource);']}}}`
	f := filter{name: "f", rules: []string{`on_call_request|*|respond|{"content":[]}`}}
	yaml := strings.Replace(manifest(t, backs{"back": back}, []filter{f}), "incomingAuth: {type: anonymous}", policy, 1)
	fails(t, newClient(start(t, yaml), edgetest.Modern).call(t, "echo", `{}`), 403, 403, "denied by authorization policy")
}

// TestAnswers has programs change and refuse answers, the last of them first.
func TestAnswers(t *testing.T) {
	rules := []string{
		"on_call_request|*|set_carry|carried $args",
		"on_call_response|result~hunter2|redact|/content/0/text|[hidden from $tool]",
		"on_call_response|result~drop|drop_content|0",
		"on_call_response|result~several|drop_content|1", "on_call_response|result~several|drop_content|3",
		"on_call_response|result~patch|patch_result|/_meta|{\"carry\":\"$tool\"}",
		"on_call_response|carry~carried {\"who|patch_result|/content/0/text|\"$subject\"",
		"on_call_response|result~worst|deny|0|not for you",
		"on_call_response|result~other|respond|{\"content\":[{\"type\":\"text\",\"text\":\"another\"}]}",
		"on_call_response|error~broken|respond|{\"content\":[{\"type\":\"text\",\"text\":\"mended\"}]}",
	}
	second := []string{"on_call_response|result~order|redact|/content/0/text|hunter2"}
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		back := edgetest.NewServer(t, of)
		e := start(t, manifest(t, backs{"back": back}, []filter{{name: "first", rules: rules}, {name: "second", rules: second}}))
		c := newClient(e, era)
		if got := text(t, c.call(t, "echo", `{"password":"hunter2"}`)); got != "[hidden from echo]" {
			t.Errorf("a secret: %s", got)
		}
		if got := text(t, c.call(t, "echo", `{"order":1}`)); got != "[hidden from echo]" {
			t.Errorf("the last program is not the first to see an answer: %s", got)
		}
		if got := edgetest.Member(c.call(t, "echo", `{"drop":1}`).Result(), "content"); got != "[]" {
			t.Errorf("dropped content: %s", got)
		}
		complete := ""
		if of == edgetest.Modern {
			complete = `"resultType":"complete",`
		}
		back.Once("tools/call", func(call *edgetest.Call) {
			image := `{"type":"image","data":"AA==","mimeType":"image/png"}`
			call.Result(`{` + complete + `"content":[{"type":"text","text":"several"},` + image + `,{"type":"text","text":"b"},` + image + `]}`)
		})
		if got := edgetest.Member(c.call(t, "echo", `{}`).Result(), "content"); got != `[{"type":"text","text":"several"},{"type":"text","text":"b"}]` {
			t.Errorf("two of four dropped: %s", got)
		}
		if got := edgetest.Member(c.call(t, "echo", `{"patch":1}`).Result(), "_meta", "carry"); got != `"echo"` {
			t.Errorf("patched: %s", got)
		}
		if got := text(t, c.call(t, "echo", `{"who":1}`)); got != "" {
			t.Errorf("by what was carried: %s", got)
		}
		fails(t, c.call(t, "echo", `{"worst":1}`), 403, 403, "not for you")
		if got := text(t, c.call(t, "echo", `{"other":1}`)); got != "another" {
			t.Errorf("another answer: %s", got)
		}
		back.Once("tools/call", func(call *edgetest.Call) { call.Error(200, -32000, "broken") })
		if got := text(t, c.call(t, "echo", `{}`)); got != "mended" {
			t.Errorf("in place of an error: %s", got)
		}
	})
}

// TestMessages has a program see what is no call.
func TestMessages(t *testing.T) {
	rules := []string{
		"sub|on_message|method=prompts/*,tools/list,resources/read",
		"on_message|args~forbidden|deny|0|not this one",
		"on_message|result~hunter2|redact|/messages/0/content/text|[hidden]",
		"on_message|result~\"tools\"|patch_result|/tools/0/description|\"patched\"",
	}
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		back := edgetest.NewServer(t, of)
		complete := ""
		if of == edgetest.Modern {
			complete = `"resultType":"complete",`
		}
		back.Always("prompts/get", func(c *edgetest.Call) {
			c.Result(`{` + complete + `"messages":[{"role":"user","content":{"type":"text","text":"hunter2"}}]}`)
		})
		e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: rules}}))
		c := newClient(e, era)
		if got := edgetest.Member(c.request(t, "prompts/get", `{"name":"p"}`).Result(), "messages"); !strings.Contains(got, "[hidden]") {
			t.Errorf("a prompt: %s", got)
		}
		fails(t, c.request(t, "prompts/get", `{"name":"forbidden"}`), 403, 403, "not this one")
		if got := c.request(t, "tools/list", "").Result(); !strings.Contains(got, "patched") {
			t.Errorf("a list: %s", got)
		}
		if got := text(t, c.call(t, "echo", `{"forbidden":1}`)); got != `{"forbidden":1}` {
			t.Errorf("a call, which is no message of the hook: %s", got)
		}
	})
}
