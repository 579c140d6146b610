package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/cmd/weir/workloads"
	"github.com/weir-edge/weir/edge/serve"
)

const (
	maxStatus     = 64 << 20               // bytes of a status
	leastInterval = 100 * time.Millisecond // between two looks at an edge
)

func (a *app) statusCommand() *cobra.Command {
	var r *remote
	var admin string
	var asJSON, watching, judge bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "status [URL|NAME]",
		Short: "Show the state of a running edge and its backends, or of a workload",
		Long: `Show the state of a running edge and its backends: the phase of each server, and of
each backend its status, circuit breaker, era, counts of what it offers, its calls
since the start with those that failed by its fault and their mean latency, the
time of its last check, and its last error. RESOURCES counts templates after a
plus. Below the table are the things that clients do not see, and why.

The status is asked for at the admin address of the edge, which by default is
` + serve.Defaults().AdminListen + `. --admin names another one. A URL names the endpoint for clients
instead, where the edge may require a credential: --header, --bearer-token-file.

With --json the status is printed as the edge sent it. With --watch it is
refreshed every second, or at --interval, until Ctrl-C: on a terminal in place,
otherwise one block after the other. CALLS/S and RECENT are then the calls per
second and their mean latency since the last refresh; ~ marks a latency that the
counters give only about.

NAME, which has no : and no /, is that of a workload: its last failure and what to
do about it come first. "weir list" shows what there is.

The exit code is 0 once a status was shown, whatever it says; --exit-code makes
it 1 unless every server is Ready, or the workload running. It is 4 when the answer
is not the status of an edge, 5 when the address cannot be reached, and 6 when there
is no such workload.`,
		Example: `  weir status
  weir status --watch
  weir status --admin 127.0.0.1:9484 --json
  weir status --exit-code
  weir status https://mcp.example.com --bearer-token-file token.txt
  weir status files
  weir status files --format json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%q is one word too many: one URL is enough", args[1])
			}
			return nil
		},
		ValidArgsFunction: a.workloads().Complete(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON = asJSON || wantsJSON(cmd)
			if len(args) == 1 && workloads.CheckName(args[0]) == nil {
				return a.workloads().StatusOf(cmd, args[0], asJSON, judge)
			}
			switch {
			case len(args) == 1 && cmd.Flags().Changed("admin"):
				return usagef("a URL and --admin name two places: leave one out")
			case watching && judge:
				return usagef("--exit-code is about one look: leave --watch out")
			case interval < leastInterval:
				return usagef("--interval %s: give %s or more", interval, leastInterval)
			}
			target, err := statusURL(admin, args)
			if err != nil {
				return err
			}
			reach, err := a.reach(cmd, &r.access)
			if err != nil {
				return err
			}
			r.cas = reach.CAs
			o, warnings, err := r.options(target)
			if err != nil {
				return err
			}
			for _, w := range warnings {
				fmt.Fprintf(a.err, "%s: %s\n", cmd.CommandPath(), w)
			}
			defer o.HTTP.CloseIdleConnections()
			ctx, stop := untilSignal(cmd)
			defer stop()
			if watching {
				return a.watchStatus(ctx, cmd.CommandPath(), o, interval, asJSON)
			}
			now, err := lookAt(ctx, o)
			if err != nil {
				return interrupted(ctx, err)
			}
			if asJSON {
				_, err = a.out.Write(append(bytes.TrimRight(now.Text, "\n"), '\n'))
			} else {
				err = show.Status(a.out, now, nil)
			}
			if err == nil && judge && !now.Ready() {
				err = cli.Said(exitFault)
			}
			return err
		},
	}
	r = addAccessFlags(cmd)
	r.access.addCA(cmd)
	f := cmd.Flags()
	f.StringVar(&admin, "admin", serve.Defaults().AdminListen, "`HOST:PORT` of the edge's admin address")
	f.DurationVar(&r.timeout, "timeout", 10*time.Second, "`DURATION` that the edge may take to answer; 0 for ever")
	f.BoolVar(&asJSON, "json", false, "print the status as the edge sent it; for a workload, as JSON")
	f.BoolVar(&watching, "watch", false, "refresh until Ctrl-C")
	f.DurationVar(&interval, "interval", time.Second, "`DURATION` between two looks of --watch")
	f.BoolVar(&judge, "exit-code", false, "end with 1 unless every server is Ready, or the workload is running")
	addFormat(cmd, "text", "json")
	for _, flag := range []string{"admin", "timeout", "interval"} {
		mustRegister(cmd, flag, nil)
	}
	return cmd
}

// statusURL returns the URL of the status of an edge: at its admin address, or
// beside the endpoint that args names.
func statusURL(admin string, args []string) (string, error) {
	if len(args) == 0 {
		host, port, err := net.SplitHostPort(admin)
		if err != nil || port == "" || strings.ContainsAny(host, "/@") {
			return "", usagef("--admin %q: write HOST:PORT, such as %s, or give a URL without --admin", admin, serve.Defaults().AdminListen)
		}
		if host == "" {
			host = "127.0.0.1"
		}
		return "http://" + net.JoinHostPort(host, port) + "/status", nil
	}
	u, err := url.Parse(args[0])
	if err != nil || u.Host == "" {
		return args[0], nil // options says what is wrong with it
	}
	path, atDoor := strings.CutSuffix(strings.TrimSuffix(u.Path, "/"), "/mcp")
	if i := strings.LastIndex(path, "/servers/"); atDoor && i >= 0 {
		path = path[:i]
	}
	u.Path = strings.TrimSuffix(path, "/status") + "/status"
	return u.String(), nil
}

// lookAt asks an edge for its status.
func lookAt(ctx context.Context, o client.Options) (*show.Look, error) {
	text, err := client.Get(ctx, o, maxStatus)
	failed := new(client.ConnectionError)
	if errors.As(err, &failed) {
		switch {
		case errors.Is(failed.Err, syscall.ECONNREFUSED):
			failed.Next = "start an edge with `weir serve`, or name the admin address of another with --admin HOST:PORT"
		case failed.Status == 404:
			failed.Next = "name the admin address of an edge with --admin HOST:PORT: an endpoint without authentication shows no status"
		case failed.Status == 200:
			failed.Next = "check that an edge is there"
		}
	}
	if err != nil {
		return nil, err
	}
	now, err := show.ReadStatus(time.Now(), text)
	if err != nil {
		return nil, &client.ProtocolError{Method: "status", Message: err.Error()}
	}
	return now, nil
}
