package authserver

import (
	"crypto/hmac"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/oauth"
)

// Bounds of a registration, in bytes.
const (
	maxClientID   = 2048
	maxName       = 64
	maxURI        = 256
	maxScope      = 512
	maxMembers    = 1400
	maxRedirects  = 10
	maxRegisterIn = 16 << 10
)

// The ways in which a client authenticates.
const (
	authNone  = "none"
	authBasic = "client_secret_basic"
	authPost  = "client_secret_post"
)

// clientPrefix begins the id of every registered client.
const clientPrefix = "weir1."

// client is a program that asks for tokens.
type client struct {
	ID        string
	Redirects []string
	Name, URI string // as it says itself
	Scope     string // that it registered for; "" for all
	Refreshes bool   // it has the grant type refresh_token
	Native    bool   // application_type native
	Method    string
	Issued    time.Time
	host      string // of the metadata document, which vouches for it; "" for a registered client, which nobody does
	which     int    // secret that sealed the id
	sealed    string // names that secret; "" for a metadata document
}

// key names the client in tokens, records and logs: an id may have 2 KiB.
func (c *client) key() string { return clientKey(c.ID) }

func clientKey(id string) string {
	if strings.HasPrefix(id, clientPrefix) {
		return "weir1-" + digest(id)[:32]
	}
	return id
}

// clientError is a registration that is refused (RFC 7591 §3.2.2).
type clientError struct{ code, what string }

func (e *clientError) Error() string { return e.what }

func badMetadata(format string, args ...any) error {
	return &clientError{"invalid_client_metadata", fmt.Sprintf(format, args...)}
}

// parseClient reads the metadata of a client, those of a registration or a document, and
// refuses what it cannot be. What is not read is not looked at. A document is written for all
// authorization servers, and nobody can answer it: of its lists, what is not served here is
// left out, as long as there is what a login needs.
func parseClient(o oauth.Object, document bool) (*client, error) {
	c := &client{Method: authNone}
	text := func(name string, most int) (string, error) {
		if !o.Has(name) || string(o[name]) == "null" {
			return "", nil
		}
		value, ok := o.Text(name)
		if !ok || len(value) > most {
			return "", badMetadata("%s: it is no text of at most %d bytes", name, most)
		}
		return value, nil
	}
	list := func(name string) ([]string, error) {
		if !o.Has(name) || string(o[name]) == "null" {
			return nil, nil
		}
		values, ok := o.Texts(name)
		if !ok {
			return nil, badMetadata("%s: it is no array of texts", name)
		}
		return values, nil
	}

	// 1. Where answers go.
	redirects, ok := o.Texts("redirect_uris")
	if !ok || len(redirects) == 0 || len(redirects) > maxRedirects {
		return nil, &clientError{"invalid_redirect_uri", fmt.Sprintf("redirect_uris: it is no array of 1 to %d texts", maxRedirects)}
	}
	for i, r := range redirects {
		if _, ok := parseRedirect(r); ok {
			c.Redirects = append(c.Redirects, r)
		} else if !document || i == len(redirects)-1 && len(c.Redirects) == 0 {
			return nil, &clientError{"invalid_redirect_uri", fmt.Sprintf("redirect_uris[%d]: it may not be registered: write https, http of 127.0.0.1, [::1] or localhost, or a private-use scheme with a period", i)}
		}
	}

	// 2. What it says of itself.
	var err error
	for _, one := range []struct {
		to   *string
		name string
		most int
	}{{&c.Name, "client_name", maxName}, {&c.URI, "client_uri", maxURI}, {&c.Scope, "scope", maxScope}} {
		if *one.to, err = text(one.name, one.most); err != nil {
			return nil, err
		}
	}
	if c.URI != "" {
		if u, err := url.Parse(c.URI); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			return nil, badMetadata("client_uri: it is no URL of https")
		}
	}
	for _, s := range oauth.Scopes(c.Scope) {
		if !oauth.IsScope(s) {
			return nil, badMetadata("scope: it holds what is no scope")
		}
	}

	// 3. How it asks.
	grants, err := list("grant_types")
	if err != nil {
		return nil, err
	}
	c.Refreshes = slices.Contains(grants, "refresh_token")
	// Extension grants, which are URIs (RFC 6749 section 4.5), are left out of registrations too:
	// programs name there what they can do at all, and read in the answer what was kept.
	if !document && slices.ContainsFunc(grants, func(g string) bool {
		return g != "authorization_code" && g != "refresh_token" && !strings.Contains(g, ":")
	}) {
		return nil, badMetadata("grant_types: only authorization_code and refresh_token are served")
	}
	if len(grants) > 0 && !slices.Contains(grants, "authorization_code") {
		return nil, badMetadata("grant_types: without authorization_code there is nothing to refresh")
	}
	responses, err := list("response_types")
	if err != nil {
		return nil, err
	}
	if len(responses) > 0 && !slices.Contains(responses, "code") || !document && slices.ContainsFunc(responses, func(r string) bool { return r != "code" }) {
		return nil, badMetadata("response_types: only code is served")
	}
	method, err := text("token_endpoint_auth_method", 64)
	if err != nil {
		return nil, err
	}
	if method != "" {
		c.Method = method
	}
	if c.Method != authNone && (document || c.Method != authBasic && c.Method != authPost) {
		return nil, badMetadata("token_endpoint_auth_method: only none is served, and to registrations client_secret_basic and client_secret_post")
	}
	kind, err := text("application_type", 16)
	if err != nil {
		return nil, err
	}
	if kind != "" && kind != "web" && kind != "native" {
		return nil, badMetadata("application_type: it is neither web nor native")
	}
	c.Native = kind == "native"
	return c, nil
}

