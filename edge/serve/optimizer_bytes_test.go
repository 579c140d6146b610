package serve_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// twins are two edges before one fake server: one with the optimizer, one without.
func twins(t *testing.T, back *edgetest.Server, client edgetest.Era, can string) (with, without caller) {
	t.Helper()
	offersTools(back, library...)
	one := func(more ...string) caller {
		e := edgetest.Start(t, edgetest.Manifest(back, more...))
		return (&front{Edge: e, back: back, client: e.NewClient()}).callerOf(t, client, can)
	}
	return one(finds()), one()
}

// asTold is what a client hears of a call, the answer last.
func asTold(r *edgetest.Response) string {
	before, answer := messages(r)
	return strings.Join(append(before, answer), "\n")
}

// TestCallToolBytes: what a client gets of call_tool is byte for byte what the direct call
// gives, in every cell: structured content, integers of any size, unknown fields, failures,
// progress.
func TestCallToolBytes(t *testing.T) {
	answers := []string{
		`{"content":[ {"type":"text","text":"é\u00e9"} ],"structuredContent":{"b":1152921504606846976,"a":[1.10,1e400]},"x-own":{"n":12345678901234567890123}}`,
		`{"content":[],"isError":true,"_meta":{"own/key":[ 1 , 2 ]}}`,
		`{"content":[{"type":"resource_link","uri":"file:///a","name":"a","unknown":null},{"type":"new-kind","z":0}]}`,
	}
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		s := edgetest.NewServer(t, back)
		with, without := twins(t, s, client, "")
		for i, answer := range answers {
			if back == edgetest.Modern {
				answer = `{"resultType":"complete",` + answer[1:]
			}
			s.Always("tools/call", func(c *edgetest.Call) {
				if c.Token() != "" {
					c.Progress(1)
					c.Notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":2,"total":9007199254740993,"message":"né"}`, c.Token()))
				}
				c.Result(answer)
			})
			arguments := fmt.Sprintf(`{"path": "a%d","deep":{"n":1152921504606846976 , "z":[1.0,-0]},"uniécode":"\u00e9"}`, i)
			for _, meta := range [][]string{nil, {`"progressToken":"tok\u0041"`, `"other/key":{"n":1e3}`}} {
				s.Forget()
				got := asTold(with.request(t, "7", "tools/call", through("read_file", arguments), meta...))
				want := asTold(without.request(t, "7", "tools/call", edgetest.CallParams("read_file", arguments), meta...))
				if got != want {
					t.Errorf("call_tool tells\n%s\nwant\n%s", got, want)
				}
				asked := s.Requests("tools/call")
				if len(asked) != 2 {
					t.Fatalf("the backend got %d calls", len(asked))
				}
				for _, path := range [][]string{{"name"}, {"arguments"}, {"_meta", "other/key"}} {
					a, b := edgetest.Member(string(asked[0].Message.Params), path...), edgetest.Member(string(asked[1].Message.Params), path...)
					if a != b || path[0] == "arguments" && a != arguments {
						t.Errorf("the backend got %v %s, and of the direct call %s", path, a, b)
					}
				}
			}
		}
		s.Always("tools/call", func(c *edgetest.Call) { c.Error(200, -32099, "own né") })
		got, want := asTold(with.request(t, "8", "tools/call", through("read_file", "{}"))), asTold(without.request(t, "8", "tools/call", edgetest.CallParams("read_file", "{}")))
		if got != want || !strings.Contains(got, "-32099") {
			t.Errorf("a failure is\n%s\nwant\n%s", got, want)
		}
	})
}

