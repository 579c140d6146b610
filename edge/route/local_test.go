package route

import (
	"context"
	"log/slog"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/mcp"
)

// asked is a client that notes what it is asked and told.
type asked struct {
	edge.NoClient
	told []string
}

func (a *asked) Send(n *mcp.Message) error {
	a.told = append(a.told, n.Method)
	return nil
}

// TestLocalTools: a tool in the table is answered by the edge, before any backend; what
// it calls itself walks the hallway with its parent set, and out to the client that the
// caller was made with.
func TestLocalTools(t *testing.T) {
	client := &asked{}
	var s *Server
	var walked []*edge.Exchange
	hallway := func(ctx context.Context, x *edge.Exchange) (r *edge.Response, err error) {
		walked = append(walked, x)
		if x.Target, err = s.Target(ctx, x); err != nil {
			return nil, err
		}
		return s.Handle(ctx, x)
	}
	local := Local{}
	local.Add("outer", edge.Target{}, false, func(ctx context.Context, x *edge.Exchange, arguments []byte, caller func(edge.Client) edge.Caller) (*edge.Response, error) {
		call := caller(x.Client)
		result, failure := call(ctx, x, "inner", arguments)
		if failure != nil {
			t.Errorf("inner failed: %s", failure)
		}
		if _, failure := call(ctx, x, "failing", nil); mcp.String(mcp.Lookup(failure, "message")) != "no room" {
			t.Errorf("failing: %s", failure)
		}
		return edge.Reply(x.Request, result)
	})
	local.Add("inner", edge.Target{}, false, func(_ context.Context, x *edge.Exchange, arguments []byte, _ func(edge.Client) edge.Caller) (*edge.Response, error) {
		n, err := mcp.Decode([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`))
		if err != nil {
			return nil, err
		}
		if err := x.Client.Send(n); err != nil {
			return nil, err
		}
		return edge.Reply(x.Request, mcp.Change(nil, nil, mcp.Raw("said", arguments)))
	})
	local.Add("failing", edge.Target{}, false, func(context.Context, *edge.Exchange, []byte, func(edge.Client) edge.Caller) (*edge.Response, error) {
		return nil, edge.Errorf(edge.Overload, "route", "no room")
	})
	s = New(Options{Name: "s", Log: slog.New(slog.DiscardHandler), Client: []byte(`{"name":"weir"}`), Local: local, Hallway: hallway})
	m, err := mcp.Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"outer","arguments":{"a":[1]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	x := &edge.Exchange{Server: "s", Era: mcp.Legacy, Request: m, Client: client, Identity: &edge.Identity{Subject: "ann"}}
	r, err := hallway(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(r.Result.Of(r.Whole())); got != `{"said":{"a":[1]}}` {
		t.Errorf("result %s", got)
	}
	if len(walked) != 3 || walked[1].Parent != x || walked[2].Parent != x || walked[1].Identity != x.Identity {
		t.Errorf("%d calls walked the hallway", len(walked))
	}
	if len(client.told) != 1 || client.told[0] != "notifications/progress" {
		t.Errorf("the client was told %q", client.told)
	}
	deaf := s.Caller(edge.NoClient{})
	if _, failure := deaf(t.Context(), x, "inner", []byte(`{}`)); len(client.told) != 1 {
		t.Errorf("a caller without a client told it %q, failure %s", client.told, failure)
	}
}

// TestChosenCredential: a program's choice goes in place of the configured credential,
// with the lines that go in any case, and is the same value for the next message, since
// sessions with backends are told apart by it.
func TestChosenCredential(t *testing.T) {
	s, b, other := New(Options{Name: "s"}), new(backend.Backend), new(backend.Backend)
	lines := &edge.Credential{Headers: []string{"X-Tenant"}, Attach: func(_ context.Context, _ *edge.Outbound, set func(string, edge.Secret)) (uint64, error) {
		set("X-Tenant", "a")
		return 1, nil
	}}
	s.Beside = map[*backend.Backend]*edge.Credential{b: lines}
	chosen := &edge.Credential{Name: "chosen"}
	if s.credential(b, nil) != nil {
		t.Error("what is configured is replaced without a choice")
	}
	if s.credential(other, chosen) != chosen {
		t.Error("a backend without lines gets another credential")
	}
	both := s.credential(b, chosen)
	if both == chosen || both.Name != "chosen" || !both.Sets("x-tenant") || s.credential(b, chosen) != both {
		t.Errorf("%+v", both)
	}
}
