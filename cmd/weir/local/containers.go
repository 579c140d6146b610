package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/container"
	"github.com/weir-edge/weir/edge/container/build"
	"github.com/weir-edge/weir/edge/image"
	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/stdio"
)

// pullWithin is how long an image may take to come.
const pullWithin = 300 * time.Second

// contained starts a workload in containers: one for each principal, or one for the process of
// a server that speaks HTTP. An image that the engine does not have is pulled before the first
// start.
type contained struct {
	machine  *container.Machine
	config   container.Config
	source   origin
	said     func(text string) // takes what the engine says of a pull, and the steps of a build
	shown    func(text string) // tells whoever waits for the start what it waits for
	building *building         // how the image is built; nil for one that is there or is fetched
	noted    func(note string)
	log      *slog.Logger

	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu    sync.Mutex
	job   *pulling // under way, or done well; nil
	image string   // that containers are made of, by digest where one is known; "" before the job is done
	pool  *sandbox.Pool
}

// pulling is a look for an image that is under way or done.
type pulling struct {
	done chan struct{} // closed when err is set
	err  error
}

// origin says which image a container is made of, and who made that.
type origin struct {
	images *image.Images
	want   image.Want          // without Name and Held
	told   func(*image.Choice) // of each choice; nil for nobody
}

// newContained makes one of a workload's container. It starts nothing yet.
func newContained(m *container.Machine, c container.Config, s origin, log *slog.Logger) *contained {
	l := &contained{machine: m, config: c, source: s, log: log, said: func(string) {}, shown: func(string) {}}
	var once sync.Once
	l.noted = func(note string) {
		once.Do(func() { log.Warn("a container is not as its image would have it", "workload", c.Name, "note", note) })
	}
	l.life, l.end = context.WithCancel(context.Background())
	l.pool = sandbox.NewPoolOf(func(ctx context.Context) (sandbox.Box, error) {
		box, err := l.open(ctx)
		if err != nil {
			return nil, err // and no box of no value
		}
		return box, nil
	})
	return l
}

func (l *contained) halt() { l.end() }

// close ends all containers, and a pull under way.
func (l *contained) close() {
	l.mu.Lock()
	l.end() // nothing begins any more
	l.mu.Unlock()
	l.work.Wait()
	l.pool.Close()
}

func (l *contained) runsAs() []string { return nil }

func (l *contained) collect(m edge.Emitter) { collect(l.config.Outlet, m) }

// pending reports whether the next start has to wait for the image.
func (l *contained) pending() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.job == nil || !isClosed(l.job.done)
}

// Start is stdio.Starter.Start.
func (l *contained) Start(ctx context.Context, principal string) (stdio.Process, error) {
	if err := l.pulled(ctx); err != nil {
		return nil, err
	}
	if l.config.Port == 0 {
		one, err := l.pool.Start(ctx, principal)
		if err != nil {
			return nil, l.gone(err)
		}
		return inside{one}, nil
	}
	box, err := l.open(ctx)
	if err != nil {
		return nil, l.gone(err)
	}
	one, err := box.Start(ctx)
	if err != nil {
		box.Close()
		return nil, err
	}
	l.work.Go(func() {
		<-one.Ended()
		box.Close()
	})
	return listener{inside{one}, box}, nil
}

// gone has the image looked for anew where the engine has it no longer.
func (l *contained) gone(err error) error {
	var known *container.Error
	if errors.As(err, &known) && known.Kind == container.NoImage {
		l.mu.Lock()
		l.job = nil
		l.mu.Unlock()
	}
	return err
}

func (l *contained) open(ctx context.Context) (*container.Box, error) {
	l.mu.Lock()
	c := l.config
	if l.image != "" {
		c.Image = l.image
	}
	l.mu.Unlock()
	box, err := l.machine.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, note := range box.Notes() {
		l.noted(note)
	}
	return box, nil
}

