package workflow_test

import (
	"strings"
	"testing"
)

// A wait of which 60 times are more than the type of a time holds is waited for all the same.
func TestRetryAfterYears(t *testing.T) {
	for count, want := range map[string]string{
		"1":  `step_failed a #2 50000h0m0s: step "a": tool "w.fail": boom`,
		"10": "step_failed a #4 600000h0m0s: ended with the workflow: ran longer than 2160000000s",
	} {
		w := parse(t, composite(t, `
timeout: 600000h
steps: [{id: a, tool: w.fail, timeout: 600000h, onError: {action: retry, retryCount: `+count+`, retryDelay: 50000h}}]`))
		_, seen := play(t, w, "", nil)
		if !strings.Contains(strings.Join(seen.events, "\n"), want) {
			t.Errorf("retryCount: %s: %q", count, seen.events)
		}
	}
}
