package container

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/engine"
	"github.com/weir-edge/weir/edge/sandbox"
)

// A container whose link the engine carries has what one by a socket has: processes, streams,
// ends, ports, mounts, limits; and what the engine is told is the same.
func TestAttached(t *testing.T) {
	e := running(t)
	image(t, e, "probe:1", engine.Config{})
	m := machine(t, e)
	m.Link = LinkAttach
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := config(t, "status:", "write:/x", "write:/tmp/x", "list:/.weir", "read:/mounted/file", "env:", "read:/.weir/inside", "write:/.weir/x")
	c.Mounts = []sandbox.Mount{{Host: dir, Inside: "/mounted"}}
	c.Environment = func(context.Context) ([]string, error) { return []string{"SECRET=very-secret"}, nil }
	b := opened(t, m, c)
	said := tried(t, b)
	for try, want := range map[string]string{
		"status:":  "Uid=65532,65532,65532,65532 CapInh=0000000000000000 CapPrm=0000000000000000 CapEff=0000000000000000 CapBnd=0000000000000000 CapAmb=0000000000000000 NoNewPrivs=1 Seccomp=2",
		"write:/x": "refused: ", "write:/tmp/x": "wrote", "list:/.weir": "inside", "read:/mounted/file": `"content"`, "read:/.weir/inside": "refused: ", "write:/.weir/x": "refused: ",
	} {
		if !strings.HasPrefix(said[try], want) {
			t.Errorf("%s: %s, want %s", try, said[try], want)
		}
	}
	if !strings.Contains(said["env:"], "SECRET=very-secret") {
		t.Errorf("environment: %s", said["env:"])
	}
	if len(b.Notes()) != 2 || !strings.Contains(b.Notes()[1], "the engine carries") {
		t.Errorf("notes: %q", b.Notes())
	}
	var is inspected
	e.Get(t, "/containers/"+b.ID()+"/json", &is)
	h := is.HostConfig
	if !h.ReadonlyRootfs || !h.AutoRemove || h.Privileged || !slices.Equal(h.CapDrop, []string{"ALL"}) || h.Memory != 1<<30 || h.NetworkMode != "none" || len(h.PortBindings) > 0 || strings.Contains(strings.Join(is.Config.Env, " "), "very-secret") {
		t.Errorf("%+v", is)
	}
	// Several at once, in order, and large.
	b.command = []string{"/probe", "echo:"}
	var all []*sandbox.Process
	for range 3 {
		p, err := b.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	for i, p := range all {
		line := append(bytes.Repeat([]byte(strconv.Itoa(i)), 1<<20), '\n')
		go func() { _, _ = p.Stdin().Write(line) }()
		got := make([]byte, len(line))
		if _, err := io.ReadFull(p.Stdout(), got); err != nil || !bytes.Equal(got, line) {
			t.Errorf("server %d: %v", i, err)
		}
	}
	if exit := all[0].Stop(5 * time.Second); exit != (sandbox.Exit{}) {
		t.Errorf("%+v", exit)
	}
	all[1].Kill()
	if exit := all[1].Wait(); exit.Signal != "killed" {
		t.Errorf("%+v", exit)
	}
	// The container ends with its link, and all in it.
	b.Close()
	if exit := all[2].Wait(); exit.Signal != "killed" {
		t.Errorf("%+v", exit)
	}
	if left := e.Containers(t); len(left) > 0 {
		t.Errorf("containers: %v", left)
	}
	// A server that speaks HTTP.
	c = config(t, "listen:127.0.0.1:9000")
	c.Port, c.Transport = 9000, "streamable-http"
	b = opened(t, m, c)
	if _, err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var conn net.Conn
	until(t, "connection", func() (ok bool) {
		var err error
		conn, err = b.Dial(t.Context(), b.Port())
		return err == nil
	})
	_, _ = conn.Write([]byte("x\n"))
	got := make([]byte, 2)
	if n, err := conn.Read(got); err != nil || n == 0 {
		t.Errorf("%q, %v", got, err)
	}
	_ = conn.Close()
	b.Close()
	// The manager's end of the connection is all that there is: the container goes with it.
	var volumes struct{ Volumes []struct{ Name string } }
	if e.Get(t, "/volumes", &volumes); len(volumes.Volumes) != 1 || !strings.HasPrefix(volumes.Volumes[0].Name, "weir-helper.") {
		t.Errorf("volumes: %v", volumes.Volumes)
	}
	e.Do(t, "DELETE", "/volumes/"+volumes.Volumes[0].Name)
	opened(t, m, config(t, "status:")) // it is filled anew
	for _, v := range volumes.Volumes {
		defer e.Do(t, "DELETE", "/volumes/"+v.Name)
	}
	for _, b := range e.Containers(t) {
		e.Do(t, "DELETE", "/containers/"+b+"?force=1")
	}
}

// An engine that starts no container says why, whatever it says of the other form of the link.
func TestRefusedStart(t *testing.T) {
	e := running(t)
	image(t, e, "probe:1", engine.Config{})
	socket := filepath.Join(t.TempDir(), "s")
	between(t, e, socket, func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		switch {
		case strings.HasSuffix(r.URL.Path, "/start"):
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"message":"runtime create failed: exec \"/.weir/inside\": permission denied"}`)
		case strings.HasSuffix(r.URL.Path, "/attach"):
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"message":"attach to running containers only"}`)
		default:
			return false
		}
		return true
	})
	_, err := machine(t, &engine.Engine{Socket: socket}).Open(t.Context(), config(t))
	for _, v := range volumes(t, e) { // of the helper
		e.Do(t, "DELETE", "/volumes/"+v.Name)
	}
	if err == nil || !strings.Contains(err.Error(), `runtime create failed: exec "/.weir/inside": permission denied`) || !strings.Contains(err.Error(), "409") {
		t.Error(err)
	}
}

// Where the engine does not see the files of this machine a container is made again with the
// other form of the link, and the next one at once; where somebody asked for a socket it is an
// error.
func TestOtherFiles(t *testing.T) {
	engine.Need(t)
	running(t) // the probe
	hidden := t.TempDir()
	e, err := engine.OpenHiding(hidden)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	image(t, e, "probe:1", engine.Config{})
	m := machine(t, e)
	m.Cache, m.State = filepath.Join(hidden, "cache"), filepath.Join(hidden, "state")
	if err := os.Mkdir(m.State, 0o700); err != nil {
		t.Fatal(err)
	}
	of := func(t *testing.T) Config {
		c := config(t, "status:")
		c.Sockets = filepath.Join(hidden, "sock")
		return c
	}
	c := of(t)
	m.Link = LinkSocket
	if b, err := m.Open(t.Context(), c); err == nil {
		b.Close()
		t.Error("there is a socket in a container that does not see it")
	} else if !strings.Contains(err.Error(), "bind source path does not exist") {
		t.Error(err)
	}
	m.Link = LinkAuto
	b := opened(t, m, c)
	if said := tried(t, b)["status:"]; !strings.HasPrefix(said, "Uid=65532,") || !b.attached {
		t.Errorf("attached %v: %s", b.attached, said)
	}
	b.Close()
	// Another manager with the same state does not try first.
	again := machine(t, e)
	again.Cache, again.State = m.Cache, m.State
	if form := again.linkOf(t.Context(), func() *Engine {
		e, err := again.Engine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return e
	}()); form != LinkAttach {
		t.Errorf("it is remembered as %q", form)
	}
	// An engine that sees the files is tried by a socket.
	other := machine(t, running(t))
	b = opened(t, other, config(t, "status:"))
	if b.attached {
		t.Error("a container that can be reached by a socket is not")
	}
}
