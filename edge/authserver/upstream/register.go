package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Lifetimes of a registration.
const (
	registrationLife = 400 * 24 * time.Hour // where the provider names no end
	registrationUse  = 24 * time.Hour       // between two renewals by use
	registrationLeft = 15 * time.Minute     // before its end a registration takes no new login
	registrationKeep = 10 * time.Second     // in process, without a look at the records
	maxRegistration  = 64 << 10             // bytes of an answer
	maxClientID      = 2 << 10
)

// registration is as whom the edge is known at a provider.
type registration struct {
	ID      string `json:"id"`
	Secret  string `json:"secret,omitempty"`
	Method  string `json:"method,omitempty"`
	Scopes  string `json:"scopes,omitempty"` // to ask for, where the operator names none
	Issuer  string `json:"issuer,omitempty"` // that the provider names; "" for none
	Strict  bool   `json:"strict,omitempty"` // each answer names it
	Expires int64  `json:"expires,omitempty"`
	Used    int64  `json:"used,omitempty"`
}

// generation tells registrations apart, and holds nothing secret.
func generation(clientID string) string {
	sum := sha256.Sum256([]byte(clientID))
	return hex.EncodeToString(sum[:8])
}

// registrar registers the edge at a provider (RFC 7591), and keeps what comes of it.
type registrar struct {
	config  *Config
	client  *oauth.Client
	initial func(context.Context) (edge.Secret, error) // nil for no initial access token
	records Records
	now     func() time.Time
	key     string
	turn    chan struct{} // holds one

	held     *registration
	read     time.Time // when held was
	failed   error     // of the last attempt to register; nil for none
	failedAt time.Time
}

func newRegistrar(c *Config, env Env, client *oauth.Client) *registrar {
	d := c.dcr()
	text, err := json.Marshal([]any{d.DiscoveryURL, d.RegistrationEndpoint, d.SoftwareID, d.SoftwareStatement, c.Redirect, c.Scopes, c.OAuth2Config.TokenEndpoint})
	if err != nil {
		panic(err) // it is strings
	}
	sum := sha256.Sum256(text)
	r := &registrar{config: c, client: client, records: env.Records, now: env.now, turn: make(chan struct{}, 1)}
	r.key = "dcr:" + c.Name + ":" + hex.EncodeToString(sum[:16])
	if d.InitialAccessTokenRef != nil {
		r.initial = env.secret(d.InitialAccessTokenRef)
	}
	return r
}

// get returns the registration, and makes one where there is none that is good.
func (r *registrar) get(ctx context.Context) (*registration, error) {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-r.turn }()
	now := r.now()
	if r.good(r.held, now) && now.Sub(r.read) < registrationKeep {
		return r.held, nil
	}
	text, err := r.records.Get(ctx, r.key)
	if err != nil {
		return nil, err
	}
	reg := parseRegistration(text)
	switch {
	case !r.good(reg, now):
		if r.failed != nil && now.Sub(r.failedAt) < retryPause {
			return nil, r.failed
		}
		if reg, err = r.register(ctx); err != nil {
			if ctx.Err() == nil { // else it is the caller who has gone
				r.failed, r.failedAt = err, now
			}
			return nil, err
		}
		r.failed = nil
		fallthrough
	case now.Sub(time.Unix(reg.Used, 0)) > registrationUse:
		if reg, err = r.keep(ctx, reg); err != nil {
			return nil, err
		}
	}
	r.held, r.read = reg, now
	return reg, nil
}

// good reports whether a registration can be used for a login.
func (r *registrar) good(reg *registration, now time.Time) bool {
	return reg != nil && (reg.Expires == 0 || now.Add(registrationLeft).Before(time.Unix(reg.Expires, 0)))
}

// keep writes a registration, unless another replica was first: then that one counts.
func (r *registrar) keep(ctx context.Context, reg *registration) (*registration, error) {
	now := r.now()
	life := registrationLife
	if reg.Expires != 0 {
		life = time.Unix(reg.Expires, 0).Sub(now)
	}
	kept := *reg
	err := r.records.Update(ctx, r.key, life, func(old []byte) ([]byte, error) {
		kept = *reg
		if first := parseRegistration(old); r.good(first, now) {
			kept = *first
		}
		kept.Used = now.Unix()
		return json.Marshal(kept)
	})
	return &kept, err
}

// forget drops a registration that the provider does not know any longer.
func (r *registrar) forget(ctx context.Context, id string) error {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.turn }()
	r.held = nil
	err := r.records.Update(ctx, r.key, time.Minute, func(old []byte) ([]byte, error) {
		if reg := parseRegistration(old); reg != nil && reg.ID != id {
			return nil, errAnother
		}
		return nil, nil
	})
	if errors.Is(err, errAnother) {
		return nil
	}
	return err
}

// errAnother is a registration that another replica has made since.
var errAnother = errors.New("there is another registration by now")

func parseRegistration(text []byte) *registration {
	reg := &registration{}
	if len(text) == 0 || json.Unmarshal(text, reg) != nil || reg.ID == "" {
		return nil
	}
	return reg
}

