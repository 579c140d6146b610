package mcp

import (
	"bytes"
	"net/url"
	"slices"
	"strings"
)

// Eliciting by URL: a server asks for a page to be opened. The legacy era has
// it since 2025-11-25, as a request with an id of its own or as an error in
// place of a result; the modern era has it in input_required, without an id.

// OpensPage reports whether a question of a server has its client open a page,
// be it only a client that does not tell Mode from mode.
func OpensPage(method string, params []byte) bool {
	if method != "elicitation/create" {
		return false
	}
	for _, m := range Members(params) {
		if folded(m.Name, "mode") && String(m.Value) == "url" {
			return true
		}
	}
	return false
}

// folded reports whether a name, as written, is another's for a reader that
// ignores case.
func folded(written []byte, name string) bool {
	return bytes.EqualFold(Unquote(written), []byte(name))
}

// SafePage reports whether the page of such a question is one that a client
// may be sent to: a web page, and not a script, a file or an application. One
// that a client could take another page for, by ignoring case in a name, is
// not safe.
func SafePage(params []byte) bool {
	for _, m := range Members(params) {
		if folded(m.Name, "mode") && !reads(m.Name, "mode") || folded(m.Name, "url") && !reads(m.Name, "url") {
			return false
		}
	}
	u, err := url.Parse(String(Lookup(params, "url")))
	return err == nil && u.Hostname() != "" && (strings.EqualFold(u.Scheme, "https") || strings.EqualFold(u.Scheme, "http"))
}

// PagesRequired returns, for a legacy error that wants pages opened first
// (2025-11-25, client/elicitation, URLElicitationRequiredError), the modern
// result that says the same. It returns nil for any other message, and for an
// error whose pages are not safe, have no ids of their own or are no pages.
func PagesRequired(m *Message) []byte {
	if m.Code() != CodeURLElicitation {
		return nil
	}
	var requests []Member
	for _, e := range Elements(Lookup(m.Get("data").Of(m.Raw), "elicitations")) {
		id := Lookup(e, "elicitationId")
		if len(id) < 2 || id[0] != '"' || !OpensPage("elicitation/create", e) || !SafePage(e) {
			return nil
		}
		params := Change(e, []string{"elicitationId"})
		request := Change(nil, nil, With("method", `"elicitation/create"`), Raw("params", params))
		requests = append(requests, Raw(string(id[1:len(id)-1]), request))
	}
	if requests == nil {
		return nil
	}
	asked := Change(nil, nil, requests...)
	if Valid(asked) != nil { // two pages with one id
		return nil
	}
	return Change(nil, nil, With("resultType", `"input_required"`), Raw("inputRequests", asked))
}

// SafePages reports whether every page that a message wants opened may be: an input_required, what
// is said of a task, or the error that wants pages opened first.
func SafePages(m *Message) bool {
	for _, q := range Members(m.Get("inputRequests").Of(m.Raw)) {
		params := Lookup(q.Value, "params")
		if OpensPage(String(Lookup(q.Value, "method")), params) && !SafePage(params) {
			return false
		}
	}
	return m.Kind != Failure || m.Code() != CodeURLElicitation ||
		!slices.ContainsFunc(Elements(Lookup(m.Get("data").Of(m.Raw), "elicitations")), func(page []byte) bool { return !SafePage(page) })
}
