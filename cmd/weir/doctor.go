package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/auth"
	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/doctor"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/settings"
	"github.com/weir-edge/weir/edge/source"
)

func (a *app) doctorCommand() *cobra.Command {
	var config []string
	var asJSON bool
	var tokenFile string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "doctor [-c FILE|DIR]",
		Short: "Find out why a configuration or its backends do not work",
		Long: `Find out why a configuration or its backends do not work. The steps are those
that "weir serve" takes with the same flags; nothing is served.

  clock      the time of this machine
  settings   flags, variables and the settings file
  files      keys and certificates that the settings and the servers name, and audit logs
  manifests  what "weir validate" says, and whether questions of steps have time
  secrets    those that the manifests refer to
  filters    whether each module compiles, and starts with its configuration
  store      whether what servers share answers
  issuer     whether the keys can be had by which the tokens of clients are judged
  tokens     whether the endpoints answer that credentials of backends come from
  sign-in    the secrets, keys and stores of authorization servers
  provider   whether users can be sent to the identity providers of these
  resolve    the addresses that a backend's name stands for
  connect    a connection to it
  tls        its certificate
  introduce  what it speaks: server/discover, or initialize
  lists      its tools, prompts, resources and templates
  names      what clients see of all backends: conflicts, what is withheld, steps of
             composite tools whose tool is not there, annotations that promise too much
  embeddings whether the service answers by which the optimizer finds tools
  addresses  those where the edge is to listen

Each step may take --timeout. It is told on standard error when it has ended;
what was found is on standard output: the cause, and what to do next. A step
that fails ends those that need it, and no others. Without -c the demo that is
built in is looked at.

A backend whose credential is made of a token of the user is asked without one,
and may answer that it wants one. With --token-file (- is standard input) it is
asked for the user of that token, and what it lists for the user is looked at as
what others list. The token is taken as it is: whether the edge would let its
bearer in is not looked at.

With --json there is one object: ok, exitCode, problems, warnings, and steps
with step, subject, ok, level (ok, note, warning, problem), class, cause, next
and detail.

The exit code is 0 without problems, else that of the class of the first one:

` + doctor.ClassTable(),
		Example: `  weir doctor
  weir doctor -c weir.yaml
  weir doctor -c manifests/ --listen 127.0.0.1:8080 --timeout 3s
  weir doctor -c weir.yaml --token-file alice.jwt
  weir doctor -c weir.yaml --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return usagef("--timeout %s: give a positive duration, such as 10s", timeout)
			}
			ctx, stop := untilSignal(cmd)
			defer stop()
			d := a.doctor(cmd, config, timeout)
			if tokenFile != "" {
				who, err := auth.User(tokenFile, a.in)
				if err != nil {
					return err
				}
				d.User = who
			}
			found, err := d.Run(ctx)
			if ctx.Err() != nil {
				return interrupted(ctx, ctx.Err())
			}
			if err != nil {
				return err
			}
			if err := found.Write(a.out, asJSON); err != nil {
				return err
			}
			if code := found.ExitCode(); code != exitOK {
				return cli.Said(code)
			}
			return nil
		},
	}
	f := cmd.Flags()
	addConfigFlag(cmd, &config, "what to look at: ")
	f.DurationVar(&timeout, "timeout", 10*time.Second, "`DURATION` that a step may take")
	f.StringVar(&tokenFile, "token-file", "", "`FILE` with the token of a user, for backends that answer users alone; - is standard input")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	addSettingFlags(cmd)
	mustRegister(cmd, "timeout", nil)
	if err := cmd.MarkFlagFilename(settingsFlag, "yaml", "yml"); err != nil {
		panic(err) // the flag was added in the lines before
	}
	return cmd
}

// doctor is a doctor with the settings, the secrets and the credentials that the edge would
// have with the same flags. It tells of its steps on standard error.
func (a *app) doctor(cmd *cobra.Command, config []string, timeout time.Duration) *doctor.Doctor {
	b := thisBuild()
	d := &doctor.Doctor{
		Config: config, Timeout: timeout, Version: b.Version, Made: b.Time,
		Settings: func() (settings.Settings, error) {
			l, err := loadSettings(cmd.Flags(), a.environ)
			return l.Settings, errors.Join(err, l.check())
		},
		Secrets: func(set *source.Set, dir string) (edge.Secrets, error) { return secretsOf(set, dir, a.environ) },
		Say:     func(f edge.Finding) { fmt.Fprintf(a.err, "%s\n", doctor.Progress(f)) },
	}
	d.StorePassword, d.SentinelPassword, d.EmbeddingKey = a.secret(storePasswordVariable), a.secret(sentinelPasswordVariable), a.secret(embeddingKeyVariable)
	d.SentinelUser, _ = lookup(a.environ, sentinelUserVariable)
	return d
}
