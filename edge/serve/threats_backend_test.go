package serve_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
)

// own is the result of a call that shows whose it is.
func own(id string) string {
	return `{"resultType":"complete","content":[{"type":"text","text":` + quote("for "+id) + `}]}`
}

// A backend that frames its answers badly, or says more than it was asked: the
// client gets an error in place of what cannot be relied on, the connection
// carries nothing else, and the next client gets its own answer.
func TestAnswersThatAreMisframed(t *testing.T) {
	t.Parallel()
	const json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	body := func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":` + own(id) + `}` }
	poison := whole(`2`, `{"resultType":"complete","content":[{"type":"text","text":"poison"}]}`)
	for _, row := range []struct {
		id, name string
		good     bool // the answer itself can be relied on
		end      bool // the backend closes after it
		answer   func(id string) string
	}{
		{"S45", "two lengths", false, false, func(id string) string {
			return json + "Content-Length: 2\r\n" + length(body(id)) + "\r\n" + body(id)
		}},
		{"S45", "one length twice", false, false, func(id string) string { return json + length(body(id)) + length(body(id)) + "\r\n" + body(id) }},
		{"S45", "a length and chunks", false, false, func(id string) string {
			return json + length(body(id)) + "Transfer-Encoding: chunked\r\n\r\n" + chunked(body(id), "")
		}},
		{"S45", "chunks and a length", false, false, func(id string) string {
			return json + "Transfer-Encoding: chunked\r\n" + length(body(id)) + "\r\n" + chunked(body(id), "")
		}},
		{"S45", "two encodings", false, false, func(id string) string {
			return json + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(body(id), "")
		}},
		{"S45", "an unknown encoding", false, false, func(id string) string {
			return json + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunked(body(id), "")
		}},
		{"S45", "HTTP/0.9", false, true, func(id string) string { return body(id) }},
		{"S45", "1000 interim answers", false, false, func(id string) string {
			return strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 1000) + whole(id, own(id))
		}},
		{"S45", "a header of 10 MiB", false, false, func(id string) string {
			return json + strings.Repeat("X-Line: "+strings.Repeat("x", 1000)+"\r\n", 10<<10) + length(body(id)) + "\r\n" + body(id)
		}},
		{"S45", "a bad chunk", false, false, func(id string) string {
			return json + "Transfer-Encoding: chunked\r\n\r\n5\r\n" + body(id) + "\r\n0\r\n\r\n" + poison
		}},
		{"S46", "204 with a body", false, false, func(id string) string {
			return "HTTP/1.1 204 No Content\r\nContent-Type: application/json\r\n" + length(body(id)) + "\r\n" + body(id) + poison
		}},
		{"S46", "304 with a body", false, false, func(id string) string {
			return "HTTP/1.1 304 Not Modified\r\n" + length(poison) + "\r\n" + poison
		}},
		{"S46", "bytes after the body", true, false, func(id string) string { return whole(id, own(id)) + poison }},
		{"S46", "one byte after the body", true, false, func(id string) string { return whole(id, own(id)) + "H" }},
		{"S46", "bytes after the chunks", true, false, func(id string) string {
			return json + "Transfer-Encoding: chunked\r\n\r\n" + chunked(body(id), "") + poison
		}},
		{"S47", "half a body", false, true, func(id string) string { return json + length(body(id)) + "\r\n" + body(id)[:len(body(id))/2] }},
		{"S47", "a body but its last byte", false, true, func(id string) string { return json + "Content-Length: 9000\r\n\r\n" + body(id) }},
		{"S47", "half a chunk", false, true, func(id string) string { return json + "Transfer-Encoding: chunked\r\n\r\nfff\r\n" + body(id) }},
		{"S47", "no last chunk", false, true, func(id string) string {
			return json + "Transfer-Encoding: chunked\r\n\r\n" + strings.TrimSuffix(chunked(body(id), ""), "0\r\n\r\n")
		}},
		{"S47", "half an event", false, true, func(id string) string {
			return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: " + body(id)[:40]
		}},
	} {
		t.Run(row.id+"/"+row.name, func(t *testing.T) {
			t.Parallel()
			var once sync.Mutex
			first := true
			back := newCrude(t, func(conn int, method, id string) (string, bool) {
				once.Lock()
				defer once.Unlock()
				if first {
					first = false
					return row.answer(id), row.end
				}
				return whole(id, own(id)), false
			})
			e := edgetest.Start(t, edgetest.ManifestFor(back.url(), compile.StreamableHTTP))
			c := e.NewClient()
			r := c.Modern("1", "tools/call", edgetest.CallParams("echo", "{}"))
			if row.good {
				if r.Result() != own("1") {
					t.Errorf("%s", r.Body)
				}
			} else {
				fails(t, r, 502, 502, "1")
			}
			for _, id := range []string{"2", "3"} {
				if got := c.Modern(id, "tools/call", edgetest.CallParams("echo", "{}")).Result(); got != own(id) {
					t.Errorf("the next client got %s", got)
				}
			}
			back.mu.Lock()
			defer back.mu.Unlock()
			if len(back.used) != 3 || back.used[0] == back.used[1] {
				t.Errorf("the calls came on the connections %v", back.used)
			}
		})
	}
}

// A call whose answer breaks off after it has begun to reach the client ends
// with an error, never as if it were whole.
func TestS47(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, era)
			f.back.Always("tools/call", func(c *edgetest.Call) {
				c.Progress(1)
				c.Raw("data: " + `{"jsonrpc":"2.0","id":` + c.ID() + `,"resu`)
				c.Abort()
			})
			r := f.callerOf(t, era, "").call(t, "1", "{}", `"progressToken":7`)
			if m := r.NextMessage(); m.Method != "notifications/progress" {
				t.Errorf("%+v", m)
			}
			if m := r.NextMessage(); m.Error == nil || string(m.ID) != "1" {
				t.Errorf("%+v", m)
			}
			if rest := r.Rest(); len(rest) != 0 {
				t.Error(fmt.Sprint("after its end: ", rest))
			}
		})
	}
}