// pulled returns when the engine has the image. Whoever comes meanwhile waits, and a pull goes
// on when nobody does. After one that failed the next start tries again.
func (l *contained) pulled(ctx context.Context) error {
	l.mu.Lock()
	j := l.job
	if j == nil && l.life.Err() == nil {
		j = &pulling{done: make(chan struct{})}
		l.job = j
		l.work.Go(func() {
			defer edge.Contain(l.log, "pull")
			err := l.pull()
			l.mu.Lock()
			defer l.mu.Unlock()
			if j.err = err; err != nil && l.job == j {
				l.job = nil
			}
			close(j.done)
		})
	}
	l.mu.Unlock()
	if j == nil {
		return errors.New("the workload has ended")
	}
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *contained) pull() error {
	if l.building != nil {
		return l.build()
	}
	ctx, cancel := context.WithTimeoutCause(l.life, pullWithin, fmt.Errorf("not done within %s", pullWithin))
	defer cancel()
	e, err := l.machine.Engine(ctx)
	if err != nil {
		return err
	}
	// 1. Which image that is, and who made it.
	want := l.source.want
	want.Name, want.Held = l.config.Image, heldBy(e, l.machine.State, l.config.Image)
	choice, err := l.source.images.Choose(ctx, want)
	if err != nil {
		return err
	}
	// 2. The engine has it, or gets it.
	if choice.Pull {
		if err = l.get(ctx, e, choice.Image); err == nil {
			err = e.Name(ctx, choice.Image, l.config.Image)
		}
		if err != nil && choice.Fallback == "" {
			return err
		}
		if err != nil {
			choice.Notes = append(choice.Notes, fmt.Sprintf("%v: what is on this machine is run", err))
			choice.Image = choice.Fallback
		}
	}
	for _, note := range choice.Notes {
		l.log.Warn("it is not certain what an image is", "workload", l.config.Name, "note", note)
	}
	if l.source.told != nil {
		l.source.told(choice)
	}
	l.mu.Lock()
	l.image = choice.Image
	l.mu.Unlock()
	return nil
}

// heldBy is image.Want.Held of an engine.
func heldBy(e *container.Engine, state, name string) func(context.Context) (*image.Held, error) {
	return func(ctx context.Context) (*image.Held, error) {
		has, err := e.Image(ctx, name)
		var known *container.Error
		if errors.As(err, &known) && known.Kind == container.NoImage {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		held := &image.Held{Digests: has.Digests}
		if own := build.Own(state, has.ID); own != nil {
			held.Built = &image.Choice{Image: has.ID, Verified: own.Verified}
			if own.Verified == "" {
				held.Built.Notes = []string{"image " + name + " was built on this machine, on what nothing says who made it"}
			}
		}
		return held, nil
	}
}

// get has the engine pull an image, with the user's login.
func (l *contained) get(ctx context.Context, e *container.Engine, name string) error {
	login, err := l.source.images.Login(ctx, name)
	if err != nil {
		l.log.Warn("an image is pulled without a login", "workload", l.config.Name, "error", err)
	}
	step := "pulling " + l.config.Image
	l.said("pulling " + name)
	l.shown(step)
	layers := 0
	return e.Pull(ctx, name, string(login), func(text string) {
		l.said(text)
		if strings.HasSuffix(text, "Pull complete") {
			layers++
			l.shown(fmt.Sprintf("%s: layers that are there: %d", step, layers))
		}
	})
}

// dialable is what servers that speak HTTP listen in.
type dialable interface {
	Port() int
	Dial(ctx context.Context, port int) (net.Conn, error)
}

// isolates says that the container of a workload is in no network of the engine's.
func isolates(w *compile.Workload) bool {
	n := networkOf(w)
	return n == sandbox.Closed || n == sandbox.Profile
}

// containerOf is the container of a workload.
func containerOf(w *compile.Workload) container.Config {
	c := container.Config{
		Name: w.Name, Image: w.Image, Args: w.Args, RunAs: w.RunAs, Writable: w.Writable, AllowUnsafe: w.AllowUnsafe, Labels: w.Labels,
		Transport: string(w.Transport), Port: w.Port, AnyPort: w.AnyPort, Memory: w.Memory, CPUs: float64(w.MilliCPUs) / 1000, Network: w.Network,
	}
	if isolates(w) {
		c.Network = "none"
	}
	c.Privileged = w.Privileged
	for _, v := range w.Volumes {
		c.Volumes = append(c.Volumes, container.Volume(v))
	}
	c.Published = publishedOf(w)
	for _, m := range w.Mounts {
		c.Mounts = append(c.Mounts, sandbox.Mount{Host: m.Source, Inside: m.Target, Writable: m.Writable})
	}
	return c
}

// commandOf is what is started of a workload, for people.
func commandOf(w *compile.Workload) []string {
	first := w.Program
	if w.Image != "" {
		first = w.Image
	}
	return append([]string{first}, w.Args...)
}
