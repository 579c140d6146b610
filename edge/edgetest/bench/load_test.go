package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// serve runs a server on an address of its own until the test ends.
func serve(t *testing.T, s *fasthttp.Server) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = ln.Addr().String()
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		ln.Close()
		if err := <-done; err != nil && !strings.Contains(err.Error(), "closed") {
			t.Errorf("serve: %v", err)
		}
	})
	return addr
}

func serveBackend(t *testing.T, b *kit.Backend) string {
	t.Helper()
	t.Cleanup(b.Close)
	addr, err := b.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// Both eras, both kinds of answer, directly and through the bare proxy: every
// call is answered with its own id and echo, reaches the backend once, and
// needs no connection beyond those of the load.
func TestLoad(t *testing.T) {
	const calls, conns = 200, 4
	for _, e := range []kit.Era{kit.Modern, kit.Legacy} {
		for _, speaks := range []kit.Era{e, kit.Both} {
			for _, sse := range []bool{false, true} {
				for _, through := range []string{direct, bare} {
					t.Run(fmt.Sprintf("%s client, %s backend, sse %v, %s", e, speaks, sse, through), func(t *testing.T) {
						b := newBackend(speaks, 2)
						b.SSE, b.Slow = sse, time.Millisecond
						addr := serveBackend(t, b)
						if through == bare {
							addr = serve(t, newBare(addr))
						}
						f, err := openFleet(t.Context(), addr, e, conns)
						if err != nil {
							t.Fatal(err)
						}
						defer f.hangUp()
						if _, err := f.drive(t.Context(), "slow", conns); err != nil {
							t.Fatal(err)
						}
						before := b.Counts()
						r, err := f.drive(t.Context(), "echo", calls)
						if err != nil {
							t.Fatal(err)
						}
						seen := b.Counts().Since(before)
						if len(r.latencies) != calls || r.latencies[0] <= 0 || r.elapsed < r.latencies[0] {
							t.Errorf("%d latencies from %s within %s", len(r.latencies), r.latencies[0], r.elapsed)
						}
						if seen.Methods["tools/call"] != calls || seen.Requests() != calls || len(seen.Refused) != 0 {
							t.Errorf("the backend saw %+v", seen)
						}
						if total := b.Counts().Connections; total > 2*conns {
							t.Errorf("%d connections to the backend for %d clients", total, conns)
						}
						if err := f.close(); err != nil {
							t.Error(err)
						}
						if n := b.Counts().Sessions; n != 0 {
							t.Errorf("%d sessions are left", n)
						}
					})
				}
			}
		}
	}
}

// The answer to a call has the size that the bars were set with.
func TestAnswerSize(t *testing.T) {
	for _, e := range []kit.Era{kit.Modern, kit.Legacy} {
		addr := serveBackend(t, newBackend(e, 2))
		f, err := openFleet(t.Context(), addr, e, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer f.hangUp()
		if _, err := f.drive(t.Context(), "echo", 1); err != nil {
			t.Fatal(err)
		}
		if n := len(f.clients[0].Answer.Body); n != answerSize {
			t.Errorf("%s: %d bytes, want %d: %s", e, n, answerSize, f.clients[0].Answer.Body)
		}
	}
}

// A load that is lied to says so instead of measuring it.
func TestLoadNoticesWrongAnswers(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*fasthttp.RequestCtx)
		wrong string
	}{
		{"another id", func(ctx *fasthttp.RequestCtx) {
			ctx.Response.SetBody(bytes.Replace(ctx.Response.Body(), []byte(`"id":`), []byte(`"id":1`), 1))
		}, "answer: id"},
		{"another echo", func(ctx *fasthttp.RequestCtx) {
			ctx.Response.SetBody(bytes.Replace(ctx.Response.Body(), []byte("call "), []byte("call 0"), 1))
		}, "no echo"},
		{"a status", func(ctx *fasthttp.RequestCtx) { ctx.SetStatusCode(500) }, "status 500"},
		{"a content type", func(ctx *fasthttp.RequestCtx) { ctx.SetContentType("text/html") }, "neither application/json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pass := newBare(serveBackend(t, newBackend(kit.Modern, 2))).Handler
			addr := serve(t, &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
				pass(ctx)
				c.spoil(ctx)
			}})
			f, err := openFleet(t.Context(), addr, kit.Modern, 2)
			if err != nil {
				t.Fatal(err)
			}
			defer f.hangUp()
			if _, err := f.drive(t.Context(), "echo", 50); err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%v, want an error about %q", err, c.wrong)
			}
		})
	}
}

// The end of the context ends a load whose answers do not come.
func TestLoadIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f, err := openFleet(ctx, ln.Addr().String(), kit.Modern, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.hangUp()
	silent, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	go func() { // ends when the call has come
		_, _ = silent.Read(make([]byte, 1))
		cancel()
	}()
	if _, err := f.drive(ctx, "echo", 1); err != context.Canceled {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}
