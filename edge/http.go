package edge

import (
	"crypto/tls"
	"net/http"
	"time"
)

// Bounds of an HTTP client.
const (
	httpTimeout   = 10 * time.Second
	httpMaxHeader = 64 << 10 // bytes
)

// NewHTTP returns a client for requests to places that the operator named. It follows no
// redirect, which is an answer like any other: a credential in a header is sent to nobody
// but whom it is for. A request ends within 10 s with its body, the header
// of an answer is 64 KiB at most, and an answer is never decompressed; its body is for the
// caller to bound. Proxies are those of the environment (HTTPS_PROXY, HTTP_PROXY,
// NO_PROXY). config is copied; nil is TLS 1.2 or later with the certificates of the
// system. The client judges no addresses: what a stranger named is for the client of
// edge/oauth.
func NewHTTP(config *tls.Config) *http.Client {
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return &http.Client{
		Timeout: httpTimeout,
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			TLSClientConfig:        config.Clone(),
			ForceAttemptHTTP2:      true,
			DisableCompression:     true,
			MaxIdleConnsPerHost:    4,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: httpMaxHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
