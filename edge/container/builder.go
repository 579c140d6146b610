package container

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	engine "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// labelBuilder marks containers in which an image is built, with the mark of who builds. They
// are in no list of workloads: they end with the process that builds.
const labelBuilder = "weir.dev/builder"

// BuilderDir is a directory of a builder's own, which is in no image: its helper, and what a
// build is given that is not a secret.
const BuilderDir = ours

// SecretsDir is where a builder has the secrets of a build, in memory.
const SecretsDir = "/run/secrets"

// Bounds of a builder. They keep a build from taking the machine, and no more.
const (
	builderMemory    = 4 << 30
	builderProcesses = 4096
	builderEnds      = 15 * time.Minute // one that never began is removed after so long
	builderMade      = 5 * time.Minute  // it may take so long to make one, or an image of one
	builderGoes      = 20 * time.Second // the engine may take so long to remove one
)

// settlesWithin is for how long what is made in the engine is waited for when nobody wants it any
// longer.
const settlesWithin = 20 * time.Second

// BuilderConfig is what a builder is to be.
type BuilderConfig struct {
	Name    string // of what is built, for people
	Image   string // that it is made of: its ID
	Root    bool   // packages of the system are installed in it
	Secrets bool   // it has SecretsDir
}

// Builder is a container in which commands make what becomes an image. It has the engine's
// default network and no file of this machine. It ends with the process that opened it, however
// that ends. Its methods are for one goroutine, and Close for any.
type Builder struct {
	engine *Engine
	id     string
	held   client.HijackedResponse // its first process ends with it
	log    *slog.Logger
	once   sync.Once
}

// Builder opens one. helper is sandbox.HelperProgram.
func (m *Machine) Builder(ctx context.Context, e *Engine, c BuilderConfig, helper []byte) (_ *Builder, err error) {
	mark, err := m.mark(e)
	if err != nil {
		return nil, err
	}
	e.sweepBuilders(ctx, mark)
	// The first process is root's, so that no command can end it, and what is run as root has the
	// few rights that the container has; commands are another user's, and have none.
	config := &engine.Config{
		Image: c.Image, User: "0:0", WorkingDir: "/", Entrypoint: []string{helperPath}, Cmd: []string{"hold"},
		Labels:    map[string]string{labelBuilder: mark, labelOwner: strconv.Itoa(os.Getuid())},
		Env:       []string{"GODEBUG=", "GOTRACEBACK=", "GOGC=", "GOMEMLIMIT=", "GOMAXPROCS="},
		OpenStdin: true, StdinOnce: true, AttachStdin: true,
		Healthcheck: &engine.HealthConfig{Test: []string{"NONE"}},
	}
	pids := int64(builderProcesses)
	host := &engine.HostConfig{
		CapDrop: []string{"ALL"}, CapAdd: []string{"KILL"}, SecurityOpt: []string{"no-new-privileges"}, AutoRemove: true,
		LogConfig: engine.LogConfig{Type: "none"}, RestartPolicy: engine.RestartPolicy{Name: engine.RestartPolicyDisabled},
		Resources: engine.Resources{Memory: builderMemory, MemorySwap: builderMemory, PidsLimit: &pids},
	}
	if c.Root { // as package managers need it, which give files to others and lower themselves
		host.CapAdd = []string{"KILL", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETFCAP", "SETGID", "SETUID"}
	}
	if c.Secrets {
		// Podman knows no owner of it; nobody is in there but root and the user of commands.
		host.Tmpfs = map[string]string{SecretsDir: "rw,noexec,nosuid,nodev,size=4m,mode=1777"}
	}
	name := "weir-build-" + c.Name + "-" + strings.ToLower(rand.Text()[:8])
	made, err := settled(ctx, builderMade, func(ctx context.Context) (client.ContainerCreateResult, error) {
		return e.client.ContainerCreate(ctx, client.ContainerCreateOptions{Name: name, Config: config, HostConfig: host})
	})
	if err != nil {
		return nil, fmt.Errorf("a container to build in: %w", short(err))
	}
	b := &Builder{engine: e, id: made.ID, log: m.Log}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	// The helper has no permission to be read: the kernel lets nobody inside trace it then.
	if err := b.Put(ctx, File{Path: BuilderDir, Mode: 0o755, Dir: true}, File{Path: helperPath, Mode: 0o111, Data: helper}); err != nil {
		return nil, err
	}
	attached, err := e.client.ContainerAttach(ctx, b.id, client.ContainerAttachOptions{Stream: true, Stdin: true})
	if err != nil {
		return nil, fmt.Errorf("a container to build in: %w", short(err))
	}
	b.held = attached.HijackedResponse
	if _, err := e.client.ContainerStart(ctx, b.id, client.ContainerStartOptions{}); err != nil {
		return nil, fmt.Errorf("a container to build in: %w", short(err))
	}
	return b, nil
}

// settled does what makes something in the engine to its end, also when ctx has ended meanwhile,
// though not for longer than that: else nobody would know what is to be removed.
func settled[T any](ctx context.Context, after time.Duration, do func(context.Context) (T, error)) (T, error) {
	if err := ctx.Err(); err != nil {
		var none T
		return none, context.Cause(ctx)
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), builderMade)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(after, cancel) })()
	return do(own)
}

// sweepBuilders removes builders of a mark that have ended, or were made long ago and never
// began: those of a process that was killed between the two.
func (e *Engine) sweepBuilders(ctx context.Context, mark string) {
	all, err := e.client.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelBuilder+"="+mark)})
	if err != nil {
		return // whoever builds is told by what follows
	}
	for _, one := range all.Items {
		left := one.State == engine.StateExited || one.State == engine.StateDead ||
			one.State == engine.StateCreated && time.Since(time.Unix(one.Created, 0)) > builderEnds
		if left && one.Labels[labelBuilder] == mark {
			_ = e.remove(ctx, one.ID) // tried again at the next build
		}
	}
}

