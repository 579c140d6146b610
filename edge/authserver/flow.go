package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/oauth"
)

// This file is a login, from the first request of a client to its tokens, in eleven steps.

// ask is a request for authorization that has been checked. Sealed into the consent page's
// form it waits for the user's answer: nothing is written before Allow.
type ask struct {
	Client    string // its key
	ClientID  string
	Name      string // that it gives itself
	Host      string // of its metadata document; "" for a registered client
	Redirect  string
	Shown     string // host of the redirect URI; "" for a program on the user's computer
	State     []byte // which need not be text; nil for none
	Scopes    []string
	Resource  string // as it was asked for; "" for none
	Server    string // audience of the server
	Title     string // of the server
	Nonce     string
	Prompts   []string // that the upstreams are asked for: login, select_account
	Challenge string
	Refreshes bool
	Sealed    string // names the secret that the client is registered under; "" for none

	Form   string    // names the form's cookie
	Digest string    // of its value
	Until  time.Time // when the form is late
}

// Bounds of a login, in bytes.
const (
	maxState = 2 << 10
	maxForm  = 8 << 10
	maxSub   = 255
)

// authorize is steps 1 to 4: a client asks, and the user is asked.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	q, err := parameters(r)
	if err == nil {
		err = s.within(ctx, r, limitAuthorize)
	}
	if err != nil {
		s.fail(w, r, "authorize", nil, err)
		return
	}

	// 1. Ask: who the client is, and where answers to it go. What fails here is redirected
	// nowhere.
	c, to, err := s.asked(ctx, r, q)
	if err != nil {
		s.fail(w, r, "authorize", nil, err)
		return
	}

	// 2. Check: all the rest, whose faults the client is told.
	a, err := s.checked(c, to, q)
	if err != nil {
		s.tell(r, Event{What: "authorize", Outcome: Refused, Reason: reasonOf(err), Client: c.key()})
		http.Redirect(w, r, to.with(s.refusal(q, err)), http.StatusSeeOther)
		return
	}

	// 3. Seal: the request goes into the form, bound to a cookie.
	cookie := random()
	a.Form, a.Digest, a.Until = short(), digest(cookie), s.now().Add(requestLife)
	sealed := b64(s.material.current(ctx).ring.seal(useForm, encode(a), "form"))
	if len(sealed) > maxForm {
		s.tell(r, Event{What: "authorize", Outcome: Refused, Reason: "too large", Client: c.key()})
		http.Redirect(w, r, to.with(s.refusal(q, refuse("invalid_request", "the request is too large"))), http.StatusSeeOther)
		return
	}

	// 4. Consent page.
	s.setCookie(w, "form-"+a.Form, cookie, http.SameSiteStrictMode)
	s.tell(r, Event{What: "authorize", Outcome: Done, Client: c.key()})
	s.consentPage(w, a, sealed)
}

// asked is step 1. Errors are pages.
func (s *Server) asked(ctx context.Context, r *http.Request, q url.Values) (*client, redirectURI, error) {
	id := q.Get("client_id")
	var c *client
	var err error
	switch {
	case id == "":
		return nil, redirectURI{}, page(http.StatusBadRequest, "The program that sent you here did not say who it is.", "Go back to it and try again.")
	case isDocument(id) && s.config.CIMD != nil:
		c, err = s.documented(ctx, r, id, q)
	default:
		c, err = s.material.current(ctx).ring.client(id)
	}
	var p *pageError
	switch {
	case errors.As(err, &p):
		return nil, redirectURI{}, p
	case errors.Is(err, errBusy):
		return nil, redirectURI{}, &pageError{status: http.StatusServiceUnavailable, what: "Too many programs are asking at the moment.", do: "Wait a moment, then try again.", after: time.Second}
	case err != nil && strings.HasPrefix(id, clientPrefix):
		return nil, redirectURI{}, page(http.StatusBadRequest, "This server no longer knows the program that sent you here.", "Remove this server from the program and add it again.")
	case err != nil:
		return nil, redirectURI{}, page(http.StatusBadRequest, "This server does not know the program that sent you here.", "Add this server to the program again, or ask the program's maker.")
	}
	to, ok := matches(c.Redirects, q.Get("redirect_uri"))
	if !ok {
		return nil, redirectURI{}, page(http.StatusBadRequest, "The program asks for an answer at an address that it did not register.", "Do not go on unless you know why; tell the program's maker.")
	}
	return c, to, nil
}

