package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/checkup"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
)

// where is the server that a command runs something at: one that runs already, or one of
// manifests, for which an edge is started.
type where struct {
	url    string
	config []string
	server string // of the manifests

	scripts bool // it is to run scripts
}

// An edge that was just started may take maxSettling to know what is behind it. After patience
// the user is told what takes so long.
const (
	patience    = 3 * time.Second
	maxSettling = time.Minute
)

// add adds the flags. server says what a server is needed for.
func (w *where) add(cmd *cobra.Command, server string) {
	cmd.Flags().StringVar(&w.url, "url", homeURL(), "`URL` of the server's endpoint")
	addConfigFlag(cmd, &w.config, "start an edge for these, in place of --url: ")
	cmd.Flags().StringVar(&w.server, "server", "", "`NAME` of the server of -c "+server+"; needed where several do")
	mustRegister(cmd, "url", nil)
	mustRegister(cmd, "server", nil)
}

// at connects to the server and hands the connection to f. pick chooses one of the servers of
// manifests.
func (a *app) at(cmd *cobra.Command, r *remote, w where, pick func(*compile.Plan) (server string, err error), f func(context.Context, *client.Client) error) error {
	switch {
	case len(w.config) > 0 && cmd.Flags().Changed("url"):
		return usagef("--url and -c are two places to run at: leave one out")
	case len(w.config) > 0 && r.workload != "":
		return usagef("-w and -c are two places to run at: leave one out")
	case len(w.config) == 0 && w.server != "":
		return usagef("--server names a server of -c: one that runs already is named by its --url")
	case len(w.config) == 0:
		return a.with(cmd, r, w.url, f)
	}
	if _, _, err := r.options(w.url); err != nil {
		return err // before anything is started
	}

	// 1. What to serve.
	s, err := a.settingsInPassing()
	if err != nil {
		return err
	}
	opened := source.OpenAll(w.config, source.Webhooks(s.WebhookConfig...), source.LocalRateLimits(s.LocalRateLimits), source.AllowWorkloads(s.AllowWorkloads...))
	if err := a.refuse(opened); err != nil {
		return err
	}
	server, err := pick(opened.Plan)
	if err != nil {
		return err
	}

	// 2. An edge, for as long as f takes.
	log := newLog(a.err, s)
	remark(log, opened)
	options, end := startsLocals(s)
	defer end()
	options = append(options, serve.WithNotes(func(_, text string) { fmt.Fprintln(a.err, text) }))
	running, err := serve.New(s, opened.Plan, log, append(options, a.edgeOptions()...)...)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(cmd.Context()))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- running.Serve(ctx) }()
	settle := func(most time.Duration) bool {
		ctx, done := context.WithTimeout(cmd.Context(), most)
		defer done()
		serve.Await(ctx, running, server, w.scripts)
		return ctx.Err() == nil
	}
	if !settle(patience) {
		if w.scripts {
			fmt.Fprintf(a.err, "%s: the interpreter of scripts is compiled, which takes a while: with WEIR_FILTER_CACHE=DIR it is there the next time\n", cmd.CommandPath())
		}
		settle(maxSettling)
	}
	err = a.with(cmd, r, "http://"+running.Addr()+"/servers/"+server+"/mcp", f)
	if err != nil && !errors.Is(err, errInterrupted) {
		a.lookBehind(cmd, opened, server, s)
	}
	stop()
	if failed := <-ended; err == nil && failed != nil {
		err = errors.New("the edge ended: " + failed.Error())
	}
	return err
}

// lookBehind says what keeps the backends of a server from working, where that may be why
// something failed.
func (a *app) lookBehind(cmd *cobra.Command, opened *source.Result, server string, s serve.Settings) {
	ctx, stop := untilSignal(cmd)
	defer stop()
	secrets, err := secretsOf(opened.Set, s.SecretsDir, a.environ)
	if err != nil {
		return // the edge would not have begun
	}
	i := slices.IndexFunc(opened.Plan.Servers, func(one compile.Server) bool { return one.Name == server })
	a.problems(ctx, cmd, opened.Plan.Servers[i], s, secrets, nil)
}

// problems looks at the backends of a server and prints what keeps one from working, and what
// to do. offers is told what they offer; see checkup.Config.
func (a *app) problems(ctx context.Context, cmd *cobra.Command, server compile.Server, s serve.Settings, secrets edge.Secrets, offers func(*catalog.Catalog, []string)) {
	reach, _ := s.Reach() // the edge would not have begun
	look := checkup.Config{Timeout: 10 * time.Second, MaxMessage: s.MaxMessage, Version: thisBuild().Version, Secrets: secrets, Reach: reach, Offers: offers}
	look.Step = func(ctx context.Context, _, subject string, f func(context.Context) edge.Finding) edge.Finding {
		ctx, cancel := context.WithTimeout(ctx, look.Timeout)
		defer cancel()
		c := f(ctx)
		c.Subject = subject
		return c
	}
	for _, c := range look.Server(ctx, server) {
		if c.Level == edge.LevelProblem && ctx.Err() == nil {
			fmt.Fprintf(a.err, "%s %s: %s: %s\n", a.paint(a.err, wrong, cmd.CommandPath()+":"), c.Subject, c.Cause, a.paint(a.err, advice, c.Next))
		}
	}
}

// settingsInPassing are the settings of an edge that this process alone talks to: those of the
// environment, but for where it is and who reaches it.
func (a *app) settingsInPassing() (serve.Settings, error) {
	var none cobra.Command // a command line without flags
	addSettingFlags(&none)
	l, err := loadSettings(none.Flags(), a.environ)
	if err = errors.Join(err, l.check()); err != nil {
		return l.Settings, err
	}
	s := l.Settings
	s.Listen, s.AdminListen, s.HandOver, s.DefaultServer = "127.0.0.1:0", "", "", ""
	s.TLSCert, s.TLSKey, s.TLSClientCA = "", "", ""
	s.AllowedHosts, s.TrustedProxies, s.LocalRateLimits = nil, nil, true
	if l.origins["log-level"].From == "default" {
		s.LogLevel = "error" // what of the backends matters is said by problems
	}
	return s, nil
}
