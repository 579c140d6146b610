package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/cmd/weir/workloads"
	"github.com/weir-edge/weir/edge"
)

func (a *app) stdioCommand() *cobra.Command {
	r := &remote{era: string(client.Auto)}
	cmd := &cobra.Command{
		Use:   "stdio NAME",
		Short: "Speak to a workload over standard input and output",
		Long: `Speak to a workload over standard input and output, for MCP clients that take
commands and no URLs: name "weir stdio NAME" as the command of the server. Each line
is a message, of whichever era, and goes to the workload and back as it is.

It starts the manager where none runs, and waits up to a minute for a workload that is
being started. When the workload is started again, what the client says goes on: a new
session takes the place of the old one. At the end of standard input it ends, at the
latest two seconds later. What is nobody's answer is written to standard error.`,
		Example: `  weir stdio files
  weir stdio tickets --bearer-token-file token.txt`,
		Args:              workloads.One,
		ValidArgsFunction: a.workloads().Complete(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := untilSignal(cmd)
			defer stop()
			w, err := a.workloads().Served(ctx, args[0])
			if err != nil {
				return interrupted(ctx, err)
			}
			o, _, err := r.options(workloads.Endpoint(w.URL))
			if err != nil {
				return err
			}
			defer o.HTTP.CloseIdleConnections()
			pipe := client.Pipe{
				URL: o.URL, HTTP: o.HTTP, Header: o.Header, Out: a.out,
				Log:  func(text string) { fmt.Fprintf(a.err, "%s: %s\n", cmd.CommandPath(), edge.Clean(text)) },
				Next: "`weir status " + w.Name + "` says how it is",
			}
			return interrupted(ctx, pipe.Run(ctx, a.in))
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&r.headers, "header", nil, "`HEADER` of every request, as \"NAME: VALUE\"; may be repeated")
	f.StringVar(&r.tokenFile, "bearer-token-file", "", "`FILE` with a token, sent as Authorization: Bearer")
	mustRegister(cmd, "header", nil)
	return cmd
}
