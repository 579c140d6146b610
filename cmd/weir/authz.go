package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/settings"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/filters/authz"
)

func (a *app) authzCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "authz",
		Short: "Evaluate the policies of a configuration",
		Long: `Evaluate the policies of a configuration without an edge and without a backend.
"explain" shows how one decision is reached, "test" runs a table of
them.`,
		Example: `  weir authz explain -c weir.yaml --subject alice --tool deploy
  weir authz test -c weir.yaml policies.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.authzExplainCommand(), a.authzTestCommand())
	return cmd
}

func (a *app) authzExplainCommand() *cobra.Command {
	var config []string
	var server, claims, attributes, arguments string
	var asJSON bool
	var q authz.Question
	cmd := &cobra.Command{
		Use:   "explain -c FILE|DIR",
		Short: "Explain one decision",
		Long: `Say how a decision comes about: whether it is allow or deny, and which policies
made it so.

The thing is one of a tool, a prompt or a resource, by the name or URI under
which clients see it. Hints and the backend, which an edge reads from the
backend's list, are given by flags where a policy asks for them.

Exit codes: 0 allowed, 3 denied, 1 the configuration cannot be served.`,
		Example: `  weir authz explain -c weir.yaml --subject alice --tool deploy
  weir authz explain -c weir.yaml --subject alice --claims '{"groups":["eng"]}' --tool deploy
  weir authz explain -c weir.yaml --subject alice --tool deploy --args '{"env":"prod"}'
  weir authz explain -c weir.yaml --subject bob --resource file:///etc/hosts --json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := object("--claims", claims, &q.Claims); err != nil {
				return err
			}
			if err := object("--attributes", attributes, &q.Attributes); err != nil {
				return err
			}
			if err := object("--args", arguments, &q.Arguments); err != nil {
				return err
			}
			policies, name, err := a.policiesOf(config, server)
			if err != nil {
				return err
			}
			q.Server = name
			e, err := policies.Explain(&q)
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(a.out, e, "  ")
			} else {
				_, err = fmt.Fprintln(a.out, strings.TrimRight(e.String(), "\n"))
			}
			if err == nil && !e.Allowed {
				return cli.Said(exitTool)
			}
			return err
		},
	}
	f := cmd.Flags()
	addConfigFlag(cmd, &config, "")
	f.StringVar(&server, "server", "", "`NAME` of the server, where there are several")
	f.StringVar(&q.Subject, "subject", "", "who: the `SUBJECT` of the token")
	f.StringVar(&claims, "claims", "", "claims of the token, a `JSON` object")
	f.StringVar(&attributes, "attributes", "", "what filters say of the client, a `JSON` object by names without attr_")
	f.StringVar(&q.Tool, "tool", "", "`NAME` of the tool")
	f.StringVar(&q.Prompt, "prompt", "", "`NAME` of the prompt")
	f.StringVar(&q.Resource, "resource", "", "`URI` of the resource")
	f.StringVar(&q.Backend, "backend", "", "`NAME` of its backend")
	f.StringVar(&q.OriginalName, "original-name", "", "the backend's own `NAME` for it")
	for name, to := range map[string]**bool{"read-only-hint": &q.ReadOnlyHint, "destructive-hint": &q.DestructiveHint, "idempotent-hint": &q.IdempotentHint, "open-world-hint": &q.OpenWorldHint} {
		f.BoolFunc(name, "what the backend says of the tool; =false where it says no", func(text string) error {
			yes, err := strconv.ParseBool(text)
			*to = &yes
			return err
		})
	}
	f.StringVar(&arguments, "args", "", "arguments of the call, a `JSON` object")
	f.BoolVar(&q.Listed, "listed", false, "ask whether a list shows it, not whether it may be called")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	if err := errors.Join(cmd.MarkFlagRequired("config"), cmd.MarkFlagRequired("subject")); err != nil {
		panic(err) // the flags were added in the lines before
	}
	cmd.MarkFlagsMutuallyExclusive("tool", "prompt", "resource")
	cmd.MarkFlagsOneRequired("tool", "prompt", "resource")
	return cmd
}

// maxTable bounds a table of expected decisions, in bytes.
const maxTable = 64 << 20

