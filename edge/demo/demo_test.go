package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	wire "github.com/weir-edge/weir/edge/mcp"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// net/http keeps a connection whose body it did not read for half a
		// second, so that the peer reads the answer before the reset.
		goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// revisions are those that a client may ask for, of both eras.
var revisions = []string{wire.V2607, wire.V2511, wire.V2506, wire.V2503}

// client is a connected client and what it was told and asked.
type client struct {
	*mcp.ClientSession
	told  chan string // progress and log messages, in the order of their arrival
	asked chan string // messages of elicitations
}

// connect connects a client of one revision. answer answers elicitations; nil
// for a client that cannot be asked.
func connect(t *testing.T, s *Server, revision string, answer *mcp.ElicitResult) client {
	t.Helper()
	c := client{told: make(chan string, 100), asked: make(chan string, 10)}
	options := &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			c.told <- fmt.Sprintf("%v %g/%g %s", r.Params.ProgressToken, r.Params.Progress, r.Params.Total, r.Params.Message)
		},
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
			c.told <- fmt.Sprintf("%s %s: %v", r.Params.Level, r.Params.Logger, r.Params.Data)
		},
	}
	if answer != nil {
		options.ElicitationHandler = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			c.asked <- r.Params.Message
			return answer, nil
		}
	}
	transport := &http.Transport{}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: s.URL(), HTTPClient: &http.Client{Transport: transport}, MaxRetries: -1},
		&mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = session.Close()
		transport.CloseIdleConnections()
	})
	if got := session.InitializeResult().ProtocolVersion; got != revision {
		t.Fatalf("asked for revision %s, speaks %s", revision, got)
	}
	c.ClientSession = session
	return c
}

func begin(t *testing.T) *Server {
	t.Helper()
	s, err := start("", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// each runs a test once with a client of every revision.
func each(t *testing.T, f func(t *testing.T, s *Server, revision string)) {
	s := begin(t)
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) { f(t, s, revision) })
	}
}

func (c client) call(t *testing.T, p *mcp.CallToolParams) (string, *mcp.CallToolResult) {
	t.Helper()
	r, err := c.CallTool(t.Context(), p)
	if err != nil {
		t.Fatalf("%s: %v", p.Name, err)
	}
	if len(r.Content) != 1 {
		t.Fatalf("%s: %d contents, want 1", p.Name, len(r.Content))
	}
	return r.Content[0].(*mcp.TextContent).Text, r
}

func TestWhatIsOffered(t *testing.T) {
	each(t, func(t *testing.T, s *Server, revision string) {
		c := connect(t, s, revision, nil)
		var got []string
		for tool, err := range c.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			if tool.Description == "" || tool.Title == "" {
				t.Errorf("%s says nothing about itself", tool.Name)
			}
			got = append(got, tool.Name)
		}
		if want := []string{"add", "ask_name", "countdown", "echo", "slow"}; !reflect.DeepEqual(got, want) {
			t.Errorf("tools %q, want %q", got, want)
		}
		info := c.InitializeResult()
		if info.ServerInfo.Name != "weir-demo" || !strings.Contains(info.Instructions, "echo") {
			t.Errorf("introduces itself as %+v, %q", info.ServerInfo, info.Instructions)
		}
		if info.Capabilities.Tools.ListChanged {
			t.Error("says that its tools change, and they never do")
		}
	})
}

func TestEcho(t *testing.T) {
	each(t, func(t *testing.T, s *Server, revision string) {
		c := connect(t, s, revision, nil)
		params := &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "Grüße"}}
		if revision >= wire.V2607 {
			params.Meta = mcp.Meta{mcp.MetaKeyLogLevel: "info"}
		} else if err := c.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
			t.Fatal(err)
		}
		if got, _ := c.call(t, params); got != "Grüße" {
			t.Errorf("echoes %q", got)
		}
		if got, want := <-c.told, "info demo: echoed 5 characters"; got != want {
			t.Errorf("logs %q, want %q", got, want)
		}
	})
}

func TestEchoLogsNothingUnasked(t *testing.T) {
	each(t, func(t *testing.T, s *Server, revision string) {
		c := connect(t, s, revision, nil)
		c.call(t, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "x"}})
		// The answer ends the stream that a log message would have come on.
		select {
		case got := <-c.told:
			t.Errorf("logs %q to a client that set no level", got)
		default:
		}
	})
}

