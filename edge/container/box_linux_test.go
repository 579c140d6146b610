package container

import (
	"context"
	"errors"
	"maps"
	"net"
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

// inspected is what an engine says of a container.
type inspected struct {
	Config struct {
		User, Image string
		Env         []string
		Labels      map[string]string
		Volumes     map[string]struct{}
	}
	HostConfig struct {
		ReadonlyRootfs, AutoRemove, Privileged bool
		CapDrop, CapAdd, SecurityOpt           []string
		Binds, ExtraHosts, VolumesFrom         []string
		Memory, MemorySwap, PidsLimit          int64
		NanoCpus                               int64
		NetworkMode, PidMode, IpcMode          string
		Init                                   *bool
		PortBindings                           map[string]any
		LogConfig                              struct{ Type string }
		RestartPolicy                          struct{ Name string }
	}
	Mounts []struct {
		Type, Source, Destination string
		RW                        bool
	}
	State struct {
		Pid    int
		Health *struct{ Status string }
	}
}

// K01: what a server is and may by default.
func TestDefaults(t *testing.T) {
	e := running(t)
	image(t, e, "probe:1", engine.Config{})
	c := config(t, "status:", "list:/.weir/link", "write:/x", "write:/data/there", "write:/tmp/x", "write:/home/weir/x", "write:/home/weir2", "env:", "unix:/var/run/docker.sock", "unix:/run/docker.sock", "list:/.weir")
	c.CPUs = 0.5
	b := opened(t, machine(t, e), c)
	said := tried(t, b)
	for try, want := range map[string]string{
		"status:":  "Uid=65532,65532,65532,65532 CapInh=0000000000000000 CapPrm=0000000000000000 CapEff=0000000000000000 CapBnd=0000000000000000 CapAmb=0000000000000000 NoNewPrivs=1 Seccomp=2",
		"write:/x": "refused: open /x: read-only file system", "write:/data/there": "refused: open /data/there: permission denied", "write:/tmp/x": "wrote", "write:/home/weir/x": "wrote",
		"write:/home/weir2": "refused: open /home/weir2: read-only file system", "unix:/var/run/docker.sock": "refused: dial unix /var/run/docker.sock: connect: no such file or directory",
		"unix:/run/docker.sock": "refused: dial unix /run/docker.sock: connect: no such file or directory", "list:/.weir": "inside link",
	} {
		if said[try] != want {
			t.Errorf("%s: %s, want %s", try, said[try], want)
		}
	}
	var is inspected
	e.Get(t, "/containers/"+b.ID()+"/json", &is)
	h := is.HostConfig
	switch {
	case !h.ReadonlyRootfs || !h.AutoRemove || h.Privileged || h.Init != nil || len(h.PortBindings) > 0:
		t.Errorf("%+v", h)
	case !slices.Equal(h.CapDrop, []string{"ALL"}) || len(h.CapAdd) > 0 || !slices.Equal(h.SecurityOpt, []string{"no-new-privileges"}):
		t.Errorf("%+v", h)
	case h.Memory != 1<<30 || h.MemorySwap != 1<<30 || h.PidsLimit != 256 || h.NanoCpus != 5e8:
		t.Errorf("%+v", h)
	case h.LogConfig.Type != "none" || h.RestartPolicy.Name != "no" && h.RestartPolicy.Name != "" || h.NetworkMode != "none" || h.PidMode != "":
		t.Errorf("%+v", h)
	}
	if is.Config.Labels[labelName] != "probed" || is.Config.Labels[labelOwner] != "0" || len(is.Config.Labels[labelManager]) < 16 {
		t.Errorf("labels: %v", is.Config.Labels)
	}
	if is.State.Health != nil {
		t.Errorf("health: %+v", is.State.Health)
	}
	// What the kernel holds it to, and not only what the engine was told.
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(is.State.Pid) + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []struct{ group, file, want string }{{"pids", "pids.max", "256"}, {"memory", "memory.limit_in_bytes", "1073741824"}} {
		for line := range strings.Lines(string(groups)) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if slices.Contains(strings.Split(parts[1], ","), limit.group) {
				text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", limit.group, parts[2], limit.file))
				if strings.TrimSpace(string(text)) != limit.want {
					t.Errorf("%s: %s, %v", limit.file, text, err)
				}
			}
		}
	}
	// The link is nobody's any more, and its directory is gone.
	if left, _ := os.ReadDir(c.Sockets); len(left) > 0 {
		t.Errorf("%v is left of the link", left)
	}
	// And of the container nothing is left at its end.
	b.Close()
	if slices.Contains(e.Containers(t), b.ID()) {
		t.Error("the container is still there")
	}
}

