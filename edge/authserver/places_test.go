//go:build unix

package authserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/kv/kvtest"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// place is somewhere that records lie, with what can be done to it behind the back of whoever
// uses it.
type place struct {
	name    string
	all     []*kvtest.Server // with those that follow others; none for memory
	options kv.Options
	memory  *kv.MemoryStore
}

// patience is for a busy machine: no answer is taken for none.
const patience = 20 * time.Second

// open is a way to the place, as each replica has one of its own; in memory there is one.
func (p *place) open(t testing.TB, timeout time.Duration) edge.Store {
	t.Helper()
	if p.memory != nil {
		return p.memory
	}
	o := p.options
	o.Timeout, o.Dial, o.Log = timeout, timeout, slog.New(slog.DiscardHandler)
	s, err := kv.Redis(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	edgetest.Until(t, "a store that is ready", func() bool { return s.Ready() == nil })
	return s
}

// everywhere runs a test on each kind of place.
func everywhere(t *testing.T, test func(t *testing.T, p *place)) {
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		m := kv.Memory(kv.Limits{Values: 1000})
		t.Cleanup(func() { _ = m.Close() })
		test(t, &place{name: "memory", memory: m})
	})
	// What a DUMP holds is as it was written.
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		s := kvtest.Redis(t, "--rdbcompression", "no")
		all := []*kvtest.Server{s}
		test(t, &place{name: "redis", all: all, options: kv.Options{Addresses: []string{s.Addr}}})
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		all := kvtest.Cluster(t)
		test(t, &place{name: "cluster", all: all, options: kv.Options{Mode: kv.Cluster, Addresses: []string{all[0].Addr}}})
	})
	t.Run("sentinels", func(t *testing.T) {
		t.Parallel()
		master, replica, sentinels := kvtest.Sentinels(t, "", "")
		for _, at := range sentinels { // a store that is away for a moment is no reason for another master
			tell(t, at, "SENTINEL SET main down-after-milliseconds 60000")
		}
		test(t, &place{name: "sentinels", all: []*kvtest.Server{master, replica}, options: kv.Options{Mode: kv.Sentinel, Addresses: sentinels, Master: "main"}})
	})
}

// tell tells a server something that it answers with OK.
func tell(t *testing.T, addr, what string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	said := make([]byte, 64)
	if _, err := fmt.Fprintf(c, "%s\r\n", what); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(said); err != nil || !strings.HasPrefix(string(said[:n]), "+OK") {
		t.Fatalf("%s: %q, %v", what, said[:n], err)
	}
}

// masters are the servers that take writes now.
func (p *place) masters() (all []*kvtest.Server) {
	for _, s := range p.all {
		if strings.Contains(s.Do("info", "replication"), "role:master") {
			all = append(all, s)
		}
	}
	return all
}

// empty takes all away, as a store does that comes back without what it held.
func (p *place) empty(keys []string) {
	if p.memory != nil {
		for _, k := range keys {
			_ = p.memory.Delete(context.Background(), k)
		}
	}
	for _, s := range p.masters() {
		s.Do("flushall")
	}
}

// fill leaves no room for more, until the function that it returns is called.
func (p *place) fill(t testing.TB) (room func()) {
	if p.memory == nil {
		for _, s := range p.masters() {
			s.Do("config", "set", "maxmemory", "1")
		}
		room = func() {
			for _, s := range p.masters() {
				s.Do("config", "set", "maxmemory", "0")
			}
		}
		t.Cleanup(room)
		return room
	}
	n := 0
	for p.memory.Put(t.Context(), fmt.Sprint("fill:", n), []byte("x"), time.Hour) == nil {
		n++
	}
	return func() {
		for i := range n {
			if err := p.memory.Delete(t.Context(), fmt.Sprint("fill:", i)); err != nil {
				t.Error(err)
			}
		}
	}
}

// tap sees each write of a replica, and can end the replica at one of them: before it is done,
// or after, when nobody hears of it any longer.
type tap struct {
	edge.Store
	mu     sync.Mutex
	writes int
	at     int  // the write at which the replica ends; 0 for none
	after  bool // it is done
	ended  bool
	keys   []string
}

func (p *tap) write(key string, do func() error) error {
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return errGone
	}
	p.writes++
	if !slices.Contains(p.keys, key) {
		p.keys = append(p.keys, key)
	}
	if p.ended = p.writes == p.at; p.ended && !p.after {
		p.mu.Unlock()
		return errGone
	}
	last := p.ended
	p.mu.Unlock()
	if err := do(); !last {
		return err
	}
	return errGone
}

