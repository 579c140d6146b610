package workload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// What a RunConfig has a server sent besides its calls, and the webhooks that hear of them.

// outgoing reads what a server is sent besides its calls.
func (i *importer) outgoing() error {
	c := i.c
	var err error
	if t := c.TokenExchange; t != nil {
		i.TokenExchangeURL, i.TokenExchangeAudience, i.TokenExchangeClientID, i.TokenExchangeScopes = t.TokenURL, t.Audience, t.ClientID, t.Scopes
		i.TokenExchangeSubjectTokenType = cmp.Or(strings.TrimPrefix(t.SubjectTokenType, "urn:ietf:params:oauth:token-type:"), "access_token")
		if t.HeaderStrategy == "custom" {
			i.TokenExchangeHeaderName = t.HeaderName
		}
		if i.exchangeSecret, err = i.secret("token_exchange_config.client_secret", t.ClientSecret); err != nil {
			return err
		}
	}
	if h := c.HeaderForward; h != nil && c.RemoteURL == "" && len(h.Plain)+len(h.Secrets) > 0 {
		i.say("header_forward: left out: headers are added for a server at a URL alone")
	} else if h != nil {
		i.forward = &v1beta1.HeaderForward{AddPlaintextHeaders: h.Plain}
		for name, from := range h.Secrets {
			ref, err := secretRef("remote-forward-headers-secret", from)
			if err != nil {
				return i.bad("header_forward.add_headers_from_secret", "no name of a secret")
			}
			i.forward.AddHeadersFromSecret = append(i.forward.AddHeadersFromSecret, v1beta1.SecretHeader{HeaderName: name, ValueSecretRef: ref})
		}
		slices.SortFunc(i.forward.AddHeadersFromSecret, func(a, b v1beta1.SecretHeader) int { return cmp.Compare(a.HeaderName, b.HeaderName) })
	}
	var r runRemoteAuth
	if err := loosely("remote_auth_config", c.RemoteAuth, &r); err != nil {
		return err
	}
	if i.bearer, err = i.secret("remote_auth_config.bearer_token", r.BearerToken); err != nil {
		return err
	}
	if i.RemoteAuthBearerTokenFile, err = i.absolute("remote_auth_config.bearer_token_file", r.BearerTokenFile); err != nil {
		return err
	}
	if err = i.loggedIn(&r); err != nil || r.BearerTokenFile == "" {
		return err
	}
	switch {
	case c.RemoteURL == "":
		return i.bad("remote_auth_config.bearer_token_file", "the server is none at a URL")
	case i.RemoteAuth || i.bearer != nil:
		return i.bad("remote_auth_config.bearer_token_file", "and another credential of the server: take one out")
	}
	return nil
}

// loggedIn reads the login that a server at a URL is sent. How one is to go that nobody asks
// for says nothing (the reference writes it for every server at a URL), and what the reference
// keeps of one is its own.
func (i *importer) loggedIn(r *runRemoteAuth) (err error) {
	const key = "remote_auth_config"
	if r.CachedRefreshTokenRef+r.CachedClientID+r.CachedCIMDClientID != "" {
		i.say("%s: the login itself is not taken over: the next start asks for one", key)
		i.RemoteAuth = true
	}
	if i.RemoteAuth = i.RemoteAuth || r.ClientID+r.ClientSecret+r.ClientSecretFile+r.Issuer+r.AuthorizeURL+r.TokenURL+r.ScopeParamName != "" || len(r.Scopes) > 0; !i.RemoteAuth {
		return nil
	}
	switch {
	case i.c.RemoteURL == "":
		return i.bad(key, "the server is none at a URL")
	case r.ClientSecretFile != "" && r.ClientSecret != "":
		return i.bad(key+".client_secret_file", "and client_secret say the same: take one out")
	case r.OAuthParams != "" && r.OAuthParams != "{}":
		return i.bad(key+".oauth_params", "a login has no parameters beside those of the protocol: take it out, and write scopes and a resource under their own keys")
	case r.CallbackPort < 0 || r.CallbackPort > 65535:
		return i.bad(key+".callback_port", "%d is no port", r.CallbackPort)
	}
	if r.Timeout != "" {
		if i.RemoteAuthTimeout, err = timeOf(r.Timeout); err != nil || i.RemoteAuthTimeout < time.Second {
			return i.bad(key+".timeout", "no length of time such as 30s")
		}
	}
	i.RemoteAuthIssuer, i.RemoteAuthAuthorizeURL, i.RemoteAuthTokenURL, i.RemoteAuthClientID = r.Issuer, r.AuthorizeURL, r.TokenURL, r.ClientID
	i.RemoteAuthScopeParam, i.RemoteAuthResource, i.RemoteAuthSkipBrowser = r.ScopeParamName, r.Resource, r.SkipBrowser
	i.RemoteAuthCallbackPort = cmp.Or(r.CallbackPort, i.RemoteAuthCallbackPort)
	if len(r.Scopes) > 0 {
		i.RemoteAuthScopes, i.Given["remote-auth-scopes"] = r.Scopes, true
	}
	if i.RemoteAuthClientSecretFile, err = i.absolute(key+".client_secret_file", r.ClientSecretFile); err != nil {
		return err
	}
	i.loginSecret, err = i.secret(key+".client_secret", r.ClientSecret)
	return err
}

// timeOf reads a length of time: a text such as 30s, or nanoseconds.
func timeOf(v v1beta1.JSONValue) (d time.Duration, err error) {
	var text string
	if json.Unmarshal([]byte(v), &text) == nil {
		return time.ParseDuration(text)
	}
	err = json.Unmarshal([]byte(v), (*int64)(&d))
	return d, err
}

// hooked reads webhooks.
func (i *importer) hooked() error {
	c := i.c
	if len(c.Validating)+len(c.Mutating) == 0 {
		return nil
	}
	i.draft.hooks = &v1beta1.MCPWebhookConfigSpec{}
	for _, list := range []struct {
		key  string
		from []runWebhook
		to   *[]v1beta1.Webhook
	}{{"validating_webhooks", c.Validating, &i.draft.hooks.Validating}, {"mutating_webhooks", c.Mutating, &i.draft.hooks.Mutating}} {
		for n, w := range list.from {
			key := fmt.Sprintf("%s[%d]", list.key, n)
			h := v1beta1.Webhook{Name: w.Name, URL: w.URL, FailurePolicy: v1beta1.FailurePolicy(w.FailurePolicy)}
			if w.Timeout > 0 {
				h.Timeout = v1beta1.Duration(written(w.Timeout))
			}
			if t := w.TLS; t != nil {
				if t.CA+t.Cert+t.Key != "" {
					return i.bad(key+".tls_config", "an import keeps no secrets, as which files of certificates are kept: give the webhook with --webhook-config")
				}
				h.TLSConfig = &v1beta1.WebhookTLS{InsecureSkipVerify: t.Insecure}
			}
			if w.HMAC != "" {
				ref, err := secretRef("webhook-config", strings.TrimPrefix(w.HMAC, "secret://"))
				if err != nil {
					return i.bad(key+".hmac_secret_ref", "no name of a secret")
				}
				h.HMACSecretRef = &ref
			}
			*list.to = append(*list.to, h)
		}
	}
	return nil
}
