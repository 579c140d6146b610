// Command storm does to an edge what its operators fear: it stops and kills
// the process under load, holds thousands of connections open, never reads,
// never finishes sending, leaves in the middle of calls. Each row starts the
// real program, puts the load on it from outside, and prints what was seen
// beside the bar. README.md says what each of them does. It needs Linux, and
// stays on the loopback interface.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/edgetest/program"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case asServer:
			play()
			return
		case asHTTP:
			playHTTP()
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "storm:", err)
		os.Exit(1)
	}
}

// row is one thing that is done to the edge.
type row struct {
	number string // of the goal
	name   string // of the command
	usage  string
	run    func(context.Context, *storm)
}

// rows is all of them, in the order of their numbers.
func rows() []row {
	return []row{
		{"G01", "reload", "the configuration changes under load, again and again", runReload},
		{"G02", "drain", "SIGTERM under load, with slow calls and streams open", runDrain},
		{"G03", "replace", "a second process takes over the address under load", runReplace},
		{"G04", "redis-kill", "the shared store is killed under load, and comes back empty", runRedisKill},
		{"G05", "redis-hole", "the shared store takes everything and says nothing", runRedisHole},
		{"G06", "partial", "one of five backends dead, slow or resetting", runPartial},
		{"G07", "restart", "a backend restarts and has lost its sessions", runRestart},
		{"G08", "readers", "streams whose clients never read", runReaders},
		{"G09", "idle", "ten thousand idle streams", runIdle},
		{"G10", "churn", "sessions that come and go, and sessions that only come", runChurn},
		{"G11", "soak", "a mixed load for a long time", runSoak},
		{"G12", "unknownkeys", "tokens of keys that nobody has, beside valid ones", runUnknownKeys},
		{"G13", "rotation", "the identity provider signs with another key, under load", runRotation},
		{"G14", "keysaway", "an identity provider that is away for an hour", runKeysAway},
		{"G20", "signin-races", "many show one return, one code, one refresh token at the same time, at two edges", runSignInRaces},
		{"T29", "signin-tokens", "tokens of three providers at three backends, that end, and that are revoked, over two edges", runSignInTokens},
		{"A15", "signin", "logins over two edges that are killed, whose store is lost, and whose secrets change", runSignIn},
		{"A17", "signin-abuse", "registrations, requests for authorization, clients that are URLs, forged and wrong secrets without end", runSignInAbuse},
		{"G21", "scripts", "scripts that are meant to hurt, beside calls", runScripts},
		{"G21", "workflows", "composite tools called with what is meant to hurt, beside calls and beside workflows that wait", runWorkflows},
		{"Q07", "optimizer", "the embedding service fails in twenty ways while tools are searched for", runOptimizer},
		{"G23", "traps", "a guest that traps in one call of a hundred", runTraps},
		{"G24", "heavy", "messages that are as much work as their size allows, through every filter", runHeavy},
		{"G25", "slowloris", "slow headers, slow bodies, slow readers", runSlowloris},
		{"G26", "overload", "three times the capacity, open loop", runOverload},
		{"G27", "toxics", "a network between edge and backend that misbehaves", runToxics},
		{"G27", "toxicidp", "a network between edge and identity provider that misbehaves", runToxicProvider},
		{"G27", "toxicstore", "a network between edge and shared store that misbehaves", runToxicStore},
		{"Z46", "liar", "what answers as the shared store lies", runLiar},
		{"G27", "toxictokens", "services that give credentials of users, refused, silent, broken or lying", runToxicTokens},
		{"T14", "manyusers", "ten thousand users in a minute, each with a credential of its own", runManyUsers},
		{"T15", "expiries", "a credential that expires again and again, under load", runExpiries},
		{"T12", "newsecret", "the client secret of the edge is changed under load, again and again", runNewSecret},
		{"T16", "refused", "backends that refuse every credential, and a skew above its life", runRefused},
		{"G28", "audit", "every end of a request, with SIGTERM under load; an audit log that cannot be written", runAudit},
		{"G30", "crosstalk", "two tenants with equal ids and tokens, and random cancels", runCrosstalk},
		{"G31", "vanish", "clients that leave in the middle of a call", runVanish},
		{"G32", "processes", "servers on standard streams are killed, starved, stopped and kept at work, and the edge that keeps them is killed", runProcesses},
		{"G32", "containers", "the same of servers in containers, whose containers are removed and whose engine is killed, too", runContainers},
		{"V31", "manager", "the manager of twenty workloads is killed with calls under way, again and again", runManager},
		{"G38", "kill9", "kill -9 under load, again and again", runKill},
		{"Z01", "announced", "large bodies that are announced and do not come, or come slowly", runAnnounced},
		{"Z40", "largesessions", "clients that say as much of themselves as they may, and more, beside others", runLargeSessions},
		{"Z12", "handover-sessions", "processes take over from each other with sessions, streams and people's answers waiting", runHandOver},
		{"Z06", "evict", "one client begins sessions without end beside a hundred others", runEvict},
		{"W14", "guests", "a guest is replaced under load, again and again", runGuests},
		{"W14", "starlark", "a filter in Starlark is replaced under load, again and again", runStarlark},
	}
}

