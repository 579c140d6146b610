package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/workload"
)

// keep makes the directories of workloads.
func keep(t *testing.T, a *app, names ...string) {
	t.Helper()
	paths, err := a.paths()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(paths.Workloads(), name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// ages are how old things are, which changes from day to day.
var ages = regexp.MustCompile(`\b[0-9]+d( +ago)?\b`)

// TestWorkloadMistakes holds the text of what goes wrong with workloads, and of what to do
// then, with a manager that has workloads in every state and does some things badly.
func TestWorkloadMistakes(t *testing.T) {
	mistakesAt(t, "workloads", nil, nil, func(t *testing.T, args []string) (string, int) {
		m := newFakeManager()
		m.faults = map[string]error{
			"start broken":        &workload.Error{Code: workload.CodeStart, Message: "the server ended with code 1 before it had introduced itself", Next: "`weir logs broken` shows what it said"},
			"start tickets":       &workload.Error{Code: workload.CodeLogin, Message: "tickets wants a login, and there is nobody to ask", Next: "`weir start tickets` on a terminal"},
			"start odd":           &workload.Error{Code: workload.CodeRefused, Field: "spec.run.volumes", Message: "/etc is no place to mount", Next: "name it with --allow-unsafe-mount"},
			"start paused":        &workload.Error{Code: workload.CodeSandbox, Message: "bubblewrap is not there", Next: "install bubblewrap, or give --sandbox auto"},
			"restart paused":      &workload.Error{Code: workload.CodeTaken, Message: "port 20003 is taken by another program", Next: "`weir run --replace --proxy-port 0`"},
			"stop in 30s files":   errors.New("the manager: unexpected EOF"),
			"remove files":        &workload.Error{Code: workload.CodeInvalid, Message: "it is being started", Next: "`weir rm --force files`"},
			"remove group work":   &workload.Error{Code: workload.CodeFault, Message: "files does not stop", Next: "`weir stop files --timeout 0`"},
			"logs older":          &workload.Error{Code: workload.CodeFault, Message: "the log of older cannot be read: permission denied", Next: "look at the mode of the state directory"},
			"prune":               &workload.Error{Code: workload.CodeFault, Message: "the disk is full", Next: "make room"},
			"inspect older":       errors.New("the manager: connection reset by peer"),
			"restart older":       &workload.Error{Code: workload.CodeStart, Message: "no answer within 1m0s", Next: "`weir logs older`, or give it more time with --wait"},
			"remove by force odd": &workload.Error{Code: workload.CodeFault, Message: "a process of odd is stuck", Next: "`weir status odd` names it"},
		}
		var given []string
		run, managers, kept := args, 1, []string{}
		for len(run) > 0 && strings.HasPrefix(run[0], "@") { // what is otherwise than usual
			given, run = append(given, run[0]), run[1:]
		}
		if slices.Contains(given, "@none") {
			managers = 0
		}
		if slices.Contains(given, "@kept") {
			kept = []string{"files", "tickets"}
		}
		a, out, said := asking(t, map[int]*fakeManager{1: m}[managers], kept...)
		a.out, a.err = out, out
		code := a.run(run)
		return ages.ReplaceAllString(out.String()+said.String(), "Nd$1"), code
	})
}

// TestWorkloadErrorsAreJSON: with --format json an error is an object on standard error, which
// says what to do next, and nothing else is there.
func TestWorkloadErrorsAreJSON(t *testing.T) {
	for _, c := range []struct {
		line string
		code int
		kind workload.Code
	}{
		{"list --group wrok", cli.ExitMissing, workload.CodeNotFound},
		{"list --label x", exitUsage, workload.CodeInvalid},
		{"status fils", cli.ExitMissing, workload.CodeNotFound},
		{"start nothing", cli.ExitMissing, workload.CodeNotFound},
		{"start broken", exitStart, workload.CodeStart},
		{"restart --group wrok", cli.ExitMissing, workload.CodeNotFound},
		{"stop", exitUsage, workload.CodeInvalid},
		{"rm a b --all", exitUsage, workload.CodeInvalid},
		{"logs fils", cli.ExitMissing, workload.CodeNotFound},
		{"logs files --since yesterday", exitUsage, workload.CodeInvalid},
		{"group create work", cli.ExitTaken, workload.CodeTaken},
		{"group rm wrok", cli.ExitMissing, workload.CodeNotFound},
	} {
		m := newFakeManager()
		m.faults["start broken"] = &workload.Error{Code: workload.CodeStart, Field: "spec.image", Message: "it ended", Next: "`weir logs broken`"}
		a, out, said := asking(t, m)
		code := a.run(append(strings.Fields(c.line), "--format", "json"))
		var told struct {
			Error map[string]string `json:"error"`
		}
		if err := json.Unmarshal(said.Bytes(), &told); err != nil || code != c.code || out.Len() > 0 || strings.Count(said.String(), "\n") != 1 {
			t.Errorf("%s: %d, %q, %q, %v", c.line, code, out, said, err)
			continue
		}
		if e := told.Error; e["code"] != string(c.kind) || e["message"] == "" || e["next"] == "" || strings.Contains(e["message"], e["next"]) {
			t.Errorf("%s: %s", c.line, said)
		}
	}
}

// TestListShowsWhatRunsOrIsBroughtToIt: a workload that starts is there, one that was stopped
// or failed is counted.
func TestListShowsWhatRunsOrIsBroughtToIt(t *testing.T) {
	for state, shown := range map[workload.State]bool{
		workload.Starting: true, workload.Running: true, workload.Unhealthy: true, workload.AuthRetrying: true,
		workload.Stopped: false, workload.Stopping: false, workload.Failed: false, workload.Unauthenticated: false, workload.PolicyStopped: false, workload.Unknown: false,
	} {
		m := newFakeManager()
		m.all = map[string]*workload.Detail{"one": {Status: workload.Status{Name: "one", Status: state}}}
		a, out, said := asking(t, m)
		if code := a.run([]string{"list"}); code != exitOK || strings.Contains(out.String(), string(state)) != shown || strings.Contains(said.String(), "1 workload is not shown") == shown {
			t.Errorf("%s: %d, %s%s", state, code, out, said)
		}
	}
}

// TestListIsWhatScriptsOfTheReferenceRead: an array of the keys that they know, and those of
// Weir beside them; everything else of a list stays on standard error.
func TestListIsWhatScriptsOfTheReferenceRead(t *testing.T) {
	a, out, said := asking(t, newFakeManager())
	if code := a.run([]string{"list", "-a", "--format", "json"}); code != exitOK || said.Len() > 0 {
		t.Fatalf("%d, %s", code, said)
	}
	var all []map[string]any
	if err := json.Unmarshal(out.Bytes(), &all); err != nil || len(all) != 6 {
		t.Fatalf("%v: %s", err, out)
	}
	if all[1]["name"] != "files" {
		t.Fatalf("%v is not sorted", all[1]["name"])
	}
	for _, key := range []string{"name", "package", "url", "port", "transport_type", "proxy_mode", "status", "created_at", "labels", "group", "tools", "remote", "started_at", "sandbox", "isolation", "processes", "restarts", "rssBytes"} {
		if _, is := all[1][key]; !is {
			t.Errorf("%s is not there: %v", key, all[1])
		}
	}
	m := newFakeManager()
	m.all = nil
	a, out, _ = asking(t, m)
	if code := a.run([]string{"list", "--format", "json"}); code != exitOK || out.String() != "[]\n" {
		t.Errorf("an empty list: %d, %s", code, out)
	}
}

// TestSeveralWorkloads: all that are meant are tried, at most so many at a time, and the exit
// code is the gravest.
func TestSeveralWorkloads(t *testing.T) {
	did := func(m *fakeManager) []string { slices.Sort(m.did); return m.did }
	for _, c := range []struct {
		line string
		code int
		did  string
	}{
		{"start --all", exitOK, "[start broken start odd start older start paused start tickets]"},
		{"start files", exitOK, "[]"}, // it runs
		{"restart files files paused", exitOK, "[restart files restart paused]"},
		{"stop --all --timeout 5s", exitOK, "[stop in 5s broken stop in 5s files stop in 5s odd stop in 5s older stop in 5s paused stop in 5s tickets]"},
		{"stop files --timeout 0", exitOK, "[stop in 1ns files]"},                                // at once; 0 is the usual time for a manager
		{"stop files nothing paused", cli.ExitMissing, "[stop in 30s files stop in 30s paused]"}, // that it is stopped may not be kept yet
		{"stop files nothing --ignore-missing", exitOK, "[stop in 30s files]"},
		{"rm --group work", exitOK, "[remove broken remove files]"},
		{"rm --force odd", exitOK, "[remove by force odd]"},
		{"rm nothing --ignore-missing", exitOK, "[]"},
		{"restart older nothing files", exitStart, "[restart files]"},
		{"restart older tickets files", exitStart, "[restart files]"},
		{"restart nothing tickets", cli.ExitLogin, "[]"},
		{"restart odd older", exitFault, "[]"},
	} {
		m := newFakeManager()
		m.faults["restart older"] = &workload.Error{Code: workload.CodeStart, Message: "it ended", Next: "look"}
		m.faults["restart tickets"] = &workload.Error{Code: workload.CodeLogin, Message: "log in", Next: "look"}
		m.faults["restart odd"] = errors.New("broken")
		a, out, said := asking(t, m)
		if code := a.run(strings.Fields(c.line)); code != c.code || fmt.Sprint(did(m)) != c.did {
			t.Errorf("%s: %d, %v, %s%s", c.line, code, m.did, out, said)
		}
	}
	m := newFakeManager()
	for n := range 40 {
		name := fmt.Sprintf("many-%02d", n)
		m.all[name] = &workload.Detail{Status: workload.Status{Name: name, Group: "many", Status: workload.Failed}}
	}
	m.groups = append(m.groups, "many")
	a, out, _ := asking(t, m)
	if code := a.run([]string{"start", "--group", "many"}); code != exitOK || len(m.did) != 40 || !strings.HasPrefix(out.String(), "many-00: running\nmany-01: running\n") {
		t.Errorf("%d, %d of them, %.100s", code, len(m.did), out)
	}
}

// TestWithoutAManager: commands that look start none, those that act start one where something
// is kept, and none else.
func TestWithoutAManager(t *testing.T) {
	for _, c := range []struct {
		line          string
		kept, started bool
		code          int
	}{
		{"list", false, false, exitOK},
		{"list", true, false, exitOK},
		{"list --group work", true, false, exitFault},
		{"status files", true, false, exitFault},
		{"status nothing", true, false, cli.ExitMissing},
		{"inspect files", true, false, exitFault},
		{"logs files", true, false, exitFault},
		{"logs files", false, false, cli.ExitMissing},
		{"logs prune", true, false, exitFault},
		{"group list", true, false, exitFault},
		{"group rm work", true, false, exitFault},
		{"group create new", false, true, exitOK},
		{"start files", true, true, exitOK},
		{"restart files", true, true, exitOK},
		{"stop files", true, true, exitOK},
		{"rm files", true, true, exitOK},
		{"start files", false, false, cli.ExitMissing},
		{"stop --all", false, false, exitOK},
		{"rm --all", false, false, exitOK},
		{"stop --group work", false, false, cli.ExitMissing},
		{"stdio files", false, false, cli.ExitMissing},
		{"stdio broken", true, true, exitStart},
		{"tools -w files", false, false, cli.ExitMissing},
		{"tools -w broken", true, true, exitStart},
	} {
		var kept []string
		if c.kept {
			kept = []string{"files", "broken"}
		}
		a, out, said := asking(t, nil, kept...)
		started := false
		a.managed = func(_ context.Context, start bool) (workload.Manager, error) {
			if !start {
				return nil, workload.ErrNoManager
			}
			started = true
			return newFakeManager(), nil
		}
		if code := a.run(strings.Fields(c.line)); code != c.code || started != c.started {
			t.Errorf("%s with something kept %t: %d, started %t: %s%s", c.line, c.kept, code, started, out, said)
		}
	}
	a, out, said := asking(t, nil, "files", "Not-A-Name", "tickets")
	if code := a.run([]string{"list", "--format", "json"}); code != exitOK || strings.Count(out.String(), `"status": "unknown"`) != 2 || !strings.Contains(said.String(), "No manager runs") {
		t.Errorf("%d, %s%s", code, out, said)
	}
}

// TestHomeIsWhereWorkloadsAre: without a place for workloads the error says which variable
// names one.
func TestHomeIsWhereWorkloadsAre(t *testing.T) {
	for _, line := range []string{"list", "stop files", "tools -w files", "logs files", "group list"} {
		if _, said, code := ran([]string{"HOME="}, strings.Fields(line)...); code != exitFault || !strings.Contains(said, "WEIR_HOME") {
			t.Errorf("%s: %d, %s", line, code, said)
		}
	}
}

// TestWorkloadCompletions completes names of workloads and groups from what the manager has, or
// from what is kept.
func TestWorkloadCompletions(t *testing.T) {
	for _, c := range []struct {
		line, want string
		asleep     bool
	}{
		{"stop ", "broken files odd older paused tickets", false},
		{"stop files t", "tickets", false},
		{"stop files ", "broken odd older paused tickets", false},
		{"inspect f", "files", false},
		{"inspect files ", "", false},
		{"status t", "tickets", false},
		{"logs o", "odd older", false},
		{"stdio p", "paused", false},
		{"tools -w b", "broken", false},
		{"tools --workload b", "broken", false},
		{"list --group ", "default work", false},
		{"rm --group w", "work", false},
		{"group rm ", "default work", false},
		{"list --format ", "text json mcpservers", false},
		{"stop ", "files tickets", true},
		{"list --group ", "", true},
	} {
		m := newFakeManager()
		if c.asleep {
			m = nil
		}
		a, out, _ := asking(t, m, "files", "tickets")
		if code := a.run(append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(c.line, " ")...)); code != 0 {
			t.Fatalf("%s: exit code %d", c.line, code)
		}
		words := strings.Fields(out.String())
		if got := strings.Join(words[:len(words)-1], " "); got != c.want {
			t.Errorf("%s completes to %q, want %q", c.line, got, c.want)
		}
	}
}

// TestLogsFollow: what comes is shown as it comes, and an interrupt is no failure.
func TestLogsFollow(t *testing.T) {
	m := newFakeManager()
	a, out, said := asking(t, m)
	m.after = func() {
		if strings.Count(out.String(), "\n") != 2 {
			t.Errorf("not there yet: %s", out)
		}
		interrupt(t)
	}
	if code := a.run([]string{"logs", "files", "-f", "--tail", "2", "--format", "json"}); code != exitOK || said.Len() > 0 {
		t.Fatalf("%d, %s", code, said)
	}
	for line := range strings.Lines(out.String()) {
		var l workload.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Time.IsZero() || l.Text == "" {
			t.Errorf("%s: %v", line, err)
		}
	}
	out.Reset()
	m.after = func() { interrupt(t) }
	if code := a.run([]string{"logs", "files", "-f", "--tail", "0"}); code != exitOK || out.Len() > 0 {
		t.Errorf("with 0 what was there before is shown: %d, %s%s", code, out, said)
	}
	m.after = nil // an interrupt might come when the command has ended
	if code := a.run([]string{"logs", "files", "--tail", "0"}); code != exitUsage || !strings.Contains(said.String(), "or 0 with -f") {
		t.Errorf("%d, %s", code, said)
	}
	a.out = failing{}
	if code := a.run([]string{"logs", "files", "-f"}); code != exitFault || !strings.Contains(said.String(), "no space left") {
		t.Errorf("%d, %s", code, said)
	}
}

// interrupt interrupts this process, as Ctrl-C does.
func interrupt(t *testing.T) {
	t.Helper()
	if p, err := os.FindProcess(os.Getpid()); err != nil || p.Signal(os.Interrupt) != nil {
		t.Error("the process cannot be interrupted")
	}
}

// failing is a stream that cannot be written to.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestInterruptedStop ends with the code of the signal, and says it once.
func TestInterruptedStop(t *testing.T) {
	m := newFakeManager()
	m.listed = func(ctx context.Context, _ int) {
		interrupt(t)
		<-ctx.Done()
	}
	a, _, said := asking(t, m)
	if code := a.run([]string{"stop", "--all"}); code != cli.ExitSignal+2 || strings.Count(said.String(), "interrupted") != 1 {
		t.Errorf("%d, %s", code, said)
	}
}

// starting is a manager whose workloads take for ever to start.
type starting struct {
	*fakeManager
	under func() // called when one does
}

func (m starting) Run(ctx context.Context, _ []byte, _ bool, _ time.Duration, _ func(workload.Event)) error {
	m.under()
	<-ctx.Done()
	return ctx.Err()
}

// TestInterruptedRun says where to look, since the manager goes on.
func TestInterruptedRun(t *testing.T) {
	m := newFakeManager()
	a, _, said := asking(t, m)
	a.managed = func(context.Context, bool) (workload.Manager, error) {
		return starting{m, func() { interrupt(t) }}, nil
	}
	if code := a.run([]string{"run", "--name", "late", "--", "/bin/true"}); code != cli.ExitSignal+2 || !strings.Contains(said.String(), "weir status late says what becomes of it") {
		t.Errorf("%d, %s", code, said)
	}
}

// TestCommandsOfServersTakeWorkloads: -w names a workload wherever a URL is taken, and waits
// for one that is being started.
func TestCommandsOfServersTakeWorkloads(t *testing.T) {
	where := places(t)
	m := newFakeManager()
	m.all["plan"] = &workload.Detail{Status: workload.Status{Name: "plan", URL: where["$PLAN"], Status: workload.Starting}}
	m.listed = func(_ context.Context, n int) {
		if n > 1 {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.all["plan"].Status.Status = workload.Running
		}
	}
	m.all["flows"] = &workload.Detail{Status: workload.Status{Name: "flows", URL: where["$FLOWS"], Status: workload.Running}}
	m.all["scripts"] = &workload.Detail{Status: workload.Status{Name: "scripts", URL: where["$SCRIPTS"], Status: workload.Running}}
	m.all["gone"] = &workload.Detail{Status: workload.Status{Name: "gone", URL: "http://127.0.0.1:1/mcp", Status: workload.Running}}
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":502,"message":"backend \"a\" unavailable"}}`))
	}))
	defer refuses.Close()
	m.all["refused-away"] = &workload.Detail{Status: workload.Status{Name: "refused-away", URL: refuses.URL + "/mcp", Status: workload.Running, Remote: true}}
	m.all["refused"] = &workload.Detail{Status: workload.Status{Name: "refused", URL: refuses.URL + "/mcp", Status: workload.Running}}
	t.Chdir(t.TempDir())
	written(t, map[string]string{"s.star": "return 40 + 2", "weir.yaml": filtered("  source: {path: x}")})
	for _, c := range []struct {
		line, want string
		code       int
	}{
		{"tools -w plan", "plan", exitOK},
		{"resources --workload plan", "plan://notes", exitOK},
		{"read -w plan plan://notes", "one", exitOK},
		{"prompts -w plan", "review", exitOK},
		{"prompt -w plan review who=Ada", "Review it as Ada", exitOK},
		{"workflow run -w flows sum --args {\"a\":1}", `"sum": 3`, exitOK},
		{"script run -w scripts s.star", "42", exitOK},
		{"call -w flows echo text=hello", "hello", exitOK},
		{"call -w flows frobnicate a=1", "`weir tools -w flows` lists what there is", exitUsage},
		{"call -w flows frobnicate", "`weir tools -w flows` lists what there is", exitUsage},
		{"call -w flows frobnicate --args {}", "`weir tools -w flows` lists what there is", cli.ExitProtocol},
		{"tools -w gone", "`weir status gone` says how it is", cli.ExitConnection},
		{"tools -w refused", "`weir status refused` says how it is, and `weir logs refused` why", cli.ExitProtocol},
		{"tools -w refused-away", "`weir status refused-away` says how it is, and `weir logs --proxy refused-away` why", cli.ExitProtocol},
		{"tools -w paused", "it is stopped: `weir start paused`", exitStart},
		{"tools -w broken", "it is error (it ends again and again): `weir status broken` says why", exitStart},
		{"tools -w tickets", "`weir start tickets` logs in", cli.ExitLogin},
		{"tools -w odd", "it is policy_stopped", cli.ExitRefused},
		{"tools -w plam", "did you mean plan?", cli.ExitMissing},
		{"tools -w a/b", "is no name of a workload", exitUsage},
		{"inspect " + strings.Repeat("a", 64<<10), "is no name of a workload", exitUsage},
		{"tools -w plan http://127.0.0.1:9/mcp", "are two servers: leave one out", exitUsage},
		{"script run -w plan -c weir.yaml s.star", "-w and -c are two places", exitUsage},
		{"script run -w plan --url http://127.0.0.1:9/mcp s.star", "are two servers: leave one out", exitUsage},
	} {
		a, out, said := asking(t, m)
		if code := a.run(strings.Fields(c.line)); code != c.code || !strings.Contains(out.String()+said.String(), c.want) {
			t.Errorf("%s: %d, want %d and %q: %s%s", c.line, code, c.code, c.want, out, said)
		}
	}
}

// TestGroupRun serves the members of a group as one server.
func TestGroupRun(t *testing.T) {
	one, two := edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Legacy)
	m := newFakeManager()
	for name, s := range map[string]*edgetest.Server{"one": one, "two": two} {
		m.all[name] = &workload.Detail{Status: workload.Status{Name: name, Group: "work", URL: s.URL, Status: workload.Unknown}}
	}
	delete(m.all, "files")
	m.listed = func(_ context.Context, n int) { // as after a reboot
		m.mu.Lock()
		defer m.mu.Unlock()
		for i, name := range []string{"one", "two"} {
			if m.all[name].Status.Status = workload.Starting; n > 1+i {
				m.all[name].Status.Status = workload.Running
			}
		}
	}
	a, _, _ := asking(t, m)
	var said lockedBuffer
	a.err = &said
	ended := make(chan int, 1)
	go func() {
		ended <- a.run([]string{"group", "run", "work", "--", "--listen", "127.0.0.1:0", "--admin-listen="})
	}()
	endpoint := regexp.MustCompile(`Weir serves one, two on (\S+)`)
	defer func() { t.Log(said.String()) }()
	edgetest.Until(t, "it serves", func() bool { return endpoint.MatchString(said.String()) })
	if want := "left out: broken is error: it ends again and again\n"; !strings.Contains(said.String(), want) || strings.Count(said.String(), "left out") != 1 {
		t.Errorf("there is no %q in %s", want, said.String())
	}
	url := endpoint.FindStringSubmatch(said.String())[1]
	if out, said, code := ran(nil, "tools", url); code != exitOK || !strings.Contains(out, "one_echo") || !strings.Contains(out, "two_echo") {
		t.Errorf("%d, %s%s", code, out, said)
	}
	interrupt(t)
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d: %s", code, said.String())
	}
}

// lockedBuffer is a buffer that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A command of several workloads fails as each of its failures alone does.
func TestStartFailsWithItsCode(t *testing.T) {
	for _, code := range []workload.Code{workload.CodeBuild, workload.CodePull, workload.CodeStart, workload.CodeLogin, workload.CodeRefused, workload.CodeSandbox, workload.CodeTaken, workload.CodeInvalid, workload.CodeFault} {
		failed := &workload.Error{Code: code, Message: "no"}
		m := newFakeManager()
		m.faults = map[string]error{"start odd": failed}
		a, _, said := asking(t, m)
		if got := a.run([]string{"start", "odd"}); got != code.Exit() {
			t.Errorf("%s: exit %d, and not %d: %s", code, got, code.Exit(), said)
		}
	}
}

// TestInspectHoldsNoSecret: a value whose name reads like that of a secret is for the server alone.
func TestInspectHoldsNoSecret(t *testing.T) {
	m := newFakeManager()
	m.all["files"].Manifest = "apiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: files}\nspec: {image: npx, args: [a], env: [{name: API_TOKEN, value: planted}, {name: PLAIN, value: shown}]}\n"
	a, out, said := asking(t, m)
	if code := a.run([]string{"inspect", "files"}); code != 0 || strings.Contains(out.String(), "planted") || !strings.Contains(out.String(), "REDACTED") || !strings.Contains(out.String(), "shown") {
		t.Errorf("exit %d, %s%s", code, out, said)
	}
}

// TestToolsOfOlderWorkload: a workload whose clients are told of the older transport is asked
// at /mcp all the same, which its door answers too.
func TestToolsOfOlderWorkload(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked[r.URL.Path] = true
		w.WriteHeader(http.StatusNotFound)
	}))
	defer s.Close()
	m := newFakeManager()
	m.all["files"].URL = s.URL + "/sse"
	a, _, _ := asking(t, m)
	_ = a.run([]string{"tools", "-w", "files"}) // nothing but the place matters
	if !asked["/mcp"] || asked["/sse"] {
		t.Errorf("asked at %v", asked)
	}
}
