package mcp

import (
	"net/url"
	"strings"
)

// Eliciting by URL: a server asks for a page to be opened. The legacy era has
// it since 2025-11-25, as a request with an id of its own or as an error in
// place of a result; the modern era has it in input_required, without an id.

// OpensPage reports whether a question of a server has its client open a page.
func OpensPage(method string, params []byte) bool {
	return method == "elicitation/create" && String(Lookup(params, "mode")) == "url"
}

// SafePage reports whether the page of such a question is one that a client
// may be sent to: a web page, and not a script, a file or an application.
func SafePage(params []byte) bool {
	u, err := url.Parse(String(Lookup(params, "url")))
	return err == nil && u.Host != "" && (strings.EqualFold(u.Scheme, "https") || strings.EqualFold(u.Scheme, "http"))
}

// PagesRequired returns, for a legacy error that wants pages opened first
// (2025-11-25, client/elicitation, URLElicitationRequiredError), the modern
// result that says the same. It returns nil for any other message, and for an
// error whose pages are not safe.
func PagesRequired(m *Message) []byte {
	if m.Code() != CodeURLElicitation {
		return nil
	}
	var requests []Member
	for _, e := range Elements(Lookup(m.Get("data").Of(m.Raw), "elicitations")) {
		id := Lookup(e, "elicitationId")
		if len(id) < 2 || id[0] != '"' || !SafePage(e) {
			return nil
		}
		params := Change(e, []string{"elicitationId"})
		request := Change(nil, nil, With("method", `"elicitation/create"`), Raw("params", params))
		requests = append(requests, Raw(string(id[1:len(id)-1]), request))
	}
	if requests == nil {
		return nil
	}
	return Change(nil, nil, With("resultType", `"input_required"`), Raw("inputRequests", Change(nil, nil, requests...)))
}