// K02: what an image says shapes neither what is mounted, nor who the server is, nor what the
// engine runs in it.
func TestImagesShapeNothing(t *testing.T) {
	e := running(t)
	image(t, e, "shaped:1", engine.Config{
		User: "0:0", WorkingDir: "/data", Env: []string{"GODEBUG=inittrace=1", "FROM_IMAGE=yes", "HOME=/root"},
		Labels:       map[string]string{labelManager: "somebody", "docker.volumes": "/:/host", "run": "--privileged -v /:/host", labelName: "other"},
		Volumes:      map[string]struct{}{"/data/kept": {}, "/data": {}},
		ExposedPorts: map[string]struct{}{"80/tcp": {}}, OnBuild: []string{"RUN /bad"},
		Healthcheck: map[string]any{"Test": []string{"CMD", "/probe", "write:/tmp/checked"}, "Interval": 1e9},
	})
	c := config(t, "status:", "env:", "list:/data", "write:/data/kept/x", "list:/host", "read:/proc/1/cmdline")
	c.Image, c.Labels = "shaped:1", map[string]string{"mine": "yes"}
	b := opened(t, machine(t, e), c)
	said := tried(t, b)
	if !strings.HasPrefix(said["status:"], "Uid=65532,") || said["write:/data/kept/x"] != "wrote" || !strings.Contains(said["list:/host"], "no such file") {
		t.Errorf("%v", said)
	}
	if !strings.Contains(said["env:"], "FROM_IMAGE=yes") || !strings.Contains(said["env:"], "HOME=/home/weir") {
		t.Errorf("environment: %s", said["env:"])
	}
	if len(b.Notes()) != 1 || !strings.Contains(b.Notes()[0], "--run-as image") {
		t.Errorf("notes: %q", b.Notes())
	}
	var is inspected
	e.Get(t, "/containers/"+b.ID()+"/json", &is)
	if is.Config.Labels[labelManager] == "somebody" || is.Config.Labels[labelName] != "probed" || is.Config.Labels["mine"] != "yes" {
		t.Errorf("labels: %v", is.Config.Labels)
	}
	for _, m := range is.Mounts {
		if m.Type == "volume" { // in memory, as is looked at below
			continue
		}
		if m.Type != "tmpfs" && (m.Type != "bind" || m.RW || !strings.HasPrefix(m.Destination, ours)) {
			t.Errorf("mount: %+v", m)
		}
	}
	if is.State.Health != nil && is.State.Health.Status != "none" || len(is.HostConfig.Binds) > 0 || len(is.HostConfig.PortBindings) > 0 {
		t.Errorf("%+v", is)
	}
	if all := volumes(t, e); len(all) != 2 {
		t.Errorf("volumes of the engine: %v", all)
	} else if all[0].Options["type"] != "tmpfs" || all[1].Options["type"] != "tmpfs" {
		t.Errorf("on disk: %v", all)
	}
	b.Close()
	if all := volumes(t, e); len(all) > 0 {
		t.Errorf("volumes of the engine: %v", all)
	}
}

// keptVolume is a volume of the engine's.
type keptVolume struct {
	Name    string
	Options map[string]string
}

// volumes are those that the engine has.
func volumes(t *testing.T, e *engine.Engine) []keptVolume {
	t.Helper()
	var all struct{ Volumes []keptVolume }
	e.Get(t, "/volumes", &all)
	return all.Volumes
}

