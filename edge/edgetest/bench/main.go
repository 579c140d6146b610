// Command bench measures an edge beside its floors: the backend spoken to
// directly, and a bare pass-through proxy. README.md says how to read what it
// prints. It needs Linux, because it reads /proc, and stays on the loopback
// interface.
//
// Besides measuring it is its own helpers: `bench backend`, `bench bare`, `bench
// static` and `bench stdio` are processes of their own, so that CPU time can be told apart, and `bench load`
// puts a load on an address by hand.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/program"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// command runs one command line. The helpers end when ctx does or when stdin
// is at its end, which it is when the process that started them is gone.
func command(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	name := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name = args[0]
	}
	switch name {
	case "backend":
		return backendCommand(ctx, args[1:], stdin, stdout, stderr)
	case "bare":
		return bareCommand(ctx, args[1:], stdin, stdout, stderr)
	case "static":
		return staticCommand(ctx, args[1:], stdin, stdout, stderr)
	case "stdio":
		return stdioCommand(stdin, stdout)
	case "load":
		return loadCommand(ctx, args[1:], stdout, stderr)
	case "":
		return measureCommand(ctx, args, stdout, stderr)
	}
	return fmt.Errorf("unknown command %q: there are backend, bare, static, stdio and load, and none to measure", name)
}

// options are what a run is told.
type options struct {
	quick     bool
	floors    bool            // measure the floors alone, without an edge
	only      map[string]bool // cases to run; empty for all
	calls     int             // measured calls per target and round
	counted   int             // calls of P4 with an exchanged credential
	rounds    int             // alternating rounds
	weir      string          // the edge's program; empty to build ./cmd/weir
	against   string          // another program of the edge, such as an older one; empty for none
	procs     int             // GOMAXPROCS of every process of the run; 0 for Go's default
	sessions  int             // idle sessions of P8
	streams   int             // idle streams of P8
	mass      int             // calls of P8
	users     int             // whose credentials are kept at once
	backends  int             // backends of P9
	starts    int             // starts of P9, and a fourth of those of a server on standard streams
	workloads int             // that a manager keeps, in the rows about standard streams
	profile   string          // file for a CPU profile; empty for none
	seconds   int             // length of the profile
	output    string          // file for the table; empty for none
	limit     time.Duration   // bound of the whole run
}

// ownNetwork is the variable that says that this process has a network of its own.
const ownNetwork = "WEIR_BENCH_OWN_NETWORK"

