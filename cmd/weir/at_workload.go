package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/workload"
)

// Whoever needs a workload waits so long for one that is being started, and looks again so often.
const (
	maxStarting = time.Minute
	lookAgain   = 200 * time.Millisecond
)

// withWorkload is with for a workload, in place of a URL.
func (a *app) withWorkload(cmd *cobra.Command, r *remote, target string, f func(context.Context, *client.Client) error) error {
	if err := checkWorkloadName(r.workload); err != nil {
		return err
	}
	if target != homeURL() {
		return usagef("%s and -w %s are two servers: leave one out", target, r.workload)
	}
	ctx, stop := untilSignal(cmd)
	w, err := a.served(ctx, r.workload)
	err = interrupted(ctx, err)
	stop()
	if err != nil {
		return err
	}
	err = a.withURL(cmd, r, w.URL, f)
	if lost := new(client.ConnectionError); errors.As(err, &lost) && lost.Status == 0 {
		lost.Next = "`weir status " + w.Name + "` says how it is"
	}
	return err
}

// served finds a workload that can be talked to. It starts a manager where none runs, and
// waits for a workload that is being started.
func (a *app) served(ctx context.Context, name string) (*workload.Status, error) {
	m, err := a.awake(ctx)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, missing("workload", name, nil, "`weir run -- COMMAND` makes one")
	}
	for end := time.Now().Add(maxStarting); ; {
		all, err := m.List(ctx)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(all, func(w workload.Status) bool { return w.Name == name })
		if at < 0 {
			return nil, noWorkload(name, all)
		}
		w := &all[at]
		if starts := w.Status == workload.Starting || w.Status == workload.Unknown; !starts || time.Now().After(end) {
			return w, unserved(w)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lookAgain):
		}
	}
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
	e.Message = fmt.Sprintf("the workload %s cannot be talked to: it is %s", brief(w.Name), w.Status)
	if w.StatusContext != "" {
		e.Message += " (" + edge.Brief(w.StatusContext) + ")"
	}
	return e
}

// endpoint is where streamable HTTP is spoken at the door of a workload, which may advertise
// the older transport beside it.
func endpoint(url string) string {
	if before, ok := strings.CutSuffix(url, "/sse"); ok {
		return before + "/mcp"
	}
	return url
}
