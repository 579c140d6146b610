package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/workload"
)

// A workload in the foreground ends when its server is not started again, as it did. That one
// is tried again later is told, each time.
func TestForegroundGoesOn(t *testing.T) {
	ill := workload.Look{State: workload.Failed, Reason: "ends again and again, last: exit 5", Ended: "exit 5"}
	for ended, want := range map[string]string{"exit 0": "", "exit 5": "fx has ended: exit 5"} {
		looks := []workload.Look{{State: workload.Running}, ill, ill, {State: workload.Unhealthy, Reason: "restarting, ended: exit 5"}, ill, {State: workload.Failed, Over: true, Reason: "ended: " + ended, Ended: ended}}
		look := func() (workload.Look, bool) {
			now := looks[0]
			looks = looks[1:]
			return now, true
		}
		var told []string
		err := watchEnd(t.Context(), look, "fx", make(chan error), func(e workload.Event) { told = append(told, e.Text) })
		var e *workload.Error
		if (want == "") != (err == nil) || want != "" && (!errors.As(err, &e) || e.Code != workload.CodeStart || e.Message != want) {
			t.Errorf("%s: %v", ended, err)
		}
		again := "fx is error: ends again and again, last: exit 5; it is tried again every minute"
		if len(looks) > 0 || !slices.Equal(told, []string{again, again}) {
			t.Errorf("%s: told %q, and %d looks are left", ended, told, len(looks))
		}
	}
	broken := make(chan error, 1)
	broken <- errors.New("the door is broken")
	running := func() (workload.Look, bool) { return workload.Look{State: workload.Running}, true }
	ended := make(chan error, 1)
	go func() { ended <- watchEnd(t.Context(), running, "fx", broken, nil) }()
	if err := edgetest.Receive(t, ended, "the end"); err == nil || err.Error() != "the door is broken" {
		t.Errorf("%v", err)
	}
}
