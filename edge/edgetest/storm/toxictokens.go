package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// lie is an answer in place of that of an endpoint, and what a call that meets it
// is answered with. The tokens that some lies give are none that backends take.
type lie struct {
	name   string
	want   int
	slow   bool // it takes as long as the edge waits
	opaque bool // users have tokens that no key vouches for
	final  bool // it is a decision, which is not asked for again at once
	answer func(w http.ResponseWriter, r *http.Request)
}

// desk is an endpoint that gives credentials, with a network before it, and an
// edge that asks it for its backends.
type desk struct {
	*shop
	name   string
	edge   *kit.Edge
	relay  *relay
	lying  atomic.Pointer[lie]
	closes atomic.Bool // each connection ends after one answer
	lies   []lie
	asked  func() int64             // questions so far
	sent   func(users []string) int // requests to backends so far, for some users
	flawed func() (own, wrong int)  // requests to backends so far with a token of a client, and with a credential that is nobody's
	after  func()                   // forgets what is no longer needed
}

// instead answers a question in place of the endpoint, if that is how things are.
func (d *desk) instead(w http.ResponseWriter, r *http.Request) bool {
	if d.closes.Load() {
		w.Header().Set("Connection", "close")
	}
	l := d.lying.Load()
	if l != nil {
		l.answer(w, r)
	}
	return l != nil
}

// runToxicTokens is the part of G27 that concerns the services that give
// credentials of users, and what else such a service may do: it is refused, keeps
// silent, breaks, or lies. While it is so no request of a new user reaches a
// backend, and the token of a client never does; users who have a credential do
// not notice; and all is well soon after.
func runToxicTokens(ctx context.Context, s *storm) {
	s.disturb(ctx, s.exchangeDesk(ctx))
	s.disturb(ctx, s.cloudDesk(ctx))
}

// deskToxics are those of toxics towards such an endpoint. It is reached by TLS,
// of which a handshake meets a delay twice.
func deskToxics(scale time.Duration) []toxic {
	all := toxics(scale)
	for i := range all {
		all[i].delay, all[i].jitter = all[i].delay/2, all[i].jitter/2
	}
	return all
}

// disturb does all harm to an endpoint, one after the other.
func (s *storm) disturb(ctx context.Context, d *desk) {
	scale, each := time.Duration(1), 2
	ways := []direction{upstream, downstream}
	if s.quick {
		scale, each, ways = 4, 1, ways[1:]
		s.scale("latency 0.5 s ± 0.25 of 2 s ± 1, one direction of 2, 1 of 2 calls of each client, answers that are not slow, after one of which alone new users are asked how they are")
	}
	const count = 8
	p := &patrons{desk: d, each: each}
	for range 4 {
		p.known = append(p.known, d.newcomer())
	}
	p.regulars, p.clients = d.counter(ctx, d.edge, len(p.known), 100), d.counter(ctx, d.edge, count, 0)
	defer kit.CloseAll(p.regulars)
	defer kit.CloseAll(p.clients)
	p.kept = map[string]string{}
	for _, user := range p.known {
		p.kept[user] = d.token(user)
	}
	if first := p.familiar(); first.codes[http.StatusOK] != first.calls() {
		first.others(s, d.name, http.StatusOK)
		kit.Fail("%s: the first calls: %s", d.name, first)
	}
	base := 0
	if !s.quick { // it takes its time
		base = s.restingGoroutines(ctx, d.edge, 0)
	}
	for _, t := range deskToxics(scale) {
		for _, way := range ways {
			p.meet(ctx, fmt.Sprintf("%s %s", t.name, way), t.want, func() {
				d.relay.poison(way, t.toxin)
				d.closes.Store(t.closes)
			}, func() {
				d.closes.Store(false)
				d.relay.cure()
			})
		}
	}
	p.meet(ctx, "refused", http.StatusBadGateway, d.relay.leave, d.relay.back)
	for _, l := range d.lies {
		if l.slow && s.quick {
			continue
		}
		p.opaque, p.final, p.brief = l.opaque, l.final, s.quick && l.name != d.lies[0].name
		p.meet(ctx, l.name, l.want, func() { d.lying.Store(&l) }, func() { d.lying.Store(nil) })
	}
	if !s.quick {
		after := s.restingGoroutines(ctx, d.edge, base)
		s.bar(after <= base+keptGoroutines, strconv.Itoa(keptGoroutines)+", of 4 connections that are kept", "%s: %d goroutines left over, of %d", d.name, max(after-base, 0), base)
	}
	followed := int64(0)
	for _, b := range d.backends {
		followed += b.Counts().Methods["malformed"]
	}
	s.bar(followed == 0, "0", "%s: %d redirects followed", d.name, followed)
	own, wrong := d.flawed()
	s.bar(own == 0 && wrong == 0, "0, 0", "%s: backends were sent the client's own token %d times, a credential that they do not take %d times; the endpoint was asked %d times", d.name, own, wrong, d.asked())
	d.edge.Stop()
}

