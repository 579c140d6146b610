package container

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	engine "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/edge/sandbox"
)

// greetWithin is how long a helper has from the start of its container until it has greeted.
const greetWithin = 10 * time.Second

// Box is an open container, in which the helper runs. Its methods are safe for concurrent use.
type Box struct {
	config  Config // with defaults, and the port that is listened on
	image   *Image
	command []string
	changed bool // the user is another one than the image's
	notes   []string
	hidden  []mount.Mount // what lies over what ignore patterns name
	volumes []mount.Mount // that the engine keeps

	attached bool // the engine carries the link

	machine *Machine
	engine  *Engine
	id      string
	link    *sandbox.Linked
	log     *slog.Logger
	closed  chan struct{} // when nothing of it is left
	once    sync.Once
}

// Open opens a container of an image that the engine has; no server runs in it yet. Its errors
// are an *Error, a *sandbox.MountError, a *sandbox.HelperError, or what the engine said.
func (m *Machine) Open(ctx context.Context, c Config) (*Box, error) {
	c = c.withDefaults()
	// 1. The engine, and the image: by its digest from now on.
	e, err := m.Engine(ctx)
	if err != nil {
		return nil, err
	}
	image, err := e.Image(ctx, c.Image)
	if err != nil {
		return nil, err
	}
	b := &Box{config: c, image: image, machine: m, engine: e, log: m.Log, closed: make(chan struct{})}
	if b.command, err = c.command(image); err != nil {
		return nil, err
	}
	if err := b.place(); err != nil {
		return nil, err
	}
	mark, err := m.mark(e)
	if err != nil {
		return nil, fmt.Errorf("container of %s: %w", c.Name, err)
	}
	helper, err := sandbox.ContainerHelper(m.Cache)
	if err != nil {
		return nil, err
	}
	// 2. What of this machine is visible inside.
	judged := sandbox.Config{Name: c.Name, Mounts: c.Mounts, Writable: c.Writable, AllowUnsafe: c.AllowUnsafe, Protected: c.Protected}
	mounts, err := sandbox.OpenMounts(&judged)
	if err != nil {
		return nil, err
	}
	defer mounts.Close()
	held, err := mounts.All()
	if err != nil {
		return nil, err
	}
	for _, h := range held {
		if err := inside(h.Inside); err != nil {
			return nil, &sandbox.MountError{Path: h.Host, Why: err.Error(), Next: "name another path inside"}
		}
	}
	for _, v := range c.Volumes {
		if err := inside(v.Target); err != nil {
			return nil, &sandbox.MountError{Path: v.Name, Why: err.Error(), Next: "name another path inside"}
		}
	}
	for _, path := range c.Writable {
		if err := inside(path); err != nil {
			return nil, &sandbox.MountError{Path: path, Why: err.Error(), Next: "name another path"}
		}
	}
	if b.volumes, err = e.keep(ctx, mark, image, &c); err != nil {
		return nil, fmt.Errorf("container of %s: %w", c.Name, err)
	}
	if b.hidden, err = m.hidden(&c); err != nil {
		return nil, fmt.Errorf("container of %s: %w", c.Name, err)
	}
	// 3. The container, and the link. The image's text does not always tell that its user is
	// root: then the helper does, and the container is made again.
	user, changed := c.user(image)
	for {
		b.changed = changed
		err := b.take(ctx, m, mark, helper, user, held)
		if err != nil {
			return nil, fmt.Errorf("container of %s: %w", c.Name, err)
		}
		if b.link.UID() != 0 || c.RunAs != "" || c.Privileged {
			break
		}
		b.Close()
		if changed {
			return nil, &Error{Refused, "container of " + c.Name + ": it runs as root all the same", "say so with --run-as image"}
		}
		b.once, b.closed = sync.Once{}, make(chan struct{})
		user, changed = (&Config{}).user(&Image{})
	}
	if changed && c.RunAs == "" {
		b.notes = append(b.notes, fmt.Sprintf("%s: its image runs as root: it runs as %s in place of that; --run-as image lets it be root", c.Name, user))
	}
	if b.attached {
		b.notes = append(b.notes, c.Name+": its engine has other files than this machine: the engine carries all that it says, which takes longer; link: socket in workloads.yaml says otherwise")
	}
	if c.Privileged {
		b.notes = append(b.notes, c.Name+": it is privileged, as its profile asks for: it can do what root of this machine can")
	}
	if c.Opened != nil {
		c.Opened(b)
	}
	return b, nil
}

