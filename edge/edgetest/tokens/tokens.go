// Package tokens is token endpoints for tests: they verify what they are asked themselves,
// and refuse each thing that is wrong.
package tokens

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/issuer"
	"github.com/weir-edge/weir/edge/oauth"
)

// Where the endpoints are.
const (
	Exchange = "/exchange" // RFC 8693
	OnBehalf = "/contoso.example.com/oauth2/v2.0/token"
)

const urn = "urn:ietf:params:oauth:token-type:"

// maxFetch bounds how long the keys of an issuer may take.
const maxFetch = 20 * time.Second

// Rules are what an endpoint takes.
type Rules struct {
	ID, Secret  string // of the client; a Secret of "" is none
	Older       string // another secret that is taken as well, while clients change theirs; "" for none
	Basic, Body bool   // where the secret may be

	Issuer   string // of the user's tokens
	Keys     string // URL of the keys of that; those of the service itself when ""
	Audience string // of the user's tokens
	Type     string // of them, without its beginning: access_token or id_token

	Target string   // audience that a token may be asked for; "" for none
	Scopes []string // that may be asked for

	Life time.Duration // of what is issued; 0 for an hour
}

// Request is one that came.
type Request struct {
	Path  string
	Form  url.Values
	Basic bool // the client was in the header
}

// Service is the endpoints.
type Service struct {
	URL string
	CA  []byte // PEM
	As  *issuer.Issuer

	// Instead answers a request in place of an endpoint, where it reports true.
	Instead func(http.ResponseWriter, *http.Request) bool

	// Trust is the CA, in PEM, of whoever has the keys of users' tokens; nil without TLS. It is
	// set before the first request.
	Trust []byte

	// Asked is how many requests came, and Issued how many tokens it issued.
	Asked, Issued atomic.Int64

	// Pad is how many characters the tokens that it issues have that say nothing.
	Pad int

	server *httptest.Server

	mu     sync.Mutex
	rules  map[string]Rules
	seen   []Request
	keys   map[string]*oauth.KeySet // by their URL, as they were fetched last
	issued map[edge.Secret]holder
}

// holder is whose a token is, and until when it is good.
type holder struct {
	subject string
	until   time.Time
}

// Start starts the service, which ends with the test. Rules are by path.
func Start(t testing.TB, rules map[string]Rules) *Service {
	t.Helper()
	s, err := New(rules)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// New is Start for what is no test: Close ends the service.
func New(rules map[string]Rules) (*Service, error) {
	as, err := issuer.New(issuer.ES256, "", nil)
	if err != nil {
		return nil, err
	}
	s := &Service{As: as, rules: maps.Clone(rules), keys: map[string]*oauth.KeySet{}, issued: map[edge.Secret]holder{}}
	if s.rules == nil {
		s.rules = map[string]Rules{}
	}
	s.server = httptest.NewUnstartedServer(s)
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0) // who leaves in the middle of a handshake is no news
	s.server.StartTLS()
	s.URL = s.server.URL
	s.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	return s, nil
}

// Close ends what New began.
func (s *Service) Close() {
	s.server.CloseClientConnections()
	s.server.Close()
	s.As.Leave()
}

// Holder returns whose a token is that the service issued; false for one that it did not issue,
// or that has expired.
func (s *Service) Holder(token string) (subject string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.issued[edge.Secret(token)]
	return h.subject, ok && time.Now().Before(h.until)
}

// Reach is what lets requests of the edge come here.
func (s *Service) Reach() edge.Reach { return edge.Reach{CAs: s.CA} }

// Change changes the rules of an endpoint.
func (s *Service) Change(path string, change func(*Rules)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rules[path]
	change(&r)
	s.rules[path] = r
}

// Seen returns what came for a path since the last time.
func (s *Service) Seen(path string) (all []Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = slices.DeleteFunc(s.seen, func(r Request) bool {
		if r.Path == path {
			all = append(all, r)
		}
		return r.Path == path
	})
	return all
}

// problem is an OAuth error.
type problem struct {
	code string
	why  string // for whoever reads the test
}

func (p *problem) Error() string { return p.code + ": " + p.why }

func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, _, basic := r.BasicAuth()
	s.Asked.Add(1)
	s.mu.Lock()
	s.seen = append(s.seen, Request{r.URL.Path, r.PostForm, basic})
	rules, ok := s.rules[r.URL.Path]
	s.mu.Unlock()
	if s.Instead != nil && s.Instead(w, r) {
		return
	}
	if !ok || r.Method != http.MethodPost {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	answer, err := s.answer(r, &rules)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	var p *problem
	if errors.As(err, &p) {
		w.WriteHeader(http.StatusBadRequest)
		answer = map[string]any{"error": p.code, "error_description": p.why}
	} else if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(answer) // who does not take it has gone
}

