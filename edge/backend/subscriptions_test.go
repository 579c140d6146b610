package backend_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// A modern backend behind a proxy that cuts its streams after a while is listened to again at once
// each time.
func TestListeningThatIsCut(t *testing.T) {
	t.Parallel()
	back, _, c := start(t, edgetest.Modern)
	back.Always("subscriptions/listen", func(c *edgetest.Call) {
		c.Notify("notifications/subscriptions/acknowledged", `{"notifications":{"toolsListChanged":true}}`)
		over := make(chan struct{})
		time.AfterFunc(1100*time.Millisecond, func() { close(over) })
		c.Wait(over)
	})
	stream := c.Initialize("").Listen()
	defer stream.Close()
	back.Await("subscriptions/listen", 1)
	began := time.Now()
	back.Await("subscriptions/listen", 7)
	if took := time.Since(began); took > edgetest.Allowed(10*time.Second) {
		t.Errorf("six streams, which have 1.1 s each, took %s", took)
	}
}

// A client's session subscribes to so many resources, and to URIs of so much
// text; what it gives up makes room again, and what a backend refuses takes none.
func TestSubscriptionsAreBounded(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back, _, c := start(t, era)
			back.Always("resources/subscribe", func(c *edgetest.Call) {
				if strings.Contains(string(c.Message.Params), "refused") {
					c.Error(200, -32602, "no such resource")
					return
				}
				c.Result("{}")
			})
			back.Always("resources/unsubscribe", func(c *edgetest.Call) { c.Result("{}") })
			s := c.Initialize("{}")
			ask := func(method, uri string) int {
				t.Helper()
				r := s.Request("1", method, `{"uri":"`+uri+`"}`)
				if r.Status != 200 && r.Status != 503 {
					t.Fatalf("%s %.40s: status %d: %s", method, uri, r.Status, r.Body)
				}
				return r.Status
			}
			if era == edgetest.Legacy {
				for range 1001 {
					ask("resources/subscribe", "test://refused")
				}
			}
			long := "test://" + strings.Repeat("x", 100<<10)
			if ask("resources/subscribe", long) != 200 || ask("resources/subscribe", long+"y") != 503 {
				t.Error("URIs of 200 KiB")
			}
			ask("resources/unsubscribe", long)
			for i := range 1000 {
				if code := ask("resources/subscribe", fmt.Sprintf("test://%d", i)); code != 200 {
					t.Fatalf("resource %d: status %d", i, code)
				}
			}
			if ask("resources/subscribe", "test://more") != 503 {
				t.Error("one resource too many")
			}
			if ask("resources/subscribe", "test://7") != 200 {
				t.Error("one that is subscribed to already")
			}
			ask("resources/unsubscribe", "test://7")
			if ask("resources/subscribe", "test://more") != 200 {
				t.Error("no room after one was given up")
			}
		})
	}
}