func (p *tap) Get(ctx context.Context, key string) ([]byte, error) {
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	if ended {
		return nil, errGone
	}
	return p.Store.Get(ctx, key)
}

func (p *tap) Put(ctx context.Context, key string, v []byte, ttl time.Duration) error {
	return p.write(key, func() error { return p.Store.Put(ctx, key, v, ttl) })
}

func (p *tap) Delete(ctx context.Context, key string) error {
	return p.write(key, func() error { return p.Store.Delete(ctx, key) })
}

func (p *tap) Update(ctx context.Context, key string, ttl time.Duration, change func([]byte) ([]byte, error)) error {
	return p.write(key, func() error { return p.Store.Update(ctx, key, ttl, change) })
}

// of are the keys of a kind that were written.
func (p *tap) of(kind string) (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.keys {
		if strings.Contains(k, ":"+kind+":") {
			all = append(all, k)
		}
	}
	return all
}

// hub is an identity provider over HTTP: the code that it takes is the name of the user, and
// each refresh token is good once.
type hub struct {
	*httptest.Server
	mu       sync.Mutex
	serial   int
	life     int // seconds that an access token is good for
	good     map[string]string
	refreshs int
	revoked  bool   // it refuses refresh tokens
	pad      string // of its tokens
}

func newHub(t testing.TB) *hub {
	h := &hub{life: 3600, good: map[string]string{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		user := r.PostFormValue("code")
		if r.PostFormValue("grant_type") == "refresh_token" {
			old := r.PostFormValue("refresh_token")
			user = h.good[old]
			delete(h.good, old)
			if h.refreshs++; user == "" || h.revoked {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
				return
			}
		}
		h.serial++
		refresh := fmt.Sprint("PLANTED-refresh-", user, "-", h.serial) + h.pad
		h.good[refresh] = user
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"access_token": fmt.Sprint("PLANTED-access-", user, "-", h.serial) + h.pad, "refresh_token": refresh, "token_type": "Bearer", "expires_in": h.life,
			"user": map[string]string{"id": user, "name": "PLANTED Name", "mail": "PLANTED@example.com"},
		})
	}))
	t.Cleanup(h.Close)
	return h
}

// provider is its configuration.
func (h *hub) provider(t testing.TB, name, redirect string) *upstream.Config {
	t.Helper()
	u, wrong := upstream.Parse(field.NewPath("u"), &v1beta1.UpstreamProvider{Name: name, Type: v1beta1.UpstreamOAuth2, OAuth2Config: &v1beta1.OAuth2Upstream{
		AuthorizationEndpoint: h.URL + "/auth", TokenEndpoint: h.URL + "/token", ClientID: "edge", RedirectURI: redirect,
		IdentityFromToken: &v1beta1.IdentityFromToken{SubjectPath: "user.id", NamePath: "user.name", EmailPath: "user.mail"},
	}}, "")
	if len(wrong) > 0 {
		t.Fatal(wrong.ToAggregate())
	}
	return u
}

// scene is two replicas at one place, each request at the other one of them, and what was seen.
type scene struct {
	t     testing.TB
	place *place
	hub   *hub
	kept  *secrets
	clock *clock
	reps  []*rig
	taps  []*tap
	turn  int
	seen  []string
	short bool // codes and tokens live for a second

	issuer string // "" for that of all tests
}

func newScene(t *testing.T, p *place) *scene {
	return &scene{t: t, place: p, hub: newHub(t), clock: &clock{}, kept: &secrets{all: map[string]string{"as/hmac": strings.Repeat("h", 32), "as/key": signingKey(t)}}}
}

// replica starts another replica.
func (s *scene) replica(timeout time.Duration) *rig {
	s.t.Helper()
	p := &tap{Store: s.place.open(s.t, timeout)}
	r := open(s.t, options{store: p, clock: s.clock, secrets: s.kept, reach: edge.Reach{DevLoopback: true}, config: func(c *authserver.Spec) {
		c.Secrets, c.Keys = append(c.Secrets, ref("hmac")), append(c.Keys, ref("key"))
		c.Upstreams = append(c.Upstreams, s.hub.provider(s.t, "hub", c.Base+"/oauth/callback"))
		if s.issuer != "" {
			c.Issuer = s.issuer
		}
		if s.short {
			c.Code, c.Access, c.Refresh = time.Second, time.Second, time.Second
		}
	}})
	s.reps, s.taps = append(s.reps, r), append(s.taps, p)
	return r
}

