package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// lanes is how many calls of one tenant are under way at a time.
const lanes = 8

// runCrosstalk is G30: two tenants make the same calls at the same time, with
// the same JSON-RPC ids and the same progress tokens, and give some of them up
// in the middle. Nothing of the one may reach the other.
func runCrosstalk(ctx context.Context, s *storm) {
	count := s.size(s.count, 100_000, 2_000, "calls of each tenant")
	cells := []struct{ client, backend kit.Era }{{kit.Legacy, kit.Legacy}, {kit.Modern, kit.Legacy}, {kit.Legacy, kit.Modern}, {kit.Modern, kit.Modern}}
	sum := &crosses{}
	began := time.Now()
	for _, cell := range cells {
		s.crossCell(ctx, cell.client, cell.backend, max(count/len(cells), lanes), sum)
		s.say("%s clients, %s backend: %d calls so far", cell.client, cell.backend, sum.answered.Load())
	}
	calls, gave := sum.answered.Load(), sum.cancelled.Load()
	s.bar(sum.bodies.Load() == 0, "0", "2 tenants, %d calls with equal ids in four cells, %d given up in the middle: %d answers crossed", calls+gave, gave, sum.bodies.Load())
	s.bar(sum.progress.Load() == 0, "0", "%d progress messages, %d crossed", sum.heard.Load(), sum.progress.Load())
	s.bar(sum.sessions.Load() == 0, "0", "%d calls in the session of another at the backend", sum.sessions.Load())
	s.bar(sum.failed.Load() == 0, "0", "%d calls failed in another way", sum.failed.Load())
	s.bar(sum.amiss.Load() == 0, "0", "%d calls cancelled at the backend that nobody had given up", sum.amiss.Load())
	s.tell("%.0f calls a second", float64(calls+gave)/time.Since(began).Seconds())
	if first := sum.first.Load(); first != nil {
		s.note("the first: %s", *first)
	}
}

// crosses is what went to the wrong place, and how much there was of it all.
type crosses struct {
	answered, cancelled, heard                atomic.Int64
	bodies, progress, sessions, failed, amiss atomic.Int64
	first                                     atomic.Pointer[string]
}

// found counts something that went wrong, and keeps the first.
func (x *crosses) found(at *atomic.Int64, format string, args ...any) {
	at.Add(1)
	text := fmt.Sprintf(format, args...)
	x.first.CompareAndSwap(nil, &text)
}

// given is the calls that their clients have given up, by their text.
type given struct {
	mu    sync.Mutex
	calls map[string]bool
}

func (g *given) up(text string) {
	g.mu.Lock()
	g.calls[text] = true
	g.mu.Unlock()
}

func (g *given) has(text string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[text]
}

// crossCell runs both tenants in one pairing of the eras.
func (s *storm) crossCell(ctx context.Context, front, back kit.Era, count int, sum *crosses) {
	up := &given{calls: map[string]bool{}}
	b := s.newBackend(back, func(b *kit.Backend) {
		b.Arrived = func(t *kit.Task) {
			// A legacy client has a session of its own with the backend.
			if tenant, _, _ := strings.Cut(t.Text, " "); front == kit.Legacy && back == kit.Legacy && t.Client != tenant {
				sum.found(&sum.sessions, "call %q in the session of %q", t.Text, t.Client)
			}
		}
		b.Left = func(t *kit.Task, err error) {
			if errors.Is(err, kit.ErrCancelled) && !up.has(t.Text) {
				sum.found(&sum.amiss, "call %q was cancelled and its client still waited", t.Text)
			}
		}
	})
	e := s.start(ctx, b.Addr)
	defer e.Stop()
	errs := make(chan error, 2*lanes)
	for i, name := range []string{"alpha", "beta"} {
		t := &tenant{name: name, addr: e.Addr, era: front, from: 10 * i, sum: sum, up: up}
		if front == kit.Legacy {
			c := kit.Must(kit.Dial(ctx, e.Addr, kit.Legacy, kit.DialOptions{From: t.from}))
			err := c.Begin(name)
			c.Close()
			kit.Check(err)
			t.session = c.Session
		}
		for lane := range lanes {
			go func() { errs <- t.lane(ctx, lane, count) }() // ends with its last call
		}
	}
	var err error
	for range 2 * lanes {
		err = errors.Join(err, <-errs)
	}
	kit.Check(err)
}

// tenant is one of the two who must not hear of each other.
type tenant struct {
	name    string
	addr    string
	era     kit.Era
	session string
	from    int
	sum     *crosses
	up      *given
}

