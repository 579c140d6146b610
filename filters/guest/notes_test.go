package guest_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestZ35NotesInTheRecord: what programs note on a message stands in its record, also where
// they deny it, without secrets and within bounds. The log at INFO has no line of it.
func TestZ35NotesInTheRecord(t *testing.T) {
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		log := filepath.Join(t.TempDir(), "audit.log")
		back := edgetest.NewServer(t, of)
		one := filter{name: "one", rules: []string{
			"on_call_request|args~plain|log_field|seen|$args", "on_call_request|args~plain|log_field|seen|again", "on_call_request|args~plain|log_field|password|hunter2",
			"on_call_request|args~plain|set_header|x-team|a",
			"on_call_request|args~denied|log_field|because|it said so", "on_call_request|args~denied|deny|0|not that",
			"on_call_response|*|log_field|answered|$tool",
			"on_notification|args~told|log_field|told|$from",
		}}
		two := filter{name: "two", rules: []string{"on_call_request|args~plain|set_header|X-Team|b"}}
		for n := range 40 {
			two.rules = append(two.rules, fmt.Sprintf("on_call_request|args~many|log_field|n%d|%s", n, strings.Repeat("m", 200)))
		}
		yaml := strings.Replace(manifest(t, backs{"back": back}, []filter{one, two}), "  config:\n", fmt.Sprintf("  config:\n    audit: {enabled: true, logFile: %q}\n", log), 1)
		e := start(t, yaml)
		c := newClient(e, era)
		text(t, c.call(t, "echo", `{"plain":1}`))
		fails(t, c.call(t, "echo", `{"denied":1}`), 403, 403, "not that")
		text(t, c.call(t, "echo", `{"many":1}`))
		text(t, c.call(t, "echo", `{"none":1}`))
		if era == edgetest.Legacy {
			c.Session.Notify("notifications/roots/list_changed", `{"told":1}`)
		}
		want := []string{
			`[{"filter":"one","note":{"seen":"{\"plain\":1}"}},{"filter":"one","note":{"seen":"again"}},{"filter":"one","note":{"password":"[REDACTED]"}},` +
				`{"filter":"two","note":{"header x-team":"set in place of what one set"}},{"filter":"one","note":{"answered":"echo"}}]`,
			`[{"filter":"one","note":{"because":"it said so"}}]`,
			`[{"filter":"one","note":{"answered":"echo"}}]`,
		}
		if era == edgetest.Legacy {
			want = append(want, `[{"filter":"one","note":{"told":"client"}}]`)
		}
		var got []string
		long := 0
		edgetest.Until(t, "the records", func() bool {
			got, long = nil, 0
			for line := range strings.Lines(recorded(t, log)) {
				var r struct {
					Metadata struct {
						Extra struct{ Notes json.RawMessage }
					}
				}
				if err := json.Unmarshal([]byte(line), &r); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				notes := string(r.Metadata.Extra.Notes)
				if strings.Contains(notes, "mmm") {
					if long = len(notes); long > 5<<10 || !strings.HasSuffix(notes, `…"`) && strings.Count(notes, `"note"`) > 32 {
						t.Fatalf("%d bytes of notes: %s", long, notes)
					}
				} else if notes != "" {
					got = append(got, strings.ToLower(notes))
				}
			}
			return len(got) >= len(want) && long > 0
		})
		for _, one := range want {
			if !slices.Contains(got, strings.ToLower(one)) {
				t.Errorf("no record has the notes %s: they are\n%s", one, strings.Join(got, "\n"))
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d records have notes, want %d: %s", len(got), len(want), got)
		}
		for line := range strings.Lines(e.Log()) {
			if strings.Contains(line, "a filter notes") && !strings.Contains(line, "level=DEBUG") {
				t.Errorf("a line of the log: %s", line)
			}
		}
	})
}
