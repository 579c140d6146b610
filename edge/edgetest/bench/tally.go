package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxSessions bounds the sessions that a backend keeps.
const maxSessions = 1 << 18

// counts is what a backend has seen since its start, as /counts shows it.
type counts struct {
	Connections int64            `json:"connections"` // accepted, without those that only asked for counts
	Sessions    int              `json:"sessions"`    // running now
	Streams     int64            `json:"streams"`     // GET streams open now
	Methods     map[string]int64 `json:"methods"`     // requests by JSON-RPC method; GET and DELETE by their own name
	Refused     map[string]int64 `json:"refused"`     // requests answered with an HTTP error, by reason
}

// tally counts for a backend and holds its sessions. It is safe for concurrent
// use; connections and streams are apart from the lock.
type tally struct {
	accepted atomic.Int64
	controls atomic.Int64
	streams  atomic.Int64

	mu       sync.RWMutex
	sessions map[string]struct{}
	methods  map[string]int64
	reasons  map[string]int64
}

func newTally() *tally {
	return &tally{sessions: map[string]struct{}{}, methods: map[string]int64{}, reasons: map[string]int64{}}
}

func (t *tally) control()        { t.controls.Add(1) }
func (t *tally) streaming(n int) { t.streams.Add(int64(n)) }

func (t *tally) method(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.methods[name]++
}

func (t *tally) refused(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reasons[reason]++
}

// begin makes a session, unless there are too many.
func (t *tally) begin() (id string, ok bool) {
	id = rand.Text()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.sessions) >= maxSessions {
		return "", false
	}
	t.sessions[id] = struct{}{}
	return id, true
}

func (t *tally) running(id []byte) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, ok := t.sessions[string(id)]
	return ok
}

func (t *tally) end(id []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.sessions, string(id))
}

func (t *tally) counts() counts {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return counts{
		Connections: t.accepted.Load() - t.controls.Load(),
		Sessions:    len(t.sessions),
		Streams:     t.streams.Load(),
		Methods:     maps.Clone(t.methods),
		Refused:     maps.Clone(t.reasons),
	}
}

func (t *tally) json() []byte {
	text, err := json.Marshal(t.counts())
	if err != nil {
		return []byte("{}") // numbers and strings always marshal
	}
	return text
}

// countedListener counts what it accepts.
type countedListener struct {
	net.Listener
	tally *tally
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.tally.accepted.Add(1)
	}
	return c, err
}

// readCounts asks a backend for its counts.
func readCounts(ctx context.Context, addr string) (counts, error) {
	var c counts
	text, err := httpGet(ctx, "http://"+addr+"/counts", 10*time.Second)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		return c, fmt.Errorf("counts: %w", err)
	}
	return c, nil
}

// httpGet reads a small page of one of the processes of the run over a
// connection of its own. Any status but 200 is an error.
func httpGet(ctx context.Context, url string, limit time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return text, nil
}

// since returns what came to c after before.
func (c counts) since(before counts) counts {
	minus := func(a, b map[string]int64) map[string]int64 {
		out := map[string]int64{}
		for k, v := range a {
			if v != b[k] {
				out[k] = v - b[k]
			}
		}
		return out
	}
	return counts{
		Connections: c.Connections - before.Connections,
		Sessions:    c.Sessions - before.Sessions,
		Streams:     c.Streams - before.Streams,
		Methods:     minus(c.Methods, before.Methods),
		Refused:     minus(c.Refused, before.Refused),
	}
}

// requests is the number of requests of every kind.
func (c counts) requests() (n int64) {
	for _, v := range c.Methods {
		n += v
	}
	return n
}

// check holds what reached a backend during a number of calls against P4: each
// call once, nothing else, over connections that were open already. Health
// probes (ping, server/discover) are not per call: one a second of each backend
// is let pass, and each may open one connection. So is the GET by which an edge
// listens to each of several legacy backends.
func (c counts) check(calls, backends int, elapsed time.Duration) error {
	var wrong []string
	if n := c.Methods["tools/call"]; n != int64(calls) {
		wrong = append(wrong, fmt.Sprintf("%d tools/call for %d calls", n, calls))
	}
	var probes int64
	for _, m := range slices.Sorted(maps.Keys(c.Methods)) {
		switch m {
		case "tools/call":
		case "ping", "server/discover":
			probes += c.Methods[m]
		case "GET":
			if backends > 1 {
				probes += c.Methods[m]
				continue
			}
			fallthrough
		default:
			wrong = append(wrong, fmt.Sprintf("%d × %s", c.Methods[m], m))
		}
	}
	if most := (1 + int64(elapsed/time.Second)) * int64(backends); probes > most {
		wrong = append(wrong, fmt.Sprintf("%d probes within %s", probes, elapsed.Round(time.Millisecond)))
	}
	if c.Connections > probes {
		wrong = append(wrong, fmt.Sprintf("%d new connections", c.Connections))
	}
	for _, reason := range slices.Sorted(maps.Keys(c.Refused)) {
		wrong = append(wrong, fmt.Sprintf("%d refused: %s", c.Refused[reason], reason))
	}
	if wrong != nil {
		return fmt.Errorf("counts: %s", strings.Join(wrong, ", "))
	}
	return nil
}