// What is to be written to is, whatever mode and owner the image gives the directory there, and in
// memory; nothing of it is left.
func TestWritableOverTheImagesDirectory(t *testing.T) {
	for name, e := range map[string]*engine.Engine{"docker": running(t), "podman": engine.StartPodman(t)} {
		t.Run(name, func(t *testing.T) {
			e.Load(t, "owned:1", engine.Config{User: "1234", Volumes: map[string]struct{}{"/var": {}}, Entrypoint: []string{"/probe"}}, map[string]string{"/probe": shared.probe}, map[string]string{"/data/there": "", "/var/there": "", "/tmp/there": ""})
			tries := map[string]string{"write:/data/x": "wrote", "write:/var/x": "wrote", "write:/tmp/x": "wrote", "list:/data": ""}
			c := config(t, slices.Sorted(maps.Keys(tries))...)
			c.Image, c.Writable = "owned:1", []string{"/data", "/tmp"}
			if name == "podman" { // with runc these have the image's mode
				tries = map[string]string{"write:/new/x": "wrote"}
				c.Args, c.Writable = []string{"write:/new/x"}, []string{"/new"}
			}
			b := opened(t, machine(t, e), c)
			said := tried(t, b)
			for try, want := range tries {
				if said[try] != want {
					t.Errorf("%s: %s, want %s", try, said[try], want)
				}
			}
			for _, v := range volumes(t, e) {
				if v.Options["type"] != "tmpfs" {
					t.Errorf("on disk: %+v", v)
				}
			}
			b.Close()
			if left := volumes(t, e); len(left) > 0 {
				t.Errorf("volumes of the engine: %v", left)
			}
		})
	}
}

// Where the server of an image starts in a directory that the image lacks, the error names it, and
// what has it there.
func TestDirectoryThatAnImageLacks(t *testing.T) {
	e := running(t)
	image(t, e, "elsewhere:1", engine.Config{WorkingDir: "/nowhere"})
	m := machine(t, e)
	c := config(t, "write:x", "list:/nowhere")
	c.Image = "elsewhere:1"
	_, err := opened(t, m, c).Start(t.Context())
	var known *Error
	if !errors.As(err, &known) || !strings.Contains(known.What, `"/nowhere"`) || !strings.Contains(known.Next, `--writable "/nowhere"`) {
		t.Fatal(err)
	}
	c.Writable = []string{"/nowhere"}
	if said := tried(t, opened(t, m, c)); said["write:x"] != "wrote" || said["list:/nowhere"] != "x" {
		t.Errorf("%v", said)
	}
}

// An image that no image in good faith is.
func TestImagesThatAreRefused(t *testing.T) {
	e := running(t)
	m := machine(t, e)
	image(t, e, "mounts-proc:1", engine.Config{Volumes: map[string]struct{}{"/proc/sys": {}}})
	image(t, e, "mounts-ours:1", engine.Config{Volumes: map[string]struct{}{"/.weir": {}}})
	image(t, e, "mounts-root:1", engine.Config{Volumes: map[string]struct{}{"/": {}}})
	image(t, e, "long:1", engine.Config{Env: []string{"X=" + strings.Repeat("x", maxImageText)}})
	for name, want := range map[string]Kind{
		"mounts-proc:1": Refused, "mounts-ours:1": Refused, "mounts-root:1": Refused, "long:1": Refused,
		"nothing:1": NoImage, "-v": Refused, "--privileged": Refused, "a b": Refused, "x;reboot": Refused, "$(x)": Refused, "a\nb": Refused, "a\x00": Refused,
		"../containers/x": Refused, "a/../../info": Refused, "": Refused, strings.Repeat("a", 600): Refused, "A:B:C": Refused,
	} {
		c := config(t, "pid:")
		c.Image = name
		b, err := m.Open(t.Context(), c)
		var known *Error
		if err == nil {
			b.Close()
		}
		if !errors.As(err, &known) || known.Kind != want {
			t.Errorf("%q: %v", name, err)
		}
	}
	if left := e.Containers(t); len(left) > 0 {
		t.Errorf("containers: %v", left)
	}
}

// An image for another processor is told as that where its program cannot be run.
func TestForeignImage(t *testing.T) {
	e := running(t)
	m := machine(t, e)
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("\x7fELF of another machine"), 0o755); err != nil {
		t.Fatal(err)
	}
	e.Load(t, "foreign:1", engine.Config{Architecture: "riscv64", Entrypoint: []string{"/program"}}, map[string]string{"/program": program}, nil)
	c := config(t)
	c.Image = "foreign:1"
	b, err := m.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err = b.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "exec format error: the image is for \"linux/riscv64\"") {
		t.Errorf("%v", err)
	}
}

