package door

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"
)

// Where the edge stands behind another proxy, the address of a client is what
// that proxy says it is. Anybody can say so, which is why only proxies that the
// operator names are believed (RFC 7239 §8.1).

// Proxies are the networks of proxies that are believed.
type Proxies []netip.Prefix

// ParseProxies reads CIDRs, or single addresses.
func ParseProxies(texts []string) (Proxies, error) {
	var all Proxies
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			addr, err := netip.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("%q is neither an address nor a network such as 10.0.0.0/8", text)
			}
			p = netip.PrefixFrom(addr, addr.BitLen())
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

func (p Proxies) trust(addr netip.Addr) bool {
	for _, one := range p {
		if one.Contains(addr.Unmap()) {
			return true
		}
	}
	return false
}

// maxHops bounds the list of proxies that is walked.
const maxHops = 32

// unknownClient is in place of an address that a proxy hides (RFC 7239 §6.2), or that nobody can
// read. It is no address: what is for this machine alone is not for it.
const unknownClient = "unknown"

// ClientOf is the address of the client of a request that came from host, both
// without a port: the last hop that is no proxy which is believed. It is "unknown" where a proxy
// that is believed says so, or says nonsense. Where the two headers differ, one may be the client's
// own: it is what X-Forwarded-For says, which more proxies write, and doubted.
func (p Proxies) ClientOf(host string, r *fasthttp.RequestHeader) (client string, doubted bool) {
	if len(p) == 0 {
		return host, false
	}
	at, err := netip.ParseAddr(host)
	if err != nil || !p.trust(at) {
		return host, false
	}
	older, newer := xForwardedFor(r), forwardedFor(r)
	client = p.last(host, older)
	if other := p.last(host, newer); older == nil {
		return other, false
	} else if newer != nil && other != client {
		return client, true
	}
	return client, false
}

// last is the last of hops that is no proxy which is believed; host where there are none.
func (p Proxies) last(host string, hops []string) string {
	for i := len(hops) - 1; i >= 0 && i >= len(hops)-maxHops; i-- {
		hop, err := netip.ParseAddr(hops[i])
		if err != nil {
			return unknownClient
		}
		if host = hop.Unmap().String(); !p.trust(hop) {
			return host
		}
	}
	return host
}

// xForwardedFor returns the addresses of X-Forwarded-For, the nearest hop last; nil for none.
func xForwardedFor(r *fasthttp.RequestHeader) (hops []string) {
	for _, line := range r.PeekAll("X-Forwarded-For") {
		for hop := range strings.SplitSeq(string(line), ",") {
			hops = append(hops, bareAddress(hop))
		}
	}
	return hops
}

// forwardedFor returns the for parameters of Forwarded (RFC 7239 §5.2), the nearest hop last, ""
// for a hop without one; nil where none has one.
func forwardedFor(r *fasthttp.RequestHeader) (hops []string) {
	said := false
	for _, line := range r.PeekAll("Forwarded") {
		for _, element := range splitQuoted(string(line), ',') {
			hop := ""
			for _, pair := range splitQuoted(element, ';') {
				name, value, _ := strings.Cut(pair, "=")
				if strings.EqualFold(strings.TrimSpace(name), "for") {
					said, hop = true, bareAddress(strings.Trim(strings.TrimSpace(value), `"`))
				}
			}
			hops = append(hops, hop)
		}
	}
	if !said {
		return nil
	}
	return hops
}

// splitQuoted splits a text where a byte is that no quoted string holds (RFC 9110 §5.6.4). It reads
// from the end, so that a quote which the client left open takes nothing of what proxies put behind it.
func splitQuoted(text string, at byte) (parts []string) {
	quoted, end := false, len(text)
	for i := len(text) - 1; i >= 0; i-- {
		switch before := text[:i]; {
		case text[i] == '"' && (len(before)-len(strings.TrimRight(before, `\`)))%2 == 0: // else escaped
			quoted = !quoted
		case text[i] == at && !quoted:
			parts, end = append(parts, text[i+1:end]), i
		}
	}
	parts = append(parts, text[:end])
	slices.Reverse(parts)
	return parts
}

// bareAddress takes the port and brackets off an address.
func bareAddress(text string) string {
	text = strings.TrimSpace(text)
	if host, _, err := net.SplitHostPort(text); err == nil {
		return host
	}
	return strings.Trim(text, "[]")
}
