package workloads

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/workload"
)

// Whoever needs a workload waits so long for one that is being started, and looks again so often.
const (
	maxStarting = time.Minute
	lookAgain   = 200 * time.Millisecond
)

// Served finds a workload that can be talked to. It starts a manager where none runs, and
// waits for a workload that is being started.
func (a *Commands) Served(ctx context.Context, name string) (*workload.Status, error) {
	m, err := a.Awake(ctx)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, Missing("workload", name, nil, "`weir run -- COMMAND` makes one")
	}
	for end := time.Now().Add(maxStarting); ; {
		all, err := m.List(ctx)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(all, func(w workload.Status) bool { return w.Name == name })
		if at < 0 {
			return nil, NoWorkload(name, all)
		}
		w := &all[at]
		if !starts(*w) || time.Now().After(end) {
			return w, unserved(w)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lookAgain):
		}
	}
}

// starts reports whether a workload is being started, as all are after a reboot.
func starts(w workload.Status) bool {
	return w.Status == workload.Starting || w.Status == workload.Unknown
}

// unserved says why a workload cannot be talked to; nil for one that can.
func unserved(w *workload.Status) error {
	e := &workload.Error{Code: workload.CodeStart, Next: "`weir status " + w.Name + "` says why"}
	switch w.Status {
	case workload.Running, workload.Unhealthy, workload.AuthRetrying:
		if w.URL != "" {
			return nil
		}
	case workload.Stopped, workload.Stopping, workload.Removing:
		e.Next = "`weir start " + w.Name + "`"
	case workload.Unauthenticated:
		e.Code, e.Next = workload.CodeLogin, "`weir start "+w.Name+"` logs in"
	case workload.PolicyStopped:
		e.Code = workload.CodeRefused
	}
	e.Message = fmt.Sprintf("the workload %s cannot be talked to: it is %s", cli.Brief(w.Name), w.Status)
	if w.StatusContext != "" {
		e.Message += " (" + edge.Brief(w.StatusContext) + ")"
	}
	return e
}

// Endpoint is where streamable HTTP is spoken at the door of a workload, which may advertise
// the older transport beside it.
func Endpoint(url string) string {
	if before, ok := strings.CutSuffix(url, "/sse"); ok {
		return before + "/mcp"
	}
	return url
}
