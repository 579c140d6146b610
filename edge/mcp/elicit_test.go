package mcp

import (
	"fmt"
	"testing"
)

func TestAskable(t *testing.T) {
	for _, c := range []struct{ caps, want string }{
		{``, ``}, {`null`, ``}, {`{}`, ``}, {`[]`, ``}, {`{"tools":{},"experimental":{"sampling":{}}}`, ``},
		{`{"roots":{"listChanged":true}}`, `{"roots":{}}`},
		{`{"elicitation":{"x":1},"sampling":{}}`, `{"sampling":{},"elicitation":{}}`},
		{`{"elicitation":{"url":{"x":1},"form":{}},"roots":{},"sampling":{"tools":{},"y":2,"context":{}}}`, `{"roots":{},"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}}}`},
		{`{"sampling":true,"roots":null,"elicitation":[]}`, ``},
		{`{"sampling":{"tools":true}}`, `{"sampling":{}}`},
		{`{"Sampling":{},"s\u0061mpling":{}}`, `{"sampling":{}}`},
	} {
		got := Askable([]byte(c.caps))
		if string(got) != c.want || c.want == "" && got != nil {
			t.Errorf("%s: %s", c.caps, got)
		}
		if again := Askable(got); string(again) != c.want {
			t.Errorf("%s becomes %s", got, again)
		}
	}
}

