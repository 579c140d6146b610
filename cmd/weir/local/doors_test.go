package local

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/stdio"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/edge/workload"
)

// What somebody may give back, or give, without a word to the manager is tried again.
func TestRefusalsThatPass(t *testing.T) {
	for _, c := range []struct {
		err     error
		code    workload.Code
		passing bool
	}{
		{fmt.Errorf("door w: listen: %w", syscall.EADDRINUSE), workload.CodeTaken, true},
		{&TakenError{Address: "127.0.0.1:80"}, workload.CodeTaken, true},
		{secret.ErrLocked, workload.CodeLocked, true},
		{&edge.Error{Kind: edge.NotFound, Op: "secret A", Err: fmt.Errorf("it is nowhere")}, workload.CodeNotFound, true},
		{fmt.Errorf("it broke"), workload.CodeFault, false}, // which is tried again by its code
	} {
		e, ok := refusal("w", c.err).(*workload.Error)
		if !ok || e.Code != c.code || e.Passing != c.passing {
			t.Errorf("%v: %+v", c.err, e)
		}
	}
}

// Each policy of --restart is another one of who keeps the processes.
func TestRestarts(t *testing.T) {
	for policy, want := range map[v1beta1.RestartPolicy]stdio.Restart{"always": stdio.Restarted, "on-failure": stdio.Failures, "no": stdio.Never} {
		if got, ok := restarts[policy]; !ok || got != want {
			t.Errorf("%s is %v", policy, got)
		}
	}
}