func TestAdd(t *testing.T) {
	each(t, func(t *testing.T, s *Server, revision string) {
		c := connect(t, s, revision, nil)
		got, r := c.call(t, &mcp.CallToolParams{Name: "add", Arguments: map[string]any{"a": 2, "b": 40.5}})
		if got != "42.5" || !reflect.DeepEqual(r.StructuredContent, map[string]any{"sum": 42.5}) {
			t.Errorf("2 + 40.5 is %q and %v", got, r.StructuredContent)
		}
		got, r = c.call(t, &mcp.CallToolParams{Name: "add", Arguments: map[string]any{"a": 1e308, "b": 1e308}})
		if !r.IsError || !strings.Contains(got, "too large") {
			t.Errorf("an overflow is %q, failed %v", got, r.IsError)
		}
		got, r = c.call(t, &mcp.CallToolParams{Name: "add", Arguments: map[string]any{"a": "2"}})
		if !r.IsError || got == "" {
			t.Errorf("wrong arguments are %q, failed %v", got, r.IsError)
		}
	})
}

func TestCountdown(t *testing.T) {
	each(t, func(t *testing.T, s *Server, revision string) {
		c := connect(t, s, revision, nil)
		params := &mcp.CallToolParams{Name: "countdown", Arguments: map[string]any{"from": 3}}
		params.SetProgressToken("up")
		if got, _ := c.call(t, params); got != "Lift-off!" {
			t.Errorf("ends with %q", got)
		}
		for _, want := range []string{"up 1/3 3 …", "up 2/3 2 …", "up 3/3 1 …"} {
			if got := <-c.told; got != want {
				t.Errorf("progress %q, want %q", got, want)
			}
		}
	})
}

func TestAskName(t *testing.T) {
	for _, test := range []struct {
		answer *mcp.ElicitResult
		want   string
	}{
		{&mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, "Hello, Ada!"},
		{&mcp.ElicitResult{Action: "decline"}, "Hello, whoever you are!"},
		{&mcp.ElicitResult{Action: "cancel"}, "Hello, whoever you are!"},
	} {
		t.Run(test.answer.Action, func(t *testing.T) {
			each(t, func(t *testing.T, s *Server, revision string) {
				c := connect(t, s, revision, test.answer)
				if got, _ := c.call(t, &mcp.CallToolParams{Name: "ask_name"}); got != test.want {
					t.Errorf("answers %q, want %q", got, test.want)
				}
				if got := <-c.asked; got != "What is your name?" {
					t.Errorf("asks %q", got)
				}
			})
		})
	}
}

func TestAskNameOfAClientThatCannotBeAsked(t *testing.T) {
	each(t, func(t *testing.T, s *Server, revision string) {
		c := connect(t, s, revision, nil)
		r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask_name"})
		if revision < wire.V2607 {
			if err != nil || !r.IsError {
				t.Errorf("result %v, error %v; want a failed tool", r, err)
			}
			return
		}
		var refused *jsonrpc.Error
		if !errors.As(err, &refused) || refused.Code != mcp.CodeMissingRequiredClientCapabilities {
			t.Fatalf("error %v, want -32021", err)
		}
		var data mcp.MissingRequiredClientCapabilityData
		if err := json.Unmarshal(refused.Data, &data); err != nil || data.RequiredCapabilities.Elicitation == nil {
			t.Errorf("data %s names no elicitation", refused.Data)
		}
	})
}

func TestSlow(t *testing.T) {
	each(t, func(t *testing.T, s *Server, revision string) {
		c := connect(t, s, revision, nil)
		if got, _ := c.call(t, &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{"seconds": 0.01}}); got != "That took 0.01 seconds." {
			t.Errorf("answers %q", got)
		}
		if got, r := c.call(t, &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{"seconds": 21}}); !r.IsError {
			t.Errorf("21 seconds are allowed: %q", got)
		}
	})
}

// Close would hang, and leak what the tool waits with, if a call in flight did
// not end with the server.
func TestCloseEndsCallsInFlight(t *testing.T) {
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			s, err := start("", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			c := connect(t, s, revision, nil)
			params := &mcp.CallToolParams{Name: "countdown", Arguments: map[string]any{"from": 2}}
			params.SetProgressToken("up")
			ended := make(chan struct{})
			go func() { // ends with the call, which Close ends
				defer close(ended)
				_, _ = c.CallTool(t.Context(), params)
			}()
			<-c.told // the call has reached the tool
			s.Close()
			<-ended
		})
	}
}

