// Command conformance puts the edge between the protocol's own conformance suite
// and the conformance server of the go-sdk, and tells what passes: for clients
// and servers of the same era everything that is scored has to, and where the
// eras differ every scenario that fails has to have a reason in crossera.tsv.
// README.md says how to run one case.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/peers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// command runs one command line.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == clientCommand {
		return beClient(ctx, args[1:], stderr)
	}
	if len(args) > 0 && args[0] == authCommand {
		return beAuthorized(ctx, args[1:], stderr)
	}
	if len(args) == 2 && args[0] == legacyCommand {
		return beLegacy(ctx, args[1], os.Stdin, stdout, stderr)
	}
	if len(args) == 1 && strings.HasPrefix(args[0], "http") {
		return beBrowser(ctx, args[0])
	}
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	return measure(ctx, o, stdout, stderr)
}

// options are what a run is told.
type options struct {
	edge     string        // the edge's program; empty to build ./cmd/weir
	direct   bool          // without an edge
	client   bool          // the scenarios for clients, instead of those for servers
	all      bool          // the cells of two eras as well
	issuer   bool          // the scenarios for authorization servers, with the edge as one
	stdio    bool          // the edge starts the server, on standard streams
	wasm     bool          // the edge starts servers as modules of WebAssembly, beside the same programs natively
	search   bool          // the edge has the optimizer, and tools are called by call_tool
	set      string        // one set; empty for both
	backend  string        // an era; empty for the set's own
	scenario string        // one scenario; empty for all
	limit    time.Duration // of one scenario
	output   string        // folder for what the suite writes; empty for none
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("conformance", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.edge, "edge", "", "program of the edge (default: build ./cmd/weir)")
	f.BoolVar(&o.direct, "direct", false, "without the edge: the servers or the clients alone")
	f.BoolVar(&o.client, "client", false, "the suite's scenarios for clients, instead of those for servers")
	f.BoolVar(&o.all, "all", false, "backends of both eras for each set, not only the set's own")
	f.BoolVar(&o.stdio, "stdio", false, "the edge starts the server, in a sandbox and on standard streams")
	f.BoolVar(&o.wasm, "wasm", false, "the edge starts the servers as modules of WebAssembly, beside the same programs natively")
	f.BoolVar(&o.search, "optimizer", false, "the edge has the optimizer, and the suite's calls of tools become calls of call_tool")
	f.BoolVar(&o.issuer, "issuer", false, "the suite's scenarios for authorization servers, with the edge as one")
	f.StringVar(&o.set, "set", "", "one set: 2025-11-25 or 2026-07-28 (default: both)")
	f.StringVar(&o.backend, "backend", "", "era of the backend: legacy or modern (default: the set's own)")
	f.StringVar(&o.scenario, "scenario", "", "one scenario")
	f.DurationVar(&o.limit, "limit", 20*time.Second, "bound of one scenario")
	f.StringVar(&o.output, "o", "", "keep what the suite writes in this folder")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	one := func(name, value string, of ...string) error {
		if value != "" && !slices.Contains(of, value) {
			return fmt.Errorf("--%s: %q is none of %q", name, value, of)
		}
		return nil
	}
	err := errors.Join(
		one("set", o.set, legacySet, modernSet),
		one("backend", o.backend, string(peers.Legacy), string(peers.Modern)),
	)
	switch {
	case f.NArg() > 0:
		err = errors.Join(err, fmt.Errorf("unexpected argument %q", f.Arg(0)))
	case o.limit <= 0:
		err = errors.Join(err, errors.New("--limit: not above 0"))
	case o.client && (o.all || o.backend != ""):
		err = errors.Join(err, errors.New("--client: the backend is the suite's own, of the set's era"))
	case o.issuer && (o.client || o.direct || o.stdio || o.search || o.all || o.backend != ""):
		err = errors.Join(err, errors.New("--issuer: it is about the edge alone, without a backend"))
	case o.stdio && (o.client || o.direct):
		err = errors.Join(err, errors.New("--stdio: it is about servers behind the edge"))
	case o.wasm && (o.client || o.direct || o.stdio || o.search || o.issuer || o.all || o.backend != ""):
		err = errors.Join(err, errors.New("--wasm: it has backends of its own"))
	case o.search && (o.client || o.direct || o.stdio):
		err = errors.Join(err, errors.New("--optimizer: it is about servers over HTTP behind the edge"))
	case o.all && o.backend != "":
		err = errors.Join(err, errors.New("--all, --backend: one of them"))
	}
	if err == nil && o.direct {
		for _, c := range o.cells() {
			if c.crosses() {
				err = fmt.Errorf("--direct: %s is of two eras, which only an edge can join", c)
			}
		}
	}
	return o, err
}

