package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// storeTimeout is what an edge waits for its store in this row: with it each
// toxin either lets every answer through in time, or none.
const storeTimeout = time.Second

// storeToxic is a toxin towards a shared store, and what calls that need the
// store may be answered with while it is there.
type storeToxic struct {
	toxic
	way   direction
	kills bool // the store ends its connections when the harm begins
	want  []int
}

// storeToxics are the seven in either direction. A store answers in a few bytes,
// so what ends after 500 elsewhere ends after 10 here. A store does not close
// connections, and so is made to: one whose end is passed on late takes a call
// and answers nothing.
func storeToxics() (all []storeToxic) {
	for _, t := range toxics(1) {
		for _, way := range []direction{upstream, downstream} {
			one := storeToxic{toxic: t, way: way, want: []int{http.StatusServiceUnavailable}}
			switch t.name {
			case "bandwidth", "slicer":
				one.want = []int{http.StatusOK}
			case "slow_close":
				one.kills, one.want = true, []int{http.StatusOK}
				if way == downstream {
					one.want = append(one.want, http.StatusServiceUnavailable)
				}
			case "limit_data":
				one.limit = 10
			}
			all = append(all, one)
		}
	}
	return all
}

// runToxicStore is the part of G27 that concerns the shared store: a proxy
// between edge and store does harm to one direction of the connections. Calls
// that need the store are answered with 503 where it cannot be asked, or, with
// --store-failure open, all of them are served; sessions are there again when the
// harm ends.
func runToxicStore(ctx context.Context, s *storm) {
	store := s.newRedis(ctx)
	for _, mode := range []string{"closed", "open"} {
		s.toxicsBeforeStore(ctx, store, mode)
	}
}

func (s *storm) toxicsBeforeStore(ctx context.Context, store *redis, mode string) {
	const count, each = 8, 2
	b := s.newBackend(kit.Modern, nil)
	r := s.newRelay(store.addr)
	e := s.startPlan(ctx, sharing(b.Addr, r.addr), "--pprof", "--store-failure", mode, "--store-timeout", storeTimeout.String())
	defer e.Stop()
	var n kit.Numbers
	s.ceiling(ctx, e.Addr, &n)
	clients := s.callers(ctx, e, count, 0, &n, nil)
	defer kit.CloseAll(clients)
	left := s.leftOver(ctx, e, mode)
	right, all := 0, storeToxics()
	for _, t := range all {
		kit.Check(ctx.Err())
		if mode == "open" {
			t.want = []int{http.StatusOK}
		}
		r.poison(t.way, t.toxin)
		if t.kills {
			kit.Check(store.endConnections(ctx))
		}
		seen := toxicCalls(clients, each, &n)
		r.cure()
		began := time.Now()
		// Also where calls are served without the store it has to be there again.
		well := hasStore(ctx, e, true)
		well = recovery(ctx, clients, &n) >= 0 && well
		recovery := time.Since(began)
		idle := nothingUnderWay(ctx, e)
		// A call may ask for its session and for its tokens.
		ok := seen.of(t.want...) == each*count && seen.longest <= 2*storeTimeout+500*time.Millisecond && well && recovery <= 2*time.Second && idle
		if ok {
			right++
		}
		s.bar(ok, fmt.Sprintf("all %s, 2 s, nothing under way", codesOf(t.want)), "%s %s, %s: %s in %.2f s at most, well again after %.2f s", t.name, t.way, mode, seen, seen.longest.Seconds(), recovery.Seconds())
		seen.others(s, fmt.Sprintf("%s %s, %s", t.name, t.way, mode), t.want...)
	}
	s.tell("%s: %d of %d", mode, right, len(all))
	left(len(clients), r)
}

// hasStore waits until an edge says of its store that it is there, or that it
// is not.
func hasStore(ctx context.Context, e *kit.Edge, there bool) bool {
	return kit.WaitFor(ctx, kit.Patience, func() bool {
		now, err := e.Status(ctx)
		return err == nil && now.Store.Connected == there
	})
}

// codesOf is how the answers are called that calls may have.
func codesOf(codes []int) string {
	var words []string
	for _, code := range codes {
		words = append(words, strconv.Itoa(code))
	}
	return strings.Join(words, " or ")
}

// endConnections has the store end every connection to it.
func (r *redis) endConnections(ctx context.Context) error {
	for _, kind := range []string{"normal", "pubsub"} {
		if _, err := r.command(ctx, "client", "kill", "type", kind); err != nil {
			return err
		}
	}
	return nil
}