// documented is the client of a metadata document. One that is not known yet is fetched only
// for a request that nothing else is wrong with.
func (s *Server) documented(ctx context.Context, r *http.Request, id string, q url.Values) (*client, error) {
	if _, ok := parseDocumentURL(id); !ok {
		return nil, errNoClient
	}
	if _, ok := s.documents.known(id); !ok {
		to, ok := parseRedirect(q.Get("redirect_uri"))
		if !ok {
			return nil, page(http.StatusBadRequest, "The program asks for an answer at an address that nobody may use.", "Tell the program's maker.")
		}
		if _, err := s.checked(&client{ID: id}, to, q); err != nil {
			return nil, page(http.StatusBadRequest, "The program's request is not one that this server serves.", "Tell the program's maker: "+reasonOf(err)+".")
		}
		// One address has less than there is for all: it cannot keep others from theirs.
		if err := s.within(ctx, r, limitDocument); err != nil {
			return nil, err
		}
	}
	return s.documents.find(ctx, id)
}

// checked is step 2. Errors are refusals.
func (s *Server) checked(c *client, to redirectURI, q url.Values) (*ask, error) {
	challenge, state := q.Get("code_challenge"), q.Get("state")
	switch {
	case len(state) > maxState:
		return nil, refuse("invalid_request", "state has more than 2 KiB")
	case q.Get("response_type") == "":
		return nil, refuse("invalid_request", "response_type is missing")
	case q.Get("response_type") != "code":
		return nil, refuse("unsupported_response_type", "only the response type code is served")
	case q.Has("response_mode") && q.Get("response_mode") != "query":
		return nil, refuse("invalid_request", "only the response mode query is served")
	case q.Has("max_age"): // whoever asks for a fresh login is not told of one that may be old
		return nil, refuse("invalid_request", "max_age is not served: how long ago the user signed in is known to the identity provider alone")
	case q.Has("request") || q.Has("request_uri"):
		return nil, refuse("invalid_request", "request objects are not served")
	case q.Get("code_challenge_method") != "S256" || len(challenge) != 43 || !oauth.Canonical(challenge):
		return nil, refuse("invalid_request", "a code_challenge by the method S256 is needed")
	}
	server := s.config.resource(q.Get("resource"))
	switch {
	case server == nil && q.Get("resource") == "":
		return nil, refuse("invalid_target", "resource is missing: it has to name one of the servers")
	case server == nil:
		return nil, refuse("invalid_target", "resource names no server that tokens are issued for")
	}
	allowed := c.allowed(s.config)
	scopes := oauth.Scopes(q.Get("scope"))
	if len(scopes) == 0 {
		scopes = slices.DeleteFunc(slices.Clone(server.Scopes), func(one string) bool { return !slices.Contains(allowed, one) })
	}
	if oauth.Lacks(allowed, scopes) {
		return nil, refuse("invalid_scope", "a scope is unknown, or the client has not registered for it")
	}
	slices.Sort(scopes)
	// The edge itself asks for consent each time, and knows no user before the upstreams do: who
	// is to sign in anew, or as somebody else, does so there.
	asked := strings.Fields(q.Get("prompt"))
	if slices.Contains(asked, "none") {
		return nil, refuse("login_required", "the user has to be asked")
	}
	var prompts []string
	for _, one := range []string{"login", "select_account"} {
		if slices.Contains(asked, one) {
			prompts = append(prompts, one)
		}
	}
	a := &ask{
		Client: c.key(), ClientID: c.ID, Name: c.Name, Host: c.host, Redirect: to.text, Shown: to.host,
		Scopes: slices.Compact(scopes), Resource: q.Get("resource"), Server: server.Audience, Title: server.Server,
		Nonce: q.Get("nonce"), Prompts: prompts, Challenge: challenge, Refreshes: c.Refreshes, Sealed: c.sealed,
	}
	if q.Has("state") {
		a.State = []byte(state)
	}
	return a, nil
}