// register asks the provider for a client.
func (r *registrar) register(ctx context.Context) (*registration, error) {
	// 1. Where, and what the provider takes.
	d, reg := r.config.dcr(), &registration{Scopes: strings.Join(r.config.Scopes, " "), Method: "client_secret_basic"}
	endpoint, who := d.RegistrationEndpoint, oauth.Named
	if d.DiscoveryURL != "" {
		meta, err := r.discover(ctx, d)
		if err != nil {
			return nil, unavailable("registration at "+r.config.Name, err)
		}
		endpoint, who = meta.RegistrationEndpoint, trust(d.DiscoveryURL, meta.RegistrationEndpoint)
		reg.Issuer, reg.Strict = meta.Issuer, meta.ResponseIssuer
		reg.Method = method(meta.TokenAuthMethods)
		if reg.Scopes == "" {
			reg.Scopes = strings.Join(meta.Scopes, " ")
		}
	}

	// 2. The request.
	ask := map[string]any{
		"client_name": "Weir", "redirect_uris": []string{r.config.Redirect}, "grant_types": []string{"authorization_code", "refresh_token"},
		"response_types": []string{"code"}, "token_endpoint_auth_method": reg.Method,
	}
	for name, value := range map[string]string{"scope": reg.Scopes, "software_id": d.SoftwareID, "software_statement": d.SoftwareStatement} {
		if value != "" {
			ask[name] = value
		}
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	header := accept()
	header.Set("Content-Type", "application/json")
	if r.initial != nil {
		token, err := r.initial(ctx)
		if err != nil {
			return nil, err
		}
		header.Set("Authorization", "Bearer "+string(token))
	}

	// 3. The answer.
	answer, err := r.client.Do(ctx, oauth.Request{Method: http.MethodPost, URL: endpoint, Trust: who, Header: header, Body: body, MaxBody: maxRegistration})
	if err == nil && answer.Status != http.StatusCreated && answer.Status != http.StatusOK {
		err = fmt.Errorf("status %d", answer.Status)
	}
	if err == nil {
		err = reg.read(answer.Body, r.now())
	}
	if err != nil {
		return nil, unavailable("registration at "+r.config.Name, err)
	}
	return reg, nil
}

// discover fetches the one document that the operator names. What it says of its issuer is
// not compared: the operator names the document itself.
func (r *registrar) discover(ctx context.Context, d *v1beta1.DCR) (*oauth.Metadata, error) {
	answer, err := r.client.Do(ctx, oauth.Request{URL: d.DiscoveryURL, Trust: oauth.Named, Header: accept()})
	if err != nil {
		return nil, err
	}
	if answer.Status != http.StatusOK {
		return nil, fmt.Errorf("status %d", answer.Status)
	}
	o, err := oauth.ParseObject(answer.Body, maxDepth)
	if err != nil {
		return nil, err
	}
	issuer, _ := o.Text("issuer")
	meta, err := oauth.ParseMetadata(answer.Body, issuer, r.client.DevLoopback())
	if err == nil && meta.RegistrationEndpoint == "" {
		err = errors.New("the document has no registration_endpoint")
	}
	return meta, err
}

// method is how the edge proves itself at a provider that takes some ways (RFC 8414 §2).
func method(takes []string) string {
	for _, m := range []string{"client_secret_basic", "client_secret_post", "none"} {
		if len(takes) == 0 || slices.Contains(takes, m) {
			return m
		}
	}
	return "client_secret_basic"
}

// read reads the answer to a registration (RFC 7591 §3.2.1).
func (reg *registration) read(body []byte, now time.Time) error {
	o, err := oauth.ParseObject(body, maxDepth)
	if err != nil {
		return fmt.Errorf("the answer: %w", err)
	}
	for name, to := range map[string]*string{"client_id": &reg.ID, "client_secret": &reg.Secret} {
		*to, _ = o.Text(name)
		if len(*to) > maxClientID || strings.ContainsFunc(*to, func(c rune) bool { return c < ' ' || c > '~' }) { // RFC 6749, appendix A
			return fmt.Errorf("%s: it cannot be right", name)
		}
	}
	if reg.ID == "" {
		return errors.New("the answer has no client_id")
	}
	if m, ok := o.Text("token_endpoint_auth_method"); ok {
		reg.Method = m
	}
	if reg.Method == "none" {
		reg.Secret = "" // nobody is to show it
	}
	if reg.Secret == "" {
		reg.Method = "none"
	}
	if !slices.Contains([]string{"client_secret_basic", "client_secret_post", "none"}, reg.Method) {
		return errors.New("token_endpoint_auth_method: it is none that the edge has")
	}
	if end := string(o["client_secret_expires_at"]); reg.Secret != "" && end != "" && end != "0" && end != "null" {
		if reg.Expires, err = strconv.ParseInt(end, 10, 64); err != nil || !now.Add(registrationLeft).Before(time.Unix(reg.Expires, 0)) {
			return errors.New("client_secret_expires_at: it is over, or is no time")
		}
	}
	reg.Used = now.Unix()
	return nil
}
