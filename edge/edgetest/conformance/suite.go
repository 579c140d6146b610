package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// suite runs the npm package @modelcontextprotocol/conformance.
type suite struct {
	peers.Kit
	limit time.Duration // of one scenario
	heard func(string)  // is told each line that a run writes; nil for nobody
}

// scenario is one of a set's.
type scenario struct {
	name   string
	scored bool
	alone  bool // not one that the suite runs with the set
}

// requirements are the scenarios that the suite has for a set, in its order:
// for servers, and for clients.
type requirements struct{ server, client []scenario }

// requirements reads what the suite requires for a protocol revision, and what
// it reports without scoring it. The file is the suite's own.
func (s suite) requirements(set string) (requirements, error) {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(s.Suite()), "..", "requirements", set+".yaml"))
	if err != nil {
		return requirements{}, fmt.Errorf("requirements of %s: %w", set, err)
	}
	return parseRequirements(set, text)
}

func parseRequirements(set string, text []byte) (requirements, error) {
	var file struct {
		Server    []string `json:"server"`
		Client    []string `json:"client"`
		NotScored []struct {
			Scenario string `json:"scenario"`
			Leg      string `json:"leg"`
		} `json:"not_scored"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return requirements{}, fmt.Errorf("requirements of %s: %w", set, err)
	}
	var r requirements
	for _, name := range file.Server {
		r.server = append(r.server, scenario{name: name, scored: true})
	}
	for _, name := range file.Client {
		r.client = append(r.client, scenario{name: name, scored: true})
	}
	for _, n := range file.NotScored {
		switch n.Leg {
		case "server":
			r.server = append(r.server, scenario{name: n.Scenario})
		case "client":
			r.client = append(r.client, scenario{name: n.Scenario})
		default:
			return requirements{}, fmt.Errorf("requirements of %s: not_scored: %s: leg %q is neither server nor client", set, n.Scenario, n.Leg)
		}
	}
	if len(file.Server) == 0 || len(file.Client) == 0 {
		return requirements{}, fmt.Errorf("requirements of %s: no server or no client scenarios", set)
	}
	return r, nil
}

// extensions returns the server scenarios of protocol extensions that no set
// has. They can be run with the newest set.
func (s suite) extensions(ctx context.Context, known []scenario) ([]scenario, error) {
	out, err := peers.Run(peers.Command(ctx, s.Node, s.Suite(), "list", "--server"))
	if err != nil {
		return nil, fmt.Errorf("suite: list: %w", err)
	}
	var more []scenario
	for _, m := range regexp.MustCompile(`(?m)^ *- (\S+) \[extension\]$`).FindAllSubmatch(out, -1) {
		name := string(m[1])
		if !slices.ContainsFunc(known, func(k scenario) bool { return k.name == name }) {
			more = append(more, scenario{name: name, alone: true})
		}
	}
	return more, nil
}

// check is one observation of a scenario, as the suite writes it.
type check struct {
	ID           string `json:"id"`
	Description  string `json:"description"`
	Status       string `json:"status"` // SUCCESS, FAILURE, WARNING, SKIPPED or INFO
	ErrorMessage string `json:"errorMessage"`
}

// results are the checks of each scenario that has been run.
type results map[string][]check

// servers runs scenarios against the server at url. The results are kept in
// dir. A scenario that gave none is missing in the results; the error is for a
// suite that could not be run at all.
func (s suite) servers(ctx context.Context, set, url, dir string, scenarios []scenario) (results, error) {
	// 1. Those of the set, in one run, unless a few were picked.
	base := []string{"server", "--url", url, "--timeout", s.millis(), "-o", dir}
	whole := slices.ContainsFunc(scenarios, func(sc scenario) bool { return sc.scored && !sc.alone })
	if whole {
		if _, err := s.run(ctx, len(scenarios), dir, append(base, "--requirements", set)...); err != nil {
			return nil, err
		}
	}

	// 2. The others, one by one.
	for _, sc := range scenarios {
		if whole && !sc.alone {
			continue
		}
		if _, err := s.run(ctx, 1, dir, append(base, "--scenario", sc.name, "--spec-version", set, "--force")...); err != nil {
			return nil, err
		}
	}
	return readResults(dir, "server-")
}

// clients runs scenarios for the client that a shell command starts. A client
// that ends with an error where none is wanted, or does not end, fails its
// scenario.
func (s suite) clients(ctx context.Context, set, command, dir string, scenarios []scenario) (results, error) {
	fails := map[string]bool{}
	for _, sc := range scenarios {
		args := []string{"client", "--command", command, "--timeout", s.millis(), "-o", dir, "--scenario", sc.name, "--spec-version", set, "--force"}
		pass, err := s.run(ctx, 1, dir, args...)
		if err != nil {
			return nil, err
		}
		fails[sc.name] = !pass
	}
	r, err := readResults(dir, "")
	if err != nil {
		return nil, err
	}
	for name := range r {
		if fails[name] {
			r[name] = append(r[name], check{ID: "overall", Status: "FAILURE", ErrorMessage: "the suite says that the client failed"})
		}
	}
	return r, nil
}

func (s suite) millis() string { return strconv.FormatInt(s.limit.Milliseconds(), 10) }

// run runs the suite, and reports whether everything passed that counts. It has
// to end in the time that n scenarios may take. What it says goes to output.txt
// in dir.
func (s suite) run(ctx context.Context, n int, dir string, args ...string) (pass bool, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, fmt.Errorf("suite: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(n)*s.limit+30*time.Second)
	defer cancel()
	cmd := peers.Command(ctx, s.Node, append([]string{s.Suite()}, args...)...)
	cmd.Env = append(cmd.Env, "NO_COLOR=1")
	cmd.Dir = dir
	out, err := peers.RunTo(cmd, &lines{to: s.heard})
	file, openErr := os.OpenFile(filepath.Join(dir, "output.txt"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if openErr != nil {
		return false, fmt.Errorf("suite: %w", openErr)
	}
	_, writeErr := fmt.Fprintf(file, "$ conformance %s\n%s\n", strings.Join(args, " "), out)
	var exit *exec.ExitError
	pass = err == nil
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("suite: %s: cut short: %w", args[0], ctx.Err())
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		err = nil // some have failed
	case err != nil:
		err = fmt.Errorf("suite: %s: %w", args[0], err)
	}
	return pass, errors.Join(err, writeErr, file.Close())
}

// lines tells somebody each line that is written to it.
type lines struct {
	to   func(string)
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	if l.to == nil {
		return len(p), nil
	}
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.rest = rest
		l.to(string(line))
	}
}

// readResults reads what the suite has written: a folder for each scenario,
// with its name after prefix and before the time.
func readResults(dir, prefix string) (results, error) {
	r := results{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "checks.json" {
			return err
		}
		rel, err := filepath.Rel(dir, filepath.Dir(path))
		if err != nil {
			return err
		}
		name, ok := strings.CutPrefix(stamp().ReplaceAllString(filepath.ToSlash(rel), ""), prefix)
		if !ok {
			return fmt.Errorf("%s: not of this run", rel)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var checks []check
		if err := json.Unmarshal(text, &checks); err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
		r[name] = checks
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	return r, nil
}

// stamp is the time at the end of a folder's name.
func stamp() *regexp.Regexp {
	return regexp.MustCompile(`-\d{4}-\d{2}-\d{2}T[0-9-]+Z$`)
}

// verdict is what has become of a scenario.
type verdict struct {
	pass   bool
	made   int      // checks that succeeded
	of     int      // and those that failed besides
	faults []string // why it does not pass, a line each
	noted  []string // checks that only succeed directly, and why that is right, a line each
}

// judge tells whether a scenario passes: a check succeeded, none failed, and each
// that succeeds in the direct run, which is nil for the direct run itself, has
// succeeded. What was left out, skipped or noted with INFO or WARNING has not;
// where that is right, its reason stands in otherwise.
func judge(r results, name string, direct results) verdict {
	checks, ran := r[name]
	if !ran {
		return verdict{faults: []string{"the suite has no result"}}
	}
	var v verdict
	const told = "told"
	status := map[string]string{} // by check: SUCCESS or FAILURE, where one of its runs was that
	for _, c := range checks {
		switch c.Status {
		case "SUCCESS":
			v.made++
			v.of++
		case "FAILURE":
			v.of++
			v.faults = append(v.faults, c.ID+": "+oneLine(cmp.Or(c.ErrorMessage, c.Description)))
		default:
			status[c.ID] = cmp.Or(status[c.ID], c.Status)
			continue
		}
		status[c.ID] = c.Status
	}
	for _, c := range direct[name] {
		s, reason := status[c.ID], otherwise[c.ID]
		switch {
		case c.Status != "SUCCESS" || s == "FAILURE" || s == told:
			continue
		case s == "INFO" && reason != "":
			v.noted = append(v.noted, c.ID+" is INFO: "+reason)
		case reason != "":
			v.faults = append(v.faults, c.ID+": is "+cmp.Or(s, "not made")+", and has a reason why it is INFO")
		case s != "SUCCESS":
			v.faults = append(v.faults, c.ID+": succeeds directly and is "+cmp.Or(s, "not made")+" through the edge")
		}
		status[c.ID] = told
	}
	if v.made == 0 && len(v.faults) == 0 {
		v.faults = append(v.faults, "no check was made")
	}
	v.pass = len(v.faults) == 0
	return v
}

// oneLine makes a message fit into a line.
func oneLine(text string) string {
	const most = 300
	text = string(bytes.Join(bytes.Fields([]byte(text)), []byte(" ")))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