// consent is steps 5 and 6: the user allows it, and is sent to the first upstream.
func (s *Server) consent(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	q, err := parameters(r)
	if err == nil {
		err = s.within(ctx, r, limitConsent)
	}
	var a *ask
	if err == nil {
		a, err = s.answered(r, q)
	}
	if err != nil {
		s.fail(w, r, "consent", a, err)
		return
	}
	if q.Get("answer") != "allow" {
		s.tell(r, Event{What: "consent", Outcome: Denied, Client: a.Client})
		s.leadOn(w, a, refused("access_denied"))
		return
	}

	// 5. Approve: only now there is a login cookie, and only now something is kept.
	cookie := random()
	p := &pending{Ask: *a, Cookie: short(), Digest: digest(cookie)}

	// 6. Send to the upstream.
	address, err := s.send(ctx, p, network(r.RemoteAddr))
	if err != nil {
		s.log.Warn("a login cannot go on", "client", shown(a.Client), "error", err)
		if busy(err) {
			s.fail(w, r, "consent", a, away)
			return
		}
		s.tell(r, Event{What: "consent", Outcome: Failed, Reason: "upstream", Client: a.Client})
		s.leadOn(w, a, refused("temporarily_unavailable"))
		return
	}
	s.setCookie(w, "login-"+p.Cookie, cookie, http.SameSiteLaxMode)
	s.tell(r, Event{What: "consent", Outcome: Done, Client: a.Client})
	http.Redirect(w, r, address, http.StatusSeeOther)
}

// answered is the first part of step 5: the form is ours, this browser's, and from our page.
func (s *Server) answered(r *http.Request, q url.Values) (*ask, error) {
	foreign := page(http.StatusForbidden, "This answer does not come from a page of this server, or came too late.", "Go back to the program and start again.")
	sealed, ok := oauth.DecodeSegment(q.Get("form"))
	if !ok || r.Method != http.MethodPost {
		return nil, foreign
	}
	text, _, ok := s.material.current(r.Context()).ring.open(useForm, sealed, "form")
	a := &ask{}
	if !ok || json.Unmarshal(text, a) != nil || !s.now().Before(a.Until) {
		return nil, foreign
	}
	if s.cookie(r, "form-"+a.Form, a.Digest) && s.sameOrigin(r) {
		return a, nil
	}
	return nil, foreign
}

// sameOrigin reports whether a form was posted by a page of ours.
func (s *Server) sameOrigin(r *http.Request) bool {
	if site := r.Header.Values("Sec-Fetch-Site"); len(site) > 0 {
		return len(site) == 1 && site[0] == "same-origin"
	}
	from := r.Header.Values("Origin")
	return len(from) == 1 && (from[0] == "null" || from[0] == origin(s.config.Base))
}

// send is step 6, for the first and each next upstream: a new state, and a record under it. who is
// the network address of the user.
func (s *Server) send(ctx context.Context, p *pending, who string) (address string, err error) {
	state := random()
	provider := s.providers[p.Legs]
	address, leg, err := provider.Send(ctx, state, p.Ask.Prompts)
	if !busy(err) { // that is the store's
		s.faults.note(provider.Name(), err)
	}
	if err != nil {
		return "", err
	}
	p.Leg = leg
	text := encode(p)
	if !s.lasting.waiting.take(state, who, len(text), s.now()) {
		return "", away
	}
	if err := s.records.Put(ctx, requestKey(state), text, requestLife); err != nil {
		s.lasting.waiting.give(state)
		return "", fmt.Errorf("%w: %w", away, err)
	}
	return address, nil
}

