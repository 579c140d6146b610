package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// Bench is what a guest costs, and what that is of the limits of a call.
type Bench struct {
	Limits Cost      `json:"limits"`
	Cases  []Figures `json:"cases"`
	Sweeps []Sweep   `json:"sweeps"`
}

// Cost is what one call uses, or may use.
type Cost struct {
	Time   time.Duration `json:"timeNanoseconds"` // the least of several rounds
	Fuel   uint64        `json:"fuel"`
	Memory uint64        `json:"memoryBytes"` // of the instance, after all calls; 0 of a script
	Input  uint64        `json:"inputBytes"`
	Output uint64        `json:"outputBytes"`
}

// Figures are what one case of fixtures costs.
type Figures struct {
	Case  string `json:"case"`
	Hook  string `json:"hook"`
	Calls int    `json:"calls"`
	Cost
	Share Share `json:"share"`
}

// Share is how much of each limit a call uses: 1 for all of it.
type Share struct {
	Time   float64 `json:"time"`
	Fuel   float64 `json:"fuel"`
	Memory float64 `json:"memory"`
	Input  float64 `json:"input"`
	Output float64 `json:"output"`
}

// Sweep is a case whose longest text is made longer and longer.
type Sweep struct {
	Case string `json:"case"`
	Hook string `json:"hook"`

	// Sizes that were tried: it ends where a limit is met ten times over, or the
	// guest fails.
	Sizes []Size `json:"sizes"`

	// Met is the limit that is met first, time, fuel, memory, input or output or
	// another reason for which the guest fails, and Text about the bytes of text at
	// which it is; "" when none is up to the largest size.
	Met  string `json:"met,omitempty"`
	Text int    `json:"metAtTextBytes,omitempty"`
}

// Size is one size of a sweep.
type Size struct {
	Text int `json:"textBytes"`
	Cost
	Share  Share  `json:"share"`
	Failed string `json:"failed,omitempty"` // why the guest fails
}

// sizes of the text in a sweep, in bytes. The input of a call has at most 1 MiB
// unless set otherwise.
var sizes = []int{1 << 10, 10 << 10, 100 << 10, 1000 << 10}

// How often a case is measured, and how often where a size is looked for.
const (
	rounds = 5
	once   = 1
)

// of returns how much a cost is of the limits, and the limit that is met most.
func (c *Cost) of(limits *Cost) (s Share, most float64, what string) {
	part := func(used, limit uint64, name string) float64 {
		if limit == 0 { // there is none
			return 0
		}
		p := float64(used) / float64(limit)
		if p > most {
			most, what = p, name
		}
		return p
	}
	s.Time = part(uint64(c.Time), uint64(limits.Time), "time")
	s.Fuel = part(c.Fuel, limits.Fuel, "fuel")
	s.Memory = part(c.Memory, limits.Memory, "memory")
	s.Input = part(c.Input, limits.Input, "input")
	s.Output = part(c.Output, limits.Output, "output")
	return s, most, what
}

// Measure measures a module, as MeasureProgram does.
func Measure(ctx context.Context, m *wasm.Module, f *Fixtures, limits wasm.Limits, each time.Duration) (*Bench, error) {
	return MeasureProgram(ctx, ofModule(m), f, limits, each)
}

// MeasureProgram asks a program each case of fixtures again and again, for about the
// time given, and returns what it costs, beside the limits of the filter, which are
// the defaults where they say nothing. Cases that expect an error, or not to
// be asked, are left out. Of each hook the case with the longest text is asked with
// longer ones.
func MeasureProgram(ctx context.Context, p *Program, f *Fixtures, limits wasm.Limits, each time.Duration) (*Bench, error) {
	limits, err := p.limits(limits)
	if err != nil {
		return nil, err
	}
	b := &Bench{Limits: Cost{limits.Timeout, uint64(limits.Fuel), limits.Memory, limits.Input, limits.Output}, Cases: []Figures{}, Sweeps: []Sweep{}}
	longest := make(map[string]*Case)
	var hooks []string
	for i := range f.Cases {
		c := &f.Cases[i]
		if c.Hook == "" || c.Error != "" {
			continue
		}
		one, err := c.measure(ctx, p, rounds, each, f.optional)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		if one == nil {
			continue
		}
		one.Share, _, _ = one.of(&b.Limits)
		b.Cases = append(b.Cases, *one)
		n := c.Input.longest()
		if before := longest[c.Hook]; n > 0 && before == nil {
			hooks = append(hooks, c.Hook)
			longest[c.Hook] = c
		} else if n > 0 && n > before.Input.longest() {
			longest[c.Hook] = c
		}
	}
	for _, hook := range hooks {
		b.Sweeps = append(b.Sweeps, longest[hook].sweep(ctx, p, &b.Limits, each, f.optional))
	}
	return b, nil
}

// unbound are limits under which a call shows what it uses.
func unbound() wasm.Limits {
	return wasm.Limits{Timeout: time.Second, Instances: 1, Fuel: 1 << 40, Memory: wasm.MaxMemory, Input: wasm.MaxMemory, Output: wasm.MaxMemory}
}

