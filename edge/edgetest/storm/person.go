package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// person is a user with a browser, and a program that knows nothing but where edges are. Each
// of its requests goes to the next of them, as behind a balancer, and on to another where one
// takes no connection.
type person struct {
	lobby *lobby
	name  string
	addrs []string
	turn  int
	web   *http.Client
	jar   map[string]string

	client          string // id of the program; "" for one that has not registered
	access, refresh string
}

// person is somebody at an address.
func (l *lobby) person(r *roads, host int, name string, addrs ...string) *person {
	return &person{lobby: l, name: name, addrs: addrs, turn: host, web: r.from(host), jar: map[string]string{}}
}

const (
	personVerifier = plantedWord + "-verifier-of-the-row-has-43-characters-or-more"
	personCallback = "https://client.example/cb"
)

var (
	formOfPage = regexp.MustCompile(`name="form" value="([^"]+)"`)
	wayOfPage  = regexp.MustCompile(`<a class="button" href="([^"]+)">`)
)

// errAnswerLost is a request whose edge ended before it answered.
var errAnswerLost = errors.New("no answer")

// unexpected is an answer that is not what the step of a login wants.
type unexpected struct {
	step   string
	status int
	text   string
}

func (u *unexpected) Error() string {
	return fmt.Sprintf("%s: HTTP %d: %.300s", u.step, u.status, u.text)
}

// statusOf is the status of an answer that was not wanted; 0 for none.
func statusOf(err error) int {
	var u *unexpected
	if errors.As(err, &u) {
		return u.status
	}
	return 0
}

// answered is what came of a request.
type answered struct {
	status int
	header http.Header
	text   string
}

// ask sends a request to the next edge. form is posted; nil for a GET.
func (p *person) ask(ctx context.Context, path, kind, body string) (*answered, error) {
	var last error
	for range p.addrs {
		p.turn++
		method := http.MethodPost
		if kind == "" {
			method = http.MethodGet
		}
		// A GET whose connection ends before there is an answer is sent again by the transport
		// itself, as browsers do: then the first answer is lost, and what is good once is spent.
		var sent atomic.Int32
		asked := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent.Add(1) }})
		r, err := http.NewRequestWithContext(asked, method, "http://"+p.addrs[p.turn%len(p.addrs)]+path, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		if kind != "" {
			r.Header.Set("Content-Type", kind)
			r.Header.Set("Sec-Fetch-Site", "same-origin")
		}
		for name, value := range p.jar {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		w, err := p.web.Do(r)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if strings.Contains(err.Error(), "connection refused") { // nobody has seen the request
				last = err
				continue
			}
			return nil, fmt.Errorf("%w: %w", errAnswerLost, err)
		}
		text, err := io.ReadAll(w.Body)
		w.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errAnswerLost, err)
		}
		if n := sent.Load(); n > 1 {
			return nil, fmt.Errorf("%w: it was sent %d times", errAnswerLost, n)
		}
		for _, c := range w.Cookies() {
			if c.MaxAge < 0 {
				delete(p.jar, c.Name)
			} else {
				p.jar[c.Name] = c.Value
			}
		}
		return &answered{w.StatusCode, w.Header, string(text)}, nil
	}
	return nil, fmt.Errorf("%w: %w", errAnswerLost, last)
}

// form posts one.
func (p *person) form(ctx context.Context, path string, q url.Values) (*answered, error) {
	return p.ask(ctx, path, "application/x-www-form-urlencoded", q.Encode())
}

// register registers the program.
func (p *person) register(ctx context.Context) error {
	w, err := p.ask(ctx, "/oauth/register", "application/json", `{"redirect_uris":["`+personCallback+`"],"client_name":"storm","grant_types":["authorization_code","refresh_token"]}`)
	if err != nil {
		return err
	}
	var all struct {
		ID string `json:"client_id"`
	}
	if w.status != http.StatusCreated || json.Unmarshal([]byte(w.text), &all) != nil || all.ID == "" {
		return &unexpected{"register", w.status, w.text}
	}
	p.client = all.ID
	p.lobby.planted(p.client)
	return nil
}