// answer judges a request and issues a token.
func (s *Service) answer(r *http.Request, rules *Rules) (map[string]any, error) {
	if err := client(r, rules); err != nil {
		return nil, err
	}
	form := r.PostForm
	want := map[string]string{"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange"}
	name, issued := "subject_token", urn+"access_token"
	if r.URL.Path == Exchange {
		want["requested_token_type"], want["subject_token_type"] = issued, urn+rules.Type
	} else {
		name, want["grant_type"] = "assertion", "urn:ietf:params:oauth:grant-type:jwt-bearer"
		want["requested_token_use"] = "on_behalf_of"
	}
	for name, value := range want {
		if form.Get(name) != value || len(form[name]) != 1 {
			return nil, &problem{"invalid_request", name + " is not " + value}
		}
	}
	if form.Get("audience") != rules.Target || form.Has("resource") {
		return nil, &problem{"invalid_target", "audience"}
	}
	for _, scope := range strings.Fields(form.Get("scope")) {
		if !slices.Contains(rules.Scopes, scope) {
			return nil, &problem{"invalid_scope", scope}
		}
	}
	claims, err := s.verify(form.Get(name), rules)
	if err != nil {
		return nil, &problem{"invalid_grant", err.Error()}
	}
	return s.issue(claims, form, rules, issued)
}

// client judges who asks (RFC 6749 §2.3.1).
func client(r *http.Request, rules *Rules) error {
	id, secret, basic := r.BasicAuth()
	if basic {
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	} else {
		id, secret = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	}
	switch {
	case id != rules.ID || secret != rules.Secret && (rules.Older == "" || secret != rules.Older):
		return &problem{"invalid_client", "unknown"}
	case basic && (!rules.Basic || r.PostForm.Has("client_secret")), !basic && !rules.Body:
		return &problem{"invalid_client", "the secret is in the wrong place"}
	}
	return nil
}

// verify judges a token of the user.
func (s *Service) verify(token string, rules *Rules) (oauth.Object, error) {
	header, err := oauth.Header(edge.Secret(token))
	if err != nil {
		return nil, err
	}
	where := rules.Keys
	if where == "" {
		where = s.As.URL + "/keys"
	}
	kid, _ := header.Text("kid")
	alg, _ := header.Text("alg")
	key, err := s.key(where, kid)
	if err != nil {
		return nil, err
	}
	payload, err := key.Verify(alg, []byte(token))
	if err != nil {
		return nil, err
	}
	claims, err := oauth.ParseObject(payload, 16)
	if err != nil {
		return nil, err
	}
	typ, _ := header.Text("typ")
	wanted := map[string][]string{"access_token": {"at+jwt"}, "id_token": {"", "JWT"}}[rules.Type]
	who, _ := claims.Text("iss")
	expires, wrong := claims.Time("exp")
	switch {
	case !slices.Contains(wanted, typ):
		return nil, fmt.Errorf("a token of type %q", typ)
	case who != rules.Issuer:
		return nil, errors.New("another issuer")
	case !claims.Audience(rules.Audience):
		return nil, errors.New("another audience")
	case wrong != nil || time.Until(expires) <= 0:
		return nil, errors.New("expired")
	}
	return claims, nil
}

// key finds a key of an issuer, whose keys are fetched where it is none of those that are known.
func (s *Service) key(where, kid string) (*oauth.Key, error) {
	s.mu.Lock()
	keys := s.keys[where]
	s.mu.Unlock()
	if keys != nil {
		if key := keys.Find(kid); key != nil {
			return key, nil
		}
	}
	keys, err := Keys(where, s.Trust)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.keys[where] = keys
	s.mu.Unlock()
	if key := keys.Find(kid); key != nil {
		return key, nil
	}
	return nil, errors.New("a key that the issuer does not have")
}

// Keys fetches keys from a URL. ca is the CA of who has them, in PEM; nil without TLS.
func Keys(where string, ca []byte) (*oauth.KeySet, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: x509.NewCertPool()}}
	transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(ca)
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: maxFetch}).Get(where)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	return oauth.ParseKeys(text)
}

// issue issues a token that says whom and what it is for.
func (s *Service) issue(claims oauth.Object, form url.Values, rules *Rules, issued string) (map[string]any, error) {
	life := rules.Life
	if life == 0 {
		life = time.Hour
	}
	subject, _ := claims.Text("sub")
	n := s.Issued.Add(1)
	made := s.As.Claims(subject, map[string]any{
		"aud": rules.Target, "scope": form.Get("scope"), "exp": time.Now().Add(life).Unix(), "jti": fmt.Sprint("token-", n),
	})
	if scope := string(claims["scope"]); scope != "" {
		made["of"] = claims["scope"] // what the user's token was good for
	}
	if s.Pad > 0 {
		made["pad"] = strings.Repeat("x", s.Pad)
	}
	token, err := s.As.Sign(made)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.issued[edge.Secret(token)] = holder{subject, time.Now().Add(life)}
	s.mu.Unlock()
	answer := map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": int(life.Seconds())}
	if form.Get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
		answer["issued_token_type"] = issued
	}
	return answer, err
}
