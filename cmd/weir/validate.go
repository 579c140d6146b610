package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/doctor"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/settings"
	"github.com/weir-edge/weir/edge/source"
)

func (a *app) validateCommand() *cobra.Command {
	var config, webhooks []string
	var dir string
	var local, partial, strict bool
	var starts []string
	cmd := &cobra.Command{
		Use:   "validate FILE|DIR...",
		Short: "Check manifests without serving them",
		Long: `Check manifests without serving them. A directory stands for the files *.yaml,
*.yml and *.json in it; -c names files and directories, too. What is named
belongs together, and is one set.

Everything that is wrong is printed at once, a line each, as "weir serve -c"
would print it:

  FILE:LINE: KIND/NAME: field.path: what is wrong and what to do

The exit code is 1 then. Otherwise there is one line with what would be served.
Before it stand notes, of what is good to know, and warnings, of what may keep
the edge from starting: secrets that are not there (in the manifests, in the
directory of --secrets-dir or WEIR_SECRETS_DIR, or in the environment), or that
cannot be sent to a backend. With --strict warnings are errors.

A file alone may be one of a set: where it refers to what it does not hold, or
holds no server, it is checked for itself, and each reference that leads out of
it is a warning. --partial checks any files and directories like that. "weir
serve" refuses what leads nowhere in any case.

Modules of filters are read and not compiled: "weir doctor" starts them.`,
		Example: `  weir validate weir.yaml
  weir validate manifests/
  weir validate -c weir.yaml -c filters/
  weir validate manifests/team.yaml
  weir validate manifests/team.yaml manifests/filters.yaml --partial
  weir validate weir.yaml --secrets-dir /run/secrets
  weir validate laptop.yaml --allow-workloads local
  weir validate weir.yaml --strict && weir serve -c weir.yaml`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if config = append(config, args...); len(config) == 0 {
				return usagef("name a file or a directory of manifests")
			}
			if len(webhooks) == 0 {
				webhooks = a.listed(webhooksFlag)
			}
			if dir == "" {
				dir, _ = lookup(a.environ, settings.Setting{Name: secretsFlag}.Variable())
			}

			if len(starts) == 0 {
				starts = a.listed(workloadsFlag)
			}
			if err := (settings.Settings{AllowWorkloads: starts}).CheckWorkloads(); err != nil {
				return usagef("%v", err)
			}

			// 1. The manifests, as a set or as a part of one.
			open := func() *source.Result {
				return source.OpenAll(config, source.Webhooks(webhooks...), source.LocalRateLimits(local || a.localRateLimits()), source.AllowWorkloads(starts...), source.Part(partial))
			}
			r := open()
			if !partial && lone(config) && leadsOut(r) {
				partial = true
				r = open()
			}

			// 2. The secrets.
			found := r.Findings
			secrets, err := secretsOf(r.Set, dir, a.environ)
			if err != nil {
				return err
			}
			missing := r.Missing(cmd.Context(), secrets)
			if found = slices.Concat(found, missing, doctor.Unsent(r, secrets)); strict {
				found = found.Strict()
			}

			// 3. What is said.
			if err := found.Render(a.err); err != nil {
				return err
			}
			if len(found.Errors()) > 0 {
				return cli.Said(exitFault)
			}
			_, err = fmt.Fprintf(a.out, "%s: ok (%s)\n", strings.Join(config, ", "), contents(r))
			return err
		},
	}
	cmd.Flags().BoolVar(&local, "local-rate-limits", false, "judge as an edge with --local-rate-limits would")
	cmd.Flags().StringSliceVar(&starts, workloadsFlag, nil, "judge as an edge that may start `FORMS` of MCPServers would: local, container, wasm")
	cmd.Flags().StringSliceVar(&webhooks, webhooksFlag, nil, "`FILE` of webhooks, checked with the manifests; may be repeated")
	cmd.Flags().StringVar(&dir, secretsFlag, "", "`DIR` with a file NAME/KEY for each secret")
	cmd.Flags().BoolVar(&partial, "partial", false, "what is named is a part of a set: warn of what leads out of it")
	cmd.Flags().BoolVar(&strict, "strict", false, "take warnings for errors")
	addConfigFlag(cmd, &config, "")
	mustRegister(cmd, workloadsFlag, []string{"local", "container", "wasm"})
	if err := cmd.MarkFlagDirname(secretsFlag); err != nil {
		panic(err) // the flag was added in the line before
	}
	return cmd
}

// leadsOut reports whether something that a set lacks may be in another part of
// it. What holds nothing is no part of anything.
func leadsOut(r *source.Result) bool {
	return len(r.Set.Objects) > 0 && slices.ContainsFunc(r.Findings, func(f source.Finding) bool { return f.Reason == compile.ReasonNotFound })
}

// contents says what a set without errors holds.
func contents(r *source.Result) string {
	if r.Plan != nil {
		backends := 0
		for _, s := range r.Plan.Servers {
			backends += len(s.Backends)
		}
		return edge.Count(len(r.Plan.Servers), "server") + ", " + edge.Count(backends, "backend")
	}
	out := 0
	for _, f := range r.Findings {
		if f.Reason == compile.ReasonOutside && f.Index >= 0 {
			out++
		}
	}
	return "a part of a set: " + edge.Count(len(r.Set.Objects), "object") + ", " + edge.Count(out, "reference") + " to the rest"
}

// listed is a list among the settings as the environment gives it, read as "weir serve" reads it.
func (a *app) listed(name string) []string {
	var s settings.Settings
	for _, one := range settings.All() {
		if one.Name == name {
			text, _ := lookup(a.environ, one.Variable())
			_ = one.Set(&s, text) // any text is a list
			return one.Value(&s).([]string)
		}
	}
	return nil
}

// localRateLimits reports whether the environment turns --local-rate-limits on.
func (a *app) localRateLimits() bool {
	text, _ := lookup(a.environ, settings.Setting{Name: "local-rate-limits"}.Variable())
	yes, err := strconv.ParseBool(text)
	return err == nil && yes
}
