//go:build unix

package kv_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// What clients of two stores on one Redis see, while the network between them
// does harm, must be what one store that does one thing after the other could
// have shown them. A call that ended in an error may have been done, at any
// time until the end, or not at all.

// done is what became of a call: what it saw, or that nobody knows.
type done struct {
	unknown bool
	saw     string
}

// model is a store that does one thing after the other: which states an input
// may lead to, and what it shows.
type model struct {
	start string
	step  func(state, input string) (next, shows string)
	many  bool // its histories may have more orders than can be tried
}

func (m model) check(history []porcupine.Operation) porcupine.CheckResult {
	n := porcupine.NondeterministicModel{
		Init: func() []any { return []any{m.start} },
		Step: func(state, input, output any) []any {
			next, shows := m.step(state.(string), input.(string))
			switch out := output.(done); {
			case out.unknown && strings.Contains(input.(string), "#"):
				return []any{next}
			case out.unknown:
				return []any{state, next}
			case out.saw == shows:
				return []any{next}
			}
			return nil
		},
	}
	within := 30 * time.Second // a busy machine is no reason for no verdict
	if m.many {
		within = 5 * time.Second
	}
	return porcupine.CheckOperationsTimeout(n.ToModel(), history, within)
}

// values is a session's record: read, written, appended to, removed. A state of
// "" is no value.
var values = model{step: func(state, input string) (string, string) {
	what, arg, _ := strings.Cut(input, " ")
	switch what {
	case "put":
		return arg, ""
	case "append":
		return state + arg, state
	case "delete":
		return "", ""
	}
	return state, state // get
}}

// codes are what may be used once: made, and used by who finds them.
var codes = model{step: func(state, input string) (string, string) {
	if input == "make" {
		return "there", ""
	}
	if state == "there" {
		return "", "used"
	}
	return "", "nothing"
}}

// buckets are two that do not fill while the history lasts; a state is a letter
// for each token in either, and then what is known of the takings that nobody
// heard of: "ab#5" takes as number 5, and "+ab#5" gives back what that took, or
// has it take nothing when it comes later.
var buckets = model{start: "aaaabbbbbb", many: true, step: func(state, input string) (string, string) {
	tokens, marks, _ := strings.Cut(state, "|")
	input, number, unheard := strings.Cut(input, "#")
	took, void := "!"+number+";", "~"+number+";"
	if back, ok := strings.CutPrefix(input, "+"); ok {
		if !strings.Contains(marks, took) {
			return tokens + "|" + marks + void, ""
		}
		all := []byte(tokens + back)
		slices.Sort(all)
		return string(all) + "|" + strings.Replace(marks, took, "", 1), ""
	}
	if unheard && strings.Contains(marks, void) {
		return state, "nothing"
	}
	for _, b := range input {
		if !strings.ContainsRune(tokens, b) {
			return state, "short"
		}
	}
	for _, b := range input {
		i := strings.IndexRune(tokens, b)
		tokens = tokens[:i] + tokens[i+1:]
	}
	if unheard {
		marks += took
	}
	return tokens + "|" + marks, "taken"
}}

// do does to a store what an input of a model says, under a key of its own.
func do(t *testing.T, s edge.Store, key, input string) (string, error) {
	ctx := t.Context()
	what, arg, _ := strings.Cut(input, " ")
	saw := ""
	switch what {
	case "get":
		v, err := s.Get(ctx, key)
		return string(v), err
	case "put":
		return "", s.Put(ctx, key, []byte(arg), time.Hour)
	case "delete":
		return "", s.Delete(ctx, key)
	case "append":
		err := s.Update(ctx, key, time.Hour, func(old []byte) ([]byte, error) {
			saw = string(old)
			return append(old, arg...), nil
		})
		return saw, err
	case "make":
		return "", s.Put(ctx, key, []byte("code"), time.Hour)
	case "use":
		err := s.Update(ctx, key, time.Hour, func(old []byte) ([]byte, error) {
			if saw = "nothing"; old != nil {
				saw = "used"
			}
			return nil, nil
		})
		return saw, err
	}
	var from []edge.Bucket
	for _, b := range what {
		from = append(from, edge.Bucket{Key: "rl:{" + key + "}:" + string(b), Capacity: int32(strings.Count(buckets.start, string(b))), Refill: 10000 * time.Hour})
	}
	_, short, err := s.Take(ctx, from...)
	if short >= 0 {
		return "short", err
	}
	return "taken", err
}

