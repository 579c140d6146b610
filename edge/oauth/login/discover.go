package login

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/oauth"
)

// Bounds of a document.
const (
	maxServers = 16  // authorization_servers
	maxScopes  = 100 // scopes_supported
)

// place is what discovery finds out: the resource that tokens are for, the scopes that it
// names, and who gives tokens.
type place struct {
	resource string   // for the parameter resource (RFC 8707 §2), as published; "" for none
	scopes   []string // scopes_supported of the resource
	server   oauth.Metadata

	// undescribed says that there are no metadata: the endpoints are those that the operator
	// named, or those of 2025-03-26 at the origin of the MCP server.
	undescribed bool
}

// discover finds out who gives access to the server, given what it answered to a request
// without a credential, or with one that it refuses.
func (c *client) discover(ctx context.Context, challenge mcp.Challenge) (*place, error) {
	p := &place{}

	// 1. What the resource says of itself. Where the operator says who gives tokens, it need
	// not say anything, but what it says has to be true all the same.
	issuer := c.options.Issuer
	named := issuer != "" || c.options.TokenURL != ""
	issuers, err := c.resource(ctx, challenge, p)
	if err != nil {
		return nil, err
	}
	if c.options.Resource != "" {
		p.resource = c.options.Resource
	}

	// 2. Which authorization server.
	switch {
	case c.options.TokenURL != "":
		p.undescribed = true
		p.server = oauth.Metadata{AuthorizationEndpoint: c.options.AuthorizeURL, TokenEndpoint: c.options.TokenURL}
		return p, nil
	case issuer == "" && len(issuers) > 0:
		issuer = issuers[0]
	}
	if issuer == "" {
		return p, c.older(ctx, p)
	}

	// 3. What that one says of itself.
	m, _, err := c.metadata(ctx, issuer)
	if err != nil {
		return nil, err
	}
	p.server = *m
	if p.resource == "" && named {
		p.resource = c.options.URL
	}
	return p, nil
}

// resource reads the metadata of the protected resource (RFC 9728 §3, §5): those that the
// challenge names, else those at the well-known URL with the path of the server, else at
// the one without. It returns the authorization servers, none where there are no metadata.
func (c *client) resource(ctx context.Context, challenge mcp.Challenge, p *place) (issuers []string, err error) {
	places := []string{challenge.Metadata}
	if challenge.Metadata == "" {
		u, err := url.Parse(c.options.URL)
		if err != nil {
			return nil, errors.New("the URL of the server is malformed")
		}
		wellKnown := u.Scheme + "://" + u.Host + "/.well-known/oauth-protected-resource"
		places = slices.Compact([]string{wellKnown + strings.TrimSuffix(u.EscapedPath(), "/"), wellKnown})
	}
	for _, where := range places {
		answer, err := c.get(ctx, where)
		switch {
		case err != nil:
			return nil, fmt.Errorf("metadata of the resource: %w", err)
		case answer.Status != http.StatusOK && challenge.Metadata != "":
			return nil, fmt.Errorf("metadata of the resource: %s, which the server names: status %d", shown(where), answer.Status)
		case answer.Status >= http.StatusInternalServerError:
			return nil, fmt.Errorf("metadata of the resource: %s: status %d", shown(where), answer.Status)
		case answer.Status != http.StatusOK, challenge.Metadata == "" && isPage(answer):
			continue
		}
		if issuers, err = c.readResource(answer.Body, p); err != nil {
			return nil, fmt.Errorf("metadata of the resource: %s: %w", shown(where), err)
		}
		return issuers, nil
	}
	return nil, nil
}

// readResource reads one document (RFC 9728 §2).
func (c *client) readResource(document []byte, p *place) (issuers []string, err error) {
	o, err := oauth.ParseObject(document, 16)
	if err != nil {
		return nil, err
	}
	p.resource, _ = o.Text("resource")
	if !covers(p.resource, c.options.URL) && (c.options.Resource == "" || p.resource != c.options.Resource) {
		return nil, errors.New("resource: it is of another server than the one that was asked; where that is right, name it as the resource")
	}
	if p.scopes, _ = o.Texts("scopes_supported"); len(p.scopes) > maxScopes || slices.ContainsFunc(p.scopes, func(s string) bool { return !oauth.IsScope(s) }) {
		return nil, errors.New("scopes_supported: it cannot be right")
	}
	issuers, _ = o.Texts("authorization_servers")
	if len(issuers) == 0 || len(issuers) > maxServers {
		return nil, errors.New("authorization_servers: it names none, or too many")
	}
	return issuers, nil
}