func TestResources(t *testing.T) {
	each(t, func(t *testing.T, s *Server, revision string) {
		c := connect(t, s, revision, nil)
		read := func(uri string) (string, error) {
			r, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
			if err != nil {
				return "", err
			}
			return r.Contents[0].Text, nil
		}
		today, err := read(weatherToday)
		if err != nil || strings.Count(today, "\n") != len(reports())-1 {
			t.Errorf("today is %q, %v", today, err)
		}
		oslo, err := read("demo://weather/oslo")
		if err != nil || oslo != "oslo: 12 °C, light rain" {
			t.Errorf("Oslo is %q, %v", oslo, err)
		}
		if _, err := read("demo://weather/atlantis"); err == nil || !strings.Contains(err.Error(), "not found") {
			t.Errorf("Atlantis is %v", err)
		}
		list, err := c.ListResources(t.Context(), nil)
		if err != nil || len(list.Resources) != 1 || list.Resources[0].URI != weatherToday {
			t.Errorf("resources %+v, %v", list, err)
		}
		templates, err := c.ListResourceTemplates(t.Context(), nil)
		if err != nil || len(templates.ResourceTemplates) != 1 || templates.ResourceTemplates[0].URITemplate != weatherCity {
			t.Errorf("templates %+v, %v", templates, err)
		}
	})
}

func TestPromptAndCompletion(t *testing.T) {
	each(t, func(t *testing.T, s *Server, revision string) {
		c := connect(t, s, revision, nil)
		p, err := c.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "greet", Arguments: map[string]string{"name": "Ada"}})
		if err != nil || len(p.Messages) != 1 || !strings.Contains(p.Messages[0].Content.(*mcp.TextContent).Text, "Ada") {
			t.Errorf("prompt %+v, %v", p, err)
		}
		if _, err := c.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "greet"}); err == nil {
			t.Error("greets nobody")
		}
		r, err := c.Complete(t.Context(), &mcp.CompleteParams{
			Ref:      &mcp.CompleteReference{Type: "ref/resource", URI: weatherCity},
			Argument: mcp.CompleteParamsArgument{Name: "city", Value: "Li"},
		})
		if err != nil || !reflect.DeepEqual(r.Completion.Values, []string{"lima", "lisbon"}) {
			t.Errorf("completion %+v, %v", r, err)
		}
	})
}

func TestEraOfARequest(t *testing.T) {
	const meta = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	const bare = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	s := begin(t)
	for _, test := range []struct {
		name    string
		method  string
		version string
		session string
		origin  string
		body    string
		status  int
		says    string
	}{
		{name: "modern", version: "2026-07-28", body: meta, status: 200, says: `"resultType":"complete"`},
		{name: "modern by its body alone", body: meta, status: 400, says: "-32020"},
		{name: "modern by its header alone", version: "2026-07-28", body: bare, status: 400, says: "-32602"},
		{name: "a revision of the future", version: "2030-01-01", body: strings.ReplaceAll(meta, "2026-07-28", "2030-01-01"), status: 400, says: "-32022"},
		{name: "legacy with a session that is not there", version: "2026-07-28", session: "gone", body: bare, status: 404, says: "session not found"},
		{name: "legacy", body: bare, status: 200, says: "initializ"},
		{name: "a stream of the modern era", method: "GET", version: "2026-07-28", status: 405, says: ""},
		{name: "from a page in a browser", version: "2026-07-28", origin: "https://evil.example", body: meta, status: 403, says: "Origin"},
		{name: "from a page on this machine", version: "2026-07-28", origin: "http://localhost:3000", body: meta, status: 200, says: `"tools"`},
		{name: "too large", body: `"` + strings.Repeat("x", maxBody) + `"`, status: 413, says: "1 MiB"},
	} {
		t.Run(test.name, func(t *testing.T) {
			method := test.method
			if method == "" {
				method = "POST"
			}
			r, err := http.NewRequestWithContext(t.Context(), method, s.URL(), strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			r.Close = true
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			for name, value := range map[string]string{"MCP-Protocol-Version": test.version, "Mcp-Session-Id": test.session, "Origin": test.origin} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			if test.version >= wire.V2607 && test.session == "" {
				r.Header.Set("Mcp-Method", "tools/list")
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			if answer.StatusCode != test.status || !strings.Contains(string(body), test.says) {
				t.Errorf("answers %d %s, want %d with %q", answer.StatusCode, body, test.status, test.says)
			}
		})
	}
}

func TestStartRefuses(t *testing.T) {
	s := begin(t)
	for addr, want := range map[string]string{
		"0.0.0.0:0":                "not a loopback address",
		":0":                       "not a loopback address",
		"example.com:80":           "not a loopback address",
		"nonsense":                 "not HOST:PORT",
		s.listener.Addr().String(): "choose another port",
	} {
		if other, err := Start(addr); err == nil || !strings.Contains(err.Error(), want) {
			if other != nil {
				other.Close()
			}
			t.Errorf("Start(%q): %v, want %q", addr, err, want)
		}
	}
}

func TestCloseTwice(t *testing.T) {
	s := begin(t)
	s.Close()
	s.Close()
	if _, err := http.Get(s.URL()); err == nil {
		t.Error("still answers after Close")
	}
}
