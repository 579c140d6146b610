package peers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// counted is a way to a server that counts what is posted there. It passes on
// bytes: an HTTP proxy would have connections, and errors, of its own.
func counted(t *testing.T, to string) (through string, posts *atomic.Int64) {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	posts = new(atomic.Int64)
	p := fake.Listen(t, func(near net.Conn) {
		far, err := net.Dial("tcp", u.Host)
		if err != nil {
			return
		}
		var back sync.WaitGroup
		back.Go(func() {
			defer near.Close()
			_, _ = io.Copy(near, far) // it ends with either of them
		})
		defer back.Wait()
		defer far.Close()
		_, _ = io.Copy(far, io.TeeReader(near, &requests{line: []byte("POST /"), count: posts}))
	})
	return "http://" + p.Addr + u.Path, posts
}

// requests counts how often a request line goes by.
type requests struct {
	line, last []byte
	count      *atomic.Int64
}

func (r *requests) Write(p []byte) (int, error) {
	all := append(r.last, p...)
	r.count.Add(int64(bytes.Count(all, r.line)))
	r.last = append([]byte(nil), all[len(all)-min(len(all), len(r.line)-1):]...) // a line may come in two parts
	return len(p), nil
}

// bridgeKit is what the tests of bridges need.
func bridgeKit(t *testing.T) (peers.Kit, *peers.Shop) {
	t.Helper()
	kit, err := peers.Find()
	if err != nil {
		t.Fatal(err)
	}
	edgetest.Need(t, kit.Lacks() == "", kit.Lacks())
	return kit, peers.NewShop(kit, t.TempDir())
}

// TestZ10Bridges has three servers that speak over their standard input and
// output behind the npm bridge supergateway, in each of its three ways, and one
// edge before them: clients of both eras reach all that there is, the status and
// the doctor know the era, and a call is one request.
func TestZ10Bridges(t *testing.T) {
	kit, shop := bridgeKit(t)
	document, err := os.ReadFile(kit.Module("@modelcontextprotocol/server-everything/dist/docs/features.md"))
	if err != nil {
		t.Fatal(err)
	}
	program := edgeProgram(t, shop)
	for _, bridge := range peers.Bridges() {
		t.Run(bridge.Name, func(t *testing.T) {
			var backends []peers.Backend
			posts := map[string]*atomic.Int64{}
			for _, server := range []string{"everything", "memory", "sequential-thinking"} {
				to := lasting(t)(shop.StartBridge(t.Context(), bridge, server, t.TempDir()))
				through, count := counted(t, to)
				backends = append(backends, peers.Backend{Name: server, URL: through, Transport: bridge.Transport})
				posts[server] = count
			}
			dir := t.TempDir()
			edge := lasting(t)(peers.StartEdgeOf(t.Context(), program, dir, backends...))
			t.Run("era", func(t *testing.T) { knownEra(t, edge, bridge) })
			t.Run("doctor", func(t *testing.T) { soundBridge(t, program, dir, bridge) })
			t.Run("clients", func(t *testing.T) { meetBridge(t, kit, edge, bridge, string(document)) })
			t.Run("requests", func(t *testing.T) { oneRequest(t, edge, posts) })
		})
	}
}

// knownEra waits for the status to say that all three are ready, and legacy.
func knownEra(t *testing.T, edge string, bridge peers.Bridge) {
	var status struct {
		DiscoveredBackends []struct{ Name, Status, Era, Revision string }
	}
	edgetest.Until(t, "three backends that are ready", func() bool {
		r, err := http.Get(strings.TrimSuffix(edge, "/mcp") + "/status")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		if err := json.NewDecoder(r.Body).Decode(&status); err != nil {
			t.Fatal(err)
		}
		ready := 0
		for _, b := range status.DiscoveredBackends {
			if b.Status == "ready" || b.Status == "degraded" {
				ready++
			}
		}
		return ready == 3
	})
	want := legacyVersion
	if bridge.Transport == "sse" {
		want = "2024-11-05"
	}
	for _, b := range status.DiscoveredBackends {
		if b.Era != "legacy" || b.Revision != want {
			t.Errorf("%+v", b)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// soundBridge has the doctor look at the same configuration: all is well, but
// for the bridge that answers everybody.
func soundBridge(t *testing.T, program, dir string, bridge peers.Bridge) {
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatal(err, files)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	// A stateless bridge starts its server for each request, on a machine that has other tests.
	out, err := peers.Run(peers.Command(ctx, program, "doctor", "--json", "--timeout", "1m", "-c", dir+"/"+files[0].Name(), "--listen", "127.0.0.1:0", "--admin-listen", ""))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var found struct {
		Steps []struct{ Step, Subject, Class, Detail, Cause string }
	}
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	introduced := 0
	for _, s := range found.Steps {
		if s.Step != "introduce" {
			continue
		}
		introduced++
		class := ""
		if bridge.Name == "sse" {
			class = "answers"
		}
		if !strings.Contains(s.Detail+s.Cause, "legacy era") || s.Class != class {
			t.Errorf("%+v", s)
		}
	}
	if introduced != 3 {
		t.Errorf("%d introductions in %s", introduced, out)
	}
}

// meetBridge is the table of clients before the server that has everything, and
// a call of the others'.
func meetBridge(t *testing.T, kit peers.Kit, edge string, bridge peers.Bridge, document string) {
	for _, row := range stocks(document) {
		if row.Name != "npm-http" {
			continue
		}
		row = prefixed(row, "everything_")
		if bridge.Name == "stateless" { // it asks nothing, and tells its server so
			row.has.Elicit, row.has.Sample = nil, nil
			row.want.Elicit, row.want.Sample = asked{}, asked{}
		}
		some := []string{"ts-v1", "go-sdk-modern", "ts-v2-modern", "go-sdk-legacy"}
		if bridge.Name == "stateless" { // which starts its server anew for each of their requests
			some = some[:2]
		}
		for _, client := range clients() {
			if !slices.Contains(some, client.name) {
				continue
			}
			t.Run(client.name, func(t *testing.T) {
				if bridge.Name != "sse" { // whose questions are heard by everybody
					t.Parallel()
				}
				meet(t, kit, client, row, edge, false)
			})
		}
	}
	for era, version := range map[string]string{"legacy": legacyVersion, "modern": modernVersion} {
		t.Run("others, "+era, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			session, _ := connect(ctx, t, edge, version)
			for _, one := range []struct {
				tool      string
				arguments args
				want      string
			}{
				{"memory_create_entities", args{"entities": []args{{"name": "weir", "entityType": "edge", "observations": []string{"of " + era}}}}, ""},
				{"memory_read_graph", args{}, "weir"},
				{"sequential-thinking_sequentialthinking", args{"thought": "a", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1}, "thoughtHistoryLength"},
			} {
				r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: one.tool, Arguments: one.arguments})
				if err != nil || r.IsError || !strings.Contains(encode(r), one.want) {
					t.Errorf("%s: %v, %s", one.tool, err, encode(r))
				}
			}
		})
	}
}