// Whom a server runs as.
func TestUsers(t *testing.T) {
	e := running(t)
	m := machine(t, e)
	for _, one := range []struct{ user, runAs, uid, home string }{
		{"", "", "65532", "/home/weir"}, {"root", "", "65532", "/home/weir"}, {"0:1234", "", "65532", "/home/weir"}, {"00", "", "65532", "/home/weir"},
		{"user", "", "1234", "/home/user"}, {"1234", "", "1234", "/home/user"}, {"4321:4321", "", "4321", "/"},
		{"toor", "", "65532", "/home/weir"}, // another name of root
		{"toor", "image", "0", "/root"}, {"", "image", "0", "/root"}, {"user", "77:78", "77", "/home/weir"}, {"", "0", "0", "/home/weir"},
	} {
		image(t, e, "user:1", engine.Config{User: one.user})
		c := config(t, "status:", "env:", "read:/proc/1/environ", "signals:1")
		c.Image, c.RunAs = "user:1", one.runAs
		b := opened(t, m, c)
		said := tried(t, b)
		if !strings.HasPrefix(said["status:"], "Uid="+one.uid+",") || !strings.Contains(said["status:"], "CapEff=0000000000000000 CapBnd=0000000000000000") || !strings.Contains(said["status:"], "NoNewPrivs=1 Seccomp=2") {
			t.Errorf("%+v: %s", one, said["status:"])
		}
		if !slices.Contains(strings.Split(said["env:"], "|"), "HOME="+one.home) {
			t.Errorf("%+v: %s", one, said["env:"])
		}
		if !strings.Contains(said["read:/proc/1/environ"], "refused") || !strings.Contains(said["signals:1"], "refused") {
			t.Errorf("%+v: the helper: %v", one, said)
		}
		b.Close()
	}
}

