package relay

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// shares bounds the bytes in flight, in all and for each principal: a principal that
// has used up its own share waits and delays no other. A single message is always let
// through, however large it is.
type shares struct {
	most, each int

	mu    sync.Mutex
	bytes int
	of    map[string]int
	freed chan struct{} // closed when bytes are freed; nil without waiters
}

// shareWait is the longest wait for a share.
const shareWait = 5 * time.Second

// SmallMessage bounds the bytes of a body that is posted without KindAsk and without a
// share.
const SmallMessage = 16 << 10

// maxPosting bounds the bytes of larger bodies in flight from this edge, and
// maxPostingEach those of one principal.
const (
	maxPosting     = 32 << 20
	maxPostingEach = 8 << 20
)

// take waits until so many bytes of a principal may be in flight. give returns them;
// it may be called more than once.
func (s *shares) take(ctx context.Context, who string, bytes int) (give func(), err error) {
	timer := time.NewTimer(shareWait)
	defer timer.Stop()
	for {
		freed, ok := s.try(who, bytes)
		if ok {
			return sync.OnceFunc(func() { s.give(who, bytes) }), nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, edge.Errorf(edge.Gone, "relay", "%w", context.Cause(ctx))
		case <-timer.C:
			return nil, errStreams()
		}
	}
}

func (s *shares) try(who string, bytes int) (freed <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if used := s.of[who]; used > 0 && used+bytes > s.each || s.bytes > 0 && s.bytes+bytes > s.most {
		if s.freed == nil {
			s.freed = make(chan struct{})
		}
		return s.freed, false
	}
	if s.of == nil {
		s.of = make(map[string]int)
	}
	s.bytes += bytes
	s.of[who] += bytes
	return nil, true
}

func (s *shares) give(who string, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= bytes
	if s.of[who] -= bytes; s.of[who] <= 0 {
		delete(s.of, who)
	}
	if s.freed != nil {
		close(s.freed)
		s.freed = nil
	}
}

// Who returns the client for whom an exchange is counted: its principal, or its address
// on a server without authentication.
func Who(x *edge.Exchange) string {
	for x.Parent != nil {
		x = x.Parent
	}
	return WhoIs(x.Identity.Principal(), "address "+x.Head.Remote)
}

// WhoIs is the name of a principal in shares, or otherwise for one that stands
// for anybody.
func WhoIs(principal, otherwise string) string {
	if issuer, _, _ := strings.Cut(principal, "\x00"); issuer == "" || issuer == edge.AnonymousIssuer {
		return otherwise
	}
	return "principal " + principal
}
