package backend

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
)

// A local server that was started again elsewhere is sent the Host of where it listens, with a
// credential, too, whose lines stand beside it: the first connection tells where that is.
func TestCredentialForAServerThatMoved(t *testing.T) {
	t.Parallel()
	hosts := make(chan string, 4)
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		if text, _ := io.ReadAll(r.Body); string(text) == "{}" { // no introduction
			hosts <- r.Host + " " + r.Header.Get("X-Key")
		}
		w.WriteHeader(202)
	}, func(c *Config) {
		c.Credential = &edge.Credential{Headers: []string{"X-Key"}, Attach: func(_ context.Context, to *edge.Outbound, set func(string, edge.Secret)) (uint64, error) {
			set("X-Key", edge.Secret(to.URL.Host))
			return 1, nil
		}}
	})
	if _, err := b.Introduced(t.Context(), nil); err == nil {
		t.Error("it has introduced itself")
	}
	before := *b.peer.url
	var once sync.Once
	b.peer.pool.Via(func(context.Context) (net.Conn, error) {
		once.Do(func() {
			u := before
			u.Host = "127.0.0.1:1"
			b.peer.served.Store(&u)
		})
		return net.Dial("tcp", before.Host)
	})
	for range 2 {
		o := &outgoing{method: "POST", body: []byte("{}"), now: time.Now(), until: time.Now().Add(time.Minute)}
		r, _, err := b.peer.send(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		r.close()
		if got := <-hosts; got != "127.0.0.1:1 127.0.0.1:1" {
			t.Errorf("asked for %s", got)
		}
	}
	if len(hosts) != 0 {
		t.Error("it was asked more often")
	}
}
