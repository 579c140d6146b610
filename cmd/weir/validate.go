package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/edge/source"
)

func (a *app) validateCommand() *cobra.Command {
	var local bool
	cmd := &cobra.Command{
		Use:   "validate FILE|DIR",
		Short: "Check manifests without serving them",
		Long: `Check manifests without serving them. A directory stands for the files *.yaml,
*.yml and *.json in it.

Everything that is wrong is printed at once, a line each, as "weir serve -c"
would print it:

  FILE:LINE: KIND/NAME: field.path: what is wrong and what to do

The exit code is 1 then. Otherwise there is one line with what would be served,
and before it what is good to know, such as fields that only mean something in a
cluster.`,
		Example: `  weir validate weir.yaml
  weir validate manifests/
  weir validate weir.yaml && weir serve -c weir.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			switch len(args) {
			case 0:
				return usagef("name a file or a directory of manifests")
			case 1:
				return nil
			}
			return usagef("%q is one word too many: objects that belong together are checked together, so name the directory that holds them", args[1])
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(_ *cobra.Command, args []string) error {
			r := source.Open(args[0], source.LocalRateLimits(local || a.localRateLimits()))
			if err := a.refuse(r); err != nil {
				return err
			}
			if err := r.Render(a.err); err != nil {
				return err
			}
			backends := 0
			for _, s := range r.Plan.Servers {
				backends += len(s.Backends)
			}
			_, err := fmt.Fprintf(a.out, "%s: ok (%s, %s)\n", args[0], plural(len(r.Plan.Servers), "server"), plural(backends, "backend"))
			return err
		},
	}
	cmd.Flags().BoolVar(&local, "local-rate-limits", false, "judge as an edge with --local-rate-limits would")
	return cmd
}

// localRateLimits reports whether the environment would have an edge count rate
// limits for itself.
func (a *app) localRateLimits() bool {
	text, _ := lookup(a.environ, setting{name: "local-rate-limits"}.variable())
	yes, err := strconv.ParseBool(text)
	return err == nil && yes
}
