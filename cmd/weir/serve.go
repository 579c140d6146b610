package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge/serve"
)

func (a *app) serveCommand() *cobra.Command {
	var config []string
	var plain plainFlags
	var pprof, show bool
	cmd := &cobra.Command{
		Use:   "serve [URL]... [-c FILE|DIR]...",
		Short: "Serve MCP servers behind one endpoint",
		Long: `Serve MCP servers behind one endpoint, for clients of every revision of the
protocol.

What is served stands in manifests: YAML or JSON, several documents to a file if
you like. The files and directories that -c names are one set. Everything that is
wrong with them is printed at once, with file, line and field, and nothing is
served. "weir validate" finds the same and serves nothing in any case.

Servers that need no more than a URL can be named on the command line: each is
called by its host, or as --backend NAME=URL says. The tools of one server keep
their names, those of several begin with the server's. --print shows the manifest
that this stands for; "weir init" writes one to go on from.

Without either the edge serves a demo that is built in, and shows how to talk to it.

The flags are the settings of the process. Each of them is also a variable
(--max-body is WEIR_MAX_BODY) and a key of the file that --settings names; flags
win over variables, variables over the file. "weir settings" shows what holds.

SIGHUP has the configuration read again, SIGUSR1 the files of audit logs opened
anew, after they were moved away.

The process ends after SIGINT or SIGTERM, when the calls in flight are done or
--drain-timeout is over; a second signal ends it at once.`,
		Example: `  weir serve
  weir serve http://127.0.0.1:9000/mcp
  weir serve --backend wiki=http://127.0.0.1:9000/mcp --backend docs=http://127.0.0.1:9001/mcp
  weir serve https://tickets.example.com/mcp --bearer tickets
  weir serve -c weir.yaml
  weir serve -c manifests/ --listen 127.0.0.1:8080
  weir serve -c weir.yaml -c filter.yaml
  weir serve -c weir.yaml --settings settings.yaml --log-level debug
  WEIR_MAX_BODY=8MiB weir serve -c weir.yaml`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			backends, err := plain.backends(args)
			switch {
			case err != nil:
				return err
			case len(backends) > 0 && len(config) > 0:
				return usagef("-c and servers on the command line: add the servers to the manifests, which `weir serve --print URL` shows how to")
			case show && len(backends) == 0:
				return usagef("--print shows the manifest of servers on the command line: name a URL")
			case show:
				_, err := a.out.Write(plainOf(backends).Manifest())
				return err
			}
			l, err := loadSettings(cmd.Flags(), a.environ)
			if pprof && l.AdminListen == "" {
				err = errors.Join(err, errors.New("--pprof: profiles are served on the admin address: give it an address with --admin-listen"))
			}
			if err := errors.Join(err, l.check()); err != nil {
				return err
			}
			return a.serve(cmd.Context(), l.Settings, config, backends, pprof)
		},
	}
	addConfigFlag(cmd, &config, "what to serve: ")
	plain.add(cmd)
	cmd.Flags().BoolVar(&show, "print", false, "print the manifest of the servers on the command line, and serve nothing")
	addSettingFlags(cmd)
	cmd.Flags().BoolVar(&pprof, "pprof", false, "serve profiles on the admin address")
	if err := errors.Join(
		cmd.MarkFlagFilename(settingsFlag, "yaml", "yml"),
		cmd.Flags().MarkHidden("pprof"),
	); err != nil {
		panic(err) // the flags were added in the lines before
	}
	return cmd
}

// newLog opens the log of the process.
func newLog(w io.Writer, s serve.Settings) *slog.Logger {
	return slog.New(serve.Leveled(logTo(w, s)))
}

// logTo is what writes a log, and from which level on.
func logTo(w io.Writer, s serve.Settings) (h slog.Handler, level slog.Level) {
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		level = slog.LevelInfo // Settings.Check lets no other word through
	}
	options := &slog.HandlerOptions{Level: slog.LevelDebug} // which a server or a workload may ask for
	if s.LogFormat == "text" || s.LogFormat == "" && terminal(w) {
		return slog.NewTextHandler(w, options), level
	}
	return slog.NewJSONHandler(cli.PlainJSON(w), options), level
}

