package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/settings"
	"github.com/weir-edge/weir/edge/source"
)

func (a *app) validateCommand() *cobra.Command {
	var local bool
	var dir string
	var webhooks []string
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
cluster, and secrets that are not there: in the manifests, in the directory of
--secrets-dir (WEIR_SECRETS_DIR), or in the environment; or that cannot be sent
to a backend. The edge does not start then.`,
		Example: `  weir validate weir.yaml
  weir validate manifests/
  weir validate weir.yaml --secrets-dir /run/secrets
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
		RunE: func(cmd *cobra.Command, args []string) error {
			if given, ok := lookup(a.environ, settings.Setting{Name: webhooksFlag}.Variable()); ok && given != "" && len(webhooks) == 0 {
				webhooks = strings.Split(given, ",")
			}
			r := source.Open(args[0], source.Webhooks(webhooks...), source.LocalRateLimits(local || a.localRateLimits()))
			if err := a.refuse(r); err != nil {
				return err
			}
			if err := r.Render(a.err); err != nil {
				return err
			}
			if dir == "" {
				dir, _ = lookup(a.environ, settings.Setting{Name: secretsFlag}.Variable())
			}
			secrets, err := secretsOf(r.Plan, dir, a.environ)
			if err != nil {
				return err
			}
			missing := r.Missing(cmd.Context(), secrets)
			if len(missing) == 0 {
				missing = unsent(r.Plan, secrets)
			}
			if err := missing.Render(a.err); err != nil {
				return err
			}
			backends := 0
			for _, s := range r.Plan.Servers {
				backends += len(s.Backends)
			}
			_, err = fmt.Fprintf(a.out, "%s: ok (%s, %s)\n", args[0], edge.Count(len(r.Plan.Servers), "server"), edge.Count(backends, "backend"))
			return err
		},
	}
	cmd.Flags().BoolVar(&local, "local-rate-limits", false, "judge as an edge with --local-rate-limits would")
	cmd.Flags().StringSliceVar(&webhooks, webhooksFlag, nil, "`FILE` of webhooks, checked with the manifests; may be repeated")
	cmd.Flags().StringVar(&dir, secretsFlag, "", "`DIR` with a file NAME/KEY for each secret")
	if err := cmd.MarkFlagDirname(secretsFlag); err != nil {
		panic(err) // the flag was added in the line before
	}
	return cmd
}

// localRateLimits reports whether the environment turns --local-rate-limits on.
func (a *app) localRateLimits() bool {
	text, _ := lookup(a.environ, settings.Setting{Name: "local-rate-limits"}.Variable())
	yes, err := strconv.ParseBool(text)
	return err == nil && yes
}