// members is how many bytes a registration has, as far as its bound is concerned.
func (c *client) members() int {
	n := len(c.Name) + len(c.URI) + len(c.Scope)
	for _, r := range c.Redirects {
		n += len(r)
	}
	return n
}

// register makes the id of a client: the registration itself, sealed. The scope is kept as
// the client asked; the baseline is added whenever it is read.
func (r *ring) register(c *client) error {
	if c.members() > maxMembers {
		return badMetadata("redirect_uris, client_name, client_uri and scope have more than %d bytes together", maxMembers)
	}
	c.ID = clientPrefix + b64(r.seal(useClient, c.encode(), clientPrefix))
	c.which = 0
	if len(c.ID) > maxClientID {
		return badMetadata("the registration does not fit into a client_id")
	}
	return nil
}

// Flags of an encoded registration.
const (
	flagRefreshes = 1 << iota
	flagNative
	flagBasic
	flagPost
)

// encode is a registration in as few bytes as can be: a byte of flags, the time in seconds,
// then each text behind its length.
func (c *client) encode() []byte {
	flags := byte(0)
	for flag, on := range map[byte]bool{flagRefreshes: c.Refreshes, flagNative: c.Native, flagBasic: c.Method == authBasic, flagPost: c.Method == authPost} {
		if on {
			flags |= flag
		}
	}
	b := binary.AppendVarint([]byte{flags}, c.Issued.Unix())
	for _, text := range append([]string{c.Name, c.URI, c.Scope}, c.Redirects...) {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	return b
}

var errNoClient = errors.New("no such client")

// client opens the id of a registered client. Errors are errNoClient.
func (r *ring) client(id string) (*client, error) {
	text, ok := strings.CutPrefix(id, clientPrefix)
	if !ok || len(id) > maxClientID {
		return nil, errNoClient
	}
	sealed, ok := oauth.DecodeSegment(text)
	if !ok {
		return nil, errNoClient
	}
	b, which, ok := r.open(useClient, sealed, clientPrefix)
	if !ok || len(b) == 0 {
		return nil, errNoClient
	}
	c := &client{ID: id, which: which, sealed: r.keys[which].digest, Method: authNone}
	flags := b[0]
	issued, n := binary.Varint(b[1:])
	if n <= 0 {
		return nil, errNoClient
	}
	b = b[1+n:]
	c.Issued, c.Refreshes, c.Native = time.Unix(issued, 0), flags&flagRefreshes != 0, flags&flagNative != 0
	switch {
	case flags&flagBasic != 0:
		c.Method = authBasic
	case flags&flagPost != 0:
		c.Method = authPost
	}
	var texts []string
	for len(b) > 0 {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, errNoClient
		}
		texts = append(texts, string(b[n:n+int(size)]))
		b = b[n+int(size):]
	}
	if len(texts) < 4 {
		return nil, errNoClient
	}
	c.Name, c.URI, c.Scope, c.Redirects = texts[0], texts[1], texts[2], texts[3:]
	return c, nil
}

// secret is the secret of a registered client, which follows from its id.
func (r *ring) secret(c *client) string { return b64(r.mac(useClientSecret, c.which, c.ID)) }

// authentic reports whether a client has shown the secret that it has, in constant time.
func (r *ring) authentic(c *client, shown string) bool {
	return hmac.Equal([]byte(r.secret(c)), []byte(shown))
}

// allowed are the scopes that a client may ask for, of those that are supported.
func (c *client) allowed(of *Spec) []string {
	if c.Scope == "" {
		return of.Scopes
	}
	own := append(oauth.Scopes(c.Scope), of.Baseline...)
	return slices.DeleteFunc(slices.Clone(of.Scopes), func(s string) bool { return !slices.Contains(own, s) })
}

// answer is what a client is told of its registration (RFC 7591 §3.2.1).
func (c *client) answer(r *ring, of *Spec) ([]byte, error) {
	scopes := slices.Clone(of.Scopes)
	if c.Scope != "" { // those that exist: whoever asks for all that it is told of is not refused
		scopes = slices.DeleteFunc(oauth.Scopes(c.Scope), func(s string) bool { return !slices.Contains(of.Scopes, s) })
	}
	for _, s := range of.Baseline {
		if !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	grants := []string{"authorization_code"}
	if c.Refreshes {
		grants = append(grants, "refresh_token")
	}
	kind := "web"
	if c.Native {
		kind = "native"
	}
	answer := map[string]any{
		"client_id": c.ID, "client_id_issued_at": c.Issued.Unix(), "redirect_uris": c.Redirects, "scope": strings.Join(scopes, " "),
		"grant_types": grants, "response_types": []string{"code"}, "token_endpoint_auth_method": c.Method, "application_type": kind,
	}
	if c.Name != "" {
		answer["client_name"] = c.Name
	}
	if c.URI != "" {
		answer["client_uri"] = c.URI
	}
	if c.Method != authNone {
		answer["client_secret"], answer["client_secret_expires_at"] = r.secret(c), 0
	}
	return json.Marshal(answer)
}
