package workflow_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// trail is what a scene has in the audit log.
type trail struct {
	events []string // in their order
	inner  []string // outcomes of the calls of its steps
	outer  []string
}

// records reads the audit log: what each composite has in it, by its name.
func records(t *testing.T, file string) map[string]*trail {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*trail{}
	of := func(name string) *trail {
		if out[name] == nil {
			out[name] = &trail{}
		}
		return out[name]
	}
	names := map[string]string{} // of outer calls, by their audit_id
	var inner []string
	runs := map[string]map[string]bool{}
	for line := range bytes.Lines(text) {
		var r struct {
			Type, Outcome string
			AuditID       string `json:"audit_id"`
			ParentID      string `json:"parent_id"`
			Target        map[string]string
			Data          struct {
				Event struct {
					Workflow, Step, Error string
					ID                    string `json:"workflow_id"`
					Attempt               int
				}
			}
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		kind, ok := strings.CutPrefix(r.Type, "vmcp_workflow_")
		switch {
		case ok:
			d := r.Data.Event
			if runs[d.Workflow] == nil {
				runs[d.Workflow] = map[string]bool{}
			}
			runs[d.Workflow][d.ID] = true
			s := kind
			if d.Step != "" {
				s += " " + d.Step
			}
			if d.Attempt > 1 {
				s += fmt.Sprintf(" #%d", d.Attempt)
			}
			if d.Error != "" {
				s += ": " + d.Error
			}
			one := of(d.Workflow)
			one.events = append(one.events, s)
		case r.ParentID != "":
			inner = append(inner, r.ParentID+" "+r.Target["name"]+" "+r.Outcome)
		case strings.HasPrefix(r.Target["name"], "flow_"):
			names[r.AuditID] = r.Target["name"]
			of(r.Target["name"]).outer = append(of(r.Target["name"]).outer, r.Outcome)
		}
	}
	for _, s := range inner {
		id, rest, _ := strings.Cut(s, " ")
		one := of(names[id])
		one.inner = append(one.inner, rest)
	}
	for name, ids := range runs {
		if len(ids) != 1 {
			t.Errorf("%s: %d runs in the log", name, len(ids))
		}
	}
	return out
}
