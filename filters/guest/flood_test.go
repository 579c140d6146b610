package guest_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestZ32Flood has a program, in WebAssembly or Starlark, answer every notification of a call
// with lines for the log and with operations, many of each. The log gets 64 lines a second,
// each of 4 KiB at most. Up to 256 operations are applied; more is a failure of the program,
// and what was told stays away. Calls of others are served meanwhile as if nothing were.
func TestZ32Flood(t *testing.T) {
	const told, lines, size = 100, 200, 6000
	floods := func(ops int) map[string]func(testing.TB, backs) string {
		return map[string]func(testing.TB, backs) string{
			"wasm": func(t testing.TB, all backs) string {
				return manifest(t, all, []filter{{name: "f", rules: []string{
					fmt.Sprintf("on_notification|*|shout|%d|%d", lines, size), fmt.Sprintf("on_notification|*|repeat|%d", ops),
				}}})
			},
			"starlark": func(t testing.TB, all backs) string {
				return scripted(t, all, []script{{name: "f", text: fmt.Sprintf(`
def on_notification(c):
    for _ in range(%d):
        warn("shout" + "!" * %d)
    return [redact("/message", "said %%d" %% (i + 1)) for i in range(%d)]
`, lines, size, ops)}})
			},
		}
	}
	for _, ops := range []int{256, 257, 2_000} {
		for language, yaml := range floods(ops) {
			t.Run(fmt.Sprintf("%s, %d operations", language, ops), func(t *testing.T) {
				back := edgetest.NewServer(t, edgetest.Modern)
				back.Always("tools/call", func(c *edgetest.Call) {
					if c.Token() != "" {
						for i := range told {
							c.Notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d,"message":"boom"}`, c.Token(), i+1))
						}
					}
					c.Result(`{"resultType":"complete","content":[]}`)
				})
				e := start(t, yaml(t, backs{"back": back}))
				flooded, neighbour := client{e.NewClient().As(edgetest.Modern, "")}, client{e.NewClient().As(edgetest.Legacy, "")}
				neighbour.call(t, "echo", "{}").Result()
				began, over := time.Now(), make(chan struct{})
				var others sync.WaitGroup
				served, worst := 0, time.Duration(0)
				others.Go(func() {
					for {
						select {
						case <-over:
							return
						default:
						}
						at := time.Now()
						r, err := neighbour.try("tools/call", edgetest.CallParams("echo", "{}"))
						if err != nil || r.Status != 200 || strings.Contains(string(r.Body), `"error"`) {
							t.Errorf("a neighbour got %+v, %v", r, err)
							return
						}
						worst = max(worst, time.Since(at))
						served++
					}
				})
				h, err := flooded.play(1, "echo", `{}`)
				took := time.Since(began)
				close(over)
				others.Wait()
				want := told + 1
				if ops > 256 {
					want = 1
				}
				if err != nil || len(h.text) != want || h.end.Result == nil {
					t.Errorf("the client got %d messages, %v, %s; want %d", len(h.text), err, h.end.Result, want)
				}
				if want > 1 && !strings.Contains(h.text[told-1], `"message":"said 256"`) {
					t.Errorf("the last is %s", h.text[told-1])
				}
				if served == 0 || worst > 5*time.Second {
					t.Errorf("a neighbour was served %d times, once after %s", served, worst)
				}
				shouts := 0
				for line := range strings.Lines(e.Log()) {
					if strings.Contains(line, "shout") {
						shouts++
						if n := strings.Count(line, "!"); n > 4<<10 {
							t.Errorf("a line has %d bytes of the program", n)
						}
					}
				}
				if most := 64 * (int(took.Seconds()) + 2); shouts == 0 || shouts > most {
					t.Errorf("%d of %d lines are in the log within %s", shouts, told*lines, took)
				}
				if failed := strings.Contains(e.Log(), "on_notification: abi: "); failed != (ops > 256) {
					t.Errorf("it failed: %v", failed)
				}
				t.Logf("%s, a neighbour served %d times, at worst within %s; %d lines in the log", took, served, worst, shouts)
			})
		}
	}
}
