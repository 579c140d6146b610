package oauth

import (
	"net"
	"net/http"
)

// Through makes a client send everything to rt.
func (c *Client) Through(rt http.RoundTripper) *Client {
	c.public, c.private, c.proxied = rt, rt, rt
	return c
}

// NewResolving is New with a resolver.
func NewResolving(o Options, r *net.Resolver) (*Client, error) {
	o.resolver = r
	return New(o)
}