// patrons are the clients of a desk: new users, of whom each call has one of its
// own, and users whose credential is kept.
type patrons struct {
	*desk
	each     int
	clients  []*kit.Client
	regulars []*kit.Client
	known    []string
	kept     map[string]string // tokens of known users

	opaque bool // new users have tokens that no key vouches for
	final  bool // new users are refused
	brief  bool // it is not waited for until they are well

	numbers kit.Numbers
	mu      sync.Mutex
	met     []string          // new users of this harm
	shown   map[string]string // their tokens
}

// meet has users call while there is harm, and after it.
func (p *patrons) meet(ctx context.Context, what string, want int, harm, cure func()) {
	kit.Check(ctx.Err())
	p.met, p.shown = nil, map[string]string{}
	harm()
	var seen, sure *seenCodes
	var work sync.WaitGroup
	work.Go(func() { seen = allCall(p.clients, p.each, p.strange) })
	work.Go(func() { sure = p.familiar() })
	work.Wait()
	reached := p.sent(p.met)
	idle := nothingUnderWay(ctx, p.edge)
	cure()

	// The same users are well soon after: one who was refused has to wait until the
	// refusal is forgotten.
	began, bar := time.Now(), 2*time.Second
	if p.final {
		bar += 5 * time.Second
	}
	again := slices.Clone(p.met[:min(len(p.met), len(p.clients))])
	if p.brief {
		again = nil
	}
	if p.opaque { // the endpoint takes no such tokens
		for i := range again {
			again[i] = p.newcomer()
			p.shown[again[i]] = p.token(again[i])
		}
	}
	var well sync.WaitGroup
	var late atomic.Int64
	for i, user := range again {
		well.Go(func() {
			if !kit.WaitFor(ctx, kit.Patience, func() bool {
				code, _ := shopCall(renewed(&p.clients[i], i), &p.numbers, user, p.shown[user])
				return code == http.StatusOK
			}) {
				late.Add(1)
			}
		})
	}
	well.Wait()
	recovery := time.Since(began)
	all := len(p.met)
	right := seen.codes[want] == all && (want == http.StatusOK || reached == 0) && sure.codes[http.StatusOK] == sure.calls()
	bars := fmt.Sprintf("all %d, 0 requests at backends, all 200, %s", want, bar)
	if want == http.StatusOK {
		bars = "all 200, all 200, 2 s"
	}
	p.bar(right && idle && late.Load() == 0 && recovery <= bar, bars, "%s, %s: new users %s in %.2f s at most, %d requests of theirs at backends; users with a credential %s; well again after %.2f s", p.name, what, seen, seen.longest.Seconds(), reached, sure, recovery.Seconds())
	seen.others(p.storm, p.name+", "+what, want)
	sure.others(p.storm, p.name+", "+what+", with a credential", http.StatusOK)
	p.after()
}

// strange makes a call of a user whom nobody has seen.
func (p *patrons) strange(c *kit.Client) (int, error) {
	user := p.newcomer()
	token := p.token(user)
	if p.opaque {
		token = opaque + user
	}
	p.mu.Lock()
	p.met = append(p.met, user)
	p.shown[user] = token
	p.mu.Unlock()
	return shopCall(c, &p.numbers, user, token)
}

// familiar makes calls of all users with a credential that is kept.
func (p *patrons) familiar() *seenCodes {
	return eachCall(p.regulars, p.each, func(i int, c *kit.Client) (int, error) {
		user := p.known[i]
		return shopCall(c, &p.numbers, user, p.kept[user])
	})
}

