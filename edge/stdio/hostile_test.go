//go:build unix

package stdio_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/stdio"
)

// rawCall has the server say lines in answer to a call; ID stands for the call's id, BYTE for
// one that is not UTF-8, and NUL for that.
func rawCall(c edgetest.Caller, id string, lines ...string) *edgetest.Response {
	arguments := fmt.Sprintf(`{"lines":%s}`, quote(strings.Join(lines, "\n")))
	return c.CallTool(id, "raw", arguments)
}

const right = `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"right"}]}}`

// TestV34Nonsense: what a server prints that is no message goes to its log, answers to
// nobody's request are dropped, and no client sees another's answer.
func TestV34Nonsense(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, "banner legacy", func(c *stdio.Config) { c.Mode = mode })
			one, other := b.NewClient().As(edgetest.Legacy, ""), b.NewClient().As(edgetest.Legacy, "")
			wrong := `,"result":{"content":[{"type":"text","text":"wrong"}]}}`
			for what, lines := range map[string][]string{
				"a byte order mark":      {"\xef\xbb\xbf" + right},
				"white space and CR":     {" \t" + right + "\r"},
				"empty lines":            {"", "\r", right},
				"text before it":         {"Loading…", "\x1b[1mbold\x1b[0m", `"a string"`, "7", "null", "[1,2]", right},
				"answers to others":      {`{"jsonrpc":"2.0","id":1` + wrong, `{"jsonrpc":"2.0","id":9007199254740993` + wrong, `{"jsonrpc":"2.0","id":"x"` + wrong, right},
				"an answer to null":      {`{"jsonrpc":"2.0","id":null` + wrong, right},
				"two answers":            {right, strings.ReplaceAll(right, "right", "wrong")},
				"the id as a text":       {strings.ReplaceAll(right, "ID", `"ID"`)},
				"a batch":                {`[{"jsonrpc":"2.0","method":"notifications/x"},` + right + `]`},
				"an error of null":       {strings.Replace(right, `"id"`, `"error":null,"id"`, 1)},
				"a batch with null":      {`[` + strings.Replace(right, `"id"`, `"error":null,"id"`, 1) + `]`},
				"params of null":         {`{"jsonrpc":"2.0","method":"notifications/x","params":null}`, right},
				"a duplicate name first": {`{"jsonrpc":"2.0","id":5,"id":6` + wrong, right},
			} {
				if got := text(t, rawCall(one, "1", lines...)); got != "right" {
					t.Errorf("%s: %q", what, got)
				}
				if got := text(t, other.CallTool("1", "echo", `{"text":"mine"}`)); got != "mine" {
					t.Errorf("%s: another client was told %q", what, got)
				}
			}
			if m := rawCall(one, "1", `{"jsonrpc":"2.0","id":ID,"result":null,"error":{"code":-32050,"message":"its own"}}`).Message(); !strings.Contains(fault(m), "its own") {
				t.Errorf("a result of null beside an error: %s", fault(m))
			}
			r := rawCall(one, "1", `{"id":ID,"result":{}}`)
			if m := r.Message(); !strings.Contains(fault(m), "502") {
				t.Errorf("no message at all: %s", fault(m))
			}
			if !strings.Contains(b.log(), "weir: an answer on stdout is no message: ") {
				t.Errorf("the log does not say why:\n%s", b.log())
			}
			for what, line := range map[string]string{
				"bytes that are not UTF-8": `{"jsonrpc":"2.0","id":ID,"result":{"x":"cafBYTE"}}`,
				"a NUL":                    `{"jsonrpc":"2.0","id":ID,"result":{"x":"NUL"}}`,
				"two lines in one":         `{"jsonrpc":"2.0","id":ID,"res{"jsonrpc":"2.0","method":"notifications/x"}`,
				"a duplicate name":         `{"jsonrpc":"2.0","id":ID,"result":{"x":1,"x":2}}`,
				"the id as a fraction":     `{"jsonrpc":"2.0","id":ID.0,"result":{}}`,
				"the id last":              `{"result":{"x":"` + strings.Repeat("y", 2*4096) + `BYTE"},"jsonrpc":"2.0","id":ID}`,
			} {
				if m := rawCall(one, "1", line).Message(); !strings.Contains(fault(m), "502") { // and not when its time is over
					t.Errorf("%s: %s", what, fault(m))
				}
			}
			for what, lines := range map[string]string{
				"several lines":                  "{\n  \"jsonrpc\": \"2.0\",\n  \"id\": ID,\n  \"result\": {\n    \"method\": \"x\"\n  }\n}",
				"several lines, and the id last": "{\r\n\t\"result\": \"" + strings.Repeat("y", 2*4096) + "\",\r\n\t\"id\": ID\r\n}\r",
			} {
				if m := rawCall(one, "1", lines).Message(); !strings.Contains(fault(m), "502") || !strings.Contains(fault(m), "several lines") {
					t.Errorf("%s: %s", what, fault(m))
				}
			}
			for what, lines := range map[string][]string{
				"its answer for people":   {"{\n  \"id\": ID,\n  \"result\": {}\n}", right},
				"the request, for people": {"{\n  \"id\": ID,\n  \"method\": \"tools/call\"\n}", right},
			} {
				if got := text(t, rawCall(one, "1", lines...)); got != "right" {
					t.Errorf("%s: %q", what, got)
				}
			}
			if n := strings.Count(b.log(), "over several lines"); n == 0 || n > 2 {
				t.Errorf("%d events say of several lines", n)
			}
			for _, want := range []string{"stdout: Loading…", "stdout: \x1b[32mStarting the server…", `stdout: "a string"`, "stderr: on stderr"} {
				if !strings.Contains(b.log(), want) {
					t.Errorf("not in the log: %q", want)
				}
			}
			if strings.Contains(b.log(), "wrong") && !strings.Contains(b.log(), `"id":5,"id":6`) {
				t.Error("an answer to nobody is in the log")
			}
		})
	}
}