// measure measures a case of a guest of its own, in so many rounds; nil for one that it is not
// asked.
func (c *Case) measure(ctx context.Context, p *Program, often int, each time.Duration, optional []string) (*Figures, error) {
	h := c.start(ctx, p, optional, unbound())
	defer h.close()
	if h.err != nil {
		return nil, h.err
	}
	if err := h.before(ctx, c); err != nil {
		return nil, err
	}
	hook, record, matched := h.question(c)
	if !matched {
		return nil, nil
	}
	h.others = &c.Others
	one, err := measure(ctx, h.guest, hook, h.session(c), record, often, each)
	one.Case, one.Hook = c.Name, c.Hook
	return &one, err
}

func measure(ctx context.Context, g guest.Engine, hook abi.Hook, session string, in []byte, often int, each time.Duration) (Figures, error) {
	one := each / time.Duration(often)
	f := Figures{Cost: Cost{Input: uint64(len(in))}}
	out := make([]byte, 0, 64<<10)
	calls := func(n int) (time.Duration, error) {
		start := time.Now()
		for range n {
			got, err := g.Call(ctx, hook, session, wasm.Sender{}, in, out[:0])
			if err != nil {
				return 0, err
			}
			out = got
		}
		return time.Since(start), nil
	}
	// 1. How many calls fill a round.
	n := 1
	for {
		took, err := calls(n)
		if err != nil {
			return f, err
		}
		if took >= one/10 || n >= 1<<20 {
			n = max(int(int64(n)*int64(one)/max(int64(took), 1)), 1)
			break
		}
		n *= 2
	}
	// 2. The rounds.
	fuel, done := g.Stats().Fuel, 0
	for range often {
		took, err := calls(n)
		if err != nil {
			return f, err
		}
		done += n
		if least := took / time.Duration(n); f.Time == 0 || least < f.Time {
			f.Time = least
		}
	}
	f.Calls, f.Fuel, f.Memory, f.Output = done, (g.Stats().Fuel-fuel)/uint64(done), memory(g), uint64(len(out))
	return f, nil
}

// sweep asks a case with texts of several sizes, and looks for the size at which a
// limit is met.
func (c *Case) sweep(ctx context.Context, p *Program, limits *Cost, each time.Duration, optional []string) Sweep {
	s := Sweep{Case: c.Name, Hook: c.Hook}
	ask := func(n, often int) (size Size, most float64, what string) {
		grown := *c
		grown.Input = c.Input.grown(n)
		one, err := grown.measure(ctx, p, often, each*time.Duration(often)/rounds, optional)
		size.Text = n
		var f *wasm.Failure
		switch {
		case errors.As(err, &f):
			size.Failed = err.Error()
			if what = f.Reason.String(); f.Reason == wasm.Deadline {
				what = "time"
			}
			return size, 1e9, what
		case err != nil || one == nil:
			size.Failed = fmt.Sprint("it is not asked: ", err)
			return size, 1e9, "abi"
		}
		size.Cost = one.Cost
		size.Share, most, what = one.of(limits)
		return size, most, what
	}
	least := 0
	for _, n := range sizes {
		size, most, what := ask(n, rounds)
		s.Sizes = append(s.Sizes, size)
		if most <= 1 {
			least = n
			continue
		}
		if s.Met == "" {
			s.Met, s.Text = what, n
		}
		if most > 10 {
			break
		}
	}
	if s.Met == "" {
		return s
	}
	// To a tenth of the size.
	for low, high := least, s.Text; high-low > high/10+16; {
		n := (low + high) / 2
		if _, most, what := ask(n, once); most <= 1 {
			low = n
		} else {
			high, s.Met, s.Text = n, what, n
		}
	}
	return s
}

// texts are the JSON texts of an input whose strings may be longer.
func (in *Input) texts() []*json.RawMessage {
	return []*json.RawMessage{&in.Result, &in.Arguments, &in.Event}
}

// longest is the length of the longest string that grown makes longer, in bytes.
func (in *Input) longest() int {
	for _, text := range in.texts() {
		if _, s := longestOf(decoded(*text), func(any) {}); s != "" {
			return len(s)
		}
	}
	return 0
}

// grown returns an input whose longest string, of the result, the arguments or the
// event, has about so many bytes, in which it is said again and again.
func (in Input) grown(n int) Input {
	for _, text := range in.texts() {
		v := decoded(*text)
		set, s := longestOf(v, func(to any) { v = to })
		if s == "" {
			continue
		}
		set(strings.ToValidUTF8(strings.Repeat(s+" ", n/(len(s)+1)+1)[:n], ""))
		if grown, err := json.Marshal(v); err == nil {
			*text = grown
		}
		break
	}
	return in
}

func decoded(text json.RawMessage) (v any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

// longestOf returns the longest string of a value, and what puts another in its
// place. set puts another value in the place of the whole.
func longestOf(v any, set func(any)) (put func(any), longest string) {
	look := func(e any, set func(any)) {
		if p, s := longestOf(e, set); len(s) > len(longest) {
			put, longest = p, s
		}
	}
	switch v := v.(type) {
	case string:
		return set, v
	case []any:
		for i, e := range v {
			look(e, func(to any) { v[i] = to })
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			look(v[name], func(to any) { v[name] = to })
		}
	}
	return put, longest
}
