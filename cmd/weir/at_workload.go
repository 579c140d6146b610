package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/cmd/weir/workloads"
)

// withWorkload is with for a workload, in place of a URL.
func (a *app) withWorkload(cmd *cobra.Command, r *remote, target string, f func(context.Context, *client.Client) error) error {
	if err := workloads.CheckName(r.workload); err != nil {
		return err
	}
	if target != homeURL() {
		return usagef("%s and -w %s are two servers: leave one out", target, r.workload)
	}
	ctx, stop := untilSignal(cmd)
	w, err := a.workloads().Served(ctx, r.workload)
	err = interrupted(ctx, err)
	stop()
	if err != nil {
		return err
	}
	err = a.withURL(cmd, r, workloads.Endpoint(w.URL), f)
	says := "`weir status " + w.Name + "` says how it is"
	if lost := new(client.ConnectionError); errors.As(err, &lost) && lost.Status == 0 {
		lost.Next = says
	}
	if refused := new(client.ProtocolError); errors.As(err, &refused) && (refused.Next == client.AskTheEdge || refused.Next == client.ReadTheLog) {
		log := "weir logs " // where its processes end, and what they say
		if w.Remote {
			log += "--proxy "
		}
		refused.Next = says + ", and `" + log + w.Name + "` why"
	}
	return err
}