// lane makes every so many-th call of the tenant, on a connection of its own.
// The ids of the calls are those of the other tenant's.
func (t *tenant) lane(ctx context.Context, lane, count int) error {
	var c *kit.Client
	defer func() { c.Close() }()
	dice := rand.New(rand.NewPCG(uint64(lane), 7)) // the same for both tenants
	for id := lane + 1; id <= count && ctx.Err() == nil; id += lanes {
		if c == nil {
			var err error
			if c, err = kit.Dial(ctx, t.addr, t.era, kit.DialOptions{From: t.from + lane}); err != nil {
				return err
			}
			c.Session = t.session
		}
		one := kit.Work{Text: fmt.Sprintf("%s %d.", t.name, id)}
		quit := dice.IntN(10) == 0
		switch steps := dice.IntN(4); {
		case quit:
			one.Ms, one.Steps = 2000, 1 // nobody waits for its end
		case steps > 0:
			one.Steps, one.Ms = steps, dice.IntN(3)
		}
		c.Wait(kit.Patience)
		var keep bool
		var err error
		if quit {
			keep, err = t.giveUp(ctx, c, id, one)
		} else {
			keep, err = t.make(c, id, one)
		}
		if err != nil {
			t.sum.found(&t.sum.failed, "%s, call %d: %v", t.name, id, err)
		}
		if !keep || err != nil {
			c.Close()
			c = nil
		}
	}
	return ctx.Err()
}

// make makes a call and looks at everything that comes back on its connection.
func (t *tenant) make(c *kit.Client, id int, one kit.Work) (keep bool, err error) {
	name := strconv.Itoa(id)
	a, err := c.Do(c.CallText(name, one, name))
	if err != nil {
		return false, err
	}
	t.sum.answered.Add(1)
	events := a.Events()
	for _, data := range events[:max(len(events)-1, 0)] {
		t.hear(name, data)
	}
	m := a.Text()
	switch {
	case a.Status != 200 || !bytes.Contains(m, []byte(`"result"`)):
		return false, fmt.Errorf("HTTP %d: %.200s", a.Status, m)
	case !bytes.Contains(m, []byte(`"id":`+name+`,`)) || !bytes.Contains(m, []byte(`"text":"`+one.Text+`"`)):
		t.sum.found(&t.sum.bodies, "%s, call %s got %.200s", t.name, name, m)
	}
	if n := len(events) - 1; n >= 0 && n != one.Steps {
		t.sum.found(&t.sum.progress, "%s, call %s got %d progress messages of %d", t.name, name, n, one.Steps)
	}
	return !a.Closes, nil
}

// hear looks at a progress message: its token and whose call it is about.
func (t *tenant) hear(name string, data []byte) {
	var m struct {
		Method string `json:"method"`
		Params struct {
			ProgressToken json.RawMessage `json:"progressToken"`
			Message       string          `json:"message"`
		} `json:"params"`
	}
	if err := json.Unmarshal(data, &m); err != nil || m.Method != "notifications/progress" {
		return // the first event of a stream has no data, and others are not looked at
	}
	t.sum.heard.Add(1)
	if string(m.Params.ProgressToken) != name || m.Params.Message != t.name+" "+name+"." {
		t.sum.found(&t.sum.progress, "%s, call %s heard %.200s", t.name, name, data)
	}
}

// giveUp begins a call, waits for its first progress, and gives it up: a
// legacy client says so on another connection, a modern one closes this one.
func (t *tenant) giveUp(ctx context.Context, c *kit.Client, id int, one kit.Work) (keep bool, err error) {
	name := strconv.Itoa(id)
	in, err := c.Stream(c.CallText(name, one, name))
	if err != nil {
		return false, err
	}
	data, err := in.Next()
	if err != nil {
		return false, err
	}
	t.hear(name, data)
	t.up.up(one.Text)
	t.sum.cancelled.Add(1)
	if t.era == kit.Modern {
		return false, nil
	}
	other, err := kit.Dial(ctx, t.addr, kit.Legacy, kit.DialOptions{From: t.from})
	if err != nil {
		return false, err
	}
	defer other.Close()
	other.Session = t.session
	a, err := other.Try("POST", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+name+`,"reason":"given up"}}`)
	if err != nil || a.Status != 202 {
		return false, fmt.Errorf("notifications/cancelled: HTTP %d: %w", a.Status, err)
	}
	// The stream ends without an answer, and well before the call would have.
	for {
		data, err := in.Next()
		if errors.Is(err, io.EOF) {
			return !c.Answer.Closes, nil
		}
		if err != nil {
			return false, err
		}
		if bytes.Contains(data, []byte(`"result"`)) {
			return false, fmt.Errorf("an answer to a call that was given up: %.200s", data)
		}
	}
}
