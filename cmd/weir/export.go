package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/workloads"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/workload"
)

func (a *app) exportCommand() *cobra.Command {
	var o workload.ExportOptions
	cmd := &cobra.Command{
		Use:   "export NAME [FILE]",
		Short: "Write what a workload is made of, to run it again",
		Long: `Write what a workload is made of, to a file or to standard output, to run it again
with "weir run --from-config FILE", here or on another machine. Secrets are there by
name only, and so are variables and headers whose names read like those of secrets,
unless --with-values is given. What another machine needs besides is said on standard error.

Formats: weir, manifests as they are kept; k8s, manifests for a cluster, with what
says nothing there left out; runconfig, the JSON of the reference (` + "v0.1.0" + `).

Exit codes: 6 no such workload, 9 what was written has to be changed first: a program
of this machine is no image.`,
		Example: `  weir export files files.yaml
  weir export files --format k8s
  weir export files --format runconfig files.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 2 {
				return usagef("%s is one word too many: give the name of a workload, and a file", brief(args[2]))
			}
			return workloads.One(nil, args[:min(len(args), 1)])
		},
		ValidArgsFunction: a.workloads().Complete(false),
	}
	cmd.Flags().BoolVar(&o.WithValues, "with-values", false, "write the values of variables, headers and parameters of URLs whose names read like those of secrets, too")
	addFormat(cmd, workload.Formats()...)
	cmd.Flags().Lookup("format").Usage = "`FORMAT` to write: " + strings.Join(workload.Formats(), ", ")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := untilSignal(cmd)
		defer stop()
		d, err := a.workloads().Detail(ctx, args[0])
		if err != nil {
			return interrupted(ctx, err)
		}
		text, notes, err := workload.Export([]byte(d.Manifest), formatOf(cmd), o)
		if err != nil {
			return err
		}
		if len(args) == 2 {
			err = cli.WriteFile(args[1], text, 0o600) // what it holds may be private
		} else {
			_, err = a.out.Write(text)
		}
		if err != nil {
			return err
		}
		return a.exported(cmd, notes)
	}
	return cmd
}

// exported says what is to be known of an export.
func (a *app) exported(cmd *cobra.Command, notes []workload.Note) error {
	refused := false
	for _, n := range notes {
		fmt.Fprintf(a.err, "%s %s\n", a.paint(a.err, dim, cmd.CommandPath()+":"), edge.Clean(n.Text))
		refused = refused || n.Refused
	}
	if refused {
		return cli.Said(cli.ExitRefused)
	}
	return nil
}
