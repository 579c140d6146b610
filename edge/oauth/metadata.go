package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Metadata is what an authorization server says of itself (RFC 8414 §2, OpenID
// Connect Discovery 1.0 §3). Every URL in it is absolute and of https, or of
// http where the client allows that.
type Metadata struct {
	Issuer                string
	AuthorizationEndpoint string
	TokenEndpoint         string
	RegistrationEndpoint  string
	IntrospectionEndpoint string
	RevocationEndpoint    string
	UserInfoEndpoint      string
	JWKSURI               string

	Scopes           []string // scopes_supported
	GrantTypes       []string // grant_types_supported
	TokenAuthMethods []string // token_endpoint_auth_methods_supported
	ChallengeMethods []string // code_challenge_methods_supported; nil when absent

	ClientIDDocuments bool // client_id_metadata_document_supported
	ResponseIssuer    bool // authorization_response_iss_parameter_supported (RFC 9207)
}

// WellKnown returns where the metadata of an issuer may be, in the order in
// which to look (RFC 8414 §3.1, MCP 2026-07-28 basic/authorization).
func WellKnown(issuer string) ([]string, error) {
	u, err := ParseURL(issuer, true)
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	if u.RawQuery != "" || u.ForceQuery {
		return nil, errors.New("issuer: it holds a query")
	}
	origin, path := u.Scheme+"://"+u.Host, strings.TrimSuffix(u.EscapedPath(), "/")
	places := []string{
		origin + "/.well-known/oauth-authorization-server" + path,
		origin + "/.well-known/openid-configuration" + path,
		origin + path + "/.well-known/openid-configuration",
	}
	return slices.Compact(places), nil
}

// Discover fetches the metadata of an issuer. A document that names another
// issuer, to the byte, is never used (RFC 8414 §3.3). header is sent along and
// may be nil.
func (c *Client) Discover(ctx context.Context, issuer string, trust Trust, header http.Header) (*Metadata, error) {
	places, err := WellKnown(issuer)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.options.Timeout)
	defer cancel()
	var faults []error
	for _, place := range places {
		h := header.Clone()
		if h == nil {
			h = http.Header{}
		}
		h.Set("Accept", "application/json")
		answer, err := c.Do(ctx, Request{URL: place, Trust: trust, Header: h, Redirects: 3})
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if answer.Status != http.StatusOK {
			faults = append(faults, fmt.Errorf("%s: status %d", place, answer.Status))
			continue
		}
		m, err := ParseMetadata(answer.Body, issuer, c.options.AllowHTTP || c.options.Reach.DevLoopback)
		if err == nil {
			return m, nil
		}
		faults = append(faults, fmt.Errorf("%s: %w", place, err))
	}
	return nil, fmt.Errorf("discover %s: %w", issuer, errors.Join(faults...))
}

// ParseMetadata reads a metadata document of issuer.
func ParseMetadata(document []byte, issuer string, allowHTTP bool) (*Metadata, error) {
	o, err := ParseObject(document, 16)
	if err != nil {
		return nil, err
	}
	m := &Metadata{}
	if m.Issuer, _ = o.Text("issuer"); m.Issuer != issuer {
		return nil, errors.New("issuer: it is of another issuer")
	}
	for name, to := range map[string]*string{
		"authorization_endpoint": &m.AuthorizationEndpoint,
		"token_endpoint":         &m.TokenEndpoint,
		"registration_endpoint":  &m.RegistrationEndpoint,
		"introspection_endpoint": &m.IntrospectionEndpoint,
		"revocation_endpoint":    &m.RevocationEndpoint,
		"userinfo_endpoint":      &m.UserInfoEndpoint,
		"jwks_uri":               &m.JWKSURI,
	} {
		if !o.Has(name) || string(o[name]) == "null" {
			continue
		}
		text, ok := o.Text(name)
		if !ok {
			return nil, fmt.Errorf("%s: not a string", name)
		}
		if _, err := ParseURL(text, allowHTTP); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		*to = text
	}
	m.Scopes, _ = o.Texts("scopes_supported")
	m.GrantTypes, _ = o.Texts("grant_types_supported")
	m.TokenAuthMethods, _ = o.Texts("token_endpoint_auth_methods_supported")
	m.ChallengeMethods, _ = o.Texts("code_challenge_methods_supported")
	m.ClientIDDocuments = o.True("client_id_metadata_document_supported")
	m.ResponseIssuer = o.True("authorization_response_iss_parameter_supported")
	return m, nil
}
