package guest

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/status"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// maxMetrics is how many metrics of its own a program may have.
const maxMetrics = 64

type metric struct {
	gauge bool
	value int64
}

// metric counts for a program. A name keeps its first kind.
func (p *program) metric(name string, gauge bool, delta int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, known := p.metrics[name]
	switch {
	case !known && len(p.metrics) == maxMetrics, known && m.gauge != gauge, !gauge && delta < 0:
		return
	case p.metrics == nil:
		p.metrics = make(map[string]metric)
	}
	if m.gauge = gauge; gauge {
		m.value = delta
	} else {
		m.value += delta
	}
	p.metrics[name] = m
}

// What programs ask of others.
const (
	fetches = iota
	calls
	emits
	outside
)

var outsideNames = [outside]string{fetches: "http_call", calls: "call_tool", emits: "emit"}

// outcome counts results.
type outcome struct{ ok, refused, failed atomic.Uint64 }

func (o *outcome) note(code int64) int64 {
	switch {
	case code >= 0:
		o.ok.Add(1)
	case code == abi.ErrUnavailable || code <= abi.ErrTimeout: // which say why there is no answer
		o.failed.Add(1)
	default:
		o.refused.Add(1)
	}
	return code
}

// counted counts the results of asking others.
func (p *program) counted(what int, ask wasm.Outside) wasm.Outside {
	return func(ctx context.Context, request []byte) ([]byte, int64) {
		answer, code := ask(ctx, request)
		return answer, p.out[what].note(code)
	}
}

func (p *program) status() status.Filter {
	s := p.guest.Stats()
	out := status.Filter{Name: p.spec.Name, SHA256: p.digest, Mode: string(p.spec.Mode), Resting: s.Resting > 0, Live: s.Live, Hooks: []status.Hook{}}
	for h, w := range p.wants {
		if w == nil {
			continue
		}
		one := status.Hook{
			Hook: abi.Hook(h).String(), Calls: s.Hooks[h].Pass + s.Hooks[h].Ops, Changed: s.Hooks[h].Ops,
			Denied: p.denied[h].Load(), Skipped: p.skipped[h].Load(),
		}
		for reason, n := range s.Hooks[h].Failures {
			one.Failures += n
			if wasm.Reason(reason) != wasm.Broken { // Reject counts an answer that is counted here, too
				one.Calls += n
			}
		}
		out.Hooks = append(out.Hooks, one)
	}
	return out
}

// Collect emits the numbers of a server's open programs. m already carries
// its name.
func (k *Cache) Collect(server string, m edge.Emitter) {
	k.mu.Lock()
	var all []*program
	for _, p := range k.programs {
		if p.server == server {
			all = append(all, p)
		}
	}
	k.mu.Unlock()
	slices.SortFunc(all, func(a, b *program) int {
		return cmp.Compare(a.spec.Name, b.spec.Name)
	})
	for _, p := range all {
		p.collect(m)
	}
}

func (p *program) collect(m edge.Emitter) {
	s := p.guest.Stats()
	m = m.With("filter", p.spec.Name)
	for h, w := range p.wants {
		if w == nil {
			continue
		}
		m := m.With("hook", abi.Hook(h).String())
		count := func(outcome string, n uint64) {
			m.With("outcome", outcome).Counter("weir_guest_calls", "Calls of filters by outcome.", float64(n))
		}
		count("pass", s.Hooks[h].Pass)
		count("ops", s.Hooks[h].Ops)
		for reason, n := range s.Hooks[h].Failures {
			count(wasm.Reason(reason).String(), n)
		}
		m.Counter("weir_guest_denied", "Messages that filters denied.", float64(p.denied[h].Load()))
		m.Counter("weir_guest_skipped", "Failures of filters that messages passed all the same.", float64(p.skipped[h].Load()))
	}
	m.Counter("weir_guest_fuel", "Fuel that filters used.", float64(s.Fuel))
	m.Counter("weir_guest_rests", "Times that the messages of a sender began to rest before a filter.", float64(s.Rests))
	m.Gauge("weir_guest_instances", "Instances of filters.", float64(s.Live))
	for what := range p.out {
		o := &p.out[what]
		for _, one := range [...]struct {
			outcome string
			n       uint64
		}{{"ok", o.ok.Load()}, {"refused", o.refused.Load()}, {"failed", o.failed.Load()}} {
			if one.n > 0 {
				m.With("function", outsideNames[what]).With("outcome", one.outcome).
					Counter("weir_guest_outside", "Requests of filters to others, by outcome.", float64(one.n))
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, own := range p.metrics {
		const help = "Metrics of filters' own."
		if m := m.With("name", name); own.gauge {
			m.Gauge("weir_guest_gauge", help, float64(own.value))
		} else {
			m.Counter("weir_guest_counter", help, float64(own.value))
		}
	}
}
