package settings

import (
	"net"
	"strings"
)

// Endpoint is the URL of the endpoint as seen from this machine, of an edge that listens at addr.
func (s *Settings) Endpoint(addr string) string {
	if s.ExternalURL != "" {
		return strings.TrimSuffix(s.ExternalURL, "/") + "/mcp"
	}
	scheme := "http"
	if s.TLSCert != "" {
		scheme = "https"
	}
	if host, port, err := net.SplitHostPort(addr); err == nil {
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			addr = net.JoinHostPort("127.0.0.1", port)
		}
	}
	return scheme + "://" + addr + "/mcp"
}