// options are what a run is told. A zero means that the row decides.
type options struct {
	weir    string
	flags   []string // more flags for the edge
	quick   bool
	asJSON  bool
	rate    int           // calls a second of the steady load
	count   int           // what the row counts: streams, sessions, clients, starts, calls
	atOnce  int           // of vanish: clients at a time
	length  time.Duration // of what the row holds
	limit   time.Duration // of the whole run
	verbose bool
}

// command runs one command line.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	var more string
	f := flag.NewFlagSet("storm", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.weir, "weir", "", "program of the edge (default: build ./cmd/weir)")
	f.StringVar(&more, "flags", "", "more flags for the edge, separated by spaces")
	f.BoolVar(&o.quick, "quick", false, "a scaled run of each row; its line says by how much")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON object for each row")
	f.IntVar(&o.rate, "rate", 0, "calls a second of the steady load (default: what the row wants, or 70 % of the ceiling)")
	f.IntVar(&o.count, "count", 0, "how many streams, sessions, clients, starts or calls (default: what the row wants)")
	f.IntVar(&o.atOnce, "at-once", 0, "clients at a time, of vanish (default: what the row wants)")
	f.DurationVar(&o.length, "length", 0, "how long the row holds its load (default: what the row wants)")
	f.DurationVar(&o.limit, "limit", 45*time.Minute, "bound of the whole run")
	f.BoolVar(&o.verbose, "v", false, "say on stderr what is being done")
	f.Usage = func() {
		fmt.Fprintf(stderr, "storm [flags] NAME...\n\n")
		for _, r := range rows() {
			fmt.Fprintf(stderr, "  %s %-10s %s\n", r.number, r.name, r.usage)
		}
		fmt.Fprintf(stderr, "  %-14s every row, and a table of them\n\n", "all")
		f.PrintDefaults()
	}
	names, err := parse(f, args)
	if err != nil {
		return err
	}
	o.flags = strings.Fields(more)
	if o.rate < 0 || o.count < 0 || o.atOnce < 0 || o.length < 0 || o.limit <= 0 {
		return errors.New("numbers and durations are not negative")
	}
	if o.length >= o.limit {
		return fmt.Errorf("--length %s does not end within --limit %s", o.length, o.limit)
	}
	chosen, all, err := choose(names)
	if err != nil {
		return err
	}
	return runAll(ctx, o, chosen, all, stdout, stderr)
}

// parse reads flags before, between and after the names.
func parse(f *flag.FlagSet, args []string) (names []string, err error) {
	for {
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		if f.NArg() == 0 {
			return names, nil
		}
		names, args = append(names, f.Arg(0)), f.Args()[1:]
	}
}