// place decides which port the server listens on.
func (b *Box) place() (err error) {
	c := &b.config
	if c.Port == 0 {
		return nil
	}
	known := !c.AnyPort
	if c.AnyPort && b.image.Port > 0 {
		c.Port, known = b.image.Port, true
	}
	if c.Outlet != nil && sandbox.TakesPort(c.Port) {
		return &Error{Refused, fmt.Sprintf("container of %s: port %d is that of the way out", c.Name, c.Port), "have the server listen at another one, --target-port, or isolate it not, --isolate-network=false"}
	}
	if c.Network == "host" {
		port := c.Port
		if !known {
			port = 0
		}
		c.Port, err = sandbox.FreePort(c.Name, port)
	}
	return err
}

// open makes the container and takes up its link, by a socket, to which its helper has to come
// within a time. The error is an *unlinkedError where it may be linked in another way.
func (b *Box) open(ctx context.Context, mark, helper, user string, mounts []sandbox.Held, within time.Duration) (err error) {
	// 1. The socket of the link, in a directory that this container alone sees.
	socket, err := listen(b.config.Sockets)
	if err != nil {
		return err
	}
	defer socket.close()
	// 2. The container.
	config, host := b.shape(mark, user, mounts)
	host.Mounts = append(host.Mounts,
		mount.Mount{Type: mount.TypeBind, Source: helper, Target: helperPath, ReadOnly: true},
		mount.Mount{Type: mount.TypeBind, Source: socket.dir, Target: linkDir, ReadOnly: true},
	)
	made, err := b.create(ctx, config, host)
	if err != nil && notSeen(err) {
		return &unlinkedError{error: refusal(err)}
	}
	if err != nil {
		return refusal(err)
	}
	b.id = made.ID
	defer func() {
		if err != nil {
			b.remove()
		}
	}()
	if _, err := b.engine.client.ContainerStart(ctx, b.id, client.ContainerStartOptions{}); err != nil && (notSeen(err) || removed(err)) {
		return &unlinkedError{refusal(err), removed(err)}
	} else if err != nil {
		return refusal(err)
	}
	// 3. Its first process connects, and nobody else.
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("its helper has not connected within %s: the engine must run on this machine, and not in a virtual one", within))
	defer cancel()
	is, err := b.engine.client.ContainerInspect(ctx, b.id, client.ContainerInspectOptions{})
	if err != nil || is.Container.State == nil || is.Container.State.Pid <= 0 {
		return &unlinkedError{ended(err, mounts), b.gone()}
	}
	pid := is.Container.State.Pid
	conn, err := socket.accept(ctx, pid)
	if err != nil {
		return &unlinkedError{err, b.gone()}
	}
	socket.close() // before a server runs there is nothing to connect to
	if b.link, err = sandbox.Link(ctx, conn, b.config.Name, b.config.Outlet); err != nil {
		return ended(err, mounts)
	}
	b.link.Explain(memoryOf(pid).why)
	b.runs()
	return nil
}

// removed reports whether an engine does not start a container since somebody has removed it.
func removed(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "no such container") || strings.Contains(text, "marked for removal")
}

// gone reports whether the engine says that the container does not run any more.
func (b *Box) gone() bool {
	ctx, cancel := context.WithTimeout(context.Background(), answersWithin)
	defer cancel()
	is, err := b.engine.client.ContainerInspect(ctx, b.id, client.ContainerInspectOptions{})
	if err != nil {
		return errdefs.IsNotFound(err)
	}
	return is.Container.State != nil && !is.Container.State.Running
}

