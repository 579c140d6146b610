//go:build unix

package serve_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv/kvtest"
	"github.com/weir-edge/weir/edge/serve"
)

// info is a number that a Redis tells of itself.
func info(t *testing.T, redis *kvtest.Server, section, name string) int {
	t.Helper()
	for line := range strings.Lines(redis.Do("info", section)) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), ":"); key == name {
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("the Redis does not tell %s", name)
	return 0
}

// noise is text of which a compressor makes as little as possible.
func noise(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 !#$%&'()*+,-./:;<=>?@[]^_`{|}~"
	out := make([]byte, n)
	for i := range out {
		out[i] = letters[rand.IntN(len(letters))]
	}
	return string(out)
}

// saying is the capabilities and the clientInfo of a client that says so many
// bytes of itself.
func saying(n int) (caps, info string) {
	const name = `{"name":"n","version":"1"}`
	const frame = `{"experimental":{"x":""}}`
	if n/2 < len(frame) {
		return "{}", name
	}
	caps = `{"experimental":{"x":"` + noise(n/2-len(frame)) + `"}}`
	return caps, `{"name":"` + noise(n-n/2-len(name)+1) + `","version":"1"}`
}

func introduction(version, caps, info string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q,"capabilities":%s,"clientInfo":%s}}`, version, caps, info)
}

// TestZ40ClientsThatSayMuch: what a client says of itself has 16 KiB, wherever and
// in whichever era it says so; more is refused in words that name it, and nothing
// of it is kept or passed on.
func TestZ40ClientsThatSayMuch(t *testing.T) {
	t.Parallel()
	const most = 16 << 10
	for _, stored := range []bool{false, true} {
		t.Run(fmt.Sprintf("store %v", stored), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.Legacy)
			yaml := edgetest.Manifest(back)
			if stored {
				yaml = edgetest.Manifest(back, in(kvtest.Redis(t)))
			}
			e := edgetest.Start(t, yaml, patient)
			f := &front{Edge: e, back: back, client: e.NewClient()}
			f.stored(t)
			f.introduced(t)
			for _, n := range []int{most, most + 1, 1 << 20, 4<<20 - 1000} {
				caps, info := saying(n)
				for version, big := range map[string][2]string{
					"both":             {caps, info},
					"the capabilities": {`{"experimental":{"x":"` + noise(n-25-26) + `"}}`, `{"name":"n","version":"1"}`},
					"the info":         {`{}`, `{"name":"` + noise(n-2-25) + `","version":"1"}`},
				} {
					caps, info := big[0], big[1]
					if len(caps)+len(info) != n {
						t.Fatalf("%s: %d bytes, not %d", version, len(caps)+len(info), n)
					}
					legacy := f.client.Post(introduction("2025-11-25", caps, info))
					body, head := edgetest.ModernRequest("1", "tools/call", `{"name":"echo","arguments":{}}`,
						`{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":`+caps+`,"io.modelcontextprotocol/clientInfo":`+info+`}`)
					modern := f.client.Post(body, head...)
					old := f.client.OpenSSE()
					old.Accepted(introduction("2024-11-05", caps, info))
					on := old.Stream.NextMessage()
					if n <= most {
						if legacy.Status != 200 || legacy.Message().Error != nil || modern.Status != 200 || on.Error != nil {
							t.Errorf("%s, %d bytes: %s %d %s %.200s", version, n, legacy.Body, modern.Status, modern.Body, on.Error.Message)
						}
					} else {
						fails(t, legacy, 200, -32602, "1")
						fails(t, modern, 400, -32602, "1")
						if on.Error == nil || on.Error.Code != -32602 {
							t.Errorf("%s, %d bytes, the older transport: %+v", version, n, on)
						}
						for _, text := range []string{string(legacy.Body), string(modern.Body), on.Error.Message} {
							if !strings.Contains(text, "clientInfo") || !strings.Contains(text, "apabilities") || !strings.Contains(text, strconv.Itoa(n)) || !strings.Contains(text, strconv.Itoa(most)) {
								t.Errorf("the refusal does not say what is wrong: %.300s", text)
							}
						}
					}
					old.Stream.Close()
				}
			}
			if n := e.Serve.Sessions(); n > 6 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}