func TestApps(t *testing.T) {
	const html = `{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}`
	for _, c := range []struct{ caps, apps, html string }{
		{``, ``, ``}, {`{}`, ``, ``}, {`{"extensions":[]}`, ``, ``}, {`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, ``, ``},
		{`{"extensions":{"io.modelcontextprotocol/ui":true}}`, ``, ``},
		{`{"extensions":{"io.modelcontextprotocol/ui":{"x":1}}}`, `{"io.modelcontextprotocol/ui":{"x":1}}`, ``},
		{`{"extensions":{"a":1,"io.modelcontextprotocol/ui":{"mimeTypes":["a/b","text/html;profile=mcp-app"]}}}`, `{"io.modelcontextprotocol/ui":{"mimeTypes":["a/b","text/html;profile=mcp-app"]}}`, html},
	} {
		if got := Apps([]byte(c.caps)); string(got) != c.apps || AppsOfHTML([]byte(c.caps)) != c.html {
			t.Errorf("%s: %s and %s", c.caps, got, AppsOfHTML([]byte(c.caps)))
		}
	}
}

func TestCan(t *testing.T) {
	for _, c := range []struct {
		caps, method, params string
		can                  bool
	}{
		{`{"roots":{}}`, "roots/list", ``, true},
		{`{"sampling":{}}`, "roots/list", ``, false},
		{`{"sampling":{}}`, "sampling/createMessage", `{}`, true},
		{`{"sampling":false}`, "sampling/createMessage", `{}`, false},
		{`{"elicitation":{}}`, "elicitation/create", `{"message":"x"}`, true},
		{`{"elicitation":{}}`, "elicitation/create", `{"mode":"form"}`, true},
		{`{"elicitation":{}}`, "elicitation/create", `{"mode":"url"}`, false},
		{`{"elicitation":{"form":{}}}`, "elicitation/create", `{"mode":"url"}`, false},
		{`{"elicitation":{"form":{}}}`, "elicitation/create", `{}`, true},
		{`{"elicitation":{"url":{}}}`, "elicitation/create", `{"mode":"url"}`, true},
		{`{"elicitation":{"url":{}}}`, "elicitation/create", `{}`, false},
		{`{"elicitation":{"url":{},"form":{}}}`, "elicitation/create", `{}`, true},
		{`{"elicitation":{"form":{}}}`, "elicitation/create", `{"mode":"form","Mode":"url"}`, false},
		{`{"roots":{},"sampling":{},"elicitation":{"url":{}}}`, "tools/call", `{}`, false},
		{``, "elicitation/create", `{}`, false}, {`{}`, "ping", ``, false},
	} {
		if got := Can([]byte(c.caps), c.method, []byte(c.params)); got != c.can {
			t.Errorf("%s: %s %s: %v", c.caps, c.method, c.params, got)
		}
	}
}

func TestPages(t *testing.T) {
	for _, c := range []struct {
		params      string
		opens, safe bool
	}{
		{`{"mode":"url","url":"https://example.com/x?y=1#z"}`, true, true},
		{`{"mode":"url","url":"HTTP://example.com"}`, true, true},
		{`{"mode":"url","url":"https://[::1]:8080/"}`, true, true},
		{`{"mode":"u\u0072l","\u0075rl":"https:\/\/example.com"}`, true, true},
		{`{"mode":"form","url":"javascript:alert(1)"}`, false, false},
		{`{"message":"x"}`, false, false},
		{`{"mode":"url"}`, true, false},
		{`{"mode":"url","url":5}`, true, false},
		{`{"mode":"url","url":""}`, true, false},
		{`{"mode":"url","url":"javascript:alert(1)"}`, true, false},
		{`{"mode":"url","url":"javascript://example.com/%0aalert(1)"}`, true, false},
		{`{"mode":"url","url":"data:text/html,x"}`, true, false},
		{`{"mode":"url","url":"file:///etc/passwd"}`, true, false},
		{`{"mode":"url","url":"//example.com/"}`, true, false},
		{`{"mode":"url","url":"/x"}`, true, false},
		{`{"mode":"url","url":"example.com"}`, true, false},
		{`{"mode":"url","url":"https:example.com"}`, true, false},
		{`{"mode":"url","url":"https:///x"}`, true, false},
		{`{"mode":"url","url":"https://:443/x"}`, true, false},
		{`{"mode":"url","url":"https:\\\\example.com"}`, true, false},
		{`{"mode":"url","url":" https://example.com"}`, true, false},
		{`{"mode":"url","url":"https://exa\nmple.com"}`, true, false},
		{`{"mode":"url","url":"ſftp://example.com"}`, true, false},
		{`{"mode":"url","url":"https://example.com","URL":"javascript:alert(1)"}`, true, false},
		{`{"mode":"url","url":"https://example.com","U\u0072l":"javascript:alert(1)"}`, true, false},
		{`{"Mode":"url","url":"https://example.com"}`, true, false},
		{`{"mode":"form","Mode":"url","url":"https://example.com"}`, true, false},
		{`[]`, false, false}, {``, false, false},
	} {
		if got := OpensPage("elicitation/create", []byte(c.params)); got != c.opens {
			t.Errorf("%s opens a page: %v", c.params, got)
		}
		if OpensPage("sampling/createMessage", []byte(c.params)) {
			t.Errorf("%s opens a page by sampling", c.params)
		}
		if got := SafePage([]byte(c.params)); got != c.safe {
			t.Errorf("%s is safe: %v", c.params, got)
		}
	}
}

func TestPagesRequired(t *testing.T) {
	page := func(id string) string {
		return fmt.Sprintf(`{"mode":"url","elicitationId":%s,"message":"é","url":"https://example.com/%s","n":1152921504606846977}`, id, "x")
	}
	for _, c := range []struct{ data, want string }{
		{`{"elicitations":[` + page(`"a"`) + `]}`,
			`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"mode":"url","message":"é","url":"https://example.com/x","n":1152921504606846977}}}}`},
		{`{"x":1,"elicitations":[` + page(`"a\u0062"`) + `,` + page(`""`) + `]}`,
			`{"resultType":"input_required","inputRequests":{"a\u0062":{"method":"elicitation/create","params":{"mode":"url","message":"é","url":"https://example.com/x","n":1152921504606846977}},"":{"method":"elicitation/create","params":{"mode":"url","message":"é","url":"https://example.com/x","n":1152921504606846977}}}}`},
		{`{"elicitations":[` + page(`"a"`) + `,` + page(`"a"`) + `]}`, ``},
		{`{"elicitations":[` + page(`"a"`) + `,` + page(`"\u0061"`) + `]}`, ``},
		{`{"elicitations":[` + page(`7`) + `]}`, ``},
		{`{"elicitations":[{"mode":"url","url":"https://example.com"}]}`, ``},
		{`{"elicitations":[{"mode":"url","elicitationId":"a","url":"javascript:x"}]}`, ``},
		{`{"elicitations":[{"mode":"form","elicitationId":"a","url":"https://example.com"}]}`, ``},
		{`{"elicitations":[{"elicitationId":"a","url":"https://example.com"}]}`, ``},
		{`{"elicitations":[` + page(`"a"`) + `,5]}`, ``},
		{`{"elicitations":[]}`, ``}, {`{"elicitations":{}}`, ``}, {`{}`, ``}, {`null`, ``}, {`"x"`, ``},
	} {
		m := mustDecode(t, `{"jsonrpc":"2.0","id":1,"error":{"code":-32042,"message":"x","data":`+c.data+`}}`)
		got := PagesRequired(m)
		if string(got) != c.want || c.want == "" && got != nil {
			t.Errorf("%s:\n got %s\nwant %s", c.data, got, c.want)
		}
		if got != nil && Valid(got) != nil {
			t.Errorf("%s became %s", c.data, got)
		}
		other := mustDecode(t, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"x","data":`+c.data+`}}`)
		if got := PagesRequired(other); got != nil {
			t.Errorf("another error became %s", got)
		}
	}
	if got := PagesRequired(mustDecode(t, `{"jsonrpc":"2.0","id":1,"error":{"code":-32042}}`)); got != nil {
		t.Errorf("an error without data became %s", got)
	}
}