// TestV34IDsAsText: a server that writes every id as a text is served, answers the questions for a
// sign of life, and keeps no client of a shared process waiting.
func TestV34IDsAsText(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := bridge(t, "", func(c *stdio.Config) { c.Starter, c.Mode = inside("legacy text-ids"), mode })
				says := func(o *opened, id, method, params, want string) {
					t.Helper()
					if err := o.Send([]byte(`{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+params+`}`), nil); err != nil {
						t.Fatal(err)
					}
					select {
					case got := <-o.heard:
						if !strings.Contains(got, want) {
							t.Fatalf("%s: %s", method, got)
						}
					case <-time.After(10 * time.Second):
						t.Fatalf("%s %s has no answer", method, id)
					}
				}
				var all []*opened
				for i := range 2 {
					o, err := open(t, b, "ada")
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, o)
					says(o, fmt.Sprint(10_000_000_000_000+i), "initialize", `{"capabilities":{}}`, `"serverInfo"`)
				}
				time.Sleep(time.Minute)
				for i, o := range all {
					select {
					case err := <-o.ended:
						t.Errorf("the process at rest of client %d: %v", i, err)
						continue
					default:
					}
					id := fmt.Sprint(20_000_000_000_000 + i)
					says(o, id, "tools/call", `{"name":"progress","arguments":{"n":1},"_meta":{"progressToken":`+id+`}}`, "notifications/progress")
					if got := <-o.heard; !strings.Contains(got, "done") {
						t.Errorf("client %d: %s", i, got)
					}
				}
			})
		})
	}
}

// TestIDsOfServers: some servers read ids as integers of 32 bits.
func TestIDsOfServers(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, "banner legacy", func(c *stdio.Config) { c.Mode = mode })
			got := text(t, rawCall(b.NewClient().As(edgetest.Legacy, ""), "1", `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"ID"}]}}`))
			if _, err := strconv.ParseInt(got, 10, 32); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestV34DiesInTheMiddle (also K13): half a line and the end of the process fail the calls under way
// with the reason, and the session is over; a modern client's next call has another process.
func TestV34DiesInTheMiddle(t *testing.T) {
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(client.String(), func(t *testing.T) {
			t.Parallel()
			b := start(t, "legacy", nil)
			c := b.NewClient().As(client, "")
			c.CallTool("1", "echo", "{}").Result()
			m := c.CallTool("2", "half", "{}").Message()
			if !strings.Contains(fault(m), `backend "back" ended: exit 2`) || !strings.Contains(fault(m), "502") {
				t.Errorf("the call fails with %s", fault(m))
			}
			await(t, "the process is gone", func() bool { return b.bridge.Status().Ended == "exit 2" })
			r := c.CallTool("3", "echo", `{"text":"again"}`)
			if client == edgetest.Legacy {
				if m := r.Message(); r.Status != 404 || !strings.Contains(fault(m), "-32001") {
					t.Errorf("the next request of the session: %d %s", r.Status, fault(m))
				}
				c = b.NewClient().As(client, "")
				r = c.CallTool("4", "echo", `{"text":"again"}`)
			}
			if got := text(t, r); got != "again" {
				t.Errorf("then %q", got)
			}
		})
	}
}

// TestV36Ends: a server that does not want to end, or leaves others behind that hold its
// pipes, is gone with all that it started a second after the timeout.
func TestV36Ends(t *testing.T) {
	for _, how := range []string{"fork", "ignore-term ignore-eof", "fork ignore-term ignore-eof"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := start(t, "legacy "+how, nil)
			c := b.NewClient().As(edgetest.Legacy, "")
			if got := text(t, c.CallTool("1", "echo", `{"text":"x"}`)); got != "x" {
				t.Fatalf("%q", got)
			}
			began := time.Now()
			c.Session.Delete()
			var pids []string
			for _, line := range append(b.told("start"), b.told("child")...) {
				words := strings.Fields(line)
				pids = append(pids, words[2])
			}
			if len(pids) < 2 {
				t.Fatalf("told %q", pids)
			}
			b.Stop()
			if took := time.Since(began); took > 3*time.Second+time.Second+time.Second { // the timeout, a second, and the rest of a busy machine
				t.Errorf("took %s to end", took)
			}
			for _, pid := range pids {
				if alive(pid) {
					t.Errorf("process %s lives", pid)
				}
			}
		})
	}
}

// TestV36Stuck: a server that reads nothing more is ended, and one that says nothing more
// loses the call alone.
func TestV36Stuck(t *testing.T) {
	t.Parallel()
	b := start(t, "legacy deaf", func(c *stdio.Config) { c.Stuck = time.Second; c.Timeout = time.Second }, edgetest.Settings(func(s *serve.Settings) { s.MaxBody = 8 << 20 }))
	c := b.NewClient().As(edgetest.Legacy, "")
	c.Ask("1", "tools/list", "").Result()
	fill := quote(strings.Repeat("x", 1<<20))
	results := make(chan string, 10)
	for i := range 10 {
		go func() {
			r, err := c.TryAsk(fmt.Sprint(i+2), "tools/call", edgetest.CallParams("echo", `{"text":`+fill+`}`))
			if err != nil {
				results <- err.Error()
				return
			}
			answer, _ := r.TryAnswer()
			results <- fmt.Sprintf("%d %s %s", r.Status, r.Header.Get("Retry-After"), answer)
		}()
	}
	full, stuck := 0, 0
	for range 10 {
		switch got := <-results; {
		case strings.HasPrefix(got, "503 1 "):
			full++
		case strings.Contains(got, "stuck"):
			stuck++
		default:
			t.Errorf("instead: %.200s", got)
		}
	}
	if full == 0 || stuck == 0 {
		t.Errorf("%d calls had no room, %d ended with the process", full, stuck)
	}
}

// TestClosedStdin: a server that closes its stdin hears nothing more and is of no use, so that it
// is ended, as one is that closes its stdout: calls do not wait for their time to be over.
func TestClosedStdin(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, "legacy ignore-eof", func(c *stdio.Config) { c.Mode = mode })
			c := b.NewClient().As(edgetest.Legacy, "")
			if got := text(t, c.CallTool("1", "close-stdin", "{}")); got != "closed" {
				t.Fatalf("%q", got)
			}
			began := time.Now()
			m := c.CallTool("2", "echo", "{}").Message()
			if took := time.Since(began); !strings.Contains(fault(m), `backend "back" ended: closed its stdin`) || took > edgetest.Allowed(5*time.Second) {
				t.Errorf("after %s: %s", took, fault(m))
			}
		})
	}
}

// TestV37Gone: a modern client that leaves cancels its call at the server within a second;
// a legacy one's goes on, unless it says so.
func TestV37Gone(t *testing.T) {
	each(t, func(t *testing.T, client, _ edgetest.Era, b *behind) {
		c := b.NewClient().As(client, "")
		c.CallTool("1", "echo", "{}").Result()
		raw := b.Dial()
		body, head := c.Message(`"mine"`, "tools/call", edgetest.CallParams("wait", `{"ms":30000}`))
		raw.Write(post(b.Addr(), body, head))
		await(t, "the call is under way", func() bool { return len(b.told("wait ")) == 1 })
		number := strings.Fields(b.told("wait ")[0])[2]
		began := time.Now()
		if client == edgetest.Legacy {
			c.Session.Notify("notifications/cancelled", `{"requestId":"mine"}`)
		} else {
			raw.Close()
		}
		await(t, "the server is told", func() bool { return len(b.told("cancelled "+number)) == 1 })
		if took := time.Since(began); took > time.Second {
			t.Errorf("told after %s", took)
		}
	})
}

// post is a request as it goes over a connection.
func post(addr, body string, head []string) string {
	var b strings.Builder
	b.WriteString("POST /mcp HTTP/1.1\r\nHost: " + addr + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n")
	for i := 0; i < len(head); i += 2 {
		fmt.Fprintf(&b, "%s: %s\r\n", head[i], head[i+1])
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	return b.String()
}

// TestV38Sizes (also K14): a message of 16 MiB passes byte for byte, what is larger fails its call,
// and the bridge goes on.
func TestV38Sizes(t *testing.T) {
	t.Parallel()
	const most = 16 << 20
	b := start(t, "legacy", nil, edgetest.Settings(func(s *serve.Settings) { s.MaxBody = 64 << 20 }))
	c := b.NewClient().As(edgetest.Legacy, "")
	around := len(`{"jsonrpc":"2.0","id":1234567890,"result":{"resultType":"complete","content":[{"type":"text","text":""}]}}`)
	r := c.CallTool("1", "big", fmt.Sprintf(`{"bytes":%d}`, most-around))
	if got := text(t, r); got != strings.Repeat("x", most-around) {
		t.Errorf("%d bytes came", len(got))
	}
	if m := c.CallTool("2", "big", fmt.Sprintf(`{"bytes":%d}`, most-around+1)).Message(); !strings.Contains(fault(m), "502") {
		t.Errorf("one more byte: %.200s", fault(m))
	}
	if m := c.CallTool("3", "endless", fmt.Sprintf(`{"bytes":%d}`, 64<<20)).Message(); !strings.Contains(fault(m), "502") {
		t.Errorf("64 MiB: %.200s", fault(m))
	}
	large := strings.Repeat("z", most-4096)
	if got := text(t, c.CallTool("4", "echo", `{"text":"`+large+`"}`)); got != large {
		t.Errorf("%d bytes came back", len(got))
	}
	if r := c.CallTool("5", "echo", `{"text":"`+large+strings.Repeat("z", 8192)+`"}`); r.Status != 413 {
		t.Errorf("more than 16 MiB to the server: %d", r.Status)
	}
	if got := text(t, c.CallTool("6", "echo", `{"text":"fine"}`)); got != "fine" {
		t.Errorf("then %q", got)
	}
}
