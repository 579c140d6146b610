package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/checkup"
	"github.com/weir-edge/weir/edge/demo"
	"github.com/weir-edge/weir/edge/source"
)

// doctor looks for what keeps a configuration from working, step by step, and
// says the cause and the next step for each thing that it finds:
//
//	doctor.go          the command and the order of the steps
//	doctor_report.go   the exit codes of the classes, and how findings are shown
//	doctor_process.go  what the process needs: settings, files, manifests, secrets, addresses, the clock
//	doctor_filters.go  the modules of filters
//	doctor_store.go    the stores that servers share
//	doctor_workflows.go  steps of composite tools that ask the caller
//
// What can be wrong with a thing is said by the package that it is of.
type doctor struct {
	config  []string // what -c names; none for the demo
	environ []string
	timeout time.Duration

	mu  sync.Mutex
	say func(edge.Finding) // told of each step that has ended; under mu
}

func (a *app) doctorCommand() *cobra.Command {
	var config []string
	var asJSON bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "doctor [-c FILE|DIR]",
		Short: "Find out why a configuration or its backends do not work",
		Long: `Find out why a configuration or its backends do not work. The steps are those
that "weir serve" takes with the same flags; nothing is served.

  clock      the time of this machine
  settings   flags, variables and the settings file
  files      keys and certificates that the settings name
  manifests  what "weir validate" says, and whether questions of steps have time
  secrets    those that the manifests refer to
  filters    whether each module compiles, and starts with its configuration
  store      whether what servers share answers
  resolve    the addresses that a backend's name stands for
  connect    a connection to it
  tls        its certificate
  introduce  what it speaks: server/discover, or initialize
  lists      its tools, prompts, resources and templates
  names      what clients see of all backends: conflicts, what is withheld, steps of
             composite tools whose tool is not there, annotations that promise too much
  addresses  those where the edge is to listen

Each step may take --timeout. It is told on standard error when it has ended;
what was found is on standard output: the cause, and what to do next. A step
that fails ends those that need it, and no others. Without -c the demo that is
built in is looked at.

With --json there is one object: ok, exitCode, problems, warnings, and steps
with step, subject, ok, level (ok, note, warning, problem), class, cause, next
and detail.

The exit code is 0 without problems, else that of the class of the first one:

` + classTable(),
		Example: `  weir doctor
  weir doctor -c weir.yaml
  weir doctor -c manifests/ --listen 127.0.0.1:8080 --timeout 3s
  weir doctor -c weir.yaml --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return usagef("--timeout %s: give a positive duration, such as 10s", timeout)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			defer context.AfterFunc(ctx, stop)()
			d := &doctor{config: config, environ: a.environ, timeout: timeout, say: func(c edge.Finding) {
				fmt.Fprintf(a.err, "%s\n", progress(c))
			}}
			found, err := d.run(ctx, func() (loaded, error) { return loadSettings(cmd.Flags(), a.environ) })
			if ctx.Err() != nil {
				return errInterrupted
			}
			if err != nil {
				return err
			}
			if err := found.write(a.out, asJSON); err != nil {
				return err
			}
			if code := found.exitCode(); code != exitOK {
				return &saidError{code}
			}
			return nil
		},
	}
	f := cmd.Flags()
	addConfigFlag(cmd, &config, "what to look at: ")
	f.DurationVar(&timeout, "timeout", 10*time.Second, "`DURATION` that a step may take")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	addSettingFlags(cmd)
	mustRegister(cmd, "timeout", nil)
	if err := cmd.MarkFlagFilename(settingsFlag, "yaml", "yml"); err != nil {
		panic(err) // the flag was added in the lines before
	}
	return cmd
}

// run takes all steps. The error is one of the doctor's own, not a finding.
func (d *doctor) run(ctx context.Context, load func() (loaded, error)) (findings, error) {
	var all findings
	add := func(checks ...edge.Finding) { all = append(all, checks...) }

	// 1. The process.
	add(d.clock(time.Now()))
	settings, err := load()
	add(d.settings(settings, err)...)
	add(d.files(settings.Settings)...)

	// 2. What is to be served.
	var opened *source.Result
	if len(d.config) == 0 {
		backend, err := demo.Start("")
		if err != nil {
			return nil, err
		}
		defer backend.Close()
		opened = source.OpenDefaultWith(backend.URL(), settings.WebhookConfig...)
	} else {
		opened = source.OpenAll(d.config, source.Webhooks(settings.WebhookConfig...), source.LocalRateLimits(settings.LocalRateLimits))
	}
	add(d.manifests(opened, settings.Settings)...)

	secrets, found := d.secrets(ctx, opened, settings.SecretsDir)
	add(found...)

	// 3. The filters, the stores that servers share, the backends, and what clients see of them. There is no plan
	// when the manifests have errors.
	if opened.Plan != nil {
		add(d.filters(ctx, opened, settings.Settings, secrets)...)
		add(d.stores(ctx, opened.Plan, settings.Settings, secrets)...)
		look := checkup.Config{Timeout: d.timeout, MaxMessage: settings.MaxMessage, Version: thisBuild().Version, Secrets: secrets, Step: d.step}
		for _, s := range opened.Plan.Servers {
			add(look.Server(ctx, s)...)
		}
	}

	// 4. Where the edge is to listen.
	add(d.addresses(ctx, settings.Settings)...)
	return all, nil
}

// step begins a step: within bounds, and told of when it has ended.
func (d *doctor) step(ctx context.Context, name, subject string, f func(context.Context) edge.Finding) edge.Finding {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	c := f(ctx)
	c.Step, c.Subject = name, edge.Clean(strings.ReplaceAll(subject, "\n", " "))
	return d.tell(c)
}

// tell passes on the end of a step.
func (d *doctor) tell(c edge.Finding) edge.Finding {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.say(c)
	return c
}
