package serve

import (
	"bytes"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/filters/incoming"
)

// A server may believe what the proxy in front says of the URL that its clients use
// (trustProxyHeaders): X-Forwarded-Proto, -Host, -Port and -Prefix. They shape the URLs
// that the edge hands out, and nothing else: who the client is, and whether its request is
// let in, is never read from them. What is not well-formed counts as not said.

// seenURL is where a client sees a server, as a proxy says it.
type seenURL struct {
	origin string // https://host:port; "" where nothing is said of it
	prefix string // of all paths; "" for none
}

// The forms of what a proxy says, compiled when one is first believed.
var (
	seenHost = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?$`)
	})
	seenPrefix = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*){1,16}/?$`)
	})
)

// maxSeen bounds a header value that is looked at, in bytes.
const maxSeen = 512

// seen reads what the nearest proxy says. get returns the value of a header, "" for none;
// host is that of the request, tls whether it came encrypted.
func seen(get func(name string) string, host string, tls bool) (u seenURL) {
	last := func(name string) string { // that of the nearest proxy, where several have been there
		v := get(name)
		if len(v) > maxSeen {
			return ""
		}
		return strings.TrimSpace(v[strings.LastIndexByte(v, ',')+1:])
	}
	scheme := strings.ToLower(last("X-Forwarded-Proto"))
	said := scheme == "http" || scheme == "https"
	if !said {
		if scheme = "http"; tls {
			scheme = "https"
		}
	}
	if h := last("X-Forwarded-Host"); seenHost().MatchString(h) {
		host, said = h, true
	}
	if n, err := strconv.ParseUint(last("X-Forwarded-Port"), 10, 16); err == nil && n > 0 {
		name := host
		if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
			name = host[:i]
		}
		if host, said = name, true; !(scheme == "http" && n == 80 || scheme == "https" && n == 443) {
			host += ":" + strconv.FormatUint(n, 10)
		}
	}
	if said && seenHost().MatchString(host) {
		u.origin = scheme + "://" + host
	}
	if p := last("X-Forwarded-Prefix"); seenPrefix().MatchString(p) {
		u.prefix = strings.TrimSuffix(p, "/")
	}
	return u
}

// seen is where the client of a request sees its server, as far as that believes proxies.
func (req *request) seen() seenURL {
	if req.server == nil || !req.server.believes {
		return seenURL{}
	}
	h := &req.ctx.Request.Header
	return seen(func(name string) string { return string(h.Peek(name)) }, string(req.host), req.server.edge.settings.TLSCert != "")
}

// posts is the URL, or what stands before the path, that clients of the older transport
// are told to POST to.
func (req *request) posts() string {
	base := strings.TrimSuffix(req.at.plan.ExternalURL, "/")
	switch u := req.seen(); {
	case req.server.prefix != "":
		return base + req.server.prefix
	case u != seenURL{}:
		if u.origin == "" {
			u.origin = base
		}
		return u.origin + u.prefix
	}
	return base
}

// documentAt is the well-known path of the metadata of a resource at a path.
const documentAt = "/.well-known/oauth-protected-resource"

// challenge is a challenge for the client of a request: it leads to where that client sees
// the metadata document.
func (req *request) challenge(text string) string {
	u := req.seen()
	if u.origin == "" {
		return text
	}
	s := req.server
	own := incoming.Location(s.endpoint)
	return strings.Replace(text, `"`+own+`"`, `"`+u.origin+u.prefix+documentAt+s.path+`"`, 1)
}

// documentFor is the metadata document for the client of a request.
func (s *server) documentFor(r *http.Request) []byte {
	if !s.believes {
		return s.document
	}
	u := seen(r.Header.Get, r.Host, s.edge.settings.TLSCert != "")
	if u.origin == "" {
		return s.document
	}
	return bytes.Replace(s.document, mcp.Quote(s.endpoint), mcp.Quote(u.origin+u.prefix+s.path), 1)
}