// asking is the query of a sound request for authorization.
func (p *person) asking() string {
	sum := sha256.Sum256([]byte(personVerifier))
	return "/oauth/authorize?" + url.Values{
		"client_id": {p.client}, "redirect_uri": {personCallback}, "response_type": {"code"}, "state": {plantedWord + "-state-of-the-program"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}.Encode()
}

// allow opens the consent page and allows it; back is the way back from the first provider.
func (p *person) allow(ctx context.Context) (back string, err error) {
	if p.client == "" {
		if err := p.register(ctx); err != nil {
			return "", err
		}
	}
	// Browsers keep 150 to 180 cookies of a site, of which each login that was begun leaves one
	// for 10 min; this one would keep them all.
	clear(p.jar)
	w, err := p.ask(ctx, p.asking(), "", "")
	if err != nil {
		return "", err
	}
	m := formOfPage.FindStringSubmatch(w.text)
	if w.status != http.StatusOK || m == nil {
		return "", &unexpected{"authorize", w.status, w.text}
	}
	if w, err = p.form(ctx, "/oauth/consent", url.Values{"form": {m[1]}, "answer": {"allow"}}); err != nil {
		return "", err
	}
	return p.wayBack("consent", w)
}

// wayBack is the way back from the provider that an answer redirects to.
func (p *person) wayBack(step string, w *answered) (string, error) {
	to, err := url.Parse(w.header.Get("Location"))
	if err != nil || w.status != http.StatusSeeOther {
		return "", &unexpected{step, w.status, w.text}
	}
	return p.backFrom(to), nil
}

// backFrom is the way back from a provider.
func (p *person) backFrom(to *url.URL) string {
	state := to.Query().Get("state")
	p.lobby.planted(state)
	return "/oauth/callback?" + url.Values{"state": {state}, "code": {p.name}}.Encode()
}

// code goes on until the program has a code.
func (p *person) code(ctx context.Context) (string, error) {
	back, err := p.allow(ctx)
	if err != nil {
		return "", err
	}
	for leg := range p.lobby.hubs {
		w, err := p.ask(ctx, back, "", "")
		if err != nil {
			return "", err
		}
		to, err := ledTo(w)
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(to.String(), personCallback) {
			return p.codeOf(w, to)
		}
		if next := leg + 1; next == len(p.lobby.hubs) || !strings.HasPrefix(to.String(), p.lobby.hubs[next].URL+"/") {
			return "", &unexpected{"return", w.status, to.String()}
		}
		back = p.backFrom(to)
	}
	return "", &unexpected{"return", 0, "no end"}
}

// led is the code that a page leads on with.
func (p *person) led(w *answered) (string, error) {
	to, err := ledTo(w)
	if err != nil {
		return "", err
	}
	return p.codeOf(w, to)
}

// ledTo is where a page leads on to.
func ledTo(w *answered) (*url.URL, error) {
	m := wayOfPage.FindStringSubmatch(w.text)
	if w.status != http.StatusOK || m == nil {
		return nil, &unexpected{"return", w.status, w.text}
	}
	to, err := url.Parse(html.UnescapeString(m[1]))
	if err != nil {
		return nil, &unexpected{"return", w.status, html.UnescapeString(m[1])}
	}
	return to, nil
}

// codeOf is the code in the address that a page leads the program to.
func (p *person) codeOf(w *answered, to *url.URL) (string, error) {
	code := to.Query().Get("code")
	if code == "" {
		return "", &unexpected{"return", w.status, to.String()}
	}
	p.lobby.planted(code)
	return code, nil
}

// signIn is a whole login.
func (p *person) signIn(ctx context.Context) error {
	code, err := p.code(ctx)
	if err != nil {
		return err
	}
	for _, value := range p.jar {
		p.lobby.planted(value)
	}
	return p.redeem(ctx, code)
}

// redeem redeems a code.
func (p *person) redeem(ctx context.Context, code string) error {
	return p.token(ctx, url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {personCallback}, "code_verifier": {personVerifier}})
}

// renew renews the tokens.
func (p *person) renew(ctx context.Context) error {
	return p.token(ctx, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {p.refresh}})
}

// token asks for tokens, and holds them against who this is.
func (p *person) token(ctx context.Context, q url.Values) error {
	q.Set("client_id", p.client)
	w, err := p.form(ctx, "/oauth/token", q)
	if err != nil {
		return err
	}
	var all struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
	}
	if w.status != http.StatusOK || json.Unmarshal([]byte(w.text), &all) != nil || all.Access == "" || all.Refresh == "" {
		return &unexpected{"token", w.status, w.text}
	}
	p.access, p.refresh = all.Access, all.Refresh
	p.lobby.planted(p.access, p.refresh)
	if who := claimsOf(p.access).Subject; who != p.lobby.hubs[0].name+":"+p.name {
		p.lobby.crossed.Add(1)
		return fmt.Errorf("%s was given a token of %s", p.name, who)
	}
	return nil
}

// revoke ends the grant.
func (p *person) revoke(ctx context.Context) error {
	w, err := p.form(ctx, "/oauth/revoke", url.Values{"client_id": {p.client}, "token": {p.refresh}})
	if err == nil && w.status != http.StatusOK {
		err = &unexpected{"revoke", w.status, w.text}
	}
	return err
}

// call calls the tool of a backend at an edge, over a connection of its own.
func (p *person) call(ctx context.Context, n *kit.Numbers, addr string, host, backend int) (status int, err error) {
	c, err := kit.Dial(ctx, addr, kit.Modern, kit.DialOptions{From: host})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	c.Tool = toolOf(backend)
	if status, err = shopCall(c, n, p.name, p.access); status != 0 {
		err = nil // it was answered
	}
	return status, err
}

// insist does something until it is done, as somebody who tries again does: after a 503 or a
// 502, and where nobody answered.
func insist(ctx context.Context, within time.Duration, do func() error) (tries int, err error) {
	for end := time.Now().Add(within); ; {
		tries++
		err = do()
		if status := statusOf(err); err == nil || !errors.Is(err, errAnswerLost) && status != http.StatusServiceUnavailable && status != http.StatusBadGateway || time.Now().After(end) || !kit.Sleep(ctx, 100*time.Millisecond) {
			return tries, err
		}
	}
}
