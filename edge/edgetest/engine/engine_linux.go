// Package engine runs a real container engine for tests, in a network namespace of its own,
// and loads images of a few files into it.
package engine

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/need"
)

// Engine is a dockerd of the test's own.
type Engine struct {
	Dir    string // of all that it has
	Socket string
	Shared bool     // it is in the network namespace of the test, and not in one of its own
	Hidden string   // a directory of which it sees nothing, as if it was on another machine; "" for none
	podman []string // the command; nil for a dockerd
	cmd    *exec.Cmd
	ended  chan error
}

// Missing says why no engine can be run here; "" where one can.
func Missing() string {
	if os.Geteuid() != 0 {
		return "a container engine needs root"
	}
	for _, name := range []string{"dockerd", "containerd", "runc", "iptables"} {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed (Debian: docker.io, iptables)"
		}
	}
	return ""
}

// Need ends the test where no engine can be run.
func Need(t testing.TB) {
	t.Helper()
	why := Missing()
	need.Of(t, why == "", why)
}

// Start starts an engine, which ends with the test; the test needs one.
func Start(t testing.TB) *Engine {
	t.Helper()
	Need(t)
	e, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// Open starts an engine. It is ready when Open returns.
func Open() (*Engine, error) {
	dir, err := os.MkdirTemp("", "weir-engine-")
	if err != nil {
		return nil, err
	}
	e := &Engine{Dir: dir, Socket: filepath.Join(dir, "d.sock")}
	return e, e.first()
}

// OpenHere starts an engine in the network namespace of the test.
func OpenHere() (*Engine, error) {
	dir, err := os.MkdirTemp("", "weir-engine-")
	if err != nil {
		return nil, err
	}
	e := &Engine{Dir: dir, Socket: filepath.Join(dir, "d.sock"), Shared: true}
	return e, e.first()
}

// OpenHiding starts an engine that sees nothing of a directory.
func OpenHiding(hidden string) (*Engine, error) {
	dir, err := os.MkdirTemp("", "weir-engine-")
	if err != nil {
		return nil, err
	}
	e := &Engine{Dir: dir, Socket: filepath.Join(dir, "d.sock"), Hidden: hidden}
	return e, e.first()
}

// first runs the engine, or removes what it has.
func (e *Engine) first() error {
	err := e.Run()
	if err != nil {
		e.Close()
	}
	return err
}

// Run starts the engine anew after Stop or Kill.
func (e *Engine) Run() error {
	log, err := os.OpenFile(filepath.Join(e.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	e.cmd = exec.Command("dockerd", "--host", "unix://"+e.Socket, "--data-root", e.path("data"), "--exec-root", e.path("exec"), "--pidfile", e.path("pid"), "--ip6tables=false", "--shutdown-timeout", "2")
	if e.podman != nil {
		e.cmd = exec.Command(e.podman[0], e.podman[1:]...)
		e.cmd.Env = e.environment()
	}
	if e.Hidden != "" { // in a mount namespace of its own
		e.cmd = exec.Command("unshare", append([]string{"--mount", "sh", "-c", `mount -t tmpfs none "$0" && exec "$@"`, e.Hidden}, e.cmd.Args...)...)
	}
	e.cmd.Stdout, e.cmd.Stderr = log, log
	e.cmd.Dir = e.Dir // Podman's conmon writes a file where it runs, when memory is over
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setsid: true, Pdeathsig: syscall.SIGTERM}
	if e.Shared {
		e.cmd.SysProcAttr.Cloneflags = 0
	}
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		// The thread that starts it lives as long, or its end would be the engine's; and
		// longer, since it may have started others before.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := e.cmd.Start()
		started <- err
		if err == nil {
			ended <- e.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	e.ended = ended
	for until := time.Now().Add(60 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if _, err := e.ask("GET", "/_ping", nil); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("dockerd ended: %v: %s", err, e.Log())
		default:
		}
		if time.Now().After(until) {
			return fmt.Errorf("dockerd does not answer: %s", e.Log())
		}
	}
}

func (e *Engine) path(name string) string { return filepath.Join(e.Dir, name) }

// Log is the end of what the engine has logged.
func (e *Engine) Log() string {
	text, _ := os.ReadFile(e.path("log"))
	return string(text[max(0, len(text)-4000):])
}

// Stop ends the engine in order.
func (e *Engine) Stop() { e.signal(syscall.SIGTERM) }

// Kill ends the engine, and the containerd that it had started, as a crash does. What runs in
// containers goes on.
func (e *Engine) Kill() {
	e.signal(syscall.SIGKILL)
	e.killLeft("containerd")
	// Where nobody reaps it the next engine would take it to be alive, and wait for it.
	_ = os.Remove(e.path("exec/containerd/containerd.pid"))
}

// killLeft kills the processes of a program that belong to this engine, by their command lines.
func (e *Engine) killLeft(program string) {
	all, _ := os.ReadDir("/proc")
	for _, one := range all {
		pid, err := strconv.Atoi(one.Name())
		if err != nil {
			continue
		}
		text, _ := os.ReadFile("/proc/" + one.Name() + "/cmdline")
		first, _, _ := bytes.Cut(text, []byte{0})
		if filepath.Base(string(first)) == program && bytes.Contains(text, []byte(e.Dir+"/")) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func (e *Engine) signal(s syscall.Signal) {
	if e.cmd == nil || e.cmd.Process == nil || e.ended == nil {
		return
	}
	_ = e.cmd.Process.Signal(s)
	select {
	case <-e.ended:
	case <-time.After(30 * time.Second):
		_ = e.cmd.Process.Kill()
		<-e.ended
	}
	e.ended = nil
}

// Close ends the engine and removes all that it had.
func (e *Engine) Close() {
	if e.podman != nil {
		e.removeAll()
	}
	e.Stop()
	e.killLeft("containerd")
	e.killLeft("containerd-shim-runc-v2")
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], e.Dir+"/") {
			_ = syscall.Unmount(fields[1], syscall.MNT_DETACH)
		}
	}
	for range 20 {
		if os.RemoveAll(e.Dir) == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// ask makes one request to the engine.
func (e *Engine) ask(method, path string, body io.Reader) ([]byte, error) {
	return e.send(method, path, "application/x-tar", body)
}

// send makes one request to the engine, with a body of a type.
func (e *Engine) send(method, path, kind string, body io.Reader) ([]byte, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", e.Socket)
	}}
	req, err := http.NewRequest(method, "http://engine"+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := (&http.Client{Transport: transport, Timeout: 60 * time.Second}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return text, err
}

// Get returns what the engine says of a path of its interface.
func (e *Engine) Get(t testing.TB, path string, into any) {
	t.Helper()
	text, err := e.ask("GET", path, nil)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Do makes a request for which an answer without an error is enough.
func (e *Engine) Do(t testing.TB, method, path string) {
	t.Helper()
	if _, err := e.ask(method, path, nil); err != nil {
		t.Fatal(err)
	}
}

// Post makes a request with a body of JSON.
func (e *Engine) Post(t testing.TB, path, body string) {
	t.Helper()
	if _, err := e.send("POST", path, "application/json", strings.NewReader(body)); err != nil {
		t.Fatal(err)
	}
}

// PostFor is as Post, and reads what comes back.
func (e *Engine) PostFor(t testing.TB, path, body string, into any) {
	t.Helper()
	text, err := e.send("POST", path, "application/json", strings.NewReader(body))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Processes are those of a container, as this machine numbers them: those of its namespace,
// since Podman asks a program inside for them.
func (e *Engine) Processes(t testing.TB, id string) (pids []int) {
	t.Helper()
	var is struct{ State struct{ Pid int } }
	e.Get(t, "/containers/"+id+"/json", &is)
	of := func(pid string) string {
		name, _ := os.Readlink("/proc/" + pid + "/ns/pid")
		return name
	}
	own := of(strconv.Itoa(is.State.Pid))
	all, _ := os.ReadDir("/proc")
	for _, one := range all {
		if pid, err := strconv.Atoi(one.Name()); err == nil && own != "" && of(one.Name()) == own {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Containers are the ids of all containers. Docker 20.10 that was killed may go on listing as
// dead what it has removed when it began anew, and says itself that there is no such container.
func (e *Engine) Containers(t testing.TB) (ids []string) {
	t.Helper()
	var all []struct{ ID, State string }
	e.Get(t, "/containers/json?all=1", &all)
	for _, one := range all {
		if one.State == "dead" {
			if _, err := e.ask("GET", "/containers/"+one.ID+"/json", nil); err != nil && strings.Contains(err.Error(), "No such container") {
				continue
			}
		}
		ids = append(ids, one.ID)
	}
	return ids
}

// Config is the configuration of an image.
type Config struct {
	User         string              `json:",omitempty"`
	Env          []string            `json:",omitempty"`
	Entrypoint   []string            `json:",omitempty"`
	Cmd          []string            `json:",omitempty"`
	WorkingDir   string              `json:",omitempty"`
	Labels       map[string]string   `json:",omitempty"`
	Volumes      map[string]struct{} `json:",omitempty"`
	ExposedPorts map[string]struct{} `json:",omitempty"`
	OnBuild      []string            `json:",omitempty"`
	Healthcheck  any                 `json:",omitempty"`

	Architecture string `json:"-"` // that it says it is for; "" for this machine's
}

// Load loads an image FROM scratch: programs of this machine by their paths inside, and texts.
func (e *Engine) Load(t testing.TB, name string, c Config, programs, texts map[string]string) {
	t.Helper()
	if err := e.TryLoad(name, c, programs, texts); err != nil {
		t.Fatal(err)
	}
}

// TryLoad is as Load.
func (e *Engine) TryLoad(name string, c Config, programs, texts map[string]string) error {
	archive, err := Image(name, c, programs, texts)
	if err != nil {
		return err
	}
	text, err := e.ask("POST", "/images/load?quiet=1", bytes.NewReader(archive))
	if err == nil && bytes.Contains(text, []byte(`"error"`)) {
		err = errors.New(string(text))
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", name, err)
	}
	return nil
}

// TryPost makes a request with a body of JSON.
func (e *Engine) TryPost(path, body string) ([]byte, error) {
	return e.send("POST", path, "application/json", strings.NewReader(body))
}

// Image makes an archive of an image as Load loads it.
func Image(name string, c Config, programs, texts map[string]string) ([]byte, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	made := map[string]bool{}
	put := func(path string, mode int64, data []byte) error {
		path = strings.TrimPrefix(path, "/")
		for i, char := range path {
			if char == '/' && !made[path[:i]] {
				made[path[:i]] = true
				if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path[:i+1], Mode: 0o755}); err != nil {
					return err
				}
			}
		}
		if err := w.WriteHeader(&tar.Header{Name: path, Mode: mode, Size: int64(len(data))}); err != nil {
			return err
		}
		_, err := w.Write(data)
		return err
	}
	for path, from := range programs {
		data, err := os.ReadFile(from)
		if err == nil {
			err = put(path, 0o755, data)
		}
		if err != nil {
			return nil, err
		}
	}
	for path, text := range texts {
		if err := put(path, 0o644, []byte(text)); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(layer.Bytes())
	config, err := json.Marshal(map[string]any{
		"architecture": cmp.Or(c.Architecture, runtime.GOARCH), "os": "linux", "config": c,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w = tar.NewWriter(&archive)
	for _, f := range []struct {
		name string
		data []byte
	}{{"config.json", config}, {"layer.tar", layer.Bytes()}, {"manifest.json", manifest}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	return archive.Bytes(), w.Close()
}

// Build builds a static program of the module, by its package, into a directory.
func Build(dir, pkg string) (path string, err error) {
	path = filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-o", path, "github.com/weir-edge/weir/"+pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	return path, nil
}
