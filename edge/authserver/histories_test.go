//go:build unix

package authserver_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// What clients of two replicas see of one code, and of one grant, while the network before their
// Redis does harm, must be what one replica that does one thing after the other could have shown
// them. A request that was answered with 503 may have been done, at any time until the end, or
// not at all.

// shown is what became of a request: what was seen, or that nobody knows.
type shown struct {
	unknown bool
	saw     string
}

// A code is there, or it has been spent, which a wrong verifier does too.
func stepCode(state, input string) (next, saw string) {
	if state == "spent" {
		return "spent", "invalid_grant"
	}
	if input == "wrong" {
		return "spent", "invalid_grant"
	}
	return "spent", "tokens"
}

// stepGrant is a grant whose refresh token is of a generation, in the time in which the one
// before it is answered with it; a state of "" is no grant.
func stepGrant(state, input string) (next, saw string) {
	if state == "" {
		return "", map[bool]string{true: "done", false: "invalid_grant"}[input == "revoke"]
	}
	if input == "revoke" {
		return "", "done"
	}
	now, _ := strconv.Atoi(state)
	shows, _ := strconv.Atoi(input)
	switch shows {
	case now:
		return strconv.Itoa(now + 1), strconv.Itoa(now + 1)
	case now - 1:
		return state, state
	}
	return "", "invalid_grant" // one that is older, or that nobody has been given, ends it
}

// possible checks a history against one that does one thing after the other.
func possible(start string, step func(state, input string) (next, saw string), history []porcupine.Operation) porcupine.CheckResult {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{start} },
		Step: func(state, input, output any) []any {
			next, saw := step(state.(string), input.(string))
			switch out := output.(shown); {
			case out.unknown:
				return []any{state, next}
			case out.saw == saw:
				return []any{next}
			}
			return nil
		},
	}
	return porcupine.CheckOperationsTimeout(m.ToModel(), history, 30*time.Second)
}

// TestG37Histories: 100 histories of codes and of grants over two replicas on one Redis behind a
// network that delays, breaks and resets: each is one that could be.
func TestG37Histories(t *testing.T) {
	s, server := onRedis(t) // where users sign in
	client := s.client()
	// Time stands still, so that a slow machine does not end the time in which the token before the
	// current one is answered.
	s.clock.stops()
	calls, unknown := 0, 0
	for i := range 100 {
		w := kvtest.NewWire(t, server.Addr)
		through := &place{name: "wire", all: s.place.all, options: kv.Options{Addresses: []string{w.Addr}, Failures: 1000}}
		h := &scene{t: t, place: through, hub: s.hub, clock: s.clock, kept: s.kept}
		h.replica(150 * time.Millisecond)
		h.replica(150 * time.Millisecond)
		var history []porcupine.Operation
		var lost int
		kind, start, step := "code", "there", stepCode
		if i%2 == 0 {
			code := s.code(client)
			history, lost = h.record(w, uint64(i), func(r *rig, choice *rand.Rand, _ *latest) (string, *httptest.ResponseRecorder) {
				q := redeeming(client, code)
				if choice.IntN(8) == 0 {
					q.Set("code_verifier", strings.Repeat("w", 43))
					return "wrong", r.post("/oauth/token", q)
				}
				return "right", r.post("/oauth/token", q)
			})
		} else {
			kind, start, step = "grant", "1", stepGrant
			first := s.login(client)
			generation := func(token string) string {
				text, _, _ := strings.Cut(token[strings.IndexByte(token, '.')+1:], ".")
				return text
			}
			if generation(first.Refresh) != "1" {
				t.Fatalf("a first refresh token %q", first.Refresh)
			}
			history, lost = h.record(w, uint64(i), func(r *rig, choice *rand.Rand, l *latest) (string, *httptest.ResponseRecorder) {
				token := l.pick(choice, first.Refresh)
				if choice.IntN(20) == 0 {
					return "revoke", r.post("/oauth/revoke", map[string][]string{"token": {token}, "client_id": {client}})
				}
				w := r.post("/oauth/token", refreshing(client, token))
				var got struct {
					Refresh string `json:"refresh_token"`
				}
				if json.Unmarshal(w.Body.Bytes(), &got) == nil && got.Refresh != "" {
					l.add(got.Refresh)
					w.Header().Set("Generation", generation(got.Refresh))
				}
				return generation(token), w
			})
		}
		calls, unknown = calls+len(history), unknown+lost
		if got := possible(start, step, history); got != porcupine.Ok {
			t.Errorf("history %d, of a %s: %s", i, kind, got)
			for _, o := range history {
				t.Logf("client %d, %8d to %8d µs: %s: %+v", o.ClientId, o.Call/1000, o.Return/1000, o.Input, o.Output)
			}
		}
	}
	t.Logf("100 histories, %d requests, of which %d ended in a 503", calls, unknown)
	if unknown == 0 || unknown > calls*3/4 {
		t.Errorf("of %d requests %d ended in a 503: the network does too little or too much", calls, unknown)
	}
}

