package backend_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/mcp"
)

// slow is a client that hears nothing, and is asked and never answers.
type slow chan string // the methods of its questions

func (slow) Send(*mcp.Message) error { return nil }

func (s slow) Ask(ctx context.Context, all map[string]edge.Question) (map[string]edge.Answer, error) {
	for _, q := range all {
		s <- q.Method
		q.Sent()
	}
	<-ctx.Done()
	return nil, edge.Errorf(edge.Gone, "ask", "gone")
}

// What a backend says while a call or a session lasts is not kept however much of
// it there is.
func TestZ01WhatBackendsKeep(t *testing.T) {
	// Not parallel: nothing else may allocate.
	const size = 900 << 10 // MaxMessage is 1 MiB
	much := strings.Repeat("x", size)
	const few = 8 << 20

	t.Run("ids of events", func(t *testing.T) {
		back := edgetest.NewServer(t, edgetest.Legacy)
		sent, release := make(chan struct{}), make(chan struct{})
		back.Always("tools/call", func(c *edgetest.Call) {
			for i := range 60 {
				c.Raw(fmt.Sprintf("id: %d%s\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n", i, much))
			}
			c.Raw("id: last\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"error\",\"data\":\"x\"}}\n\n")
			close(sent)
			c.Wait(release)
			c.Result(`{"content":[]}`)
		})
		b := opened(t, back.URL)
		if _, err := b.Introduced(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		before := heap()
		heard, done := make(ears, 100), make(chan error, 1)
		go func() {
			_, err := b.Handle(t.Context(), modern(t, "1", "tools/call", `{"name":"x","arguments":{},"_meta":{"io.modelcontextprotocol/logLevel":"error"}}`, heard))
			done <- err
		}()
		edgetest.Receive(t, sent, "the events")
		edgetest.Until(t, "the events to be read", func() bool {
			select {
			case m := <-heard:
				return m.Method == "notifications/message"
			default:
				return false
			}
		})
		if grown := heap() - before; grown > few {
			t.Errorf("the ids of 60 events took %d MiB", grown>>20)
		}
		close(release)
		if err := edgetest.Receive(t, done, "the answer"); err != nil {
			t.Error(err)
		}
	})

	t.Run("questions that wait", func(t *testing.T) {
		back := edgetest.NewServer(t, edgetest.Legacy)
		const many = 60
		release := make(chan struct{})
		back.Always("tools/call", func(c *edgetest.Call) {
			for i := range many {
				c.Event(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{"message":"%s","requestedSchema":{}}}`, i, much))
			}
			c.Wait(release)
			c.Result(`{"content":[]}`)
		})
		b := opened(t, back.URL)
		if _, err := b.Introduced(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		before := heap()
		asked, done := make(slow, many), make(chan error, 1)
		x := modern(t, "1", "tools/call", `{"name":"x","arguments":{},"_meta":{"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}`, asked)
		x.Capabilities = []byte(`{"elicitation":{}}`)
		go func() {
			_, err := b.Handle(t.Context(), x)
			done <- err
		}()
		refused := func() (n int) {
			for _, r := range back.Requests("") {
				if strings.Contains(string(r.Body), "no further question can wait") {
					n++
				}
			}
			return n
		}
		edgetest.Receive(t, (chan string)(asked), "a question")
		edgetest.Until(t, "the others to be refused", func() bool { return len(asked) > 0 || refused() == many-1 })
		if grown := heap() - before; grown > few {
			t.Errorf("%d questions took %d MiB; %d wait", many, grown>>20, 1+len(asked))
		}
		close(release)
		if err := edgetest.Receive(t, done, "the answer"); err != nil {
			t.Error(err)
		}
	})

	t.Run("introductions", func(t *testing.T) {
		back := edgetest.NewServer(t, edgetest.Legacy, func(s *edgetest.Server) { s.Instructions = much })
		b := opened(t, back.URL)
		call := func(client *edge.Session) {
			t.Helper()
			x := modern(t, "1", "tools/call", `{"name":"echo","arguments":{}}`, make(slow))
			x.Era, x.Session = mcp.Legacy, client
			if _, err := b.Handle(t.Context(), x); err != nil {
				t.Fatal(err)
			}
		}
		client := func(i int) *edge.Session {
			return &edge.Session{ID: fmt.Sprint(i), Version: mcp.V2511, Capabilities: []byte("{}")}
		}
		call(client(0))
		before := heap()
		for i := range 40 {
			one := client(i)
			call(one)
			t.Cleanup(func() { b.Leave(one) })
		}
		if grown := heap() - before; grown > few {
			t.Errorf("40 sessions with a backend that says much of itself took %d MiB", grown>>20)
		}
	})

	t.Run("cursors", func(t *testing.T) {
		back := edgetest.NewServer(t, edgetest.Modern)
		back.Always("tools/call", func(c *edgetest.Call) { c.Error(400, mcp.CodeHeaderMismatch, "a header is missing") })
		for _, one := range []struct{ bytes, pages int }{{1 << 10, 20}, {size, 1}} {
			back.Always("tools/list", func(c *edgetest.Call) {
				next := ""
				if n := back.Count("tools/list"); n < 20 {
					next = fmt.Sprintf(`,"nextCursor":"%d %s"`, n, strings.Repeat("c", one.bytes))
				}
				c.Result(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[]` + next + `}`)
			})
			back.Forget()
			meta := mcp.Change(nil, nil, mcp.Caller{Info: []byte(`{"name":"x","version":"1"}`)}.Members()...)
			x := modern(t, "1", "tools/call", `{"name":"x","arguments":{},"_meta":`+string(meta)+`}`, make(slow))
			x.Head.Remade = true
			r, err := opened(t, back.URL).Handle(t.Context(), x)
			if err != nil || r.Code() != mcp.CodeHeaderMismatch {
				t.Errorf("%+v, %v", r, err)
			}
			if n := back.Count("tools/list"); n != one.pages {
				t.Errorf("cursors of %d bytes: %d pages", one.bytes, n)
			}
		}
	})
}