// TestG37Histories: 100 histories of values, codes and buckets, over two stores
// on one Redis behind a network that delays, breaks and resets. One of buckets in
// which many tokens were given back can have more orders than are tried in its
// time; those are counted, and may not be many.
func TestG37Histories(t *testing.T) {
	r := kvtest.Redis(t)
	kinds := []struct {
		name   string
		model  model
		inputs []string
	}{
		{"values", values, []string{"get", "get", "put x", "put yy", "append z", "append w", "delete"}},
		{"codes", codes, []string{"make", "use", "use"}},
		{"buckets", buckets, []string{"a", "b", "ab", "ab"}},
	}
	var mu sync.Mutex
	calls, unknown, untried := 0, 0, 0
	limit := make(chan struct{}, 4)
	var all sync.WaitGroup
	for i := range 100 {
		limit <- struct{}{}
		all.Go(func() {
			defer func() { <-limit }()
			kind := kinds[i%len(kinds)]
			history, lost := record(t, r.Addr, fmt.Sprintf("history:%d", i), kind.inputs, uint64(i))
			mu.Lock()
			calls, unknown = calls+len(history), unknown+lost
			mu.Unlock()
			got := kind.model.check(history)
			if got == porcupine.Unknown && kind.name == "buckets" {
				mu.Lock()
				untried++
				mu.Unlock()
			} else if got != porcupine.Ok {
				t.Errorf("history %d, of %s: %s", i, kind.name, got)
				for _, o := range history {
					t.Logf("client %d, %8d to %8d µs: %s: %+v", o.ClientId, o.Call/1000, o.Return/1000, o.Input, o.Output)
				}
			}
		})
	}
	all.Wait()
	t.Logf("100 histories, %d calls, of which %d ended in an error; %d histories of buckets have more orders than were tried", calls, unknown, untried)
	if untried > 11 {
		t.Errorf("%d of 33 histories of buckets were not decided", untried)
	}
	if unknown == 0 || unknown > calls*3/4 {
		t.Errorf("of %d calls %d ended in an error: the network does too little or too much", calls, unknown)
	}
}

// record has four clients, two at each of two stores, make calls at the same
// time while the network does harm. It returns how many of the calls ended in
// an error.
func record(t *testing.T, addr, key string, inputs []string, seed uint64) ([]porcupine.Operation, int) {
	const clients, each = 4, 7
	w := kvtest.NewWire(t, addr)
	var stores []*kv.RedisStore
	for range 2 {
		s := open(t, kv.Options{Addresses: []string{w.Addr}, Timeout: 150 * time.Millisecond, Failures: 1000})
		ready(t, s)
		stores = append(stores, s)
	}
	stop := w.Harm(seed)
	var mu sync.Mutex
	var history []porcupine.Operation
	lost := 0
	began := time.Now()
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			choice := rand.New(rand.NewPCG(seed, uint64(c)+2))
			for range each {
				one := porcupine.Operation{ClientId: c, Input: inputs[choice.IntN(len(inputs))], Call: int64(time.Since(began))}
				saw, err := do(t, stores[c%2], key, one.Input.(string))
				one.Return, one.Output = int64(time.Since(began)), done{saw: saw}
				mu.Lock()
				if err != nil {
					one.Return, one.Output = math.MaxInt64, done{unknown: true}
					lost++
					if input := one.Input.(string); strings.Trim(input, "ab") == "" { // tokens, which are given back
						number := fmt.Sprint("#", len(history))
						one.Input = input + number
						back := one
						back.Input, back.Call = "+"+input+number, int64(time.Since(began))
						history = append(history, back)
					}
				}
				history = append(history, one)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	stop()
	return history, lost
}

// The check finds what no store that does one thing after the other shows.
func TestHistoriesThatCannotBe(t *testing.T) {
	op := func(from, to int64, input, saw string) porcupine.Operation {
		return porcupine.Operation{Input: input, Call: from, Return: to, Output: done{saw: saw}}
	}
	for name, one := range map[string]struct {
		model   model
		history []porcupine.Operation
	}{
		"a value that was overwritten": {values, []porcupine.Operation{op(0, 1, "put x", ""), op(2, 3, "put yy", ""), op(4, 5, "get", "x")}},
		"an append that was lost":      {values, []porcupine.Operation{op(0, 9, "append z", ""), op(0, 9, "append w", ""), op(10, 11, "get", "z")}},
		"a code that was used twice":   {codes, []porcupine.Operation{op(0, 1, "make", ""), op(2, 9, "use", "used"), op(2, 9, "use", "used")}},
		"a token too many": {buckets, []porcupine.Operation{
			op(0, 1, "a", "taken"), op(2, 3, "a", "taken"), op(4, 5, "a", "taken"), op(6, 7, "a", "taken"), op(8, 9, "ab", "taken"),
		}},
		"half of two tokens": {buckets, []porcupine.Operation{
			op(0, 1, "a", "taken"), op(2, 3, "a", "taken"), op(4, 5, "a", "taken"), op(6, 7, "a", "short"),
		}},
	} {
		if got := one.model.check(one.history); got != porcupine.Illegal {
			t.Errorf("%s: %s", name, got)
		}
	}
}
