package local

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/stdio"
	"github.com/weir-edge/weir/edge/workload"
)

// What an installer says of its failure is told in one line, and not where its log is.
func TestComplaint(t *testing.T) {
	for want, said := range map[string][]string{
		"npm ERR! code SELF_SIGNED_CERT_IN_CHAIN; npm ERR! request to https://registry.npmjs.org/a failed, reason: self-signed certificate in certificate chain": { // npm 9
			"npm ERR! code SELF_SIGNED_CERT_IN_CHAIN",
			"npm ERR! request to https://registry.npmjs.org/a failed, reason: self-signed certificate in certificate chain",
			"npm ERR! A complete log of this run can be found in:",
			"npm ERR!     /home/a/.npm/_logs/2026-11-28T03_49_10_001Z-debug-0.log",
		},
		"npm error code E404; npm error 404 Not Found": { // npm 10
			"npm error code E404", "npm error 404 Not Found", "npm error A complete log of this run can be found in: /home/a/.npm/_logs/x-debug-0.log",
		},
		"error: no such package": {"resolving", "error: no such package"},
		"the last line":          {"the first line", "the last line"},
		"":                       nil,
	} {
		if got := complaint(said); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}

// Of a server that ended above its memory the flag is told that gives it more.
func TestMemoryIsAdvised(t *testing.T) {
	for ended, want := range map[string]string{"memory": "--memory", "memory: unreachable": "--memory", "exit 1": "", "memory's": "", "": ""} {
		o := &opened{local: ending{how: ended}, plan: &compile.Plan{Servers: []compile.Server{{Backends: []compile.Backend{{Workload: &compile.Workload{}}}}}}}
		var e *workload.Error
		if !errors.As(o.why(errors.New("it has ended")), &e) || (want == "") != (e.Next == "") || !strings.Contains(e.Next, want) {
			t.Errorf("%q: %+v", ended, e)
		}
		var line workload.Line
		o.Lines = func(l workload.Line) { line = l }
		o.printed(stdio.Line{Source: "weir", Text: "process ended: " + ended})
		if !strings.HasPrefix(line.Text, "process ended: "+ended) || (want == "") == strings.Contains(line.Text, "--memory") {
			t.Errorf("%q: %q", ended, line.Text)
		}
	}
}

// ending is a server that has ended in a way.
type ending struct {
	backend.Local
	how string
}

func (e ending) Status() stdio.Status { return stdio.Status{State: stdio.Failed, Ended: e.how} }

// What to do about a server that cannot be started is said once.
func TestNextOnce(t *testing.T) {
	for _, failed := range []error{
		fmt.Errorf("sandbox of a: %w", &sandbox.MountError{Path: "/etc", Why: "it has secrets", Next: "name another"}),
		&sandbox.GradeError{Name: "a", Want: "--sandbox bwrap", Cause: "it is not there", Next: "name another"},
	} {
		o := &opened{local: &hosted{}, failed: failed}
		var e *workload.Error
		if !errors.As(o.why(errors.New("it has ended")), &e) || e.Next != "name another" || strings.Contains(e.Message, e.Next) || !strings.Contains(e.Message, "it ") {
			t.Errorf("%v: %+v", failed, e)
		}
	}
}
