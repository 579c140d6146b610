package authserver

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/weir-edge/weir/edge"
)

// limit is how often something may be asked for.
type limit struct {
	name   string
	burst  int32
	refill time.Duration // from empty to full
}

// What one client address may ask of an issuer, and how often a client may be wrong. They are
// those of this process.
var (
	limitRegister  = limit{"register", 5, 5 * time.Second}
	limitAuthorize = limit{"authorize", 50, 5 * time.Second}
	limitConsent   = limit{"consent", 50, 5 * time.Second}
	limitCallback  = limit{"callback", 50, 5 * time.Second}
	limitToken     = limit{"token", 100, 5 * time.Second}
	limitSecret    = limit{"secret", 10, time.Minute}
	limitDocument  = limit{"document", 5, 5 * time.Second} // that is not in the cache
)

// within takes one of what the address of a request may ask for.
func (s *Server) within(ctx context.Context, r *http.Request, l limit) error {
	return s.take(ctx, l, network(r.RemoteAddr))
}

// take takes one of what somebody may ask for. An error says when there is more.
func (s *Server) take(ctx context.Context, l limit, who string) error {
	wait, _, err := s.local.Take(ctx, edge.Bucket{Key: s.records.prefix + l.name + ":" + who, Capacity: l.burst, Refill: l.refill})
	if err != nil {
		return err
	}
	if wait > 0 {
		return &pageError{status: http.StatusTooManyRequests, what: "Too many requests come from your network.", do: "Wait a moment, then try again.", after: wait}
	}
	return nil
}

// network is what limits count by: an address, or 2⁶⁴ of them of IPv6, which one household has.
func network(remote string) string {
	if host, _, err := net.SplitHostPort(remote); err == nil {
		remote = host
	}
	addr, err := netip.ParseAddr(remote)
	if err != nil {
		return "?"
	}
	if addr = addr.Unmap(); addr.Is6() {
		if p, err := addr.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return addr.String()
}
