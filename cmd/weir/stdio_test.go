package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/demo"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/workload"
)

// stdioTo runs "weir stdio" to a workload at a URL. What is written to in is the client's, out
// is what it reads, and ended has the exit code.
func stdioTo(t *testing.T, url string) (in io.WriteCloser, out io.ReadCloser, ended chan int) {
	t.Helper()
	m := newFakeManager()
	m.all["demo"] = &workload.Detail{Status: workload.Status{Name: "demo", URL: url, Status: workload.Running}}
	a, _, _ := asking(t, m)
	read, write := io.Pipe()
	back, answers := io.Pipe()
	a.in, a.out, a.err = read, answers, t.Output()
	ended = make(chan int, 1)
	go func() {
		ended <- a.run([]string{"stdio", "demo"})
		_ = answers.Close()
	}()
	return write, back, ended
}

// demoBehind is an edge before the demo server, and the URL of its older transport.
func demoBehind(t *testing.T) string {
	t.Helper()
	d, err := demo.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return edgetest.Start(t, edgetest.ManifestFor(d.URL(), compile.StreamableHTTP)).URL()
}

// TestStdioWithRealClients: a client of the SDK that takes commands only reaches an edge in both
// eras, with everything that goes there and back.
func TestStdioWithRealClients(t *testing.T) {
	url := demoBehind(t)
	for _, version := range []string{"2026-07-28", "2025-11-25", "2024-11-05"} {
		t.Run(version, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), edgetest.Patience)
			defer cancel()
			in, out, ended := stdioTo(t, url)
			progress := make(chan string, 100)
			c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
				ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
				},
				ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
					progress <- fmt.Sprint(r.Params.Progress)
				},
			})
			s, err := c.Connect(ctx, &sdk.IOTransport{Reader: out, Writer: in}, &sdk.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			if got := s.InitializeResult().ProtocolVersion; got != version {
				t.Errorf("it speaks %s", got)
			}
			tools, err := s.ListTools(ctx, nil)
			if err != nil || len(tools.Tools) < 5 {
				t.Fatalf("%v, %v", tools, err)
			}
			call := func(name string, arguments map[string]any) string {
				t.Helper()
				p := &sdk.CallToolParams{Name: name, Arguments: arguments}
				p.SetProgressToken("token")
				r, err := s.CallTool(ctx, p)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				return r.Content[0].(*sdk.TextContent).Text
			}
			if got := call("echo", map[string]any{"text": "hällo\n"}); got != "hällo\n" {
				t.Errorf("echo says %q", got)
			}
			call("countdown", map[string]any{"from": 2})
			edgetest.Receive(t, progress, "progress")
			if version != "2024-11-05" { // which has no elicitation
				if got := call("ask_name", nil); !strings.Contains(got, "Ada") {
					t.Errorf("ask_name says %q", got)
				}
			}
			r, err := s.ReadResource(ctx, &sdk.ReadResourceParams{URI: "demo://weather/oslo"})
			if err != nil || len(r.Contents) != 1 {
				t.Errorf("%v, %v", r, err)
			}
			short, stop := context.WithTimeout(ctx, 300*time.Millisecond)
			_, err = s.CallTool(short, &sdk.CallToolParams{Name: "slow", Arguments: map[string]any{"seconds": 20}})
			stop()
			if err == nil {
				t.Error("a call that is cancelled answers")
			}
			if got := call("echo", map[string]any{"text": "after it"}); got != "after it" {
				t.Errorf("echo says %q", got)
			}
			_ = s.Close()
			if code := edgetest.Receive(t, ended, "the end"); code != exitOK {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestStdioOfOlderURL: a workload that advertises the older transport speaks the newer one at
// the same door.
func TestStdioOfOlderURL(t *testing.T) {
	in, out, ended := stdioTo(t, strings.TrimSuffix(demoBehind(t), "/mcp")+"/sse")
	line := `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}` + "\n"
	if _, err := io.WriteString(in, line); err != nil {
		t.Fatal(err)
	}
	answer, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(answer, `"supportedVersions"`) {
		t.Errorf("%s, %v", answer, err)
	}
	_ = in.Close()
	if code := edgetest.Receive(t, ended, "the end"); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// TestStdioCarriesLargeMessages in both directions, byte for byte.
func TestStdioCarriesLargeMessages(t *testing.T) {
	s := edgetest.NewServer(t, edgetest.Modern)
	in, out, ended := stdioTo(t, s.URL)
	large := strings.Repeat("0123456789abcdö", 1<<20-1<<10)
	s.Always("big", func(c *edgetest.Call) { c.Result(`{"resultType":"complete","text":"` + large + `"}`) })
	const head = `{"jsonrpc":"2.0","id":1,"method":"big","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},"text":"`
	go func() { _, _ = io.WriteString(in, head+large+"\"}}\n") }()
	answer, err := bufio.NewReaderSize(out, 1<<20).ReadString('\n')
	if err != nil || !strings.Contains(answer, `"text":"`+large+`"`) {
		t.Errorf("%d bytes, %v", len(answer), err)
	}
	if got := s.Requests("big"); len(got) != 1 || string(got[0].Body) != head+large+`"}}` {
		t.Errorf("%d requests", len(got))
	}
	_ = in.Close()
	if code := edgetest.Receive(t, ended, "the end"); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}