func (a *app) authzTestCommand() *cobra.Command {
	var config []string
	var server string
	cmd := &cobra.Command{
		Use:   "test -c FILE|DIR TABLE",
		Short: "Run a table of expected decisions",
		Long: `Run a table of who may do what against the policies of a configuration, and say
of each case whether the decision is the one that is expected.

A table is YAML: principals by name, with their claims and attributes, and cases that say as
whom, what, and whether allow or deny is expected.

Exit codes: 0 every case holds, 3 some do not, 1 the configuration or the table
cannot be read.`,
		Example: `  weir authz test -c weir.yaml policies.yaml
  weir authz test -c manifests/ --server main policies.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("name one table of expected decisions")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := edge.ReadFile(args[0], maxTable)
			if err != nil {
				return err
			}
			table, err := authz.ParseTable(text)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if server == "" {
				server = table.Server
			}
			policies, name, err := a.policiesOf(config, server)
			if err != nil {
				return err
			}
			table.Server = name
			verdicts, passed := policies.Test(table)
			failed := 0
			for _, v := range verdicts {
				mark := "ok  "
				if !v.Passed {
					mark, failed = "FAIL", failed+1
				}
				thing := v.Tool + v.Prompt + v.Resource
				if v.Name != "" {
					thing += " (" + v.Name + ")"
				}
				fmt.Fprintf(a.out, "%s  %s: %s: %s expected\n", mark, v.As, thing, v.Expect)
				if !v.Passed && v.Explanation != nil {
					fmt.Fprintln(a.out, "      "+strings.ReplaceAll(strings.TrimSpace(v.Explanation.String()), "\n", "\n      "))
				}
			}
			fmt.Fprintf(a.out, "%d cases, %d failed\n", len(verdicts), failed)
			if !passed {
				return cli.Said(exitTool)
			}
			return nil
		},
	}
	addConfigFlag(cmd, &config, "")
	cmd.Flags().StringVar(&server, "server", "", "`NAME` of the server, where there are several")
	if err := cmd.MarkFlagRequired("config"); err != nil {
		panic(err) // the flags were added in the lines before
	}
	return cmd
}

// policiesOf returns the policies of a server of a configuration, and its name.
func (a *app) policiesOf(config []string, server string) (*authz.Policies, string, error) {
	opened := source.OpenAll(config, source.LocalRateLimits(true), source.AllowWorkloads(settings.Workloads...)) // what is limited and started does not matter to policies
	if err := a.refuse(opened); err != nil {
		return nil, "", err
	}
	var names []string
	var found *compile.Server
	for i, s := range opened.Plan.Servers {
		names = append(names, s.Name)
		if s.Name == server || server == "" && len(opened.Plan.Servers) == 1 {
			found = &opened.Plan.Servers[i]
		}
	}
	switch {
	case found == nil && server == "":
		return nil, "", fmt.Errorf("--server: there are several (%s): name one", strings.Join(names, ", "))
	case found == nil:
		return nil, "", fmt.Errorf("--server: there is no server %q%s", server, didYouMean(server, names, strings.Join(names, ", ")))
	case found.Point != nil:
		return nil, "", fmt.Errorf("server %s asks a decision point, whose policies are its own", found.Name)
	case found.Authz == nil:
		return nil, "", fmt.Errorf("server %s has no policies: everybody may do everything; add incomingAuth.authz or authzConfig", found.Name)
	}
	for _, f := range opened.Findings {
		if f.Severity == compile.Warning {
			fmt.Fprintln(a.err, f)
		}
	}
	policies, wrong := authz.Parse(*found.Authz, nil)
	if len(wrong) > 0 {
		return nil, "", wrong.ToAggregate()
	}
	return policies, found.Name, nil
}

// object reads a flag that is a JSON object, as the edge reads one: "" for none.
func object(flag, text string, into *map[string]any) error {
	if text == "" {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := mcp.Valid([]byte(text)); err != nil || d.Decode(into) != nil || *into == nil {
		return usagef(`%s: write a JSON object in which each name stands once, such as '{"name":"value"}'`, flag)
	}
	return nil
}
