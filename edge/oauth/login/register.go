package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// Bounds of what a server that registers may answer, in bytes.
const (
	maxRegistration = 64 << 10
	maxClientID     = 2 << 10
	maxClientSecret = 8 << 10
)

// How a client came by its id.
const (
	given      = "given"      // the operator has it from the authorization server
	document   = "document"   // it is the URL of a document (OAuth Client ID Metadata Document)
	registered = "registered" // at the authorization server, by this program (RFC 7591)
)

// register returns as whom the login is made: as the client that the operator names; as the
// document, where the server takes such; as one that was registered there before; or as a
// new one. A client of one authorization server is never shown to another.
func (c *client) register(ctx context.Context, p *place, kept Kept, redirect string) (Client, error) {
	issuer := p.server.Issuer
	switch {
	case c.options.ClientID != "":
		return Client{ID: c.options.ClientID, How: given, Issuer: issuer}, nil
	case c.options.ClientMetadataURL != "" && p.server.ClientIDDocuments:
		return Client{ID: c.options.ClientMetadataURL, How: document, Issuer: issuer}, nil
	case kept.Client.How == registered && kept.Client.Issuer == issuer && kept.Client.Endpoint == p.server.RegistrationEndpoint &&
		kept.Client.Redirect == redirect && !kept.Client.over(time.Now()) && !kept.Client.Doubted:
		return kept.Client, nil
	case p.server.RegistrationEndpoint == "":
		return Client{}, errors.New("the authorization server registers no clients: register one there by hand, with the redirect URI " + redirect + ", and give its client-id")
	}
	return c.newClient(ctx, p, redirect)
}

// newClient registers a client (RFC 7591 §3, MCP 2026-07-28: a native application).
func (c *client) newClient(ctx context.Context, p *place, redirect string) (Client, error) {
	where := p.server.RegistrationEndpoint
	if err := c.options.endpoint("registration_endpoint", where, c.dev); err != nil {
		return Client{}, err
	}
	body, err := json.Marshal(map[string]any{
		"client_name":                "Weir",
		"application_type":           "native",
		"redirect_uris":              []string{redirect},
		"grant_types":                []string{"authorization_code", "refresh_token"},
		"response_types":             []string{"code"},
		"token_endpoint_auth_method": ownMethod(p.server.TokenAuthMethods),
	})
	if err != nil {
		return Client{}, err
	}
	trust, allowHTTP := c.options.trust(where)
	answer, err := c.do(ctx, oauth.Request{
		Method: http.MethodPost, URL: where, Trust: trust, AllowHTTP: allowHTTP, Body: body, MaxBody: maxRegistration,
		Header: http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}},
	})
	if err != nil {
		return Client{}, fmt.Errorf("register: %w", err)
	}
	o, err := oauth.ParseObject(answer.Body, 16)
	switch {
	case answer.Status != http.StatusCreated && answer.Status != http.StatusOK:
		return Client{}, fmt.Errorf("register: %s: status %d%s: register a client there by hand, and give its client-id", shown(where), answer.Status, wordOf(o))
	case err != nil:
		return Client{}, fmt.Errorf("register: %s: the answer: %w", shown(where), err)
	}
	made := Client{How: registered, Issuer: p.server.Issuer, Endpoint: where, Redirect: redirect}
	made.ID, _ = o.Text("client_id")
	made.Secret, _ = o.Text("client_secret")
	made.Method, _ = o.Text("token_endpoint_auth_method")
	if made.ID == "" || len(made.ID) > maxClientID || len(made.Secret) > maxClientSecret {
		return Client{}, fmt.Errorf("register: %s: the answer holds no client_id, or one that is too long", shown(where))
	}
	var expires int64
	if raw := o["client_secret_expires_at"]; json.Unmarshal(raw, &expires) == nil && expires > 0 {
		made.Expires = time.Unix(expires, 0)
	}
	return made, nil
}

// ownMethod is how a new client is to prove itself, of what the server takes: not at all,
// since a program on a user's machine keeps no secret, else by one (RFC 8414 §2: what says
// nothing takes a secret by HTTP Basic).
func ownMethod(offered []string) string {
	for _, m := range []string{"none", "client_secret_basic", "client_secret_post"} {
		if slices.Contains(offered, m) {
			return m
		}
	}
	if len(offered) == 0 {
		return "client_secret_basic"
	}
	return "none"
}

// wordOf is the error of an answer, where it is a word of a protocol and not a text.
func wordOf(o oauth.Object) string {
	word, _ := o.Text("error")
	if !isWord(word) {
		return ""
	}
	return ": " + word
}

// isWord reports whether a text is one word in lower case, such as error codes are: what may
// be repeated of a stranger's answer.
func isWord(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < 'a' || c > 'z') && c != '_' {
			return false
		}
	}
	return text != "" && len(text) <= 40
}

// secret returns the secret of a client at the time when it is needed; "" for none.
func (c *client) secret(of Client) (edge.Secret, error) {
	switch {
	case of.How == registered:
		return edge.Secret(of.Secret), nil
	case of.How == document:
		return "", nil
	case c.options.ClientSecretFile != "":
		return secretOf("client-secret-file", c.options.ClientSecretFile)
	case c.options.ReadClientSecret != nil:
		return c.options.ReadClientSecret()
	}
	return c.options.ClientSecret, nil
}
