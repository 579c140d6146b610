package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/wire"
)

// keyed attaches a line with a value of the moment, whose length is the generation.
func keyed(value func() (edge.Secret, error)) func(*Config) {
	return func(c *Config) {
		c.Credential = &edge.Credential{Headers: []string{"X-Key"}, Attach: func(_ context.Context, _ *edge.Outbound, set func(string, edge.Secret)) (uint64, error) {
			v, err := value()
			if err == nil {
				set("X-Key", v)
			}
			return uint64(len(v)), err
		}}
	}
}

// What cannot be had keeps the request from being sent, and costs no connection.
func TestNoRequestWithoutItsCredential(t *testing.T) {
	var got atomic.Int64
	missing := errors.New("no key")
	b := open(t, func(http.ResponseWriter, *http.Request) { got.Add(1) }, keyed(func() (edge.Secret, error) {
		return "", &edge.Error{Kind: edge.Unavailable, Op: "attach", Err: missing}
	}))
	for range 3 {
		if _, err := b.Introduced(t.Context(), nil); !errors.Is(err, missing) {
			t.Fatal(err)
		}
	}
	if got.Load() != 0 || b.peer.pool.Open() != 0 {
		t.Errorf("%d requests, %d connections", got.Load(), b.peer.pool.Open())
	}
}

// A server that refuses initialize without a status that says so tells nobody the credential that
// it was sent.
func TestRefusalHidesTheCredential(t *testing.T) {
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body) // one that is cut is no message
		m, err := mcp.Decode(text)
		if err != nil {
			w.WriteHeader(405)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"no such key: %s"}}`, m.IDText(), r.Header.Get("X-Key"))
	}, keyed(func() (edge.Secret, error) { return "sk-0123456789", nil }))
	const want = `call: refuses initialize (error -32603), and says "no such key: REDACTED"`
	if _, err := b.Introduced(t.Context(), nil); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// Close says when what a credential holds may end.
func TestCredentialEndsWithItsBackend(t *testing.T) {
	told := 0
	b := open(t, func(http.ResponseWriter, *http.Request) {}, func(c *Config) { c.Done = func() { told++ } })
	for range 2 {
		b.Close()
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}

// The body of a request that is sent again is the same.
func TestRequestIsSentAgainWhole(t *testing.T) {
	var key atomic.Value
	key.Store(edge.Secret("old"))
	bodies := make(chan string, 3)
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body) // what is missing is seen below
		bodies <- r.Header.Get("X-Key") + " " + string(text)
		if r.Header.Get("X-Key") != "newer" {
			key.Store(edge.Secret("newer"))
			w.WriteHeader(401)
		}
	}))
	defer back.Close()
	u, err := url.Parse(back.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{MaxMessage: 1000}
	keyed(func() (edge.Secret, error) { return key.Load().(edge.Secret), nil })(&c)
	p := newPeer(u, wire.New(u, nil, true, 0), &c)
	defer p.pool.Close()
	r, _, err := p.send(t.Context(), &outgoing{method: "POST", body: []byte(`{"a":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	r.close()
	if r.status != 200 || len(bodies) != 2 {
		t.Fatalf("%d, %d requests", r.status, len(bodies))
	}
	if one, two := <-bodies, <-bodies; one != `old {"a":1}` || two != `newer {"a":1}` {
		t.Errorf("%q, %q", one, two)
	}
}

// Who has to sign in again for a credential that is taken hears so: the refusal says nothing of that.
func TestRefusedCredentialWantsALogin(t *testing.T) {
	var got atomic.Int64
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		got.Add(1)
		w.WriteHeader(401)
	}, func(c *Config) {
		c.Credential = &edge.Credential{Headers: []string{"X-Key"}, Attach: func(_ context.Context, o *edge.Outbound, set func(string, edge.Secret)) (uint64, error) {
			if o.Refused {
				return 0, edge.Errorf(edge.Unauthenticated, "attach", "sign in again")
			}
			set("X-Key", "revoked")
			return 1, nil
		}}
	})
	if _, err := b.Introduced(t.Context(), nil); edge.KindOf(err) != edge.Unauthenticated || got.Load() == 0 {
		t.Errorf("%v after %d requests", err, got.Load())
	}
}
