package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/oauth"
)

// Bounds of what a stranger sends, in bytes but for the number of parameters.
const (
	maxBody       = 64 << 10
	maxParameters = 100
	maxParameter  = 8 << 10
)

// Server is an authorization server. It is safe for concurrent use.
type Server struct {
	config    *Spec
	vault     *upstream.Vault
	closers   []func()
	providers []Provider
	material  *materials
	records   *records
	documents *documentsCache
	local     edge.Store
	log       *slog.Logger
	now       func() time.Time
	told      func(Event)

	lasting   *Lasting
	alive     alive
	counts    counts
	agreement agreement
	faults    faults
}

// New opens an authorization server. It fails for what waiting does not cure: a Config that
// cannot be, secrets that are missing or too short, keys that cannot sign.
func New(ctx context.Context, c *Spec, env Env) (*Server, error) {
	s := &Server{config: c, providers: env.Providers, local: env.Local, log: env.Log, now: env.Now, told: env.Told, lasting: env.Lasting}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	var err error
	if s.lasting == nil {
		if s.lasting, err = NewLasting(); err != nil {
			return nil, err
		}
	}
	s.material, err = newMaterials(ctx, c, env.Secrets, s.lasting, func(err error) {
		s.log.Error("secrets and keys are used as they were", "issuer", c.Issuer, "error", err)
	})
	if err != nil {
		return nil, err
	}
	if s.material.now.Load().Ephemeral {
		s.log.Warn("the authorization server has a secret or a signing key that was made at start: whoever signed in has to sign in again after a restart", "issuer", c.Issuer, "do", "weir auth keygen")
	}
	s.records = newRecords(env.Store, s.material, c.Issuer)
	if err := s.connect(env); err != nil {
		s.Close()
		return nil, err
	}
	if c.Store != nil {
		background, stop := context.WithCancel(context.Background())
		var work sync.WaitGroup
		work.Go(func() { s.keep(background) })
		s.closers = append([]func(){func() { stop(); work.Wait() }}, s.closers...)
	}
	return s, nil
}

// connect makes what asks others: the providers, the vault of what they issue, and the client
// that fetches documents.
func (s *Server) connect(env Env) error {
	var real []*upstream.Provider
	for _, u := range s.config.Upstreams {
		if env.Providers != nil {
			break
		}
		p, err := upstream.New(u, upstream.Env{Reach: env.Reach, Secrets: env.Secrets, Records: s.records, Log: s.log, Now: s.now})
		if err != nil {
			return err
		}
		s.closers = append(s.closers, p.Close)
		real, s.providers = append(real, p), append(s.providers, p)
	}
	if len(s.providers) == 0 {
		return errors.New("upstreamProviders: there is none")
	}
	s.vault = upstream.NewVault(upstream.VaultOptions{
		Issuer: s.config.Issuer, Providers: real, Records: s.records, Log: s.log, Now: s.now, Told: s.renewed(env.Renewed),
		Gone: func(ctx context.Context, grant, provider string) error {
			return s.records.again(ctx, grant, provider, s.config.Refresh)
		},
	})
	s.closers = append([]func(){s.vault.Close}, s.closers...)
	if s.config.CIMD == nil {
		return nil
	}
	client, err := oauth.New(oauth.Options{Reach: env.Reach, Timeout: fetchTimeout})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, client.Close)
	s.documents = newDocuments(s.config.CIMD, client, env.Local, s.log, s.now)
	return nil
}

// renewed notes how upstreams do, and passes on what it hears, with whose tokens they are.
func (s *Server) renewed(told func(v upstream.Renewal, client, subject string)) func(upstream.Renewal) {
	return func(v upstream.Renewal) {
		switch v.Outcome {
		case upstream.Renewed:
			s.faults.note(v.Provider, nil)
		case upstream.Failed:
			s.faults.note(v.Provider, errors.New(v.Reason))
		}
		s.counts.add(Event{What: "upstream_refresh", Outcome: Outcome(v.Outcome)})
		if told == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if g, err := s.records.grant(ctx, v.Grant, s.now()); err == nil && g != nil {
			told(v, shown(g.Client), g.Subject)
		} else {
			told(v, "", "")
		}
	}
}

// Close ends what is under way. The server must not be used any longer.
func (s *Server) Close() {
	for _, c := range s.closers {
		c()
	}
}

// Upstreams are what backends get of the users' upstream tokens.
func (s *Server) Upstreams() edge.Upstreams { return s.vault }