// name is one that no container has.
func (b *Box) name() string {
	return "weir-" + b.config.Name + "-" + strings.ToLower(rand.Text()[:8])
}

// runs has the container removed when its link ends.
func (b *Box) runs() {
	go func() {
		<-b.link.Ended()
		b.remove()
		close(b.closed)
	}()
}

// refusal is the error of an engine that does not make or start a container. Some say that
// there is no such network when they make it, and some when they start it.
func refusal(err error) error {
	if errdefs.IsNotFound(err) && strings.Contains(err.Error(), "etwork") {
		return &Error{Refused, short(err).Error(), "name a network of the container engine"}
	}
	if text := strings.ToLower(err.Error()); strings.Contains(text, "not a directory") && strings.Contains(text, "mount") {
		return &Error{Refused, "what is mounted" + mountedAt(err.Error()) + " is a file and what the image has there a directory, or the other way round", "mount a file at a file, and a directory at a directory, or at a path that the image does not have"}
	}
	return short(err)
}

// mountedAt finds in the words of runc or crun where something was to be mounted, as " at PATH"; ""
// where they do not say.
func mountedAt(text string) string {
	for _, end := range []string{"to rootfs at ", "` to "} {
		_, rest, found := strings.Cut(text, end)
		if !found {
			continue
		}
		if path := strings.FieldsFunc(rest, func(r rune) bool { return strings.ContainsRune("\\\"'`,: ", r) }); len(path) > 0 {
			return " at /" + strings.TrimPrefix(path[0], "/")
		}
	}
	return ""
}

// ended is the error of a helper that did not come to greet.
func ended(err error, mounts []sandbox.Held) error {
	text := "its helper ended at once: is its directory mounted noexec?"
	if len(mounts) > 0 {
		text = "its helper ended at once: what is mounted may have become something else meanwhile: start it again"
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("%s (%w)", text, short(err))
	}
	return errors.New(text)
}

// shape is what the engine is told of the container. Nothing of it is the image's but its
// digest and its user; what the engine would add of the image's configuration is written over.
func (b *Box) shape(mark, user string, mounts []sandbox.Held) (*engine.Config, *engine.HostConfig) {
	c := &b.config
	labels := map[string]string{}
	for name, value := range c.Labels {
		labels[name] = value
	}
	labels[labelName], labels[labelOwner], labels[labelManager] = c.Name, strconv.Itoa(os.Getuid()), mark
	setup := "files=" + strconv.Itoa(c.Files)
	if !c.Privileged {
		setup += ",filter=1,drop=1"
	}
	if c.Outlet != nil {
		setup += sandbox.OutletSetup(c.Outlet, append([]int{c.Port}, c.Published...)...)
	}
	config := &engine.Config{
		Image: b.image.ID, User: user, WorkingDir: "/", Labels: labels,
		Entrypoint: []string{helperPath}, Cmd: []string{"socket", setup, linkDir + "/" + socketName},
		// What the helper's own runtime would read of the image's environment.
		Env:         []string{"GODEBUG=", "GOTRACEBACK=", "GOGC=", "GOMEMLIMIT=", "GOMAXPROCS="},
		Healthcheck: &engine.HealthConfig{Test: []string{"NONE"}},
	}
	pids := int64(c.Processes)
	host := &engine.HostConfig{
		ReadonlyRootfs: true, CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
		LogConfig: engine.LogConfig{Type: "none"}, RestartPolicy: engine.RestartPolicy{Name: engine.RestartPolicyDisabled}, AutoRemove: true,
		Resources: engine.Resources{Memory: c.Memory, MemorySwap: c.Memory, PidsLimit: &pids, NanoCPUs: int64(c.CPUs * 1e9)},
		Tmpfs:     map[string]string{"/tmp": "rw,exec,nosuid,nodev,size=64m,mode=1777"},
	}
	if c.Privileged {
		host.Privileged, host.CapDrop, host.SecurityOpt = true, nil, nil
	}
	if c.Network != "" {
		host.NetworkMode = engine.NetworkMode(c.Network)
	}
	if c.Network == "none" {
		host.DNS = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
		host.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"} // for DNS, and the ports of hosts
	}
	if b.changed {
		uid, gid, _ := strings.Cut(user, ":")
		host.Tmpfs[ownHome] = "rw,exec,nosuid,nodev,size=256m,mode=0700,uid=" + uid
		if gid != "" {
			host.Tmpfs[ownHome] += ",gid=" + gid
		}
	}
	var taken []string
	for _, m := range mounts {
		taken = append(taken, m.Inside)
		delete(host.Tmpfs, m.Inside)
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: m.Host, Target: m.Inside, ReadOnly: !m.Writable})
		config.Cmd = append(config.Cmd, m.Inside, strconv.FormatUint(m.Device, 10), strconv.FormatUint(m.File, 10))
	}
	host.Mounts = append(host.Mounts, b.hidden...)
	for _, m := range b.volumes {
		taken = append(taken, m.Target)
		delete(host.Tmpfs, m.Target)
		host.Mounts = append(host.Mounts, m)
	}
	// What an image declares as a volume would be one of the engine's, on disk, and stay.
	for _, path := range slices.Concat(c.Writable, b.image.Volumes) {
		if slices.Contains(taken, path) || host.Tmpfs[path] != "" && (path != "/tmp" || b.engine.podman) {
			continue
		}
		taken = append(taken, path)
		host.Mounts = append(host.Mounts, b.memoryAt(path, host.Tmpfs[path] != "", labels))
		delete(host.Tmpfs, path)
	}
	return config, host
}

