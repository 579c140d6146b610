package relay

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// shares bounds bytes that are under way at a time, for everybody and for each
// principal: whoever has used up his own waits, and nobody with him. One thing is
// always let through, however large it is.
type shares struct {
	most, each int

	mu    sync.Mutex
	bytes int
	of    map[string]int
	freed chan struct{} // closed when there is more room; nil while nobody waits
}

// shareWait is how long somebody waits for his share.
const shareWait = 5 * time.Second

// SmallMessage is how large a body may be that is posted without asking first
// whether it is wanted, and without a share of what is under way.
const SmallMessage = 16 << 10

// maxPosting is how many bytes of larger ones are on their way from this edge at
// a time, and maxPostingEach of one principal's.
const (
	maxPosting     = 32 << 20
	maxPostingEach = 8 << 20
)

// take waits until so many bytes of somebody's may be under way. give ends it,
// however often it is called.
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

// Who is for whom an exchange is: its principal, or where nobody is asked who
// he is the address that he comes from.
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