// callback is steps 7 to 10: the user comes back from an upstream.
func (s *Server) callback(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	q, err := parameters(r)
	if err == nil {
		err = s.within(ctx, r, limitCallback)
	}

	// 7. Return: the state is taken, by one operation that nobody repeats, and this is the
	// browser that left, at the path that its upstream sends it to. What the upstream's answer
	// says comes after that.
	var p *pending
	if err == nil {
		p, err = s.returned(ctx, r, q)
	}
	if err != nil {
		s.fail(w, r, "return", nil, err)
		return
	}
	a := &p.Ask

	// 8. Fetch: the tokens, then who it is.
	provider := s.providers[p.Legs]
	got, who, err := provider.Return(ctx, p.Leg, q, p.Legs == 0)
	if no := (*upstream.Refused)(nil); !errors.As(err, &no) {
		s.faults.note(provider.Name(), err)
	}
	if err == nil && p.Legs == 0 && (who == nil || who.Subject == "") {
		err = errors.New("the upstream names no subject")
	}
	var kept tokens
	if err == nil {
		kept, err = tokensOf(provider.Name(), got)
	}
	if err != nil {
		s.drop(w, r, p, err)
		return
	}

	// 9. Next upstream, until all are done.
	p.Tokens, p.Legs = append(p.Tokens, kept), p.Legs+1
	if p.Legs == 1 {
		p.Who = who
	}
	if p.Legs < len(s.providers) {
		address, err := s.send(ctx, p, network(r.RemoteAddr))
		if err != nil {
			s.drop(w, r, p, err)
			return
		}
		s.tell(r, Event{What: "return", Outcome: Done, Client: a.Client, Provider: provider.Name()})
		s.lead(w, s.providers[p.Legs].Name(), address)
		return
	}

	// 10. Grant: a code, and back to the client.
	code, subject, err := s.grant(ctx, p)
	if err != nil {
		s.drop(w, r, p, err)
		return
	}
	s.endCookie(w, "login-"+p.Cookie)
	s.endCookie(w, "form-"+a.Form)
	s.tell(r, Event{What: "return", Outcome: Done, Client: a.Client, Provider: provider.Name(), Subject: subject})
	s.leadOn(w, a, url.Values{"code": {code}})
}

// returned is step 7. Errors are pages.
func (s *Server) returned(ctx context.Context, r *http.Request, q url.Values) (*pending, error) {
	state := q.Get("state")
	late := page(http.StatusBadRequest, "This sign-in is not one that this browser started, or it is over.", "Go back to the program and start again.")
	if len(state) != 43 {
		return nil, late
	}
	p, err := s.records.takeRequest(ctx, state)
	switch {
	case errors.Is(err, errAbsent):
		return nil, late
	case err != nil:
		s.log.Warn("the store does not answer", "error", err)
		return nil, away
	}
	s.lasting.waiting.give(state)
	at, err := url.Parse(p.Leg.Redirect)
	if err != nil || !s.cookie(r, "login-"+p.Cookie, p.Digest) || p.Legs >= len(s.providers) || p.Leg.Provider != s.providers[p.Legs].Name() || at.Path != r.URL.Path {
		return nil, late
	}
	return p, nil
}

// drop ends a login that an upstream or the store failed; nothing that was fetched is kept.
func (s *Server) drop(w http.ResponseWriter, r *http.Request, p *pending, err error) {
	code := "server_error"
	outcome := Failed
	var no *upstream.Refused
	switch {
	case errors.As(err, &no):
		outcome = Denied
		if code = "access_denied"; no.Code != "" && !slices.Contains(denials, no.Code) {
			code, outcome = "server_error", Failed
		}
	case busy(err):
		code = "temporarily_unavailable"
	}
	s.log.Warn("a login failed", "client", shown(p.Ask.Client), "upstream", p.Leg.Provider, "error", err)
	s.endCookie(w, "login-"+p.Cookie)
	s.tell(r, Event{What: "return", Outcome: outcome, Reason: code, Client: p.Ask.Client, Provider: p.Leg.Provider})
	s.leadOn(w, &p.Ask, refused(code))
}

// denials are the words by which an upstream says that the user may not, or would not.
var denials = []string{"access_denied", "login_required", "interaction_required", "account_selection_required", "consent_required"}