// exitWait bounds how long an end waits for whoever reads the log.
const exitWait = time.Second

// unhurried has nobody wait for who reads the log, and what else is said on standard error. The
// format of the log is chosen here.
func (a *app) unhurried(s *serve.Settings) {
	f, is := a.err.(*os.File)
	if !is {
		return
	}
	if s.LogFormat == "" && terminal(f) {
		s.LogFormat = "text"
	}
	format, exit := *s, a.exit
	a.said = cli.NewQueue(f, func(w io.Writer, dropped uint64) {
		newLog(w, format).Error("lines of log were dropped, since nobody read them", "lines", dropped)
	})
	a.err, a.exit = a.said, func(code int) {
		a.said.Close(exitWait)
		exit(code)
	}
}

// signaled is the cause of a context that a signal has ended.
type signaled struct{ os.Signal }

func (s signaled) Error() string { return s.String() }

// draining returns a context that the first signal ends, which is its cause; a second one ends the
// process through exit. The caller must call stop, which ends the goroutine.
func draining(ctx context.Context, log *slog.Logger, drain fmt.Stringer, signals <-chan os.Signal, exit func(int)) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for first := true; ; first = false {
			select {
			case s := <-signals:
				if !first {
					exit(cli.ExitSignal + signalNumber(s))
					return
				}
				cancel(signaled{s})
				log.Info("draining; a second signal ends at once", "signal", s.String(), "at most", drain.String())
			case <-stopped:
				return
			}
		}
	}()
	return ctx, func() {
		close(stopped)
		<-ended
		cancel(nil)
	}
}

// signals returns a channel of the signals that end the process, and a function
// that stops it. hangup says that the end of its terminal is one, unless that is ignored (nohup).
// The loss of its readers ends it no more.
func signals(hangup bool) (<-chan os.Signal, func()) {
	outliveReaders()
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	if hangup && !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(c, syscall.SIGHUP)
	}
	return c, func() { signal.Stop(c) }
}

func signalNumber(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return int(n)
	}
	return 0
}

// greeting returns the text that shows how to call the edge that serves the demo.
func greeting(w io.Writer, s serve.Settings, addr string) {
	endpoint := s.Endpoint(addr)
	curl := "curl -sS " + endpoint
	if s.TLSCert != "" {
		curl += " --cacert " + quoted(s.TLSCert)
	}
	if s.TLSClientCA != "" {
		curl += " --cert CERT.pem --key KEY.pem"
	}
	ask := func(method, name, params string) string {
		headers := []string{"Content-Type: application/json", "Accept: application/json, text/event-stream", "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: " + method}
		if name != "" {
			headers = append(headers, "Mcp-Name: "+name)
		}
		line := curl
		for _, h := range headers {
			line += " \\\n    -H " + quoted(h)
		}
		meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		return line + " \\\n    -d " + quoted(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+meta+`}}`)
	}
	ca, at := "", ""
	if s.TLSCert != "" {
		ca = " --ca " + quoted(s.TLSCert)
	}
	if endpoint != homeURL() {
		at = " " + endpoint
	}
	me := self()
	fmt.Fprintf(w, `Weir serves its demo on %s

See what it offers, and call a tool:
  %s tools%s%s
  %s call%s echo text=hello%s

Or without weir:
  %s

  %s

In the configuration of an MCP client:
  {"mcpServers":{"weir":{"type":"http","url":"%s"}}}

Ctrl-C ends it. Serve your own servers with: %s serve http://HOST:PORT/mcp

`, endpoint, me, at, ca, me, at, ca,
		ask("server/discover", "", ""),
		ask("tools/call", "echo", `"name":"echo","arguments":{"text":"hello"},`),
		endpoint, me)
}

// self is how this program was started: by its path, since it may not be in PATH.
func self() string {
	if !strings.ContainsRune(os.Args[0], os.PathSeparator) {
		return "weir"
	}
	if strings.ContainsAny(os.Args[0], " \t'\"\\$`&;()<>|*?[#~!") {
		return quoted(os.Args[0])
	}
	return os.Args[0]
}

// quoted writes a word for a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
