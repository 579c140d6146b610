package guest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestZ02EveryMethodMeetsPrograms sends every method in every form to an edge with a
// program that denies whatever it is asked about: nothing reaches a backend but
// through it.
func TestZ02EveryMethodMeetsPrograms(t *testing.T) {
	t.Parallel()
	rules := []string{"on_message|*|deny|0|not here", "on_call_request|*|deny|0|not here"}
	for _, several := range []bool{false, true} {
		for _, of := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			t.Run(fmt.Sprintf("%s backend, several %v", of, several), func(t *testing.T) {
				t.Parallel()
				back := edgetest.NewServer(t, of)
				edgetest.Offer(back, "back")
				all := backs{"back": back}
				var more []string
				if several {
					all = backs{"a": back, "b": edgetest.NewServer(t, of)}
				}
				e := start(t, manifest(t, all, []filter{{name: "f", rules: rules}}, more...))
				s := e.NewClient().InitializeAs("2025-03-26", "")
				older := e.NewClient().OpenSSE()
				older.Initialize("")
				c := e.NewClient()
				marks := 0
				for _, a := range edgetest.Askings() {
					for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
						for _, f := range edgetest.Forms(era) {
							marks++
							body, header := a.Marked(era, f, "7", "back", fmt.Sprintf("mark-%d.", marks))
							var r *edgetest.Response
							switch {
							case f.Older:
								r = older.Do("POST", older.Path, body)
							case era == edgetest.Modern:
								r = c.Post(body, header...)
							default:
								r = s.Send(body)
							}
							text := string(r.Body)
							if f.Older && r.Status == 202 && strings.Contains(body, `"id":`) {
								text = string(older.Stream.Next().Data)
								for strings.Contains(text, `"error"`) && !strings.Contains(text, `"id":7`) { // of a notification
									text = string(older.Stream.Next().Data)
								}
							}
							allowed := a.Aside && !a.Asked(era) && !f.Swapped && a.In(era) // of the session itself
							if f.Older && a.Notification() && !f.Swapped {
								continue // nobody is told
							}
							if denied := strings.Contains(text, `"error"`); denied == allowed && !strings.Contains(text, "initialize") && !strings.Contains(text, "begun") {
								t.Errorf("%s, %s client, %s: status %d: %s", a.Name(), era, f.Name, r.Status, text)
							}
							if a.Asked(era) && (a.In(era) || a.Notification()) && !f.Swapped && !(a.Alone && several) && !(f.Batch && era == edgetest.Modern) && !strings.Contains(text, "not here") {
								t.Errorf("%s, %s client, %s: the program was not asked: status %d: %s", a.Name(), era, f.Name, r.Status, text)
							}
						}
					}
				}
				for _, r := range back.Requests("") {
					if strings.Contains(string(r.Body), `"mark"`) {
						t.Errorf("the backend got %s", r.Body)
					}
				}
			})
		}
	}
}
