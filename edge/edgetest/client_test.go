package edgetest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestAnswerAgain: who asks a response for its answer twice is told the same twice, also of a stream,
// which is read once.
func TestAnswerAgain(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":1,"result":{}}`
	for kind, body := range map[string]string{"application/json": answer, "text/event-stream": "event: message\ndata: " + answer + "\n\n"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = fmt.Fprint(w, body)
		}))
		t.Cleanup(s.Close)
		r := edgetest.NewClient(t, s.URL).Post("{}")
		for range 2 {
			if m := r.Message(); string(m.ID) != "1" || r.Result() != "{}" {
				t.Errorf("%s: %+v", kind, m)
			}
		}
	}
}