// choose finds the rows of the names; all says that each was asked for.
func choose(names []string) (chosen []row, all bool, err error) {
	if len(names) == 0 {
		return nil, false, errors.New("name a row, or all; storm --help lists them")
	}
	for _, name := range names {
		if name == "all" {
			return rows(), true, nil
		}
		found := false
		for _, r := range rows() {
			if r.name == name || strings.EqualFold(r.number, name) {
				chosen, found = append(chosen, r), true
			}
		}
		if !found {
			return nil, false, fmt.Errorf("unknown row %q; storm --help lists them", name)
		}
	}
	return chosen, false, nil
}

// runAll runs rows one after the other and prints each when it is done. The
// error says which missed their bars.
func runAll(ctx context.Context, o options, chosen []row, table bool, stdout, stderr io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	dir, err := os.MkdirTemp("", "weir-storm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := kit.RaiseFiles(); err != nil {
		return err
	}
	if o.weir == "" {
		if o.weir, err = program.Build(ctx, dir); err != nil {
			return err
		}
	}
	var missed []string
	var done []outcome
	for _, r := range chosen {
		s := &storm{options: o, dir: dir, log: io.Discard, outcome: outcome{Row: r.number, Name: r.name}}
		if o.verbose {
			s.log = stderr
		}
		busy, _ := strconv.ParseFloat(kit.LoadAverage(), 64) // 0 when nobody tells
		began := time.Now()
		err := s.do(ctx, r)
		s.outcome.Seconds = time.Since(began).Seconds()
		if err != nil {
			s.outcome.Error = err.Error()
		}
		if busy > float64(runtime.NumCPU()) {
			s.note("others kept the machine busy: at the beginning the load average was %.1f on %d cores", busy, runtime.NumCPU())
		}
		if !s.outcome.ok() {
			missed = append(missed, r.name)
		}
		done = append(done, s.outcome)
		if err := s.outcome.print(stdout, o.asJSON); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the run was cut short: %w", ctx.Err())
		}
	}
	if table && !o.asJSON {
		if err := printTable(stdout, done); err != nil {
			return err
		}
	}
	if missed != nil {
		return fmt.Errorf("missed: %s", strings.Join(missed, ", "))
	}
	return nil
}

// outcome is what a row saw.
type outcome struct {
	Row     string   `json:"row"`
	Name    string   `json:"name"`
	Scale   string   `json:"scale,omitempty"` // how the run differs from what the goal says
	Figures []figure `json:"figures"`
	Notes   []string `json:"notes,omitempty"`
	Error   string   `json:"error,omitempty"` // why there are no more figures
	Seconds float64  `json:"seconds"`
}

// figure is one thing that was seen, and the bar that it is held against; one
// without a bar only informs.
type figure struct {
	Seen string `json:"seen"`
	Bar  string `json:"bar,omitempty"`
	OK   bool   `json:"ok"`
}

// ok reports whether every bar was reached.
func (o outcome) ok() bool {
	for _, f := range o.Figures {
		if !f.OK {
			return false
		}
	}
	return o.Error == "" && len(o.Figures) > 0
}

func (o outcome) verdict() string {
	if o.ok() {
		return "ok"
	}
	return "MISSED"
}

// text is the outcome as a small table: what was seen, line by line, each
// beside its bar.
func (o outcome) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s", o.Row, o.Name, o.verdict())
	if o.Scale != "" {
		fmt.Fprintf(&b, "  (scaled: %s)", o.Scale)
	}
	b.WriteByte('\n')
	for _, f := range o.Figures {
		switch {
		case !f.OK:
			b.WriteString("  MISSED  ")
		case f.Bar != "":
			b.WriteString("  ok      ")
		default:
			b.WriteString("          ")
		}
		b.WriteString(f.Seen)
		if f.Bar != "" {
			fmt.Fprintf(&b, "  (bar: %s)", f.Bar)
		}
		b.WriteByte('\n')
	}
	if o.Error != "" {
		fmt.Fprintf(&b, "  MISSED  %s\n", o.Error)
	}
	for _, n := range o.Notes {
		fmt.Fprintf(&b, "          %s\n", n)
	}
	return b.String()
}

