package filters

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
)

// trace is a filter that writes down when it is passed, in and out.
func trace(log *[]string, name string) edge.Filter {
	return func(next edge.Handler) edge.Handler {
		return edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
			*log = append(*log, name)
			defer func() { *log = append(*log, "/"+name) }()
			return next.Handle(ctx, x)
		})
	}
}

// The hallway has one order, whatever order its entries come in; entries of
// one name keep theirs.
func TestChainOrder(t *testing.T) {
	const want = "telemetry audit headers mutating guest.1 guest.2 guest.3 validating authz ratelimit here" +
		" /ratelimit /authz /validating /guest.3 /guest.2 /guest.1 /mutating /headers /audit /telemetry"
	placed := map[string]Place{}
	for _, p := range Order() {
		placed[p.String()] = p
	}
	names := strings.Fields("telemetry audit headers mutating guest.1 guest.2 guest.3 validating authz ratelimit")
	for seed := range uint64(50) {
		var log []string
		shuffled := slices.Clone(names)
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		// Those of one name stay in their order among themselves.
		next := map[string]int{}
		var entries []Entry
		for _, name := range shuffled {
			base, _, many := strings.Cut(name, ".")
			if many {
				next[base]++
				name = base + "." + string(rune('0'+next[base]))
			}
			entries = append(entries, Entry{Place: placed[base], Filter: trace(&log, name)})
		}
		h := Chain(entries, edge.HandlerFunc(func(context.Context, *edge.Exchange) (*edge.Response, error) {
			log = append(log, "here")
			return nil, nil
		}))
		if _, err := h.Handle(t.Context(), &edge.Exchange{}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(log, " "); got != want {
			t.Fatalf("seed %d: %s\nwant %s", seed, got, want)
		}
	}
}

// After authorization nothing changes a message, and whatever may change one
// stands before it; who it was is known before anything is decided.
func TestOrderOfTheHallway(t *testing.T) {
	order := Order()
	at := func(p Place) int { return slices.Index(order, p) }
	for _, pair := range [][2]Place{
		{Telemetry, Audit}, {Audit, Headers}, {Headers, Mutating}, {Mutating, Guest}, {Guest, Validating}, {Validating, Authz}, {Authz, RateLimit},
	} {
		if at(pair[0]) < 0 || at(pair[0]) >= at(pair[1]) {
			t.Errorf("%s is not before %s: %v", pair[0], pair[1], order)
		}
	}
}

// A hallway without filters is the handler itself.
func TestChainOfNothing(t *testing.T) {
	called := false
	last := edge.HandlerFunc(func(context.Context, *edge.Exchange) (*edge.Response, error) {
		called = true
		return nil, nil
	})
	if _, err := Chain(nil, last).Handle(t.Context(), &edge.Exchange{}); err != nil || !called {
		t.Error(err, called)
	}
}