// latest are the refresh tokens that a grant has had, as far as anybody was told.
type latest struct {
	mu  sync.Mutex
	all []string
}

func (l *latest) add(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, token)
}

// pick is mostly the last one, and now and then an older one.
func (l *latest) pick(choice *rand.Rand, first string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return first
	}
	if choice.IntN(12) == 0 {
		return l.all[choice.IntN(len(l.all))]
	}
	return l.all[len(l.all)-1]
}

// record has four clients, two at each of two replicas, ask at the same time while the network
// does harm. It returns how many of the requests ended in a 503.
func (s *scene) record(w *kvtest.Wire, seed uint64, ask func(*rig, *rand.Rand, *latest) (string, *httptest.ResponseRecorder)) ([]porcupine.Operation, int) {
	const clients, each = 4, 6
	stop := w.Harm(seed)
	var mu sync.Mutex
	var history []porcupine.Operation
	lost := 0
	began := time.Now()
	tokens := &latest{}
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			choice := rand.New(rand.NewPCG(seed, uint64(c)+2))
			for range each {
				one := porcupine.Operation{ClientId: c, Call: int64(time.Since(began))}
				input, answer := ask(s.reps[c%2], choice, tokens)
				one.Return, one.Input = int64(time.Since(began)), input
				var body struct {
					Error string `json:"error"`
				}
				_ = json.Unmarshal(answer.Body.Bytes(), &body) // a revocation's answer is empty
				switch {
				case answer.Code == http.StatusServiceUnavailable:
					one.Return, one.Output = math.MaxInt64, shown{unknown: true}
				case answer.Header().Get("Generation") != "":
					one.Output = shown{saw: answer.Header().Get("Generation")}
				case input == "revoke" && answer.Code == http.StatusOK:
					one.Output = shown{saw: "done"}
				case answer.Code == http.StatusOK:
					one.Output = shown{saw: "tokens"}
				default:
					one.Output = shown{saw: body.Error}
				}
				mu.Lock()
				if one.Output.(shown).unknown {
					lost++
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

// The check finds what cannot be.
func TestHistoriesThatCannotBe(t *testing.T) {
	op := func(from, to int64, input, saw string) porcupine.Operation {
		return porcupine.Operation{Input: input, Call: from, Return: to, Output: shown{saw: saw}}
	}
	for name, one := range map[string]struct {
		start   string
		step    func(state, input string) (next, saw string)
		history []porcupine.Operation
	}{
		"a code that was redeemed twice":          {"there", stepCode, []porcupine.Operation{op(0, 9, "right", "tokens"), op(0, 9, "right", "tokens")}},
		"a code that a wrong verifier left":       {"there", stepCode, []porcupine.Operation{op(0, 1, "wrong", "invalid_grant"), op(2, 3, "right", "tokens")}},
		"two rotations of one token":              {"1", stepGrant, []porcupine.Operation{op(0, 9, "1", "2"), op(0, 9, "1", "3")}},
		"a token that is older than the last":     {"1", stepGrant, []porcupine.Operation{op(0, 1, "1", "2"), op(2, 3, "2", "3"), op(4, 5, "1", "3")}},
		"a grant that lives after its revocation": {"1", stepGrant, []porcupine.Operation{op(0, 1, "revoke", "done"), op(2, 3, "1", "2")}},
		"a grant that ended without a reason":     {"1", stepGrant, []porcupine.Operation{op(0, 1, "1", "2"), op(2, 3, "2", "invalid_grant")}},
		"a rotation that went backward":           {"1", stepGrant, []porcupine.Operation{op(0, 1, "1", "2"), op(2, 3, "1", "2"), op(4, 5, "2", "2")}},
	} {
		if got := possible(one.start, one.step, one.history); got != porcupine.Illegal {
			t.Errorf("%s: %s", name, got)
		}
	}
}