// Mounts are the endpoints, by the host that clients know them by.
func (s *Server) Mounts() map[string][]edge.Mount {
	issuer, base := pathOf(s.config.Issuer), pathOf(s.config.Base)
	all := map[string][]edge.Mount{}
	seen := map[string]bool{}
	host := hostOf(s.config.Issuer)
	add := func(path string, most int, h http.HandlerFunc) {
		if !seen[path] {
			seen[path] = true
			all[host] = append(all[host], edge.Mount{Prefix: path, Handler: s.guarded(path, h), MaxBody: most})
		}
	}
	described := func(openid bool) http.HandlerFunc {
		return s.document(func() []byte { return s.config.document(s.material.current(context.Background()), openid) })
	}
	add("/.well-known/oauth-authorization-server"+issuer, 0, described(false))
	openid := described(true)
	add("/.well-known/openid-configuration"+issuer, 0, openid)
	add(issuer+"/.well-known/openid-configuration", 0, openid)
	add(issuer+"/.well-known/jwks.json", 0, s.document(func() []byte { return s.material.current(context.Background()).document }))
	add(issuer+"/oauth/token", maxBody, shared(only(s.token, http.MethodPost)))
	add(issuer+"/oauth/register", maxRegisterIn, shared(only(s.register, http.MethodPost)))
	add(issuer+"/oauth/revoke", maxBody, shared(only(s.revoke, http.MethodPost)))
	host = hostOf(s.config.Base)
	add(base+"/oauth/authorize", maxBody, only(s.authorize, http.MethodGet, http.MethodPost))
	add(base+"/oauth/consent", maxBody, only(s.consent, http.MethodPost))
	for _, p := range s.providers {
		add(pathOf(p.Redirect()), maxBody, only(s.callback, http.MethodGet))
	}
	return all
}

// hostOf is the host of a URL, with its port where it has one.
func hostOf(text string) string {
	_, host, _ := strings.Cut(origin(text), "://")
	return host
}

// pathOf is the path of a URL; "" for none.
func pathOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(u.Path, "/")
}

// guarded adds what every answer has, and holds the handler to its one path.
func (s *Server) guarded(path string, h http.HandlerFunc) http.Handler {
	secure := strings.HasPrefix(s.config.Issuer, "https:")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Cache-Control", "no-store")
		head.Set("Referrer-Policy", "no-referrer")
		head.Set("X-Content-Type-Options", "nosniff")
		if secure {
			head.Set("Strict-Transport-Security", "max-age=31536000")
		}
		if r.URL.Path != path {
			http.NotFound(w, r)
			return
		}
		h(w, r)
	})
}

// only answers other methods with 405.
func only(h http.HandlerFunc, methods ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, m := range methods {
			if r.Method == m {
				h(w, r)
				return
			}
		}
		w.Header().Set("Allow", strings.Join(methods, ", "))
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	}
}

// shared lets pages of all sites read the answers, without credentials.
func shared(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Access-Control-Allow-Origin", "*")
		if r.Method == http.MethodOptions {
			head.Set("Access-Control-Allow-Methods", "GET, POST")
			head.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Mcp-Protocol-Version")
			head.Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		head.Set("Access-Control-Expose-Headers", "WWW-Authenticate, Retry-After")
		h(w, r)
	}
}

// document serves a document that everybody may keep for a while.
func (s *Server) document(text func() []byte) http.HandlerFunc {
	return shared(only(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=300")
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text())
	}, http.MethodGet, http.MethodHead))
}

// parameters reads the parameters of a request, of its query and of its form, before anything
// else does: each may be there once.
func parameters(r *http.Request) (url.Values, error) {
	wrong := page(http.StatusBadRequest, "The request cannot be read.", "Go back to the program and try again; tell its maker if that does not help.")
	if len(r.URL.RawQuery) > maxBody {
		return nil, wrong
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, wrong
	}
	if r.Method == http.MethodPost {
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/x-www-form-urlencoded" {
			return nil, wrong
		}
		text, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
		if err != nil || len(text) > maxBody {
			return nil, wrong
		}
		form, err := url.ParseQuery(string(text))
		if err != nil {
			return nil, wrong
		}
		for name, values := range form {
			q[name] = append(q[name], values...)
		}
	}
	if len(q) > maxParameters {
		return nil, wrong
	}
	for name, values := range q {
		if len(values) != 1 || len(name) > maxParameter || len(values[0]) > maxParameter && name != "form" {
			return nil, wrong
		}
	}
	return q, nil
}

// token is the token endpoint (RFC 6749 §3.2).
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	c, q, err := s.client(r)
	var t *issued
	if err == nil {
		switch q.Get("grant_type") {
		case "authorization_code":
			t, err = s.redeem(r.Context(), r, c, q)
		case "refresh_token":
			t, err = s.refresh(r.Context(), r, c, q)
		case "":
			err = refuse("invalid_request", "grant_type is missing")
		default:
			err = refuse("unsupported_grant_type", "only authorization_code and refresh_token are served")
		}
	}
	e := Event{What: "token", Outcome: Done, Kind: grantKind(q)}
	if c != nil {
		e.Client = c.key()
	}
	if err != nil {
		e.Outcome, e.Reason = Refused, reasonOf(err)
		s.tell(r, e)
		s.failJSON(w, err)
		return
	}
	e.Subject = t.subject
	s.tell(r, e)
	s.json(w, http.StatusOK, encode(t))
}

// grantKind is the grant type as it may be counted.
func grantKind(q url.Values) string {
	switch g := q.Get("grant_type"); g {
	case "authorization_code", "refresh_token":
		return g
	}
	return "other"
}