// covers reports whether a resource identifier is that of a server: its URL, or a URL of the
// same origin whose path the server's is below (MCP, canonical server URI; RFC 9728 §3.3).
func covers(resource, server string) bool {
	if resource == server {
		return true
	}
	r, err := oauth.ParseURL(resource, true)
	s, err2 := oauth.ParseURL(server, true)
	if err != nil || err2 != nil || !oauth.SameOrigin(resource, server) || r.RawQuery != s.RawQuery && r.RawQuery != "" {
		return false
	}
	above, path := strings.TrimSuffix(r.EscapedPath(), "/"), strings.TrimSuffix(s.EscapedPath(), "/")
	return path == above || strings.HasPrefix(path, above+"/")
}

// metadata reads those of an authorization server, from the first of the three places of the
// protocol that has them. there is false where no place has anything.
func (c *client) metadata(ctx context.Context, issuer string) (m *oauth.Metadata, there bool, err error) {
	if err := c.options.endpoint("authorization server", issuer, c.dev); err != nil {
		return nil, true, err
	}
	places, err := oauth.WellKnown(issuer)
	if err != nil {
		return nil, true, err
	}
	var faults []error
	for _, where := range places {
		answer, err := c.get(ctx, where)
		switch {
		case err != nil:
			var address *edge.AddressError
			if errors.As(err, &address) && edge.MayDial(address.Addr, true) == nil {
				err = fmt.Errorf("%w: where that is right, name it as the issuer", err)
			}
			return nil, true, fmt.Errorf("metadata of the authorization server: %w", err)
		case answer.Status >= http.StatusInternalServerError:
			return nil, true, fmt.Errorf("metadata of the authorization server: %s: status %d", shown(where), answer.Status)
		case answer.Status != http.StatusOK || isPage(answer):
			faults = append(faults, fmt.Errorf("%s: there are none (status %d)", shown(where), answer.Status))
			continue
		}
		there = true
		m, err := oauth.ParseMetadata(answer.Body, issuer, true)
		if err == nil {
			return m, true, nil
		}
		faults = append(faults, fmt.Errorf("%s: %w", shown(where), err))
	}
	return nil, there, fmt.Errorf("metadata of the authorization server: %w", errors.Join(faults...))
}

// older finds the authorization server as 2025-03-26 has it: it is at the origin of the MCP
// server, with metadata there, or with endpoints of fixed names.
func (c *client) older(ctx context.Context, p *place) error {
	u, err := url.Parse(c.options.URL)
	if err != nil {
		return errors.New("the URL of the server is malformed")
	}
	origin := u.Scheme + "://" + u.Host
	m, there, err := c.metadata(ctx, origin)
	switch {
	case err == nil:
		p.server = *m
		return nil
	case there:
		return err
	}
	p.undescribed = true
	p.server = oauth.Metadata{AuthorizationEndpoint: origin + "/authorize", TokenEndpoint: origin + "/token", RegistrationEndpoint: origin + "/register"}
	return nil
}

// get fetches a document.
func (c *client) get(ctx context.Context, where string) (*oauth.Response, error) {
	trust, allowHTTP := c.options.trust(where)
	return c.do(ctx, oauth.Request{URL: where, Trust: trust, AllowHTTP: allowHTTP, Header: http.Header{"Accept": {"application/json"}}, Redirects: 3})
}

// do asks; one who is late for the login is told of as such.
func (c *client) do(ctx context.Context, r oauth.Request) (*oauth.Response, error) {
	answer, err := c.http.Do(ctx, r)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%s: no answer in time", shown(r.URL))
	}
	return answer, err
}

// isPage reports whether an answer is a page, which some servers have for every path that there
// is not.
func isPage(r *oauth.Response) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "text/html")
}

// shown is a URL without what may be secret in it.
func shown(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "a malformed URL"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