// memoryAt is memory of 64 MiB that whoever is inside may write to: a volume of the engine's that
// goes with its container, since runc gives a mount of the type tmpfs the mode of the directory that
// the image has there. Podman would make that volume on disk.
func (b *Box) memoryAt(path string, exec bool, labels map[string]string) mount.Mount {
	if b.engine.podman {
		return mount.Mount{Type: mount.TypeTmpfs, Target: path, TmpfsOptions: &mount.TmpfsOptions{SizeBytes: 64 << 20, Mode: 0o1777}}
	}
	options := "size=64m,mode=1777,nosuid,nodev"
	if !exec {
		options += ",noexec"
	}
	return mount.Mount{Type: mount.TypeVolume, Target: path, VolumeOptions: &mount.VolumeOptions{
		NoCopy: true, Labels: labels, DriverConfig: &mount.Driver{Name: "local", Options: map[string]string{"type": "tmpfs", "device": "tmpfs", "o": options}},
	}}
}

// Start starts the server once more. ctx bounds the start alone.
func (b *Box) Start(ctx context.Context) (*sandbox.Process, error) {
	env, err := b.environment(ctx)
	if err != nil {
		return nil, err
	}
	dir := b.image.Dir
	if dir == "" {
		dir = "/"
	}
	p, err := b.link.Start(ctx, b.command, env, dir)
	if err != nil {
		if strings.HasSuffix(err.Error(), dir+": "+unix.ENOENT.Error()) && dir == b.image.Dir {
			return nil, &Error{Refused, fmt.Sprintf("start %s: its image starts it in %.100q, which it does not have", b.config.Name, dir), fmt.Sprintf("have it there: weir run --writable %.100q", dir)}
		}
		if b.image.Foreign != "" && strings.HasSuffix(err.Error(), unix.ENOEXEC.Error()) {
			err = fmt.Errorf("%w: the image is for %s", err, b.image.Foreign)
		}
		return nil, fmt.Errorf("start %s: %w", b.config.Name, err)
	}
	return p, nil
}

// Command is what Start starts.
func (b *Box) Command() []string { return slices.Clone(b.command) }

// Notes say in a line each what is not as the image has it.
func (b *Box) Notes() []string { return slices.Clone(b.notes) }