// Several servers in one container, each by itself; what one leaves behind ends with it.
func TestProcesses(t *testing.T) {
	e := running(t)
	image(t, e, "probe:1", engine.Config{})
	pool := sandbox.NewPoolOf(func(ctx context.Context) (sandbox.Box, error) {
		return machine(t, e).Open(ctx, config(t, "echo:"))
	})
	defer pool.Close()
	var all []*sandbox.Process
	for range 3 {
		p, err := pool.Start(t.Context(), "one")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if n := len(e.Containers(t)); n != 1 {
		t.Errorf("%d containers for one principal", n)
	}
	other, err := pool.Start(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(e.Containers(t)); n != 2 {
		t.Errorf("%d containers for two principals", n)
	}
	for i, p := range append(all, other) {
		line := []byte("hello " + strconv.Itoa(i) + "\n")
		if _, err := p.Stdin().Write(line); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(line))
		if _, err := p.Stdout().Read(got); err != nil || string(got) != string(line) {
			t.Errorf("%q, %v", got, err)
		}
	}
	if exit := all[0].Stop(5 * time.Second); exit.Code != 0 || exit.Signal != "" {
		t.Errorf("%+v", exit)
	}
	all[1].Kill()
	if exit := all[1].Wait(); exit.Signal != "killed" {
		t.Errorf("%+v", exit)
	}
	if _, err := all[2].Stdin().Write([]byte("still here\n")); err != nil {
		t.Error("a server ended with another one:", err)
	}
	pool.Close()
	if exit := all[2].Wait(); exit.Signal != "killed" {
		t.Errorf("%+v", exit)
	}
	if left := e.Containers(t); len(left) > 0 {
		t.Errorf("containers: %v", left)
	}
	for _, p := range append(all, other) {
		_, _, _ = p.Stdin().Close(), p.Stdout().Close(), p.Stderr().Close()
	}
}

// Memory is held, and what ended says so; the container and others in it go on.
func TestMemory(t *testing.T) { holdMemory(t, running(t)) }

func holdMemory(t *testing.T, e *engine.Engine) {
	t.Helper()
	image(t, e, "probe:1", engine.Config{})
	c := config(t, "memory:268435456")
	c.Memory = 64 << 20
	b := opened(t, machine(t, e), c)
	p, err := b.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if exit := p.Wait(); exit.Reason != sandbox.ReasonMemory || exit.Signal != "killed" {
		t.Errorf("%+v", exit)
	}
	if b.HasEnded() {
		t.Error("the container has ended with its server")
	}
	b.command = []string{"/probe", "exit:3"} // which has nothing to do with memory
	if p, err = b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if exit := p.Wait(); exit != (sandbox.Exit{Code: 3}) {
		t.Errorf("%+v", exit)
	}
}

// V24: more processes than there may be, and more on /tmp.
func TestBounds(t *testing.T) { holdBounds(t, running(t)) }

// TestV24Podman does it with Podman, and holds memory.
func TestV24Podman(t *testing.T) {
	if shared.probe == "" {
		running(t)
	}
	e := engine.StartPodman(t)
	holdBounds(t, e)
	holdMemory(t, e)
}

func holdBounds(t *testing.T, e *engine.Engine) {
	t.Helper()
	image(t, e, "probe:1", engine.Config{})
	b := opened(t, machine(t, e), config(t, "write:/tmp/x,104857600", "files:100000", "processes:300"))
	said := tried(t, b)
	for try, want := range map[string]string{"write:/tmp/x,104857600": "no space left", "files:100000": "too many open files", "processes:300": "refused: after"} {
		if !strings.Contains(said[try], want) {
			t.Errorf("%s: %s", try, said[try])
		}
	}
}

// An isolated container reaches nothing, and its server is reached by way of its helper.
func TestNetwork(t *testing.T) {
	e := running(t)
	image(t, e, "listens:1", engine.Config{ExposedPorts: map[string]struct{}{"9000/tcp": {}}, User: "user"})
	host, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	c := config(t, "tcp:1.1.1.1:443", "tcp:[2001:db8::1]:443", "tcp:169.254.169.254:80", "tcp:172.17.0.1:80", "udp:1.1.1.1:53", "resolve:example.com", "resolve:host.docker.internal", "tcp:127.0.0.1:"+strconv.Itoa(host.Addr().(*net.TCPAddr).Port), "socket:17,3,0", "socket:2,3,1", "socket:40,1,0", "socket:38,5,0")
	c.Image = "listens:1"
	said := tried(t, opened(t, machine(t, e), c))
	if len(said) != len(c.Args) {
		t.Errorf("%v", said)
	}
	for try, result := range said {
		if !strings.HasPrefix(result, "refused: ") {
			t.Errorf("%s: %s", try, result)
		}
	}
	// The port that the image exposes is the server's, where nobody asked for another.
	c.Port, c.AnyPort, c.Transport, c.Args = 8080, true, "streamable-http", []string{"listen:127.0.0.1:9000"}
	b := opened(t, machine(t, e), c)
	if b.Port() != 9000 {
		t.Fatalf("port %d", b.Port())
	}
	p, err := b.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var conn net.Conn
	until(t, "connection", func() bool {
		conn, err = b.Dial(t.Context(), b.Port())
		return err == nil
	})
	_, _ = conn.Write([]byte("x\n"))
	got := make([]byte, 2)
	if n, err := conn.Read(got); err != nil || n == 0 {
		t.Errorf("%q, %v", got, err)
	}
	_ = conn.Close()
	p.Kill()
	p.Wait()
}

// K04, and what may be mounted.
func TestMounts(t *testing.T) {
	e := running(t)
	image(t, e, "probe:1", engine.Config{})
	m := machine(t, e)
	dir, secret := t.TempDir(), t.TempDir()
	for _, f := range []string{filepath.Join(dir, "file"), filepath.Join(secret, "key")} {
		if err := os.WriteFile(f, []byte("content"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"root": "/", "proc": "/proc", "socket": e.Socket, "secret": secret} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/", "/proc", "/var/run", "/etc", "/root", e.Socket, dir + "/root", dir + "/proc", dir + "/socket", dir + "/../../../..", secret, dir + "/secret", "/dev/null", dir + "/missing"} {
		c := config(t, "pid:")
		c.Mounts, c.Protected = []sandbox.Mount{{Host: path, Inside: "/mounted"}}, []string{secret}
		b, err := m.Open(t.Context(), c)
		var refused *sandbox.MountError
		if err == nil {
			b.Close()
		}
		if !errors.As(err, &refused) || refused.Next == "" {
			t.Errorf("%s: %v", path, err)
		}
	}
	c := config(t, "read:/mounted/file", "write:/mounted/new", "write:/writable/new", "write:/file", "write:/deep/writable/x")
	c.Mounts = []sandbox.Mount{{Host: dir, Inside: "/mounted"}, {Host: dir, Inside: "/writable", Writable: true}, {Host: filepath.Join(dir, "file"), Inside: "/file"}}
	c.Writable = []string{"/deep/writable"}
	b := opened(t, m, c)
	said := tried(t, b)
	if said["read:/mounted/file"] != `"content"` || !strings.Contains(said["write:/mounted/new"], "read-only") || said["write:/writable/new"] != "wrote" || !strings.Contains(said["write:/file"], "refused") || said["write:/deep/writable/x"] != "wrote" {
		t.Errorf("%v", said)
	}
	// A path that leads elsewhere by the time the engine mounts it.
	held := make(chan struct{})
	go func() {
		defer close(held)
		for t.Context().Err() == nil && len(e.Containers(t)) < 2 { // it is made, and not started yet
		}
		_ = os.Rename(filepath.Join(dir, "file"), filepath.Join(dir, "was"))
		_ = os.WriteFile(filepath.Join(dir, "file"), []byte("secret"), 0o644)
	}()
	if b, err := m.Open(t.Context(), func() Config {
		c := config(t, "read:/file")
		c.Mounts = []sandbox.Mount{{Host: filepath.Join(dir, "file"), Inside: "/file"}}
		return c
	}()); err == nil {
		if said := tried(t, b)["read:/file"]; said != `"content"` {
			t.Errorf("what was not judged is mounted: %s", said)
		}
		b.Close()
	} else if !strings.Contains(err.Error(), "start it again") {
		t.Error(err)
	}
	<-held
	for _, inside := range []string{"/", "/proc/x", "/.weir", "/.weir/inside", "/dev"} {
		c := config(t, "pid:")
		c.Writable = []string{inside}
		b, err := m.Open(t.Context(), c)
		if err == nil {
			b.Close()
			t.Errorf("%s is writable", inside)
		}
	}
}

// The engine and its containers show no variable of the user's.
func TestEnvironment(t *testing.T) {
	e := running(t)
	image(t, e, "probe:1", engine.Config{Env: []string{"A=image", "B=image"}})
	c := config(t, "env:")
	c.Environment = func(context.Context) ([]string, error) { return []string{"A=user", "SECRET=very-secret"}, nil }
	c.Transport, c.Port = "sse", 9001
	b := opened(t, machine(t, e), c)
	got := strings.Split(tried(t, b)["env:"], "|")
	for _, want := range []string{"A=user", "B=image", "SECRET=very-secret", "MCP_TRANSPORT=sse", "MCP_PORT=9001", "FASTMCP_PORT=9001", "MCP_HOST=127.0.0.1", "TMPDIR=/tmp"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in %q", want, got)
		}
	}
	if slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, "GODEBUG") || line == "A=image" }) {
		t.Errorf("%q", got)
	}
	var is inspected
	e.Get(t, "/containers/"+b.ID()+"/json", &is)
	if text := strings.Join(is.Config.Env, " "); strings.Contains(text, "very-secret") || strings.Contains(text, "SECRET") || strings.Contains(text, "A=user") {
		t.Errorf("the engine knows %s", text)
	}
	c.Environment = func(context.Context) ([]string, error) { return []string{"not a variable: very-secret"}, nil }
	b = opened(t, machine(t, e), c)
	if _, err := b.Start(t.Context()); err == nil || strings.Contains(err.Error(), "very-secret") {
		t.Errorf("%v", err)
	}
}