// cells are those that the run is about, a set after the other.
func (o options) cells() []cell {
	var cells []cell
	for _, set := range []string{legacySet, modernSet} {
		if o.set != "" && o.set != set {
			continue
		}
		same := eraOf(set)
		if o.wasm {
			for _, program := range compiledServers {
				for _, c := range program.of {
					if c.set == set {
						cells = append(cells, c)
					}
				}
			}
			continue
		}
		if !o.all {
			cells = append(cells, cell{set, cmp.Or(peers.Era(o.backend), same)})
			continue
		}
		other := peers.Modern
		if same == peers.Modern {
			other = peers.Legacy
		}
		cells = append(cells, cell{set, same}, cell{set, other})
	}
	return cells
}

// harness is a run under way.
type harness struct {
	options
	suite
	shop   *peers.Shop
	dir    string // of this run's own files
	weir   string // the edge's program; empty without an edge
	late   int    // processes that did not end when asked
	stderr io.Writer
}

func measure(ctx context.Context, o options, stdout, stderr io.Writer) error {
	// 1. What is needed.
	kit, err := peers.Find()
	if err != nil {
		return err
	}
	if lacks := kit.Lacks(); lacks != "" {
		return errors.New(lacks)
	}
	excuses, err := parseReasons(crossera)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	h := &harness{options: o, suite: suite{Kit: kit, limit: o.limit}, shop: peers.NewShop(kit, dir), dir: dir, stderr: stderr}
	if h.output == "" {
		h.output = filepath.Join(dir, "results")
	}
	if h.output, err = filepath.Abs(h.output); err != nil {
		return err
	}
	if !o.direct {
		h.weir = o.edge
		if h.weir == "" {
			if h.weir, err = h.shop.Program(ctx, peers.WeirPackage); err != nil {
				return err
			}
		}
		if h.weir, err = filepath.Abs(h.weir); err != nil {
			return err
		}
	}

	// 2. Each cell, with the direct results of its set.
	direct := map[string]results{}
	faults, summaries := 0, []string{}
	for _, c := range o.cells() {
		for _, leg := range h.legs(c) {
			r := run{cell: c, leg: leg, direct: direct[c.set]}
			measureLeg := map[string]func(context.Context, *run) error{"server": h.servers, "stdio": h.servers, "optimizer": h.servers, "client": h.clients, "authorization": h.authorized, "issuer": h.issuers, "Go": h.modules, "Rust": h.modules}[leg]
			if err := measureLeg(ctx, &r); err != nil {
				return fmt.Errorf("%s: %w", c, err)
			}
			if !o.wasm {
				direct[c.set] = r.direct
			}
			if c.crosses() && o.scenario == "" {
				r.reasons = excuses[c]
			}
			if leg == "optimizer" && o.scenario == "" {
				r.reasons = asListed[c.set]
			}
			faults += r.report(stdout)
			summaries = append(summaries, r.summary())
		}
	}

	// 3. The sum.
	fmt.Fprintln(stdout)
	for _, line := range summaries {
		fmt.Fprintln(stdout, line)
	}
	if faults += h.late; faults > 0 {
		return fmt.Errorf("%d faults", faults)
	}
	return nil
}

