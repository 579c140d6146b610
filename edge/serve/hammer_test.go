package serve_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// Many clients call at once with the same ids and tokens, some leave, some
// cancel, some are told things before the answer: nobody ever sees a byte that
// is another's, and everything ends.
func TestManyClientsAtOnce(t *testing.T) {
	t.Parallel()
	const clients, calls = 6, 40
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		for _, back := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
			t.Run(era.String()+" clients, "+back.String()+" backend", func(t *testing.T) {
				t.Parallel()
				f := newFront(t, back)
				f.back.Always("tools/call", func(c *edgetest.Call) {
					args := edgetest.Member(string(c.Message.Params), "arguments")
					result := `{"resultType":"complete","content":[],"who":` + args + `}`
					switch edgetest.Member(args, "do") {
					case `"tell"`, `"leave"`:
						if c.Token() != "" {
							c.Notify("notifications/progress", `{"progressToken":`+c.Token()+`,"progress":1,"who":`+args+`}`)
						}
						if edgetest.Member(args, "do") == `"leave"` {
							c.Wait(nil) // until the client leaves
							return
						}
					case `"fail"`:
						c.Error(400, -32602, strings.ReplaceAll(args, `"`, `'`))
						return
					}
					c.Result(result)
				})
				errs := make(chan error, clients)
				for n := range clients {
					c := f.callerOf(t, era, "")
					random := rand.New(rand.NewPCG(uint64(n), 7))
					go func() {
						var err error
						for i := 0; i < calls && err == nil; i++ {
							do := []string{"answer", "tell", "leave", "fail"}[random.IntN(4)]
							err = once(c, fmt.Sprintf(`{"client":%d,"call":%d,"do":%q}`, n, i, do), do)
						}
						errs <- err
					}()
				}
				var all []error
				for range clients {
					all = append(all, edgetest.Receive(t, errs, "the end of a client"))
				}
				if err := errors.Join(all...); err != nil {
					t.Error(err)
				}
				edgetest.Until(t, "the end of every exchange", func() bool { return f.Serve.Underway() == 0 })
			})
		}
	}
}

// once makes one call and checks that all that comes of it is its own.
func once(c caller, who, do string) error {
	r, err := c.try("1", "tools/call", edgetest.CallParams("echo", who), `"progressToken":1`)
	if err != nil {
		return fmt.Errorf("%s: %w", who, err)
	}
	if do == "leave" {
		e, err := r.TryNext()
		if err != nil || !strings.Contains(string(e.Data), who) {
			return fmt.Errorf("%s: told %s (%v)", who, e.Data, err)
		}
		if c.session == nil {
			r.Close()
			return nil
		}
		n, err := c.session.TrySend(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if err != nil || n.Status != 202 {
			return fmt.Errorf("%s: cancel: %v", who, err)
		}
		if all, err := r.TryRest(); err != nil || len(all) > 0 {
			return fmt.Errorf("%s: after the cancellation: %s (%v)", who, all, err)
		}
		return nil
	}
	var texts []string
	if r.Stream() {
		all, err := r.TryRest()
		if err != nil {
			return fmt.Errorf("%s: %w", who, err)
		}
		for _, e := range all {
			texts = append(texts, string(e.Data))
		}
	} else {
		texts = append(texts, string(r.Body))
	}
	if want := map[string]int{"tell": 2}[do]; len(texts) != max(want, 1) {
		return fmt.Errorf("%s: %d messages: %s", who, len(texts), texts)
	}
	if do == "fail" {
		who = strings.ReplaceAll(who, `"`, `'`)
	}
	for _, text := range texts {
		if !strings.Contains(text, who) {
			return fmt.Errorf("%s got %s", who, text)
		}
	}
	return nil
}