// ID is what the engine calls the container.
func (b *Box) ID() string { return b.id }

// Port is where the server is to listen; 0 for one on its standard streams.
func (b *Box) Port() int { return b.config.Port }

// Dial connects to a port of the server's, on its loopback.
func (b *Box) Dial(ctx context.Context, port int) (net.Conn, error) { return b.link.Dial(ctx, port) }

// Ended is closed when the container has ended, and nothing of it is left.
func (b *Box) Ended() <-chan struct{} { return b.closed }

// HasEnded says that the container has ended.
func (b *Box) HasEnded() bool {
	select {
	case <-b.link.Ended():
		return true
	default:
		return false
	}
}

// Close ends everything inside, and returns when the container is removed.
func (b *Box) Close() {
	b.once.Do(b.link.Close)
	<-b.closed
}

// remove removes the container.
func (b *Box) remove() { b.machine.remove(b.engine, b.id, b.config.Name) }

// socketName is what the socket of a link is called in its directory.
const socketName = "link"

// linkSocket is the socket of one link, in a directory of its own.
type linkSocket struct {
	dir      string
	listener *net.UnixListener
	once     sync.Once
}

// listen makes the socket of a link in a directory below one of this user's alone.
func listen(parent string) (_ *linkSocket, err error) {
	if !filepath.IsAbs(parent) {
		return nil, fmt.Errorf("directory of links %q: not absolute", parent)
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, err
	}
	s := &linkSocket{}
	if s.dir, err = os.MkdirTemp(parent, ""); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	// Another user looks into it from inside: from outside the directories above keep it.
	if err := os.Chmod(s.dir, 0o711); err != nil {
		return nil, err
	}
	dir, err := os.Open(s.dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	path := filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), socketName) // 107 bytes at most
	if s.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); err != nil {
		return nil, err
	}
	s.listener.SetUnlinkOnClose(false)
	return s, os.Chmod(filepath.Join(s.dir, socketName), 0o666)
}

// accept takes the one connection that is of the first process of a container.
func (s *linkSocket) accept(ctx context.Context, pid int) (*net.UnixConn, error) {
	stop := context.AfterFunc(ctx, func() { _ = s.listener.SetDeadline(time.Now()) })
	defer stop()
	for {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, err
		}
		if peerOf(conn) == pid {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// peerOf is the process that connected; 0 where nobody knows.
func peerOf(conn *net.UnixConn) (pid int) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// close removes the socket; what is inside sees an empty directory, which goes at the end.
func (s *linkSocket) close() {
	s.once.Do(func() {
		if s.listener != nil {
			_ = s.listener.Close()
		}
		_ = os.RemoveAll(s.dir)
	})
}

// memory is the group of processes of a container, as the kernel counts those in it that it
// ended for want of memory.
type memory struct {
	file string // "" where it is not seen from here

	mu   sync.Mutex
	seen int
}

// memoryOf finds the one of a process.
func memoryOf(pid int) *memory {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return &memory{}
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		var files []string
		switch {
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			files = []string{filepath.Join("/sys/fs/cgroup/memory", parts[2], "memory.oom_control")}
		case parts[0] == "0" && parts[2] != "/":
			files = []string{filepath.Join("/sys/fs/cgroup", parts[2], "memory.events"), filepath.Join("/sys/fs/cgroup/unified", parts[2], "memory.events")}
		}
		for _, file := range files {
			if _, err := os.Stat(file); err == nil {
				return &memory{file: file}
			}
		}
	}
	return &memory{}
}

// why is sandbox.ReasonMemory where a process was ended since it was asked last.
func (m *memory) why() string {
	if m.file == "" {
		return ""
	}
	text, err := os.ReadFile(m.file)
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(text))
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := 0; i+1 < len(fields); i += 2 {
		if n, _ := strconv.Atoi(fields[i+1]); fields[i] == "oom_kill" && n > m.seen {
			m.seen = n
			return sandbox.ReasonMemory
		}
	}
	return ""
}
