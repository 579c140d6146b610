package codemode

import (
	"testing"

	"github.com/weir-edge/weir/scripting"
)

// TestOutcome holds that what became of a run is told by its cause, and not by what an error
// says: a tool may say anything.
func TestOutcome(t *testing.T) {
	for want, o := range map[int][]scripting.Outcome{
		succeeded:  {{Value: []byte("1")}},
		failed:     {{Error: &scripting.Error{Message: "too many steps (100000)"}}, {Error: &scripting.Error{Message: "it failed", Cause: scripting.Defect}}},
		failedTool: {{Error: &scripting.Error{Message: "ran longer than 30s", Tool: "a"}}},
		spent:      {{Error: &scripting.Error{Message: "too many steps (100000)", Cause: scripting.Budget}}, {Error: &scripting.Error{Tool: "a", Cause: scripting.Budget}}},
		left:       {{Error: &scripting.Error{Message: "cancelled", Cause: scripting.Cancelled}}},
	} {
		for _, each := range o {
			if got := outcomeOf(&each); got != want {
				t.Errorf("%+v: %d, want %d", each.Error, got, want)
			}
		}
	}
}