func (o outcome) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(struct {
			outcome
			OK bool `json:"ok"`
		}{o, o.ok()})
	}
	_, err := io.WriteString(w, o.text())
	return err
}

// printTable prints every figure that has a bar.
func printTable(w io.Writer, done []outcome) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nROW\tNAME\tSEEN\tBAR\t\n")
	for _, o := range done {
		first := o.Row + "\t" + o.Name
		for _, f := range o.Figures {
			if f.Bar == "" && f.OK {
				continue
			}
			word := "ok"
			if !f.OK {
				word = "MISSED"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", first, f.Seen, f.Bar, word)
			first = "\t"
		}
		if o.Error != "" {
			fmt.Fprintf(t, "%s\t%s\t\tMISSED\n", first, o.Error)
		}
	}
	return t.Flush()
}

// storm is one row while it runs.
type storm struct {
	options
	dir     string
	log     io.Writer
	outcome outcome
	ends    []func()    // what the row started, the last first
	edges   []*kit.Edge // those among it

	environment []string // variables of the edges that the row starts
}

// do runs a row and ends what it started. The error says why it could not go on,
// and what its edges said last.
func (s *storm) do(ctx context.Context, r row) error {
	defer s.end()
	err := kit.Try(func() {
		r.run(ctx, s)
		kit.Check(ctx.Err())
	})
	for _, e := range s.edges {
		err = e.Fault(err)
	}
	return err
}

// bar holds something that was seen against a bar.
func (s *storm) bar(ok bool, bar, format string, args ...any) {
	s.outcome.Figures = append(s.outcome.Figures, figure{fmt.Sprintf(format, args...), bar, ok})
}

// tell adds something that was seen and has no bar.
func (s *storm) tell(format string, args ...any) { s.bar(true, "", format, args...) }

// note adds a sentence below the line.
func (s *storm) note(format string, args ...any) {
	s.outcome.Notes = append(s.outcome.Notes, fmt.Sprintf(format, args...))
}

// scale says how the run differs from what the goal says.
func (s *storm) scale(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	switch {
	case s.outcome.Scale == "":
		s.outcome.Scale = text
	case !strings.Contains(s.outcome.Scale, text): // a row may have parts of one scale
		s.outcome.Scale += ", " + text
	}
}

// say tells on stderr what is being done, when that was asked for.
func (s *storm) say(format string, args ...any) {
	fmt.Fprintf(s.log, "%s: %s\n", s.outcome.Name, fmt.Sprintf(format, args...))
}

// later has f called at the end of the row.
func (s *storm) later(f func()) { s.ends = append(s.ends, f) }

// end ends what the row started.
func (s *storm) end() {
	for i := len(s.ends) - 1; i >= 0; i-- {
		s.ends[i]()
	}
	s.ends = nil
}

// size is a number of the row: what the user said, or what the goal says, or
// with --quick a part of it. What differs from the goal is said on the line.
func (s *storm) size(said, goal, quick int, what string) int {
	n := goal
	switch {
	case said > 0:
		n = said
	case s.quick:
		n = quick
	}
	if n != goal {
		s.scale("%d of %d %s", n, goal, what)
	}
	return n
}

// span is size for a duration.
func (s *storm) span(said, goal, quick time.Duration, what string) time.Duration {
	d := goal
	switch {
	case said > 0:
		d = said
	case s.quick:
		d = quick
	}
	if d != goal {
		s.scale("%s of %s %s", d, goal, what)
	}
	return d
}