// oneRequest counts what is posted for calls once everything is known.
func oneRequest(t *testing.T, edge string, posts map[string]*atomic.Int64) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for era, version := range map[string]string{"legacy": legacyVersion, "modern": modernVersion} {
		session, _ := connect(ctx, t, edge, version)
		call := func(n int) {
			r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "everything_echo", Arguments: args{"message": fmt.Sprint(n)}})
			if err != nil || !strings.Contains(encode(r), fmt.Sprintf("Echo: %d", n)) {
				t.Errorf("%s: %v, %s", era, err, encode(r))
			}
		}
		call(0)
		var counts []int64
		for n := range 5 { // a health check may come in between
			before := posts["everything"].Load()
			call(n + 1)
			counts = append(counts, posts["everything"].Load()-before)
		}
		if slices.Sort(counts); counts[0] != 1 || counts[3] != 1 {
			t.Errorf("%s: requests for each of %d calls: %d", era, len(counts), counts)
		}
	}
}

// TestZ11BridgeThatAnswersEverybody has clients of both eras call at the same
// time, under the same ids and progress tokens, through the bridge that has one
// process of its server for all and sends all that it says to everybody: no
// answer and no progress reaches another.
func TestZ11BridgeThatAnswersEverybody(t *testing.T) {
	_, shop := bridgeKit(t)
	bridge := peers.Bridges()[2]
	to := lasting(t)(shop.StartBridge(t.Context(), bridge, "everything", t.TempDir()))
	edge := lasting(t)(peers.StartEdge(t.Context(), edgeProgram(t, shop), t.TempDir(), to, bridge.Transport))
	base := strings.TrimSuffix(edge, "/mcp")
	const each, rounds = 4, 125
	var work sync.WaitGroup
	var crossed, progress atomic.Int64
	for n := range 2 * each {
		c := edgetest.NewClient(t, base)
		call := func(id, tool, arguments string) (*edgetest.Response, error) {
			return c.TryModern(id, "tools/call", edgetest.CallParams(tool, arguments), `"progressToken":1`)
		}
		if n < each {
			s := c.Initialize("")
			call = func(id, tool, arguments string) (*edgetest.Response, error) {
				params := strings.TrimSuffix(edgetest.CallParams(tool, arguments), "}") + `,"_meta":{"progressToken":1}}`
				return s.TrySend(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":` + params + `}`)
			}
		}
		work.Go(func() {
			for i := range rounds {
				id, tool, want := fmt.Sprint(i), "echo", fmt.Sprintf("Echo: %d of %d", i, n)
				arguments := fmt.Sprintf(`{"message":"%d of %d"}`, i, n)
				steps := 0
				if i%10 == 9 {
					steps = 1 + n%3
					tool, arguments = "trigger-long-running-operation", fmt.Sprintf(`{"duration":0.05,"steps":%d}`, steps)
					want = fmt.Sprintf("Steps: %d.", steps)
				}
				r, err := call(id, tool, arguments)
				if err != nil {
					t.Error(err)
					return
				}
				text := string(r.Body)
				var all []edgetest.Event
				if r.Stream() {
					all = r.Rest()
					text = string(all[len(all)-1].Data)
					all = slices.DeleteFunc(all, func(e edgetest.Event) bool { return !strings.Contains(string(e.Data), "notifications/progress") })
				}
				if !strings.Contains(text, want) || !strings.Contains(text, `"id":`+id) {
					crossed.Add(1)
					t.Errorf("client %d, call %s: %s", n, id, text)
				}
				if len(all) != steps {
					progress.Add(1)
					t.Errorf("client %d, call %s: %d messages of %d before the answer: %s", n, id, len(all), steps, all)
				}
			}
		})
	}
	work.Wait()
	t.Logf("%d calls: %d answers crossed, %d with progress of others", 2*each*rounds, crossed.Load(), progress.Load())
	if status := string(edgetest.NewClient(t, base).Do("GET", "/status", "").Body); !strings.Contains(status, `"strayAnswers"`) {
		t.Errorf("the status does not tell: %s", status)
	}
}
