package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/workload"
)

// place is a user's home, with a manager of its own.
type place struct {
	t   *testing.T
	dir string
	env []string
}

// newPlace makes one; the test ends what is left of it.
func newPlace(t *testing.T) *place {
	t.Helper()
	_, err := exec.LookPath("bwrap")
	edgetest.Need(t, err == nil, "bubblewrap is not installed")
	var missing *sandbox.HelperError
	_, err = sandbox.Helper(t.TempDir())
	edgetest.Need(t, !errors.As(err, &missing), fmt.Sprint(err))
	p := &place{t: t, dir: t.TempDir()}
	p.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir}
	t.Cleanup(func() {
		if out, code := p.try("down"); code != 0 {
			t.Errorf("down: exit %d: %s", code, out)
		}
		edgetest.Until(t, "the end of all processes", func() bool { return len(p.left()) == 0 })
	})
	return p
}

// try runs a command, and returns all it said.
func (p *place) try(args ...string) (said string, code int) {
	p.t.Helper()
	cmd := exec.Command("weir", args...)
	cmd.Env = p.env
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		p.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// ask is try where nothing is to go wrong.
func (p *place) ask(args ...string) string {
	p.t.Helper()
	said, code := p.try(args...)
	if code != 0 {
		p.t.Fatalf("weir %q: exit %d:\n%s", args, code, said)
	}
	return said
}

// runs starts a workload of the small server, and returns where it is.
func (p *place) runs(name string, command ...string) (url string) {
	p.t.Helper()
	if command == nil {
		command = []string{"small-server"}
	}
	said := strings.TrimSpace(p.ask(append([]string{"run", "--name", name, "--"}, command...)...))
	return said[strings.LastIndexByte(said, '\n')+1:]
}

// status is what the manager says of a workload; a zero one while nobody answers.
func (p *place) status(name string) (one workload.Status) {
	p.t.Helper()
	cmd := exec.Command("weir", "list", "-a", "--format", "json")
	cmd.Env = p.env
	out, err := cmd.Output()
	var all []workload.Status
	if err != nil || json.Unmarshal(out, &all) != nil {
		return one
	}
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	return one
}

// awaits returns when a workload runs.
func (p *place) awaits(name string) workload.Status {
	p.t.Helper()
	edgetest.Until(p.t, name+" to run", func() bool { return p.status(name).Status == workload.Running })
	return p.status(name)
}

// serves reports whether the server of a URL answers with its tools.
func serves(url string) bool {
	q, err := http.NewRequest("POST", url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`))
	if err != nil {
		return false
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Accept", "application/json, text/event-stream")
	c := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Do(q)
	if err != nil {
		return false
	}
	defer r.Body.Close()
	return r.StatusCode == 200 && r.Header.Get("Mcp-Session-Id") != ""
}

// manager is who answers on the socket.
func (p *place) manager() workload.Hello {
	p.t.Helper()
	var hello workload.Hello
	edgetest.Until(p.t, "a manager", func() bool {
		c, err := workload.Dial(p.t.Context(), p.paths().Socket())
		if err != nil {
			return false
		}
		defer c.Close()
		hello = c.Hello
		return true
	})
	return hello
}

func (p *place) paths() workload.Paths {
	p.t.Helper()
	paths, err := workload.PathsOf(func(name string) (string, bool) {
		if name == "HOME" {
			return p.dir, true
		}
		return "", false
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return paths
}

// left are the processes that have their home in this place or below it, and are no zombies.
func (p *place) left() (all []int) {
	for _, path := range must(filepath.Glob("/proc/[0-9]*/environ")) {
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(append([]byte{0}, text...), []byte("\x00HOME="+p.dir)) {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		all = append(all, pid)
	}
	return all
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// kill ends a process as kill -9 does, and returns when it is gone.
func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	edgetest.Until(t, "its end", func() bool { return syscall.Kill(pid, 0) != nil })
}

// A manager in the background has a watcher, which takes next to nothing, and starts it again
// when it is killed; another one takes its place when it is asked to, and weir down leaves
// nothing of either.
func TestManager(t *testing.T) {
	p := newPlace(t)
	url := p.runs("small")
	first := p.manager()
	if s := p.status("small"); first.Watcher != "watcher" || s.URL != url || s.Sandbox != "bwrap" || !serves(url) {
		t.Errorf("%+v, %+v at %s", first, s, url)
	}
	if said := p.ask("up", "--detach"); !strings.Contains(said, fmt.Sprintf("as process %d", first.PID)) {
		t.Errorf("%s", said)
	}
	watcher := must(strconv.Atoi(strings.Fields(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", first.PID)))))[3]))
	spent := must(kit.CPU(watcher))
	if rss := must(kit.Resident(watcher)); rss > 4<<20 {
		t.Errorf("the watcher has %d bytes of memory", rss)
	}

	// 1. Killed.
	kill(t, first.PID)
	second := p.manager()
	if second.PID == first.PID || !second.Since.After(first.Since) {
		t.Errorf("%+v, and then %+v", first, second)
	}
	if s := p.awaits("small"); s.URL != url || !serves(url) {
		t.Errorf("%+v", s)
	}
	if s := p.status("small"); s.RSSBytes < 1<<20 || s.RSSBytes > 1<<30 {
		t.Errorf("its processes have %d bytes of memory", s.RSSBytes)
	}
	if now := must(kit.CPU(watcher)); now-spent > 50*time.Millisecond {
		t.Errorf("the watcher took %s", now-spent)
	}

	// 2. Replaced.
	p.ask("up", "--replace", "--detach")
	third := p.manager()
	if third.PID == second.PID {
		t.Errorf("it is %+v still", third)
	}
	if s := p.awaits("small"); s.URL != url || !serves(url) {
		t.Errorf("%+v", s)
	}

	// 3. Nobody watches any longer.
	kill(t, must(strconv.Atoi(strings.Fields(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", third.PID)))))[3])))
	edgetest.Until(t, "the end of the watcher", func() bool { return p.manager().Watcher == "" })
	if said := p.ask("list"); !strings.Contains(said, "The manager has no watcher") || !serves(url) {
		t.Errorf("%s", said)
	}

	// 4. Ended.
	p.ask("down")
	edgetest.Until(t, "the end of all processes", func() bool { return len(p.left()) == 0 })
	if _, err := os.Lstat(p.paths().Socket()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket: %v", err)
	}
	if said := p.ask("list", "-a"); !strings.Contains(said, "small") || !strings.Contains(said, "unknown") || !strings.Contains(said, "No manager runs") {
		t.Errorf("%s", said)
	}
}

// After a start of the system, with what an earlier one left behind, the same URLs answer.
func TestManagerAfterReboot(t *testing.T) {
	p := newPlace(t)
	back := edgetest.NewServer(t, edgetest.Legacy)
	urls := map[string]string{"small": p.runs("small"), "other": p.runs("other"), "off": p.runs("off")}
	said := strings.TrimSpace(p.ask("run", "--name", "away", back.URL))
	urls["away"] = said[strings.LastIndexByte(said, '\n')+1:]
	p.ask("stop", "off")

	// 1. What a disk has when the power goes, socket and all.
	copied := filepath.Join(t.TempDir(), "home")
	if out, err := exec.Command("cp", "-a", p.dir, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, pid := range p.left() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // those of sandboxes end with others
	}
	edgetest.Until(t, "the end of all", func() bool { return len(p.left()) == 0 })
	if err := os.RemoveAll(p.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(copied, p.dir); err != nil {
		t.Fatal(err)
	}
	boot := regexp.MustCompile(`"boot": "[^"]*"`)
	records := must(filepath.Glob(filepath.Join(p.paths().Workloads(), "*", "status.json")))
	if len(records) != 4 {
		t.Errorf("%q", records)
	}
	for _, path := range records {
		text := must(os.ReadFile(path))
		if !boot.Match(text) {
			t.Fatalf("%s", text)
		}
		if err := os.WriteFile(path, boot.ReplaceAll(text, []byte(`"boot": "an-earlier-one"`)), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	// 2. Nobody claims to know, until a manager has looked.
	if s := p.status("small"); s.Status != workload.Unknown {
		t.Errorf("%+v", s)
	}
	p.ask("up", "--detach")
	for name, url := range urls {
		if name == "off" {
			continue
		}
		if s := p.awaits(name); s.URL != url || !serves(url) {
			t.Errorf("%s was at %s: %+v", name, url, s)
		}
	}
	if s := p.status("off"); s.Status != workload.Stopped || serves(urls["off"]) {
		t.Errorf("%+v", s)
	}
}

// A systemd unit is written that systemd itself finds well, and it goes again.
func TestUpInstall(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	edgetest.Need(t, err == nil, "systemd-analyze is not installed")
	p := &place{t: t, dir: filepath.Join(t.TempDir(), `with a "quote", 100% and $HOME`)}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// In place of systemctl stands what writes down what it is asked, and whose manager takes its time.
	tools, asked := t.TempDir(), filepath.Join(t.TempDir(), "asked")
	if err := os.WriteFile(filepath.Join(tools, "systemctl"), []byte(`#!/bin/sh
echo "$@" >> `+asked+`
unset WEIR_CA_BUNDLE WEIR_SECRETS_PROVIDER
case "$*" in
*enable*) (sleep 2; exec weir up) </dev/null >/dev/null 2>&1 & ;;
*disable*) weir down ;;
esac
`), 0o755); err != nil {
		t.Fatal(err)
	}
	p.env = []string{
		"PATH=" + tools + ":" + os.Getenv("PATH"), "HOME=" + p.dir, "WEIR_HOME=" + p.dir, "XDG_RUNTIME_DIR=" + t.TempDir(),
		"WEIR_CA_BUNDLE=ca.pem", "WEIR_SECRETS_PROVIDER=directory", "HTTPS_PROXY=http://ada:planted@proxy:3128", "no_proxy=localhost",
	}
	here := must(os.Getwd())
	said := p.ask("up", "--install", "--log-level", "debug", "--secrets-dir", "secrets")
	t.Cleanup(func() { p.try("down") })
	if said, code := p.try("logs", "prune"); code != 0 {
		t.Errorf("it is said to run, and does not answer: %s", said)
	}
	unit := filepath.Join(p.dir, ".config", "systemd", "user", "weir.service")
	text, err := os.ReadFile(unit)
	if err != nil || !strings.Contains(said, "wrote "+unit) || strings.Contains(said, "verify") {
		t.Fatalf("%v: %s", err, said)
	}
	for _, want := range []string{"Restart=always", "KillMode=mixed", `"up" "--watcher=systemd" "--secrets-dir=` + here + `/secrets" "--log-level=debug"`, "WEIR_HOME=", "100%%",
		`"WEIR_CA_BUNDLE=` + here + `/ca.pem"`, `"WEIR_SECRETS_PROVIDER=directory"`, `"HTTPS_PROXY=http://ada:planted@proxy:3128"`, `"no_proxy=localhost"`} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
	if info := must(os.Stat(unit)); info.Mode().Perm() != 0o600 || strings.Contains(said, "planted") {
		t.Errorf("the password of the proxy can be read: %s, %s", info.Mode(), said)
	}
	verify := exec.Command(analyze, "--user", "verify", unit)
	verify.Env = p.env
	if out, err := verify.CombinedOutput(); err != nil || bytes.Contains(out, []byte(unit)) {
		t.Errorf("%v: %s", err, out)
	}
	p.ask("up", "--uninstall")
	if _, err := os.Lstat(unit); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unit: %v", err)
	}
	if got := string(must(os.ReadFile(asked))); got != "--user daemon-reload\n--user enable --now weir.service\n--user disable --now weir.service\n--user daemon-reload\n" {
		t.Errorf("systemd was asked %q", got)
	}
	if said, code := p.try("up", "--uninstall"); code != 1 || !strings.Contains(said, "not installed") {
		t.Errorf("exit %d: %s", code, said)
	}
}

// launchd starts a manager again that failed, and none that ended in order, as by `weir down`.
func TestAgent(t *testing.T) {
	text := agent([]string{"/bin/weir", "up"}, map[string]string{"HTTPS_PROXY": "http://a?b&c"}, "/log")
	if !regexp.MustCompile(`<key>KeepAlive</key>\s*<dict>\s*<key>SuccessfulExit</key><false/>\s*</dict>`).MatchString(text) || !strings.Contains(text, "<key>HTTPS_PROXY</key><string>http://a?b&amp;c</string>") {
		t.Error(text)
	}
	var any struct{}
	if err := xml.Unmarshal([]byte(text), &any); err != nil {
		t.Error(err)
	}
}

// A manager of launchd's that is replaced is started again by that.
func TestReplaceManagerOfLaunchd(t *testing.T) {
	p := newPlace(t)
	tools, asked := t.TempDir(), filepath.Join(t.TempDir(), "asked")
	if err := os.WriteFile(filepath.Join(tools, "launchctl"), []byte("#!/bin/sh\necho \"$@\" >> "+asked+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p.env[0] = "PATH=" + tools + ":" + os.Getenv("PATH")
	up := runWith(t, p.env, "up", "--watcher=launchd", "--log-format", "json")
	up.until("the manager is up")
	go drain(up)
	p.ask("up", "--replace", "--detach") // which would start one itself
	if err := up.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	want := fmt.Sprintf("kickstart gui/%d/dev.weir.manager\n", os.Getuid())
	if got, err := os.ReadFile(asked); string(got) != want {
		t.Errorf("launchd was asked %q, %v", got, err)
	}
}

// Paths are those of the directory in which a manager is started, though it has another.
func TestUpRelativePaths(t *testing.T) {
	for _, c := range []struct{ flag, variable string }{{flag: "--secrets-dir=own secrets"}, {variable: "WEIR_SECRETS_DIR=own secrets"}} {
		p := newPlace(t)
		if err := os.Mkdir(filepath.Join(p.dir, "own secrets"), 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("weir", strings.Fields("up --detach")...)
		cmd.Dir, cmd.Env = p.dir, p.env
		if c.flag != "" {
			cmd.Args = append(cmd.Args, c.flag)
		} else {
			cmd.Env = append(cmd.Env, c.variable)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%+v: %v: %s", c, err, out)
		}
	}
}

// L02 of the manager: a second signal ends it at once, one while it starts ends it, and what a
// killed one leaves keeps the next from nothing.
func TestL02Manager(t *testing.T) {
	p := newPlace(t)

	// 1. Its server outlives its input and a polite signal.
	up := runWith(t, p.env, "up", "--log-format", "json")
	up.until("the manager is up")
	go drain(up)
	server := must(exec.LookPath("small-server"))
	said := strings.TrimSpace(p.ask("run", "--name", "stubborn", "-v", filepath.Dir(server)+":"+filepath.Dir(server)+":ro", "--", "sh", "-c", `trap "" TERM; small-server; sleep 1000 & wait`))
	url := said[strings.LastIndexByte(said, '\n')+1:]
	began := time.Now()
	up.signal(syscall.SIGTERM)
	edgetest.Until(t, "it takes no more", func() bool { _, err := net.Dial("tcp", hostOf(url)); return err != nil })
	up.signal(syscall.SIGTERM)
	if err := up.Wait(); err == nil || time.Since(began) > 20*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	edgetest.Until(t, "the end of its processes", func() bool { return len(p.left()) == 0 })

	// 2. While it starts, at several times.
	for i := range 8 {
		up := runWith(t, p.env, "up", "--log-format", "json")
		time.Sleep(time.Duration(5+25*i) * time.Millisecond)
		up.signal(syscall.SIGTERM)
		go func() { // the second is one only when the first was taken
			time.Sleep(200 * time.Millisecond)
			_ = up.Process.Signal(syscall.SIGTERM)
		}()
		began := time.Now()
		if up.end(); time.Since(began) > 20*time.Second {
			t.Errorf("it ended after %s", time.Since(began))
		}
	}
	up = runWith(t, p.env, "up", "--log-format", "json")
	up.until("the manager is up")
	go drain(up)
	kill9(up)

	// 3. Killed, and started again.
	for range 3 {
		up := runWith(t, p.env, "up", "--log-format", "json")
		up.until("the manager is up")
		go drain(up)
		if s := p.awaits("stubborn"); s.URL != url || !serves(url) {
			t.Errorf("%+v", s)
		}
		kill9(up)
	}
	up = runWith(t, p.env, "up", "--log-format", "json")
	up.until("the manager is up")
	go drain(up)
	p.awaits("stubborn")
	p.ask("rm", "--force", "stubborn")
	up.signal(syscall.SIGTERM)
	if err := up.Wait(); err != nil {
		t.Errorf("in order: %v", err)
	}
	var names []string
	for _, e := range must(os.ReadDir(p.paths().State)) {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "gone manager.lock workloads" {
		t.Errorf("left in the state directory: %s", got)
	}
}

// drain reads what a process says, so that it can go on.
func drain(p *process) {
	for p.lines.Scan() {
	}
}

func kill9(p *process) {
	_ = p.Process.Kill()
	_ = p.Wait()
}

func hostOf(url string) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	return host
}

// L06 of the manager: out of descriptors, by connections to a door and to its socket, it waits
// instead of spinning, and serves again when there are some.
func TestL06Manager(t *testing.T) {
	p := newPlace(t)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "ulimit -n 256; exec weir up --log-format json")
	cmd.Env = p.env
	log := filepath.Join(t.TempDir(), "log")
	file := must(os.Create(log))
	defer file.Close()
	cmd.Stderr = file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Signal(syscall.SIGTERM) }()
	p.manager()
	url := p.runs("small")
	for _, to := range [][2]string{{"tcp", hostOf(url)}, {"unix", p.paths().Socket()}} {
		var all []net.Conn
		for range 400 {
			c, err := net.DialTimeout(to[0], to[1], time.Second)
			if err != nil {
				break
			}
			all = append(all, c)
		}
		if len(all) < 70 {
			t.Fatalf("%d connections to %s", len(all), to[1])
		}
		time.Sleep(time.Second) // what follows is measured while it can do nothing
		before, said, began := must(kit.CPU(cmd.Process.Pid)), must(os.Stat(log)).Size(), time.Now()
		time.Sleep(time.Second)
		if used := must(kit.CPU(cmd.Process.Pid)) - before; used > time.Since(began)/4 {
			t.Errorf("%s: %s of processor time in %s", to[0], used, time.Since(began))
		}
		if n := must(os.Stat(log)).Size() - said; n > 64<<10 {
			t.Errorf("%s: %d bytes of log in a second", to[0], n)
		}
		for _, c := range all {
			c.Close()
		}
		edgetest.Until(t, "an answer after that", func() bool { return p.status("small").Status == workload.Running && serves(url) })
	}
}

// L07 of the manager: with a full disk behind its log, without a place for temporary files,
// and without names of hosts, it keeps what it can, and says why not of the rest.
func TestL07Manager(t *testing.T) {
	p := newPlace(t)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "exec weir up --log-level debug 2>/dev/full")
	cmd.Env = append(p.env, "TMPDIR=/proc/nowhere")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	p.manager()
	url := p.runs("small")
	if !serves(url) {
		t.Error("it does not serve")
	}
	said, code := p.try("run", "--name", "lost", "--wait", "20s", "http://nowhere.invalid:9/mcp")
	if code == 0 || !strings.Contains(said, "nowhere.invalid") {
		t.Errorf("exit %d: %s", code, said)
	}
	if !serves(url) {
		t.Error("it does not serve beside that")
	}
	p.ask("down")
	if err := cmd.Wait(); err != nil {
		t.Errorf("its end: %v", err)
	}
}

// A command that is interrupted while the manager cannot be started leaves no watcher, which would
// try again for ever; and where the place of the socket is the reason, it is told at once.
func TestManagerThatCannotStart(t *testing.T) {
	p := newPlace(t)
	if err := os.MkdirAll(p.paths().Lock(), 0o700); err != nil { // a directory, which nobody can lock as a file
		t.Fatal(err)
	}
	cmd := exec.Command("weir", "run", "--", "small-server")
	cmd.Env = p.env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	edgetest.Until(t, "the manager to fail", func() bool {
		text, _ := os.ReadFile(p.paths().Log())
		return strings.Contains(string(text), "weir up: ")
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // with the code of an interruption
	edgetest.Until(t, "the end of the watcher", func() bool { return len(p.left()) == 0 })
	if err := os.Remove(p.paths().Lock()); err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	for _, line := range []string{"run -- small-server", "up"} {
		_, said, code := ran(append(p.env, "XDG_RUNTIME_DIR=/proc/nowhere"), strings.Fields(line)...)
		if code != exitFault || !strings.Contains(said, "mkdir /proc/nowhere") || !strings.Contains(said, "set XDG_RUNTIME_DIR to") {
			t.Errorf("%s: %d, %s", line, code, said)
		}
	}
	if took := time.Since(began); took > startWithin/2 {
		t.Errorf("it is told after %s", took)
	}
}