// TestCallToolAsks: what a backend asks in a call reaches the client by call_tool as by the
// direct call, and the call goes on with the answer, in every cell.
func TestCallToolAsks(t *testing.T) {
	const q = `{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}`
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		s := edgetest.NewServer(t, back)
		with, without := twins(t, s, client, asks)
		if back == edgetest.Modern {
			wantsInput(s, "read_file", "elicitation/create", q)
		} else {
			s.Always("tools/call", func(c *edgetest.Call) {
				m := c.Ask("7", "elicitation/create", q)
				c.Result(`{"content":[],"structuredContent":{"text":` + quote(string(m.Result)) + `}}`)
			})
		}
		var all [2]string
		for i, c := range []caller{with, without} {
			params := edgetest.CallParams("read_file", `{"path":"a"}`)
			if i == 0 {
				params = through("read_file", `{"path":"a"}`)
			}
			if client == edgetest.Legacy {
				r := c.request(t, "1", "tools/call", params)
				asked := r.NextMessage()
				c.session.Reply(asked.ID, `{"action":"accept","content":{"n":1152921504606846976}}`)
				rest := r.Rest()
				all[i] = asked.Method + string(asked.Params) + string(rest[len(rest)-1].Data)
				continue
			}
			first := c.request(t, "1", "tools/call", params, edgetest.Capabilities(asks)).Result()
			requests := edgetest.Member(first, "inputRequests")
			name := requests[2 : 2+strings.Index(requests[2:], `"`)]
			again := params[:len(params)-1] + fmt.Sprintf(`,"inputResponses":{%q:{"action":"accept","content":{"n":1152921504606846976}}},"requestState":%s}`, name, edgetest.Member(first, "requestState"))
			all[i] = requests + string(c.request(t, "2", "tools/call", again, edgetest.Capabilities(asks)).Result())
			// A state is of its request alone: it opens no other call.
			other := strings.Replace(again, `"path":"a"`, `"path":"b"`, 1)
			if m := c.request(t, "3", "tools/call", other, edgetest.Capabilities(asks)).Message(); m.Error == nil && !strings.Contains(string(m.Result), "the state of another call") {
				t.Errorf("the state of another call is taken: %s", m.Result)
			}
		}
		if all[0] != all[1] || !strings.Contains(all[0], "1152921504606846976") {
			t.Errorf("call_tool:\n%s\nthe direct call:\n%s", all[0], all[1])
		}
	})
}

// TestCallToolCancelled: a call by call_tool is cancelled at its backend as a direct one is.
func TestCallToolCancelled(t *testing.T) {
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		s := edgetest.NewServer(t, back)
		with, _ := twins(t, s, client, "")
		gone := make(chan struct{}, 1)
		s.Always("tools/call", func(c *edgetest.Call) {
			c.Progress(1)
			<-c.Gone()
			gone <- struct{}{}
		})
		r := with.request(t, "41", "tools/call", through("read_file", "{}"), `"progressToken":"t"`)
		r.NextMessage()
		if client == edgetest.Legacy {
			with.session.Notify("notifications/cancelled", `{"requestId":41}`)
		} else {
			r.Close()
		}
		if back == edgetest.Legacy {
			s.Await("notifications/cancelled", 1)
			return
		}
		edgetest.Receive(t, gone, "the end of the call at the backend")
	})
}

// TestCallToolAtOnce: calls that are passed on at once, by clients of which some leave in the
// middle, each get the answer of their own; what a call is made of is used again for the next.
func TestCallToolAtOnce(t *testing.T) {
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		s := edgetest.NewServer(t, back)
		with, _ := twins(t, s, client, "")
		s.Always("tools/call", func(c *edgetest.Call) {
			path := edgetest.Member(string(c.Message.Params), "arguments", "path")
			if strings.HasSuffix(path, `leave"`) {
				c.Progress(1)
				<-c.Gone()
				return
			}
			result := fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`, path)
			if back == edgetest.Modern {
				result = `{"resultType":"complete",` + result[1:]
			}
			c.Result(result)
		})
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() {
				for i := range 40 {
					id := fmt.Sprint(n*1000 + i + 1)
					path := fmt.Sprintf("%d/%d/%s", n, i, strings.Repeat("x", i*n*8))
					if leaves := i%8 == n; leaves && client == edgetest.Modern {
						r, err := with.try(id, "tools/call", through("read_file", fmt.Sprintf(`{"path":%q}`, path+"leave")), `"progressToken":"t"`)
						if err != nil {
							t.Error(err)
							return
						}
						r.NextMessage()
						r.Close()
						continue
					}
					r, err := with.try(id, "tools/call", through("read_file", fmt.Sprintf(`{"path":%q}`, path)))
					if err != nil {
						t.Error(err)
						return
					}
					if _, answer := messages(r); edgetest.Member(answer, "id") != id || !strings.Contains(answer, `"text":"`+path+`"`) {
						t.Errorf("call %s of %s was answered %.300s", id, path, answer)
						return
					}
				}
			})
		}
		all.Wait()
	})
}
