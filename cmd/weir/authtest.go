package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/auth"
	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/source"
)

func (a *app) authTestCommand() *cobra.Command {
	var config []string
	var tokenFile string
	var asJSON bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "test BACKEND -c FILE [--token-file FILE]",
		Short: "Get the credential of one backend, and show how",
		Long: `Get the credential that the edge would send to one backend, as it would: with
the same manifests, secrets and settings. Each request to a token endpoint is
shown with its answer, and what would be attached to a call. Nothing is sent to
the backend. Secrets and tokens are never shown.

A credential that is made of a token of the user needs one, in --token-file (-
is standard input). It is taken as it is: whether the edge would let its bearer
in is not looked at.

BACKEND is a name, or SERVER/BACKEND where several servers have one of that
name. The exit code is 1 where the credential cannot be had; the last line says
what to mend.`,
		Example: `  weir auth test github -c weir.yaml
  weir auth test tools -c weir.yaml --token-file alice.jwt
  weir auth test main/tools -c manifests/ --token-file alice.jwt --json`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("name a backend, by its name or as SERVER/BACKEND")
			case len(args) > 1:
				return usagef("%q is one word too many: one backend is enough", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(config) == 0:
				return usagef("name a file or a directory of manifests with -c")
			case timeout <= 0:
				return usagef("--timeout %s: give a positive duration, such as 10s", timeout)
			}
			unbounded, stop := untilSignal(cmd)
			defer stop()
			ctx, cancel := context.WithTimeout(unbounded, timeout)
			defer cancel()

			// 1. The backend, and whose credential it is to be.
			l, err := loadSettings(cmd.Flags(), a.environ)
			if err = errors.Join(err, l.check()); err != nil {
				return err
			}
			opened := source.OpenAll(config, source.Webhooks(l.WebhookConfig...), source.LocalRateLimits(l.LocalRateLimits), source.AllowWorkloads(l.AllowWorkloads...))
			if opened.Plan == nil {
				if err := opened.Findings.Render(a.err); err != nil {
					return err
				}
				return cli.Said(exitFault)
			}
			server, backend, err := auth.Find(opened.Plan, args[0])
			if err != nil {
				return usagef("%s", err)
			}
			secrets, err := secretsOf(opened.Set, l.SecretsDir, a.environ)
			if err != nil {
				return err
			}
			reach, err := l.Reach()
			if err != nil {
				return err
			}
			var who *edge.Identity
			if tokenFile != "" {
				if who, err = auth.User(tokenFile, a.in); err != nil {
					return err
				}
			}

			// 2. The credential.
			t := auth.Try(ctx, server, backend, secrets, reach, who)
			if unbounded.Err() != nil {
				return interrupted(unbounded, unbounded.Err())
			}

			// 3. What is said.
			if asJSON {
				err = printJSON(a.out, t, "")
			} else {
				err = t.Write(a.out)
			}
			if err == nil && !t.OK {
				return cli.Said(exitFault)
			}
			return err
		},
	}
	f := cmd.Flags()
	addConfigFlag(cmd, &config, "")
	f.StringVar(&tokenFile, "token-file", "", "`FILE` with the token of a user; - is standard input")
	f.DurationVar(&timeout, "timeout", 20*time.Second, "`DURATION` that all of it may take")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	addSettingFlags(cmd)
	return cmd
}
