package authserver

import (
	"crypto/sha256"
	_ "embed" // of the style sheet
	"encoding/base64"
	"errors"
	"html"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/weir-edge/weir/edge/mcp"
)

//go:embed pages/style.css
var styleText string

// The policy lets a browser do nothing but show a page and its style sheet. There is no
// form-action in it: Chromium holds the redirects behind a form to it, and so would stop Allow.
var pagePolicy = policyOf(styleText)

func policyOf(style string) string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; frame-ancestors 'none'"
}

// markup is HTML of ours: constants become it, and what comes from elsewhere does not.
type markup string

// screen is HTML with words of others in it. It is not made with html/template: whoever links
// that links every exported method of the program, which is 15 MiB.
type screen struct{ strings.Builder }

// add adds markup with each text, escaped, in the place of a "{}", which stands between tags
// or in an attribute in quotation marks. An address that is put there was judged before (redirect.go).
func (p *screen) add(m markup, texts ...string) {
	for _, text := range texts {
		before, after, _ := strings.Cut(string(m), "{}")
		p.WriteString(before)
		p.WriteString(html.EscapeString(strings.ToValidUTF8(text, "\uFFFD")))
		m = markup(after)
	}
	p.WriteString(string(m))
}

// screenOf begins a page; head is what else stands in its head.
func screenOf(title string, head markup, texts ...string) *screen {
	p := &screen{}
	p.add(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{}</title>
`, title)
	p.add(head, texts...)
	p.add("<style>")
	p.WriteString(styleText)
	p.add("</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n", title)
	return p
}

// meanings are the scopes that users are told about in words.
var meanings = map[string]string{
	"openid": "know that you are the same person each time", "profile": "see your name", "email": "see your e-mail address",
	"offline_access": "go on while you are away, until you or your administrator end it",
}

// consentPage is step 4 of a login.
func (s *Server) consentPage(w http.ResponseWriter, a *ask, sealed string) {
	p := screenOf("Allow access?", "")
	if name := visible(a.Name); name != "" {
		p.add(`<p>A program that calls itself <strong class="name">{}</strong>`, name)
	} else {
		p.add("<p>A program that gives no name")
	}
	p.add(" wants to use <strong>{}</strong> for you.</p>\n<dl>\n", visible(a.Title))

	p.add("<dt>Whose program it is</dt>\n")
	if a.Host != "" {
		p.add("<dd>It is described at <strong>{}</strong>.</dd>\n", a.Host)
	} else {
		p.add("<dd>It registered itself: nobody vouches for it.</dd>\n")
	}

	p.add("<dt>Where the answer goes</dt>\n")
	if a.Shown != "" {
		p.add("<dd>To <strong>{}</strong>.</dd>\n", a.Shown)
	} else {
		p.add("<dd>To <strong>a program on this computer</strong>. Any program that runs here could take its place: go on only if you have just started it yourself.</dd>\n")
	}

	p.add("<dt>Server</dt>\n<dd>{}</dd>\n<dt>What it asks for</dt>\n<dd>", a.Server)
	if len(a.Scopes) == 0 {
		p.add("Nothing in particular.")
	} else {
		p.add("<ul>")
		for _, scope := range a.Scopes {
			p.add("<li><code>{}</code>", scope)
			if means := meanings[scope]; means != "" {
				p.add(": {}", means)
			}
			p.add("</li>")
		}
		p.add("</ul>")
	}
	p.add("</dd>\n<dt>Where you will sign in</dt>\n<dd><ul>")
	for _, provider := range s.providers {
		p.add("<li>{}</li>", provider.Name())
	}
	p.add(`</ul></dd>
</dl>
<form method="post" action="{}">
<input type="hidden" name="form" value="{}">
<div class="answers">
<button type="submit" name="answer" value="allow">Allow</button>
<button type="submit" name="answer" value="deny">Deny</button>
</div>
</form>
`, pathOf(s.config.Base)+"/oauth/consent", sealed)
	s.show(w, http.StatusOK, p)
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
	p := screenOf("Going on", `<meta http-equiv="refresh" content="0; url={}">`+"\n", address)
	p.add("<p>You are being taken to {}.</p>\n", to)
	p.add(`<p><a class="button" href="{}">Go on</a></p>`+"\n", address)
	s.show(w, http.StatusOK, p)
}

// fail answers a browser with an error: by a page, or to the client where the answer to it is
// known.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, what string, a *ask, err error) {
	e := Event{What: what, Outcome: Refused, Reason: reasonOf(err)}
	if a != nil {
		e.Client = a.Client
	}
	var p *pageError
	if !errors.As(err, &p) {
		s.log.Warn("a page cannot be shown", "error", err)
		p = away
	}
	if p.status >= http.StatusInternalServerError {
		e.Outcome = Failed
	}
	s.tell(r, e)
	if p.after > 0 {
		retryAfter(w, p.after)
	}
	said := screenOf("This did not work", "")
	said.add("<p>{}</p>\n<p>{}</p>\n", p.what, p.do)
	if id := r.Header.Get("X-Request-Id"); id != "" {
		said.add("<p>Request: <code>{}</code></p>\n", id)
	}
	s.show(w, p.status, said)
}

// show ends a page and sends it.
func (s *Server) show(w http.ResponseWriter, status int, p *screen) {
	p.add("</main>\n</body>\n</html>\n")
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Frame-Options", "DENY")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, p.String())
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