// grant is step 10: upstream tokens, grant and code are written, in this order, so that what
// a crash leaves behind leads nowhere and expires.
func (s *Server) grant(ctx context.Context, p *pending) (code, sub string, err error) {
	a, now := &p.Ask, s.now()
	sub = subject(s.providers[0].Name(), p.Who.Subject)
	id := random()
	g := &grant{
		Client: a.Client, ClientID: a.ClientID, Subject: sub, Name: p.Who.Name, Email: p.Who.Email, Scopes: a.Scopes, Resource: a.Resource, Server: a.Server,
		Refreshes: a.Refreshes, Sealed: a.Sealed, Generation: 1, Rotated: now, AuthTime: now, End: now.Add(grantEnd),
	}
	life := s.grantLife(g)
	g.Until = now.Add(life)
	for i := range p.Tokens {
		if err := s.vault.Keep(ctx, id, p.Tokens[i].Provider, p.Tokens[i].back(), g.Until); err != nil {
			return "", "", err
		}
	}
	if err := s.records.Put(ctx, grantKey(id), encode(g), life); err != nil {
		return "", "", err
	}
	s.lasting.usage.grant(g.Sealed, time.Time{}, g.ends(), now)
	code = s.material.current(ctx).ring.signed(useCode, random())
	record := &codeRecord{
		Grant: id, Of: *g, Redirect: a.Redirect, Challenge: a.Challenge, Nonce: a.Nonce, Until: now.Add(s.config.Code),
	}
	return code, sub, s.records.Put(ctx, codeKey(code), encode(record), s.config.Code+s.config.Access)
}

// grantLife is how long a grant lives when nothing renews it.
func (s *Server) grantLife(g *grant) time.Duration {
	if g.Refreshes {
		return s.config.Refresh
	}
	return s.config.Code + s.config.Access
}

// subject is who a user is in our tokens: it depends on no key, and no two users of the
// upstreams share one, since the name of a provider has no colon.
func subject(provider, of string) string {
	sub := provider + ":" + of
	if len(of) > maxSub || !utf8.ValidString(of) || strings.ContainsFunc(of, func(c rune) bool { return c < ' ' || c >= 0x7f && c < 0xa0 }) {
		return "sha256-" + digest(sub)
	}
	return sub
}

// token is step 11, for a code; refreshed and revoked are in grants.go.
func (s *Server) redeem(ctx context.Context, r *http.Request, c *client, q url.Values) (*issued, error) {
	// 11. Token: what does not spend the code comes first.
	code, verifier := q.Get("code"), q.Get("code_verifier")
	ring := s.material.current(ctx).ring
	text, mac, _ := strings.Cut(code, ".")
	if !ring.holds(useCode, text, mac) {
		return nil, refuse("invalid_grant", "the code is unknown")
	}
	var record codeRecord
	reused := false
	life := s.config.Code + s.config.Access
	err := s.records.Update(ctx, codeKey(code), life, func(old []byte) ([]byte, error) {
		record, reused = codeRecord{}, false
		switch {
		case old == nil || json.Unmarshal(old, &record) != nil:
			return nil, refuse("invalid_grant", "the code is unknown")
		case record.Of.Client != c.key():
			return nil, refuse("invalid_grant", "the code is another client's")
		case record.Redirect != q.Get("redirect_uri"):
			return nil, refuse("invalid_grant", "redirect_uri is another than at authorization")
		case q.Has("resource") && (q.Get("resource") == "" || s.config.resource(q.Get("resource")) != s.config.resource(record.Of.Server)):
			return nil, refuse("invalid_target", "resource is another than at authorization")
		case record.Spent:
			reused = true
			return nil, refuse("invalid_grant", "the code has been used")
		case !s.now().Before(record.Until):
			return nil, refuse("invalid_grant", "the code has expired")
		}
		return encode(record.spent()), nil
	})
	if reused {
		s.tell(r, Event{What: "code_reuse", Outcome: Refused, Client: c.key()})
		err = s.end(ctx, record.Grant, &record.Of, err)
	}
	if err != nil {
		return nil, err
	}
	if !verifies(record.Challenge, verifier) {
		return nil, s.end(ctx, record.Grant, &record.Of, refuse("invalid_grant", "code_verifier does not fit"))
	}
	return s.issue(ctx, record.Grant, &record.Of, record.Nonce, record.Of.Scopes)
}