// exchangeDesk is the token service.
func (s *storm) exchangeDesk(ctx context.Context) *desk {
	h := s.newShop(time.Hour)
	d := &desk{shop: h, name: "tokenExchange", asked: h.service.Asked.Load, sent: h.gate.reached, after: func() {}}
	h.service.Instead = d.instead
	d.relay = s.newRelay(h.serviceAddr())
	d.lies = tokenLies(h)
	d.flawed = func() (own, wrong int) { return int(h.gate.own.Load()), int(h.gate.unknown.Load()) }
	d.edge = h.open(ctx, way(d.relay.addr), fmt.Sprintf(", introspectionUrl: %q, clientId: edge", h.users.URL+"/introspect"), h.addrs(), "--pprof")
	return d
}

const granted = `"token_type":"Bearer","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","expires_in":3600`

// says is an answer with a status and a body, which is JSON.
func says(status int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body)) // who does not take it has gone
	}
}

// halfOf announces a body and ends after a part of it.
func halfOf(body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write([]byte(body[:len(body)/2]))
		panic(http.ErrAbortHandler)
	}
}

// drip sends a body byte by byte, until nobody listens.
func drip(body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := range len(body) {
			if _, err := w.Write([]byte{body[i]}); err != nil {
				return
			}
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
			if !kit.Sleep(r.Context(), time.Second) {
				return
			}
		}
	}
}

// tokenLies are answers of a token service that are not as they have to be.
func tokenLies(h *shop) []lie {
	token := func(text string) string { return `{"access_token":"` + text + `",` + granted + `}` }
	elsewhere := kit.Must(h.service.As.Token("nobody", map[string]any{"aud": "another"}))
	echo := func(w http.ResponseWriter, r *http.Request) {
		says(http.StatusOK, token(r.PostForm.Get("subject_token")))(w, r)
	}
	return []lie{
		{"status 500 with a token", 502, false, false, false, says(500, token("lie"))},
		{"status 503", 502, false, false, false, says(503, `{"error":"temporarily_unavailable"}`)},
		{"status 201 with a token", 502, false, false, false, says(201, token("lie"))},
		{"status 404 of a page", 502, false, false, true, says(404, "<html>not here</html>")},
		{"an unknown client", 502, false, false, true, says(401, `{"error":"invalid_client"}`)},
		{"a user who has to sign in again", 401, false, false, true, says(400, `{"error":"invalid_grant"}`)},
		{"a user who may not", 403, false, false, true, says(400, `{"error":"access_denied"}`)},
		{"an error of its own, with the secret in it", 502, false, false, true, says(400, `{"error":"`+shopSecret+`","error_description":"`+shopSecret+`"}`)},
		{"a page in place of JSON", 502, false, false, false, says(200, "<html>a page</html>")},
		{"nothing", 502, false, false, false, says(200, "")},
		{"no token", 502, false, false, false, says(200, `{`+granted+`}`)},
		{"an empty token", 502, false, false, false, says(200, token(""))},
		{"a token that ends a line", 502, false, false, false, says(200, token(`lie\r\nX-Evil: y`))},
		{"a token with a blank", 502, false, false, false, says(200, token("lie lie"))},
		{"a token of a megabyte", 502, false, false, false, says(200, token(strings.Repeat("l", 1<<20)))},
		{"another token_type", 502, false, false, false, says(200, strings.Replace(token("lie"), `"Bearer"`, `"mac"`, 1))},
		{"another issued_token_type", 502, false, false, false, says(200, strings.Replace(token("lie"), "access_token\",\"exp", "id_token\",\"exp", 1))},
		{"no issued_token_type", 502, false, false, false, says(200, `{"access_token":"lie","token_type":"Bearer"}`)},
		{"a token that is over", 502, false, false, false, says(200, strings.Replace(token("lie"), "3600", "-1", 1))},
		{"a token for another audience", 502, false, false, false, says(200, token(elsewhere))},
		{"the client's own token", 502, false, false, false, echo},
		{"the client's own token, which says nothing of itself", 502, false, true, false, echo},
		{"an answer twice", 502, false, false, false, says(200, token("lie")+token("lie"))},
		{"a member twice", 502, false, false, false, says(200, `{"access_token":"lie","access_token":"lies",`+granted+`}`)},
		{"a redirect", 502, false, false, false, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+h.backends[0].Addr+"/mcp", http.StatusTemporaryRedirect)
		}},
		{"half a body", 502, false, false, false, halfOf(token("lie"))},
		{"the end of the connection", 502, false, false, false, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{"a byte a second", 504, true, false, false, drip(token("lie"))},
	}
}
