package kit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"
)

// Counts is what a backend has seen since its start, as its page /counts shows
// it.
type Counts struct {
	Connections int64            `json:"connections"` // accepted, without those that only asked for counts
	Sessions    int              `json:"sessions"`    // running now
	Streams     int64            `json:"streams"`     // streams that belong to no call, open now
	Methods     map[string]int64 `json:"methods"`     // requests by JSON-RPC method; GET and DELETE by their own name
	Refused     map[string]int64 `json:"refused"`     // requests answered with an HTTP error, by reason
}

// count adds one under a name; of holds b's own counts.
func (b *Backend) count(of map[string]int64, name string) {
	b.mu.Lock()
	of[name]++
	b.mu.Unlock()
}

// Counts returns what it has seen.
func (b *Backend) Counts() Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Counts{
		Connections: b.accepted.Load() - b.controls.Load(),
		Sessions:    len(b.sessions),
		Streams:     b.streams.Load(),
		Methods:     maps.Clone(b.methods),
		Refused:     maps.Clone(b.refused),
	}
}

func (b *Backend) page() []byte {
	text, err := json.Marshal(b.Counts())
	if err != nil {
		return []byte("{}") // numbers and strings always marshal
	}
	return text
}

// CountsAt asks a backend in another process for its counts.
func CountsAt(ctx context.Context, addr string) (c Counts, err error) {
	status, text := Get(ctx, "http://"+addr+"/counts", 10*time.Second)
	if status != http.StatusOK {
		return c, fmt.Errorf("counts: HTTP %d", status)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("counts: %w", err)
	}
	return c, nil
}

// Since returns what came to c after before.
func (c Counts) Since(before Counts) Counts {
	minus := func(a, b map[string]int64) map[string]int64 {
		out := map[string]int64{}
		for k, v := range a {
			if v != b[k] {
				out[k] = v - b[k]
			}
		}
		return out
	}
	return Counts{
		Connections: c.Connections - before.Connections,
		Sessions:    c.Sessions - before.Sessions,
		Streams:     c.Streams - before.Streams,
		Methods:     minus(c.Methods, before.Methods),
		Refused:     minus(c.Refused, before.Refused),
	}
}

// Requests is the number of requests of every kind.
func (c Counts) Requests() (n int64) {
	for _, v := range c.Methods {
		n += v
	}
	return n
}

// Get reads a small page of a process over a connection of its own; status is 0
// when there was no answer.
func Get(ctx context.Context, url string, within time.Duration) (status int, body []byte) {
	return Ask(ctx, http.MethodGet, url, within)
}

// Ask is Get with another method, without a body.
func Ask(ctx context.Context, method, url string, within time.Duration) (status int, body []byte) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return 0, nil
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return 0, nil
	}
	return resp.StatusCode, body
}
