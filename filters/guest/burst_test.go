package guest_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestZ30WorkAfterReload has a program work for a part of its time, with what it
// waits for and without, for more calls at once than there are processors: its
// time is its own and not that of its neighbours, under the limits that nobody
// set. A call that was not judged would come without its mark.
func TestZ30WorkAfterReload(t *testing.T) {
	_, host := peer(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(5 * time.Millisecond)
		w.WriteHeader(200)
	})
	const reloads, clients = 50, 64
	for _, onError := range []string{"deny", "continue"} {
		for _, waits := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, waits %v", onError, waits), func(t *testing.T) {
				back := edgetest.NewServer(t, edgetest.Modern)
				rules := []string{"sub|on_call_request|blocking=1", "on_call_request|*|work|40"} // about a millisecond
				if waits {
					rules = append(rules, "on_call_request|*|fetch|GET http://"+host+"/")
				}
				rules = append(rules, "on_call_request|*|work|20", "on_call_request|*|set_arg|/seen|true")
				f := outsider(t, "f", everything(`"http://`+host+`"`, "none"), rules...)
				f.more += ", onError: " + onError
				whole := manifest(t, backs{"back": back}, []filter{f})
				yaml := func(n int) string { // another limit makes it another program
					return strings.Replace(whole, "timeout: 30s", fmt.Sprintf("fuel: %d", 50_000_000+n), 1)
				}
				e := start(t, yaml(0))
				params := edgetest.CallParams("echo", `{"text":"`+strings.Repeat("x", 1000)+`"}`)
				var all []client
				for range clients {
					all = append(all, newClient(e, edgetest.Modern))
				}
				var mu sync.Mutex
				wrong := map[string]int{}
				for n := range reloads {
					if err := e.Serve.Reload(edgetest.Plan(t, yaml(n+1))); err != nil {
						t.Fatal(err)
					}
					var work sync.WaitGroup
					for _, c := range all {
						work.Go(func() {
							r, err := c.try("tools/call", params)
							if err == nil && r.Status == 200 && strings.Contains(string(r.Body), "seen") {
								return
							}
							mu.Lock()
							defer mu.Unlock()
							wrong[fmt.Sprintf("%v %.80s", err, r.Body)]++
						})
					}
					work.Wait()
				}
				if len(wrong) > 0 {
					t.Errorf("of %d calls: %v", reloads*clients, wrong)
				}
			})
		}
	}
}