// Close ends everything inside, and removes the container.
func (b *Builder) Close() {
	b.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), builderGoes)
		defer cancel()
		err := b.engine.remove(ctx, b.id)
		if b.held.Conn != nil {
			b.held.Close()
		}
		if err != nil {
			b.log.Warn("a container of a build is not removed yet", "container", b.id, "error", err)
		}
	})
}

// Abandon gives up the builder as the end of its process does, and removes nothing.
func (b *Builder) Abandon() { b.once.Do(b.held.Close) }

// Command is one that runs in a builder. No shell reads it.
type Command struct {
	Args  []string
	Env   []string // NAME=VALUE, beside those of the image
	Dir   string   // that it is run in; "" for /
	Root  bool
	Stdin io.Reader // nil for nothing

	// Said and Complained are called with what it prints to its standard output and error, a
	// line at a time; nil for nobody. In which order the two come nobody knows.
	Said, Complained func(line string)
}

// Run runs a command until it ends, and returns its exit code.
func (b *Builder) Run(ctx context.Context, c Command) (int, error) {
	user, dir := fmt.Sprintf("%d:%d", nobodyElse, nobodyElse), c.Dir
	if c.Root {
		user = "0:0"
	}
	if dir == "" {
		dir = "/"
	}
	for _, word := range append(c.Args, c.Env...) {
		if strings.ContainsRune(word, 0) {
			return 0, errors.New("a word of the command has a NUL byte")
		}
	}
	made, err := b.engine.client.ExecCreate(ctx, b.id, client.ExecCreateOptions{User: user, Cmd: c.Args, Env: c.Env, WorkingDir: dir, AttachStdin: c.Stdin != nil, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return 0, short(err)
	}
	at, err := b.engine.client.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return 0, short(err)
	}
	defer at.Close()
	stop := context.AfterFunc(ctx, at.Close)
	defer stop()
	if c.Stdin != nil {
		if _, err := io.Copy(at.Conn, c.Stdin); err != nil {
			return 0, err
		}
		if err := at.CloseWrite(); err != nil {
			return 0, err
		}
	}
	out, complaints := &lineWriter{said: c.Said}, &lineWriter{said: c.Complained}
	_, err = stdcopy.StdCopy(out, complaints, at.Reader)
	out.end()
	complaints.end()
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if err != nil {
		return 0, short(err)
	}
	is, err := b.engine.client.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
	switch {
	case err != nil:
		return 0, short(err)
	case is.Running:
		return 0, errors.New("the engine says that it goes on")
	}
	return is.ExitCode, nil
}

// own runs a mode of the helper's.
func (b *Builder) own(ctx context.Context, root bool, stdin io.Reader, args ...string) error {
	var said string
	code, err := b.Run(ctx, Command{Args: append([]string{helperPath}, args...), Root: root, Stdin: stdin, Complained: func(line string) { said = line }})
	if err == nil && code != 0 {
		err = errors.New(said)
	}
	return err
}

// PutSecret writes a file below SecretsDir, which is in memory and in no image.
func (b *Builder) PutSecret(ctx context.Context, name string, data []byte) error {
	return b.own(ctx, false, strings.NewReader(string(data)), "put", SecretsDir+"/"+name)
}

// Quiet ends all that commands have left running, so that nothing changes files any more.
func (b *Builder) Quiet(ctx context.Context) error { return b.own(ctx, true, nil, "quiet") }

// Fetch returns a directory as a tar archive, whose names begin with its last part.
func (b *Builder) Fetch(ctx context.Context, path string) (io.ReadCloser, error) {
	r, err := b.engine.client.CopyFromContainer(ctx, b.id, client.CopyFromContainerOptions{SourcePath: path})
	if err != nil {
		return nil, short(err)
	}
	return r.Content, nil
}

// Has reports whether there is something at a path.
func (b *Builder) Has(ctx context.Context, path string) (bool, error) {
	_, err := b.engine.client.ContainerStatPath(ctx, b.id, client.ContainerStatPathOptions{Path: path})
	if errdefs.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, short(err)
	}
	return true, nil
}

// Commit makes an image without a name of what the container has become, and ends it. What is
// below BuilderDir is not in it.
func (b *Builder) Commit(ctx context.Context) (id string, err error) {
	if err := b.own(ctx, true, nil, "quiet"); err != nil {
		return "", err
	}
	if err := b.own(ctx, true, nil, "wipe"); err != nil {
		return "", err
	}
	made, err := settled(ctx, builderMade, func(ctx context.Context) (client.ContainerCommitResult, error) {
		return b.engine.client.ContainerCommit(ctx, b.id, client.ContainerCommitOptions{Config: &engine.Config{}}) // which Podman wants
	})
	if err != nil {
		return "", short(err)
	}
	return made.ID, nil
}

// lineWriter calls said with each line that is written to it.
type lineWriter struct {
	said func(string)
	line []byte
}

// maxSaid bounds a line that a command prints; the rest of a longer one is left out.
const maxSaid = 2000

func (w *lineWriter) Write(p []byte) (int, error) {
	for _, c := range p {
		switch {
		case c == '\n' || c == '\r':
			w.end()
		case len(w.line) < maxSaid:
			w.line = append(w.line, c)
		}
	}
	return len(p), nil
}

func (w *lineWriter) end() {
	if w.said != nil && len(w.line) > 0 {
		w.said(string(w.line))
	}
	w.line = w.line[:0]
}

var _ io.Writer = (*lineWriter)(nil)
