package backend

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/mcp"
)

// A backend without a credential that refused a probe is probed again when it takes a
// credential that was chosen for a call.
func TestChosenCredentialBeginsChecksAgain(t *testing.T) {
	probed := make(chan struct{}, 100)
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") == "" {
			probed <- struct{}{}
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		text, _ := io.ReadAll(r.Body) // what is missing is no message
		m, err := mcp.Decode(text)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		result := `{"resultType":"complete","content":[]}`
		if m.Method == "server/discover" {
			result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.IDText(), result)
	}, func(c *Config) {
		c.Health = health.Config{Interval: time.Hour, Timeout: 5 * time.Second, Rules: health.Rules{Threshold: 1}}
	})
	for end := time.Now().Add(10 * time.Second); b.monitor.Snapshot().Is() != health.Unauthenticated; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("status %s", b.monitor.Snapshot().Is())
		}
	}
	for len(probed) > 0 {
		<-probed
	}
	chosen := &edge.Credential{Name: "a", Headers: []string{"X-Key"}, Attach: func(_ context.Context, _ *edge.Outbound, set func(string, edge.Secret)) (uint64, error) {
		set("X-Key", "k")
		return 1, nil
	}}
	o := &outgoing{method: "POST", body: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`), x: &edge.Exchange{Chosen: chosen}}
	r, _, err := b.peer.send(t.Context(), o)
	if err != nil || r.status != 200 {
		t.Fatal(err)
	}
	r.close()
	select {
	case <-probed:
	case <-time.After(10 * time.Second):
		t.Error("the backend is not probed again")
	}
}