// measured are the cases that there are; none is for a profile alone.
const measured = "p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p20 p21 p22 p23 p24 credentials signin stdio containers modules build none"

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	var cases string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.BoolVar(&o.quick, "quick", false, "the short run: P1 at 8 connections, P2, P4, P5 and P9, in under two minutes")
	f.BoolVar(&o.floors, "floors", false, "measure the floors alone, without an edge")
	f.StringVar(&cases, "case", "", "cases to run, of p1 to p14, p20 to p24, credentials, signin, stdio, containers, modules and build, such as p1,p4, or none (default: all of the run)")
	f.IntVar(&o.calls, "calls", 0, "measured calls per target and round (default 20000; 6000 with --quick)")
	f.IntVar(&o.rounds, "rounds", 0, "alternating rounds (default 5; 3 with --quick)")
	f.StringVar(&o.weir, "weir", "", "program of the edge (default: build ./cmd/weir)")
	f.StringVar(&o.against, "against", "", "another program of the edge, such as an older one, that has the loads of P1, P2, P3 and P5 in turn with it")
	f.IntVar(&o.procs, "gomaxprocs", 0, "GOMAXPROCS of every process of the run (default: Go's own)")
	f.IntVar(&o.sessions, "sessions", 5000, "idle sessions of P8")
	f.IntVar(&o.streams, "streams", 2000, "idle streams of P8")
	f.IntVar(&o.mass, "memory-calls", 100000, "calls of P8")
	f.IntVar(&o.users, "users", 10000, "users whose credentials are kept at once, in the rows about credentials, and who have signed in")
	f.IntVar(&o.backends, "backends", 10, "backends of P9, one of which is black-holed in its second row")
	f.IntVar(&o.starts, "starts", 5, "starts of P9, and a fourth of those of a server on standard streams")
	f.IntVar(&o.workloads, "workloads", 100, "workloads of a manager, in the rows about standard streams")
	f.StringVar(&o.profile, "profile", "", "write a CPU profile of the edge under the P1 modern load, P2 with --case p2, that with tokenExchange with --case credentials, or composites with --case p12, to this file and print its ten largest entries")
	f.IntVar(&o.seconds, "profile-seconds", 5, "how long the profile is taken")
	f.StringVar(&o.output, "o", "", "write the table to this file, such as BENCHMARKS.md")
	f.DurationVar(&o.limit, "limit", 30*time.Minute, "bound of the whole run")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.counted = o.calls; o.counted == 0 {
		o.counted = exchangeCalls
	}
	if o.calls == 0 {
		o.calls = 20000
		if o.quick {
			o.calls = 6000
		}
	}
	if o.rounds == 0 {
		o.rounds = 5
		if o.quick {
			o.rounds = 3
		}
	}
	for _, n := range []struct {
		name      string
		v, lo, hi int
	}{
		{"calls", o.calls, 1, 1 << 24}, {"rounds", o.rounds, 1, 100}, {"gomaxprocs", o.procs, 0, 1024},
		{"sessions", o.sessions, 1, 1 << 17}, {"streams", o.streams, 1, 8000}, {"memory-calls", o.mass, 2, 1 << 24}, {"users", o.users, askedUsers, 15000},
		{"backends", o.backends, 1, 100}, {"starts", o.starts, 1, 100}, {"workloads", o.workloads, 1, 200}, {"profile-seconds", o.seconds, 1, 300},
	} {
		if n.v < n.lo || n.v > n.hi {
			return o, fmt.Errorf("--%s: %d is not between %d and %d", n.name, n.v, n.lo, n.hi)
		}
	}
	if o.against != "" && o.floors {
		return o, errors.New("--against: with --floors there is no edge to hold against another")
	}
	if o.profile != "" && o.floors {
		return o, errors.New("--profile: with --floors there is no edge to take a profile of")
	}
	if cases == "" && o.quick {
		cases = "p1,p2,p4,p5,p9"
	}
	o.only = map[string]bool{}
	for c := range strings.SplitSeq(cases, ",") {
		if c = strings.ToLower(strings.TrimSpace(c)); c == "" {
			continue
		}
		if !strings.Contains(" "+measured+" ", " "+c+" ") {
			return o, fmt.Errorf("--case: %q is not one of %s", c, measured)
		}
		o.only[c] = true
	}
	return o, nil
}

// wants reports whether the run includes a case.
func (o options) wants(name string) bool { return len(o.only) == 0 || o.only[name] }

// measureCommand runs the cases, prints the table and returns an error when a
// call failed or a count was wrong. Figures are only printed.
func measureCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	if o.wants("containers") && !o.quick && !o.floors {
		if err := isolate(); err != nil {
			return fmt.Errorf("a network of its own, for containers: %w", err)
		}
	}
	if o.procs > 0 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(o.procs))
	}
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()

	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	b := &bench{options: o, dir: dir, log: stderr, report: newReport(ctx, o)}
	if !o.floors && o.weir == "" {
		if b.weir, err = program.Build(ctx, dir); err != nil {
			return err
		}
	}
	b.run(ctx)
	if o.profile != "" {
		b.try(ctx, "profile", func(ctx context.Context) { b.takeProfile(ctx, stdout) })
	}

	text := b.report.markdown()
	if _, err := io.WriteString(stdout, text); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the run was cut short: %w", err)
	}
	if o.output != "" {
		if err := writePage(o.output, text); err != nil {
			return err
		}
	}
	if n := len(b.report.failures); n > 0 {
		return fmt.Errorf("%d failed, see the table: %s", n, b.report.failures[0])
	}
	return nil
}