// An engine that cannot mount a directory over a file of the image, or a file over a directory, says
// so at the start, in the words of what it starts containers with. The user is told in plain ones.
func TestMountOverAnotherKind(t *testing.T) {
	for said, want := range map[string]string{
		`Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error mounting "/home/a/data" to rootfs at "/etc/hosts": mount /home/a/data:/etc/hosts (via /proc/self/fd/6), flags: 0x5000: not a directory: unknown: Are you trying to mount a directory onto a file (or vice-versa)? Check if the specified host path exists and is the expected type`: "what is mounted at /etc/hosts is a file and",
		`OCI runtime create failed: container_linux.go:380: starting container process caused: process_linux.go:545: container init caused: rootfs_linux.go:76: mounting "/a" to rootfs at "/etc/hosts" caused: mount through procfd: not a directory: unknown`:                                                                                                                                                                                                                                                "what is mounted at /etc/hosts is a file and",
		"crun: mount `/home/a/data` to `etc/hosts`: Not a directory: OCI runtime error": "what is mounted at /etc/hosts is a file and",
		`mounting caused: not a directory`:                                              "what is mounted is a file and",
		`exec: "/run/x": not a directory`:                                               "",
		`error mounting "/a": out of space`:                                             "",
	} {
		var e *Error
		if err := refusal(errors.New(said)); errors.As(err, &e) != (want != "") || want != "" && (e.Kind != Refused || !strings.HasPrefix(e.What, want) || e.Next == "") {
			t.Errorf("%s: %v", said, err)
		}
	}
}
