package serve_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// cutSoon is an edge whose time to drain is short.
func cutSoon() edgetest.Option {
	return edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = 300 * time.Millisecond })
}

// endless has every call of a fake server last until it is given up. Of one with a progress
// token it says something before, which makes a stream of the answer.
func endless(back *edgetest.Server) (open *atomic.Int64, entered chan struct{}) {
	open, entered = new(atomic.Int64), make(chan struct{}, 100)
	back.Always("tools/call", func(c *edgetest.Call) {
		open.Add(1)
		defer open.Add(-1)
		if c.Token() != "" {
			c.Progress(1)
		}
		entered <- struct{}{}
		<-c.Gone()
	})
	return open, entered
}

// isCut holds the error that is the answer to a call which its edge has ended.
func isCut(t *testing.T, era edgetest.Era, r *edgetest.Response, id string) {
	t.Helper()
	status := 200
	if era == edgetest.Modern && !r.Stream() {
		status = 500
	}
	if m := fails(t, r, status, -32603, id); m.Error.Message != "the edge that held this call is gone" {
		t.Errorf("the error says %q", m.Error.Message)
	}
}

// TestX44Answered: a call that is still under way when the time to drain is over is answered
// with an error, as the last event of its stream where it has one, and given up at its
// backend.
func TestX44Answered(t *testing.T) {
	for _, tells := range []bool{false, true} {
		t.Run(fmt.Sprintf("a stream: %v", tells), func(t *testing.T) {
			t.Parallel()
			cells(t, func(t *testing.T, f *front, c caller) {
				open, entered := endless(f.back)
				got := make(chan *edgetest.Response, 1)
				var meta []string
				if tells {
					meta = []string{`"progressToken":"p"`}
				}
				go func() {
					r, err := c.try("7", "tools/call", edgetest.CallParams("echo", "{}"), meta...)
					if err != nil {
						t.Error(err)
					}
					got <- r
				}()
				edgetest.Receive(t, entered, "the call")
				var r *edgetest.Response
				if tells {
					r = edgetest.Receive(t, got, "the stream")
					if m := r.NextMessage(); m.Method != "notifications/progress" {
						t.Errorf("%+v", m)
					}
				}
				began := time.Now()
				done := stopping(f)
				if r == nil {
					r = edgetest.Receive(t, got, "the answer")
				}
				if r == nil {
					t.FailNow()
				}
				if r.Stream() != tells {
					t.Errorf("a stream: %v", r.Stream())
				}
				isCut(t, c.era(), r, "7")
				edgetest.Receive(t, done, "the end of the edge")
				none(t, f.back, open, began.Add(300*time.Millisecond))
			}, cutSoon())
		})
	}
}

// TestX44Older: a client of the older transport gets the error on its stream, which then
// ends.
func TestX44Older(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern, cutSoon())
	_, entered := endless(f.back)
	old := f.NewClient().OpenSSE()
	old.Initialize("")
	old.Request("1", "tools/call", edgetest.CallParams("echo", "{}"))
	edgetest.Receive(t, entered, "the call")
	done := stopping(f)
	if m := old.Stream.NextMessage(); string(m.ID) != "1" || m.Error == nil || m.Error.Code != -32603 || m.Error.Message != "the edge that held this call is gone" {
		t.Errorf("%+v", m)
	}
	if err := old.Ended(); err != nil {
		t.Errorf("the stream: %v", err)
	}
	edgetest.Receive(t, done, "the end of the edge")
}

// TestX44Batch: the answer to a batch has the error for the message that was cut, and the
// answers of the others.
func TestX44Batch(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern, cutSoon())
	_, entered := endless(f.back)
	s := f.client.InitializeAs("2025-03-26", "")
	got := make(chan *edgetest.Response, 1)
	go func() {
		r, err := f.client.Try("POST", "/mcp", `[{"jsonrpc":"2.0","id":1,"method":"ping"},`+strings.Replace(echo, `"id":1`, `"id":2`, 1)+`]`, "Mcp-Session-Id", s.ID)
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	edgetest.Receive(t, entered, "the call")
	done := stopping(f)
	want := `[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the edge that held this call is gone"}}]`
	if r := edgetest.Receive(t, got, "the answer"); r == nil || r.Status != 200 || string(r.Body) != want {
		t.Errorf("got\n%+v\nwant\n%s", r, want)
	}
	edgetest.Receive(t, done, "the end of the edge")
}