// client reads the form of a client and authenticates it, in exactly the way that it has
// registered (RFC 6749 §2.3.1).
func (s *Server) client(r *http.Request) (*client, url.Values, error) {
	// 1. The form.
	ctx := r.Context()
	if err := s.within(ctx, r, limitToken); err != nil {
		return nil, nil, err
	}
	q, err := parameters(r)
	if err != nil || r.URL.RawQuery != "" {
		return nil, nil, refuse("invalid_request", "the form cannot be read, or a parameter is there twice")
	}

	// 2. The client, by the one way of the two in which it says who it is.
	unknown := refuse("invalid_client", "the client is unknown, or has not authenticated as it registered")
	id, secret, method := q.Get("client_id"), q.Get("client_secret"), authNone
	if q.Has("client_secret") {
		method = authPost
	}
	if header := r.Header.Values("Authorization"); len(header) > 0 {
		name, pass, ok := r.BasicAuth()
		var errID, errSecret error
		name, errID = url.QueryUnescape(name)
		pass, errSecret = url.QueryUnescape(pass)
		if !ok || len(header) > 1 || errID != nil || errSecret != nil || method == authPost || id != "" && id != name {
			return nil, q, unknown
		}
		id, secret, method = name, pass, authBasic
	}
	if isDocument(id) && s.config.CIMD != nil {
		if _, ok := parseDocumentURL(id); !ok || method != authNone {
			return nil, q, unknown
		}
		return &client{ID: id, Method: authNone}, q, nil
	}
	ring := s.material.current(ctx).ring
	c, err := ring.client(id)
	if err != nil {
		return nil, q, unknown
	}
	if c.Method != method {
		return c, q, unknown
	}

	// 3. Its secret.
	if method != authNone && !ring.authentic(c, secret) {
		if err := s.take(ctx, limitSecret, c.key()); err != nil {
			return c, q, err
		}
		return c, q, unknown
	}
	return c, q, nil
}

// register is the registration endpoint (RFC 7591 §3).
func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	c, err := s.registered(r)
	e := Event{What: "register", Outcome: Done}
	var answer []byte
	if err == nil {
		e.Client = c.key()
		answer, err = c.answer(s.material.current(r.Context()).ring, s.config)
	}
	if err != nil {
		e.Outcome, e.Reason = Refused, reasonOf(err)
		s.tell(r, e)
		s.failJSON(w, err)
		return
	}
	s.tell(r, e)
	s.json(w, http.StatusCreated, answer)
}

func (s *Server) registered(r *http.Request) (*client, error) {
	ctx := r.Context()
	if err := s.within(ctx, r, limitRegister); err != nil {
		return nil, err
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, badMetadata("the registration is not application/json")
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxRegisterIn+1))
	if err != nil || len(text) > maxRegisterIn {
		return nil, badMetadata("the registration has more than %d bytes", maxRegisterIn)
	}
	o, err := oauth.ParseObject(text, maxDepth)
	if err != nil {
		return nil, badMetadata("the registration is no JSON object")
	}
	c, err := parseClient(o, false)
	if err != nil {
		return nil, err
	}
	c.Issued = s.now()
	return c, s.material.current(ctx).ring.register(c)
}

// revoke is the revocation endpoint (RFC 7009 §2).
func (s *Server) revoke(w http.ResponseWriter, r *http.Request) {
	c, q, err := s.client(r)
	if err == nil && q.Get("token") == "" {
		err = refuse("invalid_request", "token is missing")
	}
	if err == nil {
		err = s.revokes(r.Context(), r, c, q.Get("token"))
	}
	if err != nil {
		e := Event{What: "revoke", Outcome: Refused, Reason: reasonOf(err)}
		if c != nil {
			e.Client = c.key()
		}
		s.tell(r, e)
		s.failJSON(w, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// json answers with JSON.
func (s *Server) json(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// failJSON answers a program with an error (RFC 6749 §5.2, RFC 7591 §3.2.2).
func (s *Server) failJSON(w http.ResponseWriter, err error) {
	answer := map[string]string{}
	status := http.StatusBadRequest
	var refused *refusal
	var bad *clientError
	var p *pageError
	switch {
	case errors.As(err, &refused):
		answer["error"], answer["error_description"] = refused.code, refused.what
		if refused.code == "invalid_client" {
			status = http.StatusUnauthorized
			w.Header().Set("WWW-Authenticate", `Basic realm="weir"`)
		}
	case errors.As(err, &bad):
		answer["error"], answer["error_description"] = bad.code, bad.what
	default:
		status = http.StatusServiceUnavailable
		answer["error"], answer["error_description"] = "temporarily_unavailable", "try again later"
		after := time.Second
		if errors.As(err, &p) {
			status, after = p.status, p.after
		} else {
			s.log.Warn("a request of a client failed", "error", err)
		}
		retryAfter(w, after)
	}
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	s.json(w, status, text)
}