// legs are what is measured of a cell. The client that signs in is weir: without it there is
// none.
func (h *harness) legs(c cell) []string {
	auth := isAuth(scenario{name: h.scenario})
	switch {
	case h.issuer:
		return []string{"issuer"}
	case h.wasm:
		var legs []string
		for _, program := range compiledServers {
			if slices.Contains(program.of, c) {
				legs = append(legs, program.name)
			}
		}
		return legs
	case h.stdio:
		return []string{"stdio"}
	case h.search:
		return []string{"optimizer"}
	case !h.client:
		return []string{"server"}
	case h.scenario != "" && auth:
		return []string{"authorization"}
	case h.scenario != "" || h.weir == "":
		return []string{"client"}
	}
	return []string{"client", "authorization"}
}

// pick leaves the scenarios that the run is about.
func (h *harness) pick(all []scenario) ([]scenario, error) {
	if h.scenario == "" {
		return all, nil
	}
	for _, s := range all {
		if s.name == h.scenario {
			s.alone = true
			return []scenario{s}, nil
		}
	}
	return nil, fmt.Errorf("--scenario: the set has no %q", h.scenario)
}

// servers measures a cell of the scenarios for servers: directly, unless that
// has been done for the set, and through the edge, each time with a server that
// nobody has used before.
func (h *harness) servers(ctx context.Context, r *run) error {
	if err := h.scenariosOf(ctx, r); err != nil {
		return err
	}
	var err error
	if r.direct == nil {
		if r.direct, err = h.server(ctx, r, eraOf(r.cell.set), ""); err != nil {
			return err
		}
	}
	if h.weir != "" {
		r.edge, err = h.server(ctx, r, r.cell.backend, h.weir)
	}
	return err
}

// scenariosOf finds what a cell of the scenarios for servers has.
func (h *harness) scenariosOf(ctx context.Context, r *run) error {
	required, err := h.requirements(r.cell.set)
	if err != nil {
		return err
	}
	scenarios := required.server
	if r.cell.set == modernSet {
		more, err := h.extensions(ctx, scenarios)
		if err != nil {
			return err
		}
		scenarios = append(scenarios, more...)
	}
	r.scenarios, err = h.pick(scenarios)
	return err
}

// server runs the cell's scenarios against a server of an era, through the edge
// if its program is given.
func (h *harness) server(ctx context.Context, r *run, era peers.Era, weir string) (results, error) {
	leg := "direct"
	if weir != "" {
		leg = "edge"
	}
	if weir != "" && h.stdio {
		leg = "stdio"
	}
	if weir != "" && h.search {
		leg = "optimizer"
	}
	dir := filepath.Join(h.output, fmt.Sprintf("%s-%s-%s", r.cell.set, era, leg))
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if weir != "" && h.stdio {
		edge, url, err := h.overStdio(ctx, era, weir)
		if err != nil {
			return nil, err
		}
		defer h.stop(edge, dir)
		return h.suite.servers(ctx, r.cell.set, url, dir, r.scenarios)
	}
	server := peers.GoServer(era)
	p, url, err := h.shop.Start(ctx, server)
	if err != nil {
		return nil, err
	}
	defer h.stop(p, dir)
	if weir != "" && h.search {
		edge, through, end, err := h.searching(ctx, weir, url, server.Transport)
		if err != nil {
			return nil, err
		}
		defer h.stop(edge, dir)
		defer end()
		url = through
	} else if weir != "" {
		edge, through, err := peers.StartEdge(ctx, weir, h.dir, url, server.Transport)
		if err != nil {
			return nil, err
		}
		defer h.stop(edge, dir)
		url = through
	}
	return h.suite.servers(ctx, r.cell.set, url, dir, r.scenarios)
}

// stop ends a process and keeps, beside the results, the end of what it said.
// One that does not end when asked is a fault: the suite has gone, so that
// nothing is left to wait for.
func (h *harness) stop(p *peers.Process, dir string) {
	if err := p.Stop(); err != nil {
		h.late++
		fmt.Fprintln(h.stderr, "conformance:", err)
	}
	if err := os.WriteFile(filepath.Join(dir, p.Name+".log"), []byte(p.Said()+"\n"), 0o644); err != nil {
		fmt.Fprintln(h.stderr, "conformance: keep:", err)
	}
}