// TestX44CancelledByItsClient: what the client itself has cancelled is not answered
// (2025-11-25, basic/utilities/cancellation).
func TestX44CancelledByItsClient(t *testing.T) {
	t.Parallel()
	for _, back := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(back.String(), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, back, edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = edgetest.Patience }))
			_, entered := endless(f.back)
			s := f.client.Initialize("")
			other := f.callerOf(t, edgetest.Legacy, "")
			r := s.Request("7", "tools/call", edgetest.CallParams("echo", `{}`)[:len(edgetest.CallParams("echo", `{}`))-1]+`,"_meta":{"progressToken":"p"}}`)
			r.NextMessage()
			edgetest.Receive(t, entered, "the call")
			quiet := make(chan *edgetest.Response, 1)
			go func() { // one that is no stream
				body, head := other.message("8", "tools/call", edgetest.CallParams("echo", "{}"), `"progressToken":"p"`)
				r, _ := other.Try("POST", "/mcp", body, append(head, "Accept", "application/json")...)
				quiet <- r
			}()
			edgetest.Receive(t, entered, "the other call")
			other.session.Notify("notifications/cancelled", `{"requestId":8,"reason":"enough"}`)
			s.Notify("notifications/cancelled", `{"requestId":7}`)
			if all, err := r.TryRest(); err != nil || len(all) > 0 {
				t.Errorf("%+v %v", all, err)
			}
			if r := edgetest.Receive(t, quiet, "the end of the other call"); r == nil || r.Status != 202 || len(r.Body) > 0 {
				t.Errorf("%+v", r)
			}
			f.Stop()
		})
	}
}

// TestX44SDK: the official client of either era hears at once of the end of a plain call, of a
// script and of a workflow. Of an answer with the status 500 it reads nothing else; in a
// stream, and in the legacy era, it reads the error.
func TestX44SDK(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		for _, back := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			t.Run(version+", "+back.String()+" backend", func(t *testing.T) {
				t.Parallel()
				f := composedWith(t, back, []string{`compositeTools: [{name: flow, steps: [{id: a, tool: back.echo}, {id: b, tool: back.hidden, dependsOn: [a]}]}]`, codeMode()}, engine(), cutSoon())
				open, entered := endless(f.back)
				ctx, cancel := context.WithTimeout(t.Context(), edgetest.Patience)
				defer cancel()
				client, err := sdk.NewClient(&sdk.Implementation{Name: "x44", Version: "1"}, nil).Connect(ctx,
					&sdk.StreamableClientTransport{Endpoint: f.URL(), DisableStandaloneSSE: true}, &sdk.ClientSessionOptions{ProtocolVersion: version})
				if err != nil {
					t.Fatal(err)
				}
				calls := []*sdk.CallToolParams{
					{Name: "echo", Arguments: map[string]any{"text": "x"}}, {Name: "flow", Arguments: map[string]any{}},
					{Name: "execute_tool_script", Arguments: map[string]any{"script": "return echo(text='x')"}},
				}
				calls[0].SetProgressToken("p")
				var said [3]chan error
				for i, params := range calls {
					said[i] = make(chan error, 1)
					go func() {
						_, err := client.CallTool(ctx, params)
						said[i] <- err
					}()
					edgetest.Receive(t, entered, "the call")
				}
				began := time.Now()
				f.Stop()
				for i, params := range calls {
					err := edgetest.Receive(t, said[i], "an answer")
					if i > 0 && version == "2026-07-28" {
						if err == nil || !strings.Contains(err.Error(), "Internal Server Error") {
							t.Errorf("%s: %v", params.Name, err)
						}
						continue
					}
					var refused *jsonrpc.Error
					if !errors.As(err, &refused) || refused.Code != jsonrpc.CodeInternalError || refused.Message != "the edge that held this call is gone" {
						t.Errorf("%s: %v", params.Name, err)
					}
				}
				none(t, f.back, open, began.Add(300*time.Millisecond))
				_ = client.Close() // the edge is gone
			})
		}
	}
}