// TestZ40LargestSessions: a hundred clients that say as much of themselves as they
// may take 2 MiB of the store at most; another edge knows what each of them said,
// to the byte; and what is asked about them again and again is small.
func TestZ40LargestSessions(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy)
	const clients = 100
	was := info(t, p.redis, "memory", "used_memory")
	type one struct{ id, caps, info string }
	var all []one
	for range clients {
		caps, info := saying(16 << 10)
		r := p.a.client.Post(introduction("2025-11-25", caps, info))
		if r.Status != 200 || r.Message().Error != nil {
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
		all = append(all, one{r.Header.Get("Mcp-Session-Id"), caps, info})
	}
	now := info(t, p.redis, "memory", "used_memory")
	t.Logf("%d bytes of the store for each of %d clients", (now-was)/clients, clients)
	if now-was > 2<<20 {
		t.Errorf("%d clients take %d bytes of the store", clients, now-was)
	}
	at := func(f *front, id string) *edgetest.Session {
		return &edgetest.Session{Client: f.client, ID: id, Version: "2025-11-25"}
	}
	for i, c := range all {
		if i%10 > 0 {
			continue
		}
		if r := at(p.b, c.id).Call("1", "echo", "{}"); r.Status != 200 {
			t.Fatalf("at the other edge: status %d: %s", r.Status, r.Body)
		}
		inits := p.back.Requests("initialize")
		if got := edgetest.Member(string(inits[len(inits)-1].Message.Params), "clientInfo"); got != c.info {
			t.Errorf("the backend is told of %.100s…, not %.100s…", got, c.info)
		}
	}
	// Each second the store is asked whether the session is there.
	s := at(p.a, all[0].id)
	sent, asked := info(t, p.redis, "stats", "total_net_output_bytes"), 0
	edgetest.Until(t, "ten questions", func() bool {
		if r := s.Call("1", "echo", "{}"); r.Status != 200 {
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
		commands := p.redis.Do("info", "commandstats")
		_, rest, _ := strings.Cut(commands, "cmdstat_getrange:calls=")
		count, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.Atoi(count)
		if asked == 0 {
			asked = n
		}
		return n >= asked+10
	})
	if n := (info(t, p.redis, "stats", "total_net_output_bytes") - sent) / 10; n > 128<<10 { // most of it is what this test asks
		t.Errorf("%d bytes are read each time", n)
	}
}

// TestZ40SubscriptionsOfACommonSession: what a session is subscribed to lies in
// the store, and is bounded there by number and by bytes; what is refused is said,
// and what is there holds at another edge.
func TestZ40SubscriptionsOfACommonSession(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy)
	p.back.Always("resources/subscribe", func(c *edgetest.Call) { c.Result("{}") })
	p.back.Always("resources/unsubscribe", func(c *edgetest.Call) { c.Result("{}") })
	c := p.a.callerOf(t, edgetest.Legacy, "")
	subscribe := func(c caller, method, uri string) *edgetest.Response {
		return c.request(t, "1", method, `{"uri":"`+uri+`"}`)
	}
	fails(t, subscribe(c, "resources/subscribe", "test://"+strings.Repeat("x", 16<<10)), 200, -32602, "1")
	fails(t, subscribe(c, "resources/subscribe", "test://"+strings.Repeat("x", 3<<20)), 200, -32602, "1")
	large := "test://" + strings.ReplaceAll(strings.ReplaceAll(noise(15<<10), `"`, ""), `\`, "")
	if r := subscribe(c, "resources/subscribe", large); r.Status != 200 || r.Message().Error != nil {
		t.Fatalf("status %d: %.200s", r.Status, r.Body)
	}
	fits := 0
	for i := range 200 {
		if subscribe(c.at([]*front{p.a, p.b}[i%2]), "resources/subscribe", fmt.Sprintf("test://%014d", i)).Message().Error == nil {
			fits++
		}
	}
	if fits < 20 || fits > 60 {
		t.Errorf("%d more found room", fits)
	}
	if n, err := strconv.Atoi(p.redis.Do("strlen", p.redis.Do("--raw", "keys", "weir:session:*"))); err != nil || n > 17<<10 {
		t.Errorf("the session takes %d bytes (%v)", n, err)
	}
	listening := c.at(p.b).session.Listen()
	defer listening.Close()
	p.back.Until("the subscriptions at the other edge", func() bool {
		of := make(map[string]int)
		for _, r := range p.back.Requests("resources/subscribe") {
			of[edgetest.Member(string(r.Message.Params), "uri")]++
		}
		return of[`"`+large+`"`] >= 2 && of[`"test://00000000000000"`] >= 2
	})
	if r := subscribe(c, "resources/unsubscribe", large); r.Message().Error != nil {
		t.Errorf("%s", r.Body)
	}
	if r := subscribe(c.at(p.b), "resources/subscribe", large[:len(large)-8]); r.Message().Error != nil {
		t.Errorf("no room after one was given up: %.200s", r.Body)
	}
}

// TestZ40ProgressTokens: a progress token stands in each message about its call,
// also in those between edges, and is no longer than an id.
func TestZ40ProgressTokens(t *testing.T) {
	t.Parallel()
	cells(t, func(t *testing.T, f *front, c caller) {
		status := 200
		if c.session == nil {
			status = 400
		}
		f.introduced(t)
		for _, n := range []int{1023, 1 << 20} {
			m := fails(t, c.call(t, "1", "{}", `"progressToken":"`+strings.Repeat("x", n)+`"`), status, -32602, "1")
			if !strings.Contains(m.Error.Message, "progressToken") {
				t.Errorf("%s", m.Error.Message)
			}
		}
		if n := f.back.Count("tools/call"); n != 0 {
			t.Errorf("%d calls", n)
		}
		if r := c.call(t, "2", "{}", `"progressToken":"`+strings.Repeat("x", 1022)+`"`); r.Status != 200 {
			t.Errorf("status %d: %s", r.Status, r.Body)
		}
	}, edgetest.Settings(func(*serve.Settings) {}))
}
