package authserver

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // of the page
	"encoding/base64"
	"errors"
	"html"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/weir-edge/weir/edge/mcp"
)

//go:embed pages/page.html
var pageText string

//go:embed pages/style.css
var styleText string

// The page, its style sheet, and the policy that lets a browser do nothing else. There is no
// form-action in it: Chromium holds the redirects behind a form to it, and so would stop Allow.
var (
	pageForm   = template.Must(template.New("page").Parse(pageText))
	pageStyle  = template.HTML("<style>" + styleText + "</style>") //nolint:gosec // a file beside this one
	pagePolicy = policyOf(styleText)
)

func policyOf(style string) string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; frame-ancestors 'none'"
}

// view is what a page shows. One of its sections is there.
type view struct {
	Style   template.HTML
	Title   string
	Refresh template.HTML
	Consent *consentView
	Error   *errorView
	On      *onView
}

type consentView struct {
	Name, Vouched, Host, Server, Audience string
	Scopes                                []scopeView
	Upstreams                             []string
	Action, Form                          string
}

type scopeView struct{ Name, Means string }

type errorView struct{ What, Do, Request string }

type onView struct {
	To   string
	Link template.HTML
}

// meanings are the scopes that users are told about in words.
var meanings = map[string]string{
	"openid": "know that you are the same person each time", "profile": "see your name", "email": "see your e-mail address",
	"offline_access": "go on while you are away, until you or your administrator end it",
}

// consentPage is step 4 of a login.
func (s *Server) consentPage(w http.ResponseWriter, a *ask, sealed string) {
	v := &consentView{
		Name: visible(a.Name), Vouched: a.Host, Host: a.Shown, Server: visible(a.Title), Audience: a.Server, Action: pathOf(s.config.Base) + "/oauth/consent", Form: sealed,
	}
	for _, scope := range a.Scopes {
		v.Scopes = append(v.Scopes, scopeView{scope, meanings[scope]})
	}
	for _, p := range s.providers {
		v.Upstreams = append(v.Upstreams, p.Name())
	}
	s.show(w, http.StatusOK, &view{Title: "Allow access?", Consent: v})
}

// leadOn ends a login: it leads the browser back to the client.
func (s *Server) leadOn(w http.ResponseWriter, a *ask, answer url.Values) {
	answer.Set("iss", s.config.Issuer)
	if a.State != nil {
		answer.Set("state", string(a.State))
	}
	to := a.Shown
	if to == "" {
		to = "the program on your computer"
	}
	s.lead(w, to, redirectURI{text: a.Redirect}.with(answer))
}

// lead shows a page that leads the browser on. A redirect would be held to the policy of the
// page with the form that came before it, be it an upstream's.
func (s *Server) lead(w http.ResponseWriter, to, address string) {
	safe := html.EscapeString(address)
	s.show(w, http.StatusOK, &view{
		Title: "Going on", On: &onView{To: to, Link: template.HTML(`<a class="button" href="` + safe + `">Go on</a>`)}, //nolint:gosec // escaped
		Refresh: template.HTML(`<meta http-equiv="refresh" content="0; url=` + safe + `">`), //nolint:gosec // escaped
	})
}

// fail answers a browser with an error: by a page, or to the client where the answer to it is
// known.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, what string, a *ask, err error) {
	e := Event{What: what, Outcome: Refused, Reason: reasonOf(err)}
	if a != nil {
		e.Client = a.Client
	}
	s.tell(r, e)
	var p *pageError
	if !errors.As(err, &p) {
		s.log.Warn("a page cannot be shown", "error", err)
		p = away
	}
	if p.after > 0 {
		retryAfter(w, p.after)
	}
	s.show(w, p.status, &view{Title: "This did not work", Error: &errorView{p.what, p.do, r.Header.Get("X-Request-Id")}})
}

// show sends a page.
func (s *Server) show(w http.ResponseWriter, status int, v *view) {
	v.Style = pageStyle
	var page bytes.Buffer
	if err := pageForm.Execute(&page, v); err != nil {
		panic(err) // the page is ours
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Frame-Options", "DENY")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes())
}

// Bounds of a name, in characters.
const (
	maxShown = 64
	maxMarks = 2 // in a row
)

// visible is a name that a stranger gave itself as it may be shown: composed, at most 64
// characters, none of them invisible or one that turns others around, and no towers of marks.
func visible(name string) string {
	name = mcp.Composed(strings.ToValidUTF8(name[:min(len(name), maxDocument)], "�"))
	var b strings.Builder
	n, marks := 0, 0
	for _, c := range name {
		switch {
		case unicode.Is(unicode.Mn, c) || unicode.Is(unicode.Me, c):
			if marks++; marks > maxMarks {
				continue
			}
		case unicode.IsSpace(c):
			c, marks = ' ', 0
		case !unicode.IsGraphic(c) || hidden(c):
			continue
		default:
			marks = 0
		}
		if n++; n > maxShown {
			break
		}
		b.WriteRune(c)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// hidden reports whether a character counts as graphic and yet shows nothing.
func hidden(c rune) bool {
	switch c {
	case 0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0:
		return true
	}
	return unicode.Is(unicode.Variation_Selector, c) || unicode.Is(unicode.Co, c)
}

// setCookie sets a cookie of a login. Its name begins with __Host- where the issuer is https,
// so that no other host can set it.
func (s *Server) setCookie(w http.ResponseWriter, name, value string, site http.SameSite) {
	http.SetCookie(w, &http.Cookie{
		Name: s.cookieName(name), Value: value, Path: "/", MaxAge: int(requestLife.Seconds()), Secure: s.secure(), HttpOnly: true, SameSite: site,
	})
}

func (s *Server) endCookie(w http.ResponseWriter, name string) {
	http.SetCookie(w, &http.Cookie{Name: s.cookieName(name), Path: "/", MaxAge: -1, Secure: s.secure(), HttpOnly: true, SameSite: http.SameSiteLaxMode})
}

// cookie reports whether a request has a cookie whose value has a digest.
func (s *Server) cookie(r *http.Request, name, of string) bool {
	all := r.CookiesNamed(s.cookieName(name))
	return len(all) == 1 && digest(all[0].Value) == of
}

func (s *Server) secure() bool { return strings.HasPrefix(s.config.Base, "https:") }

func (s *Server) cookieName(name string) string {
	if s.secure() {
		return "__Host-weir-" + name
	}
	return "weir-" + name
}
