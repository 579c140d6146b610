package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// V32: what is wrong with the directory of a workload harms it alone, is told with its path,
// and is never followed.
func TestBrokenDirectories(t *testing.T) {
	edgetest.Need(t, os.Geteuid() == 0, "only root can give files away")
	elsewhere := t.TempDir()
	outside := filepath.Join(elsewhere, "manifest.yaml")
	if err := os.WriteFile(outside, describe("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, one := range map[string]struct {
		harm func(dir string)
		say  string
		lost bool // what was wrong is lost without harm
	}{
		"truncated":  {func(dir string) { must(os.Truncate(filepath.Join(dir, "manifest.yaml"), 40)) }, "manifest.yaml", false},
		"empty":      {func(dir string) { must(os.Truncate(filepath.Join(dir, "manifest.yaml"), 0)) }, "manifest.yaml", false},
		"none":       {func(dir string) { must(os.Remove(filepath.Join(dir, "manifest.yaml"))) }, "manifest.yaml", false},
		"foreign":    {func(dir string) { must(os.WriteFile(filepath.Join(dir, "status.json"), []byte(`["a"]`), 0o600)) }, "", true},
		"torn":       {func(dir string) { must(os.Truncate(filepath.Join(dir, "status.json"), 20)) }, "", true},
		"zeros":      {func(dir string) { must(os.WriteFile(filepath.Join(dir, "status.json"), make([]byte, 400), 0o600)) }, "", true},
		"nothing":    {func(dir string) { must(os.Truncate(filepath.Join(dir, "status.json"), 0)) }, "", true},
		"other name": {func(dir string) { must(os.WriteFile(filepath.Join(dir, "manifest.yaml"), describe("another"), 0o600)) }, "another", false},
		"too large":  {func(dir string) { must(os.Truncate(filepath.Join(dir, "manifest.yaml"), MaxManifest+1)) }, "manifest.yaml has more than", false},
		"manifest link": {func(dir string) {
			must(os.Remove(filepath.Join(dir, "manifest.yaml")))
			must(os.Symlink(outside, filepath.Join(dir, "manifest.yaml")))
		}, "manifest.yaml is a link", false},
		"status link": {func(dir string) {
			must(os.Remove(filepath.Join(dir, "status.json")))
			must(os.Symlink(outside, filepath.Join(dir, "status.json")))
		}, "", true},
		"lock link": {func(dir string) {
			must(os.Remove(filepath.Join(dir, "lock")))
			must(os.Symlink(outside, filepath.Join(dir, "lock")))
		}, "lock", false},
		"open":          {func(dir string) { must(os.Chmod(dir, 0o777)) }, "mode 0777", false},
		"manifest open": {func(dir string) { must(os.Chmod(filepath.Join(dir, "manifest.yaml"), 0o644)) }, "chmod 600", false},
		"anothers":      {func(dir string) { must(os.Chown(dir, 65534, 65534)) }, "user with the id 65534", false},
		"link":          {func(dir string) { must(os.Rename(dir, elsewhere+"/w")); must(os.Symlink(elsewhere+"/w", dir)) }, "is a link", false},
		"file":          {func(dir string) { must(os.RemoveAll(dir)); must(os.WriteFile(dir, nil, 0o600)) }, "no directory", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir, p := t.TempDir(), &played{}
			k := keep(t, p, dir)
			for _, name := range []string{"w", "other"} {
				must(k.Run(t.Context(), describe(name), false, time.Minute, nil))
			}
			k.Close()
			p.set(func() { p.open = nil })
			one.harm(filepath.Join(k.Paths.Workloads(), "w"))
			k = keep(t, p, dir)
			k.Begin()
			edgetest.Until(t, "the other one", func() bool { return listed(t, k, "other").Status == Running })
			if one.lost {
				edgetest.Until(t, "it runs", func() bool { return listed(t, k, "w").Status == Running })
				if text, err := os.ReadFile(outside); err != nil || string(text) != string(describe("outside")) {
					t.Errorf("what a link leads to was written: %q, %v", text, err)
				}
				return
			}
			s := listed(t, k, "w")
			if s.Status != Failed || !strings.Contains(s.Reason, one.say) || !strings.Contains(s.Reason, filepath.Join(k.Paths.Workloads(), "w")) {
				t.Errorf("%s: %s", s.Status, s.Reason)
			}
			if err := k.Start(t.Context(), "w", time.Second, nil); err == nil {
				t.Error("it was started")
			}
			must(k.Remove(t.Context(), "w", RemoveOptions{Force: true}, nil))
			if _, err := os.Lstat(outside); err != nil {
				t.Errorf("what a link leads to is gone: %v", err)
			}
			os.RemoveAll(elsewhere + "/w")
		})
	}
}