// next is the replica whose turn it is.
func (s *scene) next() *rig {
	s.turn++
	return s.reps[s.turn%len(s.reps)]
}

// say notes what was seen.
func (s *scene) say(format string, args ...any) {
	s.seen = append(s.seen, fmt.Sprintf(format, args...))
}

// saw notes an answer in a few words.
func (s *scene) saw(w *httptest.ResponseRecorder) *httptest.ResponseRecorder {
	s.t.Helper()
	s.say("%s", word(s.t, w))
	return w
}

// word is an answer in a few words.
func word(t testing.TB, w *httptest.ResponseRecorder) string {
	t.Helper()
	kind, to := w.Header().Get("Content-Type"), w.Header().Get("Location")
	switch {
	case to != "":
		return "on"
	case strings.HasPrefix(kind, "application/json"):
		all := answer(t, w)
		if all["access_token"] != nil {
			return "tokens"
		}
		return fmt.Sprint(w.Code, " ", all["error"])
	case strings.HasPrefix(kind, "text/html") && w.Code == http.StatusOK && link.MatchString(w.Body.String()):
		_, q := led(t, w)
		if q.Get("code") != "" {
			return "code"
		}
		return q.Get("error")
	case strings.HasPrefix(kind, "text/html") && w.Code == http.StatusOK:
		return "form"
	case strings.HasPrefix(kind, "text/html"):
		return fmt.Sprint("page ", w.Code)
	}
	return fmt.Sprint(w.Code)
}

// client registers one.
func (s *scene) client() string {
	s.t.Helper()
	id, _ := s.next().register(nil)
	return id
}

// leaves has a user allow a client, and returns the browser, and the way back from the provider.
func (s *scene) leaves(client string) (b *browser, back string) {
	s.t.Helper()
	b = s.next().browser()
	sealed := form(s.t, b.authorize(asking(client)))
	b.rig = s.next()
	w := b.answers(sealed, "allow")
	to, err := url.Parse(w.Header().Get("Location"))
	if err != nil || w.Code != http.StatusSeeOther {
		s.t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return b, "/oauth/callback?" + url.Values{"state": {to.Query().Get("state")}, "code": {"alice"}}.Encode()
}

// code is that of a login.
func (s *scene) code(client string) string {
	s.t.Helper()
	b, back := s.leaves(client)
	b.rig = s.next()
	w := b.get(back)
	if word(s.t, w) != "code" {
		s.t.Fatalf("no code: %s: %s", word(s.t, w), w.Body)
	}
	_, q := led(s.t, w)
	return q.Get("code")
}

// login is a whole one.
func (s *scene) login(client string) tokens {
	s.t.Helper()
	r := s.next()
	return r.tokens(r.post("/oauth/token", redeeming(client, s.code(client))))
}

// redeems and refreshes are requests at the next replica.
func (s *scene) redeems(client, code string) *httptest.ResponseRecorder {
	return s.next().post("/oauth/token", redeeming(client, code))
}

func (s *scene) refreshes(client, token string) *httptest.ResponseRecorder {
	return s.next().post("/oauth/token", refreshing(client, token))
}

// lives notes whether a grant lives at each replica.
func (s *scene) lives(access string) {
	s.t.Helper()
	for _, r := range s.reps {
		if r.alive(access) {
			s.say("lives")
		} else {
			s.say("dead")
		}
	}
}

// upstreams notes whether each replica has an upstream token of the user.
func (s *scene) upstreams(access string) {
	s.t.Helper()
	for _, r := range s.reps {
		who := &edge.Identity{Issuer: issuer, Subject: "hub:alice", Claims: r.claims(access)}
		got, _, err := r.Upstreams().Upstream(s.t.Context(), who, "hub")
		switch {
		case err == nil && strings.HasPrefix(string(got), "PLANTED-access-alice-"):
			s.say("upstream")
		case edge.KindOf(err) == edge.Unauthenticated:
			s.say("none")
		default:
			s.say("upstream: kind %d", edge.KindOf(err))
		}
	}
}

// keys are all that were written.
func (s *scene) keys() (all []string) {
	for _, p := range s.taps {
		p.mu.Lock()
		all = append(all, p.keys...)
		p.mu.Unlock()
	}
	return all
}
