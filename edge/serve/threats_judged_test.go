package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/filters"
)

// judged is what one side made of a request.
type judged struct{ method, name, arguments string }

// compact is JSON text without white space.
func compact(text []byte) string {
	var b bytes.Buffer
	if len(text) == 0 || json.Compact(&b, text) != nil {
		return string(text)
	}
	return b.String()
}

// bodies generates bodies that are messages, nearly messages, and messages that
// two readers might read as different ones.
type bodies struct{ *rand.Rand }

func (g bodies) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g bodies) space() string { return g.pick("", "", "", " ", "\n", "\t\r\n ") }

func (g bodies) text() string {
	return g.pick(`"a"`, `"é"`, `"\u0065cho"`, `"\ud83d\ude00"`, `"😀"`, `"\"\\\/"`, `""`, `"\u0000"`, `"ſ"`, `"name"`, `"a\nb"`, `"\u2028"`, `"<>&"`)
}

func (g bodies) value(depth int) string {
	switch n := g.IntN(8); {
	case n == 0 && depth > 0:
		return "[" + g.space() + g.value(depth-1) + "," + g.value(depth-1) + "]"
	case n <= 2 && depth > 0:
		return g.object(depth-1, g.IntN(4))
	case n == 3:
		return g.pick("0", "-0", "1.0", "1e2", "9007199254740993", "1e400", "0.1", "-1E-7", "12345678901234567890123")
	case n == 4:
		return g.pick("true", "false", "null")
	}
	return g.text()
}

func (g bodies) object(depth, n int) string {
	names := []string{`"a"`, `"A"`, `"b"`, `"name"`, `"Name"`, `"method"`, `"\u0061a"`, `"__proto__"`, `"é"`, `""`, `"arguments"`}
	g.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var members []string
	for i := range n {
		members = append(members, g.space()+names[i]+g.space()+":"+g.space()+g.value(depth)+g.space())
	}
	return "{" + strings.Join(members, ",") + "}"
}

// body is a body of a legacy session. Members come in any order, some twice or
// in disguise.
func (g bodies) body() string {
	params := []string{
		`"name":` + g.pick(`"echo"`, `"echo"`, `"other"`, `"\u0065cho"`, `"Echo"`, g.text()),
		`"arguments":` + g.pick(g.object(3, g.IntN(6)), g.object(3, g.IntN(6)), g.object(1, 2), "{}"),
	}
	odd := func(list []string, more ...string) []string {
		if g.IntN(5) == 0 {
			list = append(list, g.pick(more...))
		}
		g.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		return list
	}
	params = odd(params, `"name":"evil"`, `"Name":"evil"`, `"NAME":"evil"`, `"n\u0061me":"evil"`, `"arguments":{"x":1}`, `"Arguments":{"x":1}`, `"argumentſ":{"x":1}`, `"x":1`, `"_meta":{}`)
	all := odd([]string{
		`"jsonrpc":"2.0"`, `"id":` + g.pick("1", `"x"`, "0", "-5"), `"method":` + g.pick(`"tools/call"`, `"tools/call"`, `"tools/call"`, `"tools\/call"`, `"\u0074ools/call"`, `"tools/list"`),
		`"params":{` + g.space() + strings.Join(params, ","+g.space()) + `}`,
	}, `"method":"tools/list"`, `"Method":"tools/list"`, `"METHOD":"tools/list"`, `"m\u0065thod":"tools/list"`, `"params":{"name":"evil"}`, `"Params":{"name":"evil"}`, `"paramſ":{"name":"evil"}`, `"id":2`, `"x":1`)
	return g.space() + "{" + strings.Join(all, g.space()+","+g.space()) + "}" + g.pick("", "", "", "", "", " ", "x", "{}")
}

// What the edge judged is what a server makes of what it is sent: method, name
// and arguments, for bodies that were made to be read in two ways.
func TestB10(t *testing.T) {
	t.Parallel()
	const total = 10000
	var mu sync.Mutex
	var saw, judge []judged
	server := sdk.NewServer(&sdk.Implementation{Name: "sdk", Version: "1"}, nil)
	for _, name := range []string{"echo", "other"} {
		server.AddTool(&sdk.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{}, nil
		})
	}
	server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
			one := judged{method: method}
			if p, ok := r.GetParams().(*sdk.CallToolParamsRaw); ok {
				one.name, one.arguments = p.Name, compact(p.Arguments)
			}
			if strings.HasPrefix(method, "tools/") {
				mu.Lock()
				saw = append(saw, one)
				mu.Unlock()
			}
			return next(ctx, method, r)
		}
	})
	back := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
	t.Cleanup(func() {
		back.Close()
		for session := range server.Sessions() { // whose DELETE the end of the connections cut off
			_ = session.Close()
		}
	})
	watch := filters.Entry{Place: filters.Authz, Filter: func(next edge.Handler) edge.Handler {
		return edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
			m := x.Request
			one := judged{method: m.Method}
			if m.Method == "tools/call" {
				one.name, one.arguments = m.Text("name"), compact(m.Get("arguments").Of(m.Raw))
			}
			mu.Lock()
			judge = append(judge, one)
			mu.Unlock()
			return next.Handle(ctx, x)
		})
	}}
	e := edgetest.Start(t, edgetest.ManifestFor(back.URL, compile.StreamableHTTP), edgetest.Before(func(e *serve.Edge) { e.SetFilters(watch) }))
	t.Cleanup(func() { back.CloseClientConnections() })
	s := e.NewClient().Initialize("")
	if m := s.Call("1", "echo", "{}").Message(); m.Error != nil {
		t.Fatal(m.Error)
	}
	g := bodies{rand.New(rand.NewPCG(10, 10000))}
	refused := 0
	for i := range total {
		mu.Lock()
		saw, judge = nil, nil
		mu.Unlock()
		body := g.body()
		r := s.Send(body)
		text := r.Answer()
		mu.Lock()
		got, want := fmt.Sprintf("%q", saw), fmt.Sprintf("%q", judge)
		n, k := len(saw), len(judge)
		mu.Unlock()
		switch {
		case r.Status == 400 && k == 0:
			if refused++; n != 0 {
				t.Errorf("%d: refused, and the server saw %s\n%s", i, got, body)
			}
		case n == 0 && strings.Contains(string(text), `"error"`):
			refused++ // the server could not read it, or the edge refused it later
		case got != want || n != 1:
			t.Errorf("%d: the edge judged %s\nthe server saw %s\n%s\n%s", i, want, got, body, text)
		}
	}
	t.Logf("%d bodies: %d refused, %d seen by the server as judged", total, refused, total-refused)
	if refused < total/10 || refused > total*9/10 {
		t.Errorf("%d of %d were refused", refused, total)
	}
}
