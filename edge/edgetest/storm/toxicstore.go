package main

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
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
func runToxicStore(ctx context.Context, s *storm) error {
	store, err := s.newRedis(ctx)
	if err != nil {
		return err
	}
	for _, mode := range []string{"closed", "open"} {
		if err := s.toxicsBeforeStore(ctx, store, mode); err != nil {
			return err
		}
	}
	return nil
}

func (s *storm) toxicsBeforeStore(ctx context.Context, store *redis, mode string) error {
	const count, each = 8, 2
	b, err := s.newBackend(modern, nil)
	if err != nil {
		return err
	}
	r, err := s.newRelay(store.addr)
	if err != nil {
		return err
	}
	p := planOf([]string{b.addr})
	p.store = r.addr
	e, err := s.startPlan(ctx, p, "--pprof", "--store-failure", mode, "--store-timeout", storeTimeout.String())
	if err != nil {
		return err
	}
	defer e.stop()
	var n numbers
	if _, err := s.ceiling(ctx, e.addr, &n); err != nil {
		return e.fault(err)
	}
	clients, err := openFleet(ctx, e.addr, count, func(i int) (*client, error) {
		c, err := dial(ctx, e.addr, both(i), dialOptions{from: i, buffer: 32 << 10})
		if err == nil {
			if err = c.begin("toxics"); err == nil {
				_, err = c.toxicCall(&n)
			}
		}
		return c, err
	})
	defer func() { closeAll(clients) }()
	if err != nil {
		return e.fault(err)
	}
	base, err := s.restingGoroutines(ctx, e, 0)
	if err != nil {
		return err
	}
	files, err := openFiles(e)
	if err != nil {
		return err
	}
	right, all := 0, storeToxics()
	for _, t := range all {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if mode == "open" {
			t.want = []int{http.StatusOK}
		}
		r.poison(t.way, t.toxin)
		if t.kills {
			if err := store.endConnections(ctx); err != nil {
				return err
			}
		}
		seen := toxicCalls(clients, each, &n)
		r.cure()
		began := time.Now()
		// Also where calls are served without the store it has to be there again.
		well := waitFor(ctx, patience, func() bool {
			now, err := e.status(ctx)
			return err == nil && now.Store.Connected
		})
		well = recovery(ctx, clients, &n) >= 0 && well
		recovery := time.Since(began)
		idle := waitFor(ctx, 2*time.Second, func() bool {
			now, err := e.status(ctx)
			return err == nil && now.Inflight == 0
		})
		calls, fit := each*len(clients), 0
		for _, code := range t.want {
			fit += seen.codes[code]
		}
		// A call may ask for its session and for its tokens.
		ok := fit == calls && seen.longest <= 2*storeTimeout+500*time.Millisecond && well && recovery <= 2*time.Second && idle
		if ok {
			right++
		}
		s.bar(ok, fmt.Sprintf("all %s, 2 s, nothing under way", codesOf(t.want)), "%s %s, %s: %s in %.2f s at most, well again after %.2f s", t.name, t.way, mode, seen.text(), seen.longest.Seconds(), recovery.Seconds())
		for code, text := range seen.examples {
			if !slices.Contains(t.want, code) {
				s.note("%s %s, %s: %d: %.200s", t.name, t.way, mode, code, text)
			}
		}
	}
	s.tell("%s: %d of %d", mode, right, len(all))
	after, err := s.restingGoroutines(ctx, e, base)
	if err != nil {
		return err
	}
	now, err := openFiles(e)
	if err != nil {
		return err
	}
	s.bar(after <= base, "0", "%s: %d goroutines left over, of %d", mode, max(after-base, 0), base)
	s.bar(now <= files+len(clients), "+ "+strconv.Itoa(len(clients)), "%s: %d open files, %d before; %d connections through the proxy", mode, now, files, r.open())
	return nil
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
	_, port, _ := strings.Cut(r.addr, ":")
	for _, kind := range []string{"normal", "pubsub"} {
		out, err := exec.CommandContext(ctx, "redis-cli", "-p", port, "client", "kill", "type", kind).CombinedOutput()
		if err != nil {
			return fmt.Errorf("redis-cli client kill: %w: %s", err, out)
		}
	}
	return nil
}