// The directory above is refused as a whole, with a word on mode and owner.
func TestOpenStateDirectory(t *testing.T) {
	dir := t.TempDir()
	paths := pathsAt(t, dir)
	if err := os.MkdirAll(paths.State, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(paths.State, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(KeeperOptions{Paths: paths, Edge: &played{}}); err == nil || !strings.Contains(err.Error(), "mode 0777") || !strings.Contains(err.Error(), "chmod 700 "+paths.State) {
		t.Errorf("%v", err)
	}
}

// Where a disk is full what is asked for fails, and what runs goes on.
func TestFullDisk(t *testing.T) {
	edgetest.Need(t, os.Geteuid() == 0, "only root can mount")
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,mode=700"); err != nil {
		edgetest.Need(t, false, "mount: "+err.Error())
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	p := &played{}
	k := keep(t, p, dir)
	if err := k.Run(t.Context(), describe("w"), false, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	filler.Close()
	if err := k.Run(t.Context(), describe("next"), false, time.Minute, nil); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v", err)
	}
	if all, err := k.List(t.Context()); len(all) != 1 || err != nil || all[0].Status != Running {
		t.Errorf("%+v, %v", all, err)
	}
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}
	if err := k.Run(t.Context(), describe("next"), false, time.Minute, nil); err != nil {
		t.Errorf("%v", err)
	}
}

// writeForEver replaces a file as fast as it can.
func writeForEver(args []string) error {
	for i := 0; ; i++ {
		r := record{Reason: strings.Repeat("x", i%5000), Restarts: i}
		if err := (&folder{path: args[0]}).keep(&r); err != nil {
			return err
		}
	}
}

// L10: a file whose writer is killed is the old one or the new one, never half of one.
func TestKilledWriter(t *testing.T) {
	dir := t.TempDir()
	for i := range 10 {
		cmd := exec.Command(os.Args[0], dir)
		cmd.Env = append(os.Environ(), asChild+"=write")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		before, err := os.Stat(filepath.Join(dir, "status.json"))
		edgetest.Until(t, "a record of this process", func() bool {
			now, failed := os.Stat(filepath.Join(dir, "status.json"))
			return failed == nil && (err != nil || !os.SameFile(before, now))
		})
		time.Sleep(time.Duration(7*i) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		text, err := os.ReadFile(filepath.Join(dir, "status.json"))
		var r record
		if err != nil || json.Unmarshal(text, &r) != nil || len(r.Reason) != r.Restarts%5000 {
			t.Fatalf("torn: %v: %.100q", err, text)
		}
	}
	if readRecord(dir).Restarts == 0 {
		t.Error("nothing was written")
	}
	sweep(dir)
	if left, _ := filepath.Glob(filepath.Join(dir, ".new-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// dialSocket asks who answers on a socket.
func dialSocket(args []string) error {
	c, err := net.Dial("unix", args[0])
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write([]byte("GET /hello HTTP/1.1\r\nHost: m\r\n\r\n")); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if n, err := c.Read(make([]byte, 100)); err != nil || n == 0 {
		return fmt.Errorf("read: %w", err)
	}
	return nil
}

// V33: another user is refused, by the rights of the socket and by the kernel's word on who
// dials; a stale socket is replaced, and a manager of another version says so.
func TestSocket(t *testing.T) {
	edgetest.Need(t, os.Geteuid() == 0, "only root can be another user")
	dir, err := os.MkdirTemp("", "weir-socket-") // which others can enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	k := keep(t, &played{}, dir)
	socket := k.Paths.Socket()
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	if err := os.Chmod(socket, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), socket); !errors.Is(err, ErrNoManager) {
		t.Errorf("a stale socket: %v", err)
	}
	front := answer(t, k)
	c, err := Dial(t.Context(), socket)
	if err != nil || c.Hello.Version != "test" || c.Hello.PID != os.Getpid() {
		t.Fatalf("%+v, %v", c, err)
	}
	c.Close()
	if info, err := os.Lstat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}

	// The test program has to be where another user can run it.
	program := filepath.Join(dir, "program")
	text, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(program, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	dial := func(uid uint32) (string, error) {
		cmd := exec.Command(program, socket)
		cmd.Env, cmd.Dir = append(os.Environ(), asChild+"=dial"), "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := dial(65534); err == nil || !strings.Contains(out, "permission denied") {
		t.Errorf("another user: %v, %s", err, out)
	}
	for path, mode := range map[string]os.FileMode{k.Paths.State: 0o755, socket: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := dial(65534); err == nil || !strings.Contains(out, "read:") && !strings.Contains(out, "write:") {
		t.Errorf("another user, whom the rights let through: %v, %s", err, out)
	}
	if out, err := dial(0); err != nil {
		t.Errorf("this user: %v, %s", err, out)
	}
	if _, err := Dial(t.Context(), socket); err == nil || !strings.Contains(err.Error(), "not yours") {
		t.Errorf("a socket that others reach: %v", err)
	}
	front.Close()

	// Another version.
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		t.Fatal(err)
	}
	newer := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(Hello{API: API + 1, Version: "v9"})
	})}
	go newer.Serve(ln)
	defer newer.Close()
	c, err = Dial(t.Context(), socket)
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(e.Message, "v9") || e.Next != "weir up --replace" || c == nil {
		t.Fatalf("%v", err)
	}
	c.Close()
	if _, err := k.Listen(nil); err == nil {
		t.Error("the socket of another manager was taken")
	}
}

// answer opens the socket of a keeper, until the test ends.
func answer(t testing.TB, k *Keeper) *Front {
	t.Helper()
	front, err := k.Listen(func() {})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- front.Serve() }()
	t.Cleanup(func() {
		front.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return front
}

// The manager of a user who has logged out is found at the next login, whose XDG_RUNTIME_DIR is
// empty, and by who has none or another. Nobody believes what is not this user's.
func TestSocketIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	paths := pathsAt(t, dir)
	elsewhere := paths
	paths.Run = filepath.Join(dir, "run", "weir")
	k, err := Open(KeeperOptions{Paths: paths, Edge: &played{}, Log: slog.New(slog.DiscardHandler), Version: "test", Boot: "one"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	front := answer(t, k)
	finds := func(what string, at Paths) {
		t.Helper()
		edgetest.Until(t, what, func() bool {
			c, err := Find(t.Context(), at)
			if err != nil {
				return false
			}
			c.Close()
			return c.Hello.PID == os.Getpid()
		})
	}
	finds("the manager where it is", paths)
	finds("the manager from elsewhere", elsewhere)
	long, err := Dial(t.Context(), paths.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer long.Close()
	for range 2 { // logged out, and again
		if err := os.RemoveAll(filepath.Join(dir, "run")); err != nil {
			t.Fatal(err)
		}
		finds("the manager after a logout", paths)
		finds("the manager from elsewhere, after a logout", elsewhere)
	}
	if _, err := long.List(t.Context()); err != nil {
		t.Errorf("whoever was connected: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "run")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "run"), nil, 0o600); err != nil { // where nothing can be made
		t.Fatal(err)
	}
	finds("the manager from elsewhere, where nobody is logged in", elsewhere)
	if err := os.Remove(filepath.Join(dir, "run")); err != nil {
		t.Fatal(err)
	}
	finds("the manager at the next login", paths)
	if err := os.Remove(elsewhere.Socket()); err != nil {
		t.Fatal(err)
	}
	finds("the manager where it was first", elsewhere)
	if _, err := os.Lstat(paths.Socket()); err != nil {
		t.Error(err)
	}

	// What is of somebody else, or says nothing, is nobody.
	for name, text := range map[string]string{"a relative path": "run/weir/manager.sock", "nothing": "", "a long one": "/" + strings.Repeat("x", 5000), "no socket": dir + "/none", "itself": elsewhere.Socket()} {
		if err := os.WriteFile(paths.at(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Find(t.Context(), elsewhere); !errors.Is(err, ErrNoManager) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(paths.at(), []byte(paths.Socket()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(paths.at(), 65534, 65534); err == nil { // as root alone
		if _, err := Find(t.Context(), elsewhere); !errors.Is(err, ErrNoManager) {
			t.Errorf("a file of another user: %v", err)
		}
	}

	// At its end nothing is made anew.
	front.Close()
	if front.renewed() != nil {
		t.Error("a socket is made anew after the end")
	}
	if _, err := os.Lstat(paths.Socket()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a socket after the end: %v", err)
	}
}

// A client asks the same as who has the keeper.
func TestClient(t *testing.T) {
	p := &played{meets: map[string]func(context.Context) error{"bad": func(context.Context) error { return &Error{Code: CodeStart, Message: "bad ended: exit 3"} }}}
	k := keep(t, p, filepath.Join(t.TempDir(), strings.Repeat("long", 30))) // longer than a socket's path may be
	answer(t, k)
	c, err := Dial(t.Context(), k.Paths.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var steps []Event
	told := func(e Event) { steps = append(steps, e) }
	if err := c.CreateGroup(t.Context(), "team"); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateGroup(t.Context(), "team"); code(err) != CodeTaken {
		t.Errorf("%v", err)
	}
	if err := c.Run(t.Context(), describe("w", "  groupRef: {name: team}\n"), false, time.Minute, told); err != nil {
		t.Fatal(err)
	}
	if last := steps[len(steps)-1]; last.State != Running || last.URL == "" {
		t.Errorf("%+v", steps)
	}
	if s := listed(t, c, "w"); s.Status != Running || s.Group != "team" {
		t.Errorf("%+v", s)
	}
	if err := c.Run(t.Context(), describe("bad"), false, time.Minute, told); code(err) != CodeStart || !strings.Contains(err.Error(), "exit 3") {
		t.Errorf("%v", err)
	}
	if err := c.Run(t.Context(), describe("w"), false, time.Minute, nil); code(err) != CodeTaken {
		t.Errorf("%v", err)
	}
	if err := c.Run(t.Context(), make([]byte, 2*MaxManifest), false, time.Minute, nil); code(err) != CodeInvalid {
		t.Errorf("%v", err)
	}
	for _, f := range []func() error{
		func() error { return c.Stop(t.Context(), "w", 0, told) },
		func() error { return c.Start(t.Context(), "w", time.Minute, told) },
		func() error { return c.Restart(t.Context(), "w", time.Minute, told) },
		func() error { return c.RemoveGroup(t.Context(), "team", false, told) },
	} {
		if err := f(); err != nil {
			t.Error(err)
		}
	}
	if s := listed(t, c, "w"); s.Status != Running || s.Group != "default" {
		t.Errorf("%+v", s)
	}
	groups, err := c.Groups(t.Context())
	if err != nil || len(groups) != 1 || groups[0].Name != "default" || len(groups[0].Members) != 2 {
		t.Errorf("%+v, %v", groups, err)
	}
	if _, err := c.Inspect(t.Context(), "nobody"); code(err) != CodeNotFound {
		t.Errorf("%v", err)
	}
	if _, err := c.Inspect(t.Context(), "../w"); code(err) != CodeInvalid {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines, ended := make(chan Line, 100), make(chan error, 1)
	go func() { ended <- c.Logs(ctx, "w", LogOptions{Follow: true, Tail: 1}, func(l Line) { lines <- l }) }()
	if l := edgetest.Receive(t, lines, "the last line"); l.Text != "starting → running" {
		t.Errorf("%+v", l)
	}
	// Those who follow leave room for others.
	var followers sync.WaitGroup
	begun := make(chan bool, 100*maxFollowers)
	for range maxFollowers - 1 {
		followers.Go(func() {
			_ = c.Logs(ctx, "w", LogOptions{Follow: true, Tail: 1}, func(Line) { begun <- true })
		})
	}
	for range maxFollowers - 1 {
		edgetest.Receive(t, begun, "a line of each")
	}
	if err := c.Logs(ctx, "w", LogOptions{Follow: true}, func(Line) {}); code(err) != CodeRefused {
		t.Errorf("one more follows: %v", err)
	}
	if s := listed(t, c, "w"); s.Status != Running {
		t.Errorf("%+v", s)
	}
	defer followers.Wait()
	if err := c.Stop(t.Context(), "w", time.Second, nil); err != nil {
		t.Fatal(err)
	}
	if l := edgetest.Receive(t, lines, "a line"); l.Text != "running → stopping" {
		t.Errorf("%+v", l)
	}
	if err := c.Remove(t.Context(), "w", RemoveOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	if err := edgetest.Receive(t, ended, "the end of the log"); err != nil {
		t.Errorf("%v", err)
	}
	if files, _, err := c.PruneLogs(t.Context()); files == 0 || err != nil {
		t.Errorf("%d, %v", files, err)
	}
	if err := c.Down(t.Context(), told); err != nil || steps[len(steps)-1].State != Stopped {
		t.Errorf("%v, %+v", err, steps[len(steps)-1])
	}
	for path, want := range map[string]int{"/workloads/w/start?wait=x": 400, "/workloads/w/logs?tail=x": 400, "/workloads/w/logs?since=x": 400, "/workloads/w/logs?follow=x": 400, "/elsewhere": 404} {
		method := "GET"
		if strings.Contains(path, "start") {
			method = "POST"
		}
		r, err := http.NewRequestWithContext(t.Context(), method, "http://manager"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := c.http.Do(r); err != nil || answer.StatusCode != want {
			t.Errorf("%s: %v, %v", path, answer, err)
		} else {
			answer.Body.Close()
		}
	}
}

// pager is whom a log is written to; write is called before each write.
type pager struct {
	*httptest.ResponseRecorder
	write     func() error
	deadlines int
}

func (p *pager) SetWriteDeadline(time.Time) error {
	p.deadlines++
	return nil
}

func (p *pager) Write(b []byte) (int, error) {
	if err := p.write(); err != nil {
		return 0, err
	}
	return p.ResponseRecorder.Write(b)
}

// TestLogInAPager: a log waits for whoever reads it for as long as that takes, in a place of its
// own, and ends when nobody takes it.
func TestLogInAPager(t *testing.T) {
	k := keep(t, &played{}, t.TempDir())
	if err := k.Run(t.Context(), describe("w"), false, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		k.all["w"].line(Line{Time: time.Now(), Source: "stderr", Text: "a line"})
	}
	a, writes := &Front{k: k, followers: make(chan struct{}, 1)}, 0
	p := &pager{ResponseRecorder: httptest.NewRecorder(), write: func() error {
		if writes++; writes > 3 {
			return syscall.EPIPE
		}
		if len(a.followers) != 1 {
			t.Error("it has no place")
		}
		return nil
	}}
	r := httptest.NewRequest("GET", "/workloads/w/logs", nil)
	r.SetPathValue("name", "w")
	if a.logs(p, r); p.deadlines != 0 || writes != 4 {
		t.Errorf("%d writes, %d of them with a deadline", writes, p.deadlines)
	}
	a.followers = make(chan struct{}) // all places are taken
	more := httptest.NewRecorder()
	if a.logs(more, r); !strings.Contains(more.Body.String(), "read logs already") {
		t.Errorf("one more: %s", more.Body)
	}
}

// TestClientOfAKilledManager: a manager that is killed in the middle of an answer is told in
// words that say what to do.
func TestClientOfAKilledManager(t *testing.T) {
	k := keep(t, &played{}, t.TempDir())
	ln, err := net.Listen("unix", k.Paths.Socket())
	if err == nil {
		err = os.Chmod(k.Paths.Socket(), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var dying atomic.Bool
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hello" {
			if dying.Load() {
				panic(http.ErrAbortHandler)
			}
			_ = json.NewEncoder(w).Encode(Hello{API: API})
			return
		}
		if strings.HasSuffix(r.URL.Path, "/start") {
			(&stream{w: w}).event(Event{Text: "starting w"})
		}
		panic(http.ErrAbortHandler) // nothing more comes, and no end
	}))
	s.Listener.Close()
	s.Listener = ln
	s.Start()
	defer s.Close()
	c, err := Dial(t.Context(), k.Paths.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := map[string]func() error{
		"in its answer":  func() error { return c.Start(t.Context(), "w", time.Minute, nil) },
		"before it":      func() error { return c.Stop(t.Context(), "w", time.Minute, nil) },
		"asked to look":  func() error { _, err := c.List(t.Context()); return err },
		"asked to tell":  func() error { return c.Logs(t.Context(), "w", LogOptions{}, func(Line) {}) },
		"asked to do it": func() error { return c.CreateGroup(t.Context(), "g") },
	}
	for when, ask := range ask {
		var e *Error
		if err := ask(); !errors.As(err, &e) || e.Message != "the manager ended before it was done" || e.Next != "`weir list` shows what it did" {
			t.Errorf("%s: %v", when, err)
		}
	}
	dying.Store(true)
	if c, err := Dial(t.Context(), k.Paths.Socket()); !errors.Is(err, ErrNoManager) {
		t.Errorf("%v, %v", c, err)
	}
}

// A directory that could not be used and was mended since is used.
func TestMendedDirectory(t *testing.T) {
	dir := t.TempDir()
	k := keep(t, &played{}, dir)
	if err := k.Run(t.Context(), describe("w"), false, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	k.Close()
	folder := filepath.Join(k.Paths.Workloads(), "w")
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	k = keep(t, &played{}, dir)
	var e *Error
	if err := k.Start(t.Context(), "w", time.Minute, nil); !errors.As(err, &e) || !strings.Contains(e.Message, "chmod 700 "+folder) || !strings.HasPrefix(e.Next, "mend it") {
		t.Errorf("%v", err)
	}
	if err := os.Chmod(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := k.Start(t.Context(), "w", time.Minute, nil); err != nil {
		t.Errorf("mended: %v", err)
	}
	if all, err := k.List(t.Context()); err != nil || len(all) != 1 || all[0].Status != Running {
		t.Errorf("%+v, %v", all, err)
	}
}

// A manager whose directory was removed ends, and leaves the socket to the one that is there now.
func TestManagerIsRobbed(t *testing.T) {
	k := keep(t, &played{}, t.TempDir())
	first := answer(t, k)
	k.Begin()
	for _, dir := range []string{k.Paths.State, k.Paths.Run} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	other, err := Open(KeeperOptions{Paths: k.Paths, Edge: &played{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	answer(t, other)
	select {
	case <-k.Lost():
	case <-time.After(edgetest.Patience):
		t.Fatal("it goes on")
	}
	first.Close()
	c, err := Dial(t.Context(), k.Paths.Socket())
	if err != nil {
		t.Fatalf("the other one is not found any longer: %v", err)
	}
	c.Close()
}

// TestClientOfASilentManager: one that does not answer is told with what to do.
func TestClientOfASilentManager(t *testing.T) {
	was := helloWithin
	helloWithin = 50 * time.Millisecond
	t.Cleanup(func() { helloWithin = was })
	k := keep(t, &played{}, t.TempDir())
	ln, err := net.Listen("unix", k.Paths.Socket())
	if err == nil {
		err = os.Chmod(k.Paths.Socket(), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, err = Dial(t.Context(), k.Paths.Socket())
	if e := new(Error); !errors.As(err, &e) || e.Code != CodeFault || !strings.Contains(e.Message, "has not answered within") || !strings.Contains(e.Next, "kill its process") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = Dial(ctx, k.Paths.Socket()); !errors.Is(err, context.Canceled) {
		t.Errorf("whoever gives up is told %v", err)
	}
}

// children are what other processes do in tests.
func children() map[string]func(args []string) error {
	return map[string]func([]string) error{"write": writeForEver, "dial": dialSocket}
}

// Manifests, and records of what runs in the foreground, outlast a power cut; other records are
// not waited for. What a cut leaves of one reads as that nobody knows.
func TestWhatIsSynced(t *testing.T) {
	var synced []string
	real := syncFile
	t.Cleanup(func() { syncFile = real })
	syncFile = func(f *os.File) error {
		synced = append(synced, filepath.Base(f.Name())[:5])
		return real(f)
	}
	f := &folder{path: t.TempDir()}
	for _, c := range []struct {
		what string
		do   func() error
		want int
	}{
		{"a manifest", func() error { return writeOwn(f.manifest(), []byte("a: 1\n")) }, 1},
		{"a record", func() error { return f.keep(&record{State: Running}) }, 0},
		{"another", func() error { return f.keep(&record{State: Stopped}) }, 0},
		{"one of the foreground", func() error { return f.keep(&record{State: Running, Foreground: true}) }, 1},
	} {
		synced = nil
		if err := c.do(); err != nil || len(synced) != c.want {
			t.Errorf("%s: %v, %v", c.what, synced, err)
		}
	}
	for _, torn := range []string{"", "{", `{"state":"running","resta`, "\x00\x00\x00\x00"} {
		if err := os.WriteFile(f.status(), []byte(torn), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := readRecord(f.path); r.State != "" || r.Foreground {
			t.Errorf("%q reads as %+v", torn, r)
		}
	}
	// 1. A name of the same content is not written again.
	synced = nil
	if err := writeOwn(f.manifest(), []byte("a: 1\n")); err != nil || len(synced) > 0 {
		t.Errorf("%v, %v", synced, err)
	}
}
