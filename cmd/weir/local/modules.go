package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/egress"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/stdio"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/wasm"
	"github.com/weir-edge/weir/wasm/wasi"
)

// How long a module may take to be there, and after how much of that it is said what takes
// so long.
const (
	compileWithin = 4 * time.Minute // one that the Go toolchain made takes some seconds
	fetchWithin   = 2 * time.Minute
	sayAfter      = 500 * time.Millisecond
)

// maxFetched is how many modules that were fetched are kept: those that were used last.
const maxFetched = 64

// modules is what the servers in WebAssembly of an edge share: machine code, and the modules
// that were fetched, of URLs (here) and of registries (pulled.go), all in the cache of this user.
type modules struct {
	compiler *wasm.Compiler
	dir      string       // of modules that were fetched
	log      *slog.Logger // nil for none
}

func newModules(cache string, log *slog.Logger) (*modules, error) {
	c, err := wasm.NewCompiler(wasm.Compilation{Dir: filepath.Join(cache, "code"), Timeout: compileWithin, Log: log})
	if err != nil {
		return nil, err
	}
	return &modules{compiler: c, dir: filepath.Join(cache, "modules"), log: log}, nil
}

func (m *modules) close() { _ = m.compiler.Close() } // it only frees memory

// read returns the bytes of a workload's module. One at a URL is fetched, unless it was.
func (m *modules) read(ctx context.Context, w *compile.Workload, reach edge.Reach, say func(string)) ([]byte, error) {
	if !strings.HasPrefix(w.Program, "https://") {
		return readModule(w.Program)
	}
	if b := m.kept(w.SHA256); b != nil {
		return b, nil
	}
	where := located(w)
	slow := time.AfterFunc(sayAfter, func() { say("fetching " + where) })
	answer, err := fetch(ctx, w.Program, reach)
	slow.Stop()
	switch {
	case err != nil:
		return nil, fmt.Errorf("fetching the module: %w", err)
	case answer.Status != http.StatusOK:
		return nil, fmt.Errorf("fetching the module: %s says %d %s", where, answer.Status, http.StatusText(answer.Status))
	case digestOf(answer.Body) != w.SHA256:
		return nil, fmt.Errorf("the module at %s: its sha256 is %s, and %s is asked for", where, digestOf(answer.Body), w.SHA256)
	}
	m.unkept(m.keep(w.SHA256, answer.Body))
	return answer.Body, nil
}

// unkept tells that a module is not kept: it runs all the same, and is fetched again.
func (m *modules) unkept(err error) {
	if err != nil && m.log != nil {
		m.log.Warn("a module that was fetched is not kept", "error", err)
	}
}

// located is where a workload's module is. Nobody is told the query of its URL, which may be a
// credential.
func located(w *compile.Workload) string {
	where := commandOf(w)[0]
	if strings.HasPrefix(where, "https://") {
		where, _, _ = strings.Cut(where, "?")
	}
	return where
}

// kept is a module that was fetched before, by its digest; nil for none.
func (m *modules) kept(sha256 string) []byte {
	b, err := readModule(m.file(sha256))
	if err != nil || digestOf(b) != sha256 {
		return nil
	}
	now := time.Now()
	_ = os.Chtimes(m.file(sha256), now, now) // else it is fetched again one day
	return b
}

func (m *modules) file(sha256 string) string { return filepath.Join(m.dir, sha256+".wasm") }

// keep keeps a module.
func (m *modules) keep(sha256 string, b []byte) error {
	if err := keep(m.file(sha256), b); err != nil {
		return fmt.Errorf("cache of modules: %w", err)
	}
	m.prune()
	return nil
}

// prune removes what was fetched beyond maxFetched, and what a process that was killed has left
// half written. What cannot be removed now is tried again.
func (m *modules) prune() {
	entries, _ := os.ReadDir(m.dir) // what can be read of it
	var all []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil: // it is gone
		case strings.HasSuffix(e.Name(), ".wasm"):
			all = append(all, info)
		case strings.HasPrefix(e.Name(), halfWritten) && time.Since(info.ModTime()) > time.Hour:
			_ = os.Remove(filepath.Join(m.dir, e.Name()))
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for i := maxFetched; i < len(all); i++ {
		_ = os.Remove(filepath.Join(m.dir, all[i].Name()))
	}
}

// halfWritten is how files begin that are written, and not renamed yet.
const halfWritten = ".fetched-"

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// readModule reads a file of at most the size that a module may have.
func readModule(path string) ([]byte, error) {
	f, err := edge.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, wasm.MaxServerModule+1))
	if err == nil && len(b) > wasm.MaxServerModule {
		err = fmt.Errorf("%s: more than %d bytes, which is the limit of a module", path, wasm.MaxServerModule)
	}
	return b, err
}

// fetch fetches what a URL of the operator's has. What that leads on to is a stranger's word.
func fetch(ctx context.Context, url string, reach edge.Reach) (*oauth.Response, error) {
	client, err := oauth.New(oauth.Options{Timeout: fetchWithin, Reach: reach})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Do(ctx, oauth.Request{URL: url, Trust: oauth.Named, Redirects: 5, MaxBody: wasm.MaxServerModule})
}

// keep writes a file beside, and renames it.
func keep(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), halfWritten+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// host starts the instances of a server in WebAssembly. Its module is read and compiled once,
// before the first of them.
type host struct {
	modules     *modules
	workload    compile.Workload
	source      origin // of a module at a registry
	environment func(context.Context) ([]string, error)
	config      sandbox.Config // for what may be mounted
	outlet      sandbox.Outlet // by which it reaches others; nil where its profile names nobody
	reach       edge.Reach     // of the fetch of its module, and of its HTTP requests besides the outlet
	say         func(text string)
	log         *slog.Logger
	life        context.Context
	end         context.CancelFunc
	work        sync.WaitGroup

	mu     sync.Mutex
	job    *making // under way, or done well; nil
	server *wasm.Server
	dirs   []wasi.Dir
	done   func() // closes what its requests leave open; nil for nothing
}

// making is a module that is being made ready, or is.
type making struct {
	done chan struct{} // closed when err is set
	err  error
}

// hostOf is what starts the instances of a workload. It reads nothing yet.
func (l *Locals) hostOf(w *compile.Workload, log *slog.Logger, say func(string)) (*host, error) {
	if err := l.whole(w); err != nil {
		return nil, err
	}
	state, all, err := l.openModules(log)
	if err != nil {
		return nil, err
	}
	h := &host{
		modules: all, workload: *w, say: say, log: log,
		config: sandbox.Config{Name: w.Name, AllowUnsafe: w.AllowUnsafe, Protected: l.guarded(state)},
	}
	if h.reach, err = l.settings.Reach(); err != nil {
		return nil, err
	}
	if h.reach.CAs, err = l.trusted(w); err != nil {
		return nil, err
	}
	if w.Image != "" {
		if h.source, err = l.sourceOf(w); err != nil {
			return nil, err
		}
	}
	h.life, h.end = context.WithCancel(context.Background())
	return h, nil
}

// startModule keeps one server in WebAssembly.
func (l *Locals) startModule(s serve.Starting, of *opened) (backend.Local, error) {
	w := &s.Workload
	h, err := l.hostOf(w, s.Log, func(text string) { s.Log.Info(text, "workload", w.Name) })
	if err != nil {
		return nil, err
	}
	var given handed
	if _, err := secretsOf(context.Background(), &s, &given); err != nil { // one that is missing is told at the start
		return nil, err
	}
	h.environment = environment(&s, &given)
	if h.outlet, err = outletOf(w, s); err != nil {
		return nil, err
	}
	c := stdio.Config{
		Name: w.Name, Digest: s.Digest, Starter: h, Restart: restarts[w.Restart], MaxProcesses: w.MaxProcesses, MaxMessage: s.MaxMessage,
		Secrets: given.all, Lines: lines(s.Log, w.Name), Log: s.Log,
	}
	if w.Processes == v1beta1.ProcessShared {
		c.Mode = stdio.Shared
	}
	if of != nil {
		of.keep(w, &c)
		h.say, h.source.told = of.Say, of.chosen
		of.hosted()
	}
	bridge, err := stdio.New(c)
	if err != nil {
		return nil, err
	}
	one := &hosted{bridge, h}
	if of != nil {
		of.has(one)
	}
	return one, nil
}

// hosted notes that what holds the workload is WebAssembly.
func (o *opened) hosted() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.box = "wasm"
}

// ready makes the module ready once: whoever comes meanwhile waits, and it goes on when
// nobody does. After a failure the next start tries again.
func (h *host) ready(ctx context.Context) error {
	h.mu.Lock()
	j := h.job
	if j == nil && h.life.Err() == nil {
		j = &making{done: make(chan struct{})}
		h.job = j
		h.work.Go(func() {
			server, dirs, err := h.make()
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.server, h.dirs, j.err = server, dirs, err; err != nil {
				h.job = nil
			}
			close(j.done)
		})
	}
	h.mu.Unlock()
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

// make reads and compiles the module, and opens the directories that it is given.
func (h *host) make() (_ *wasm.Server, dirs []wasi.Dir, err error) {
	w := &h.workload
	defer func() {
		if err != nil {
			closeDirs(dirs)
		}
	}()
	// 1. The directories, which a mistake is in sooner than in the module.
	for _, m := range w.Mounts {
		root, err := sandbox.OpenDir(h.config, sandbox.Mount{Host: m.Source, Inside: m.Target, Writable: m.Writable})
		if err != nil {
			return nil, dirs, err
		}
		dirs = append(dirs, wasi.Dir{Name: m.Target, Root: root, Writable: m.Writable})
	}
	// 2. The module.
	name := edge.Printable(path.Base(filepath.ToSlash(located(w))))
	b, err := h.binary()
	if err != nil {
		return nil, dirs, err
	}
	started := time.Now()
	slow := time.AfterFunc(sayAfter, func() {
		h.say(fmt.Sprintf("compiling %s (%.1f MiB): this takes some seconds, once", name, float64(len(b))/(1<<20)))
	})
	m, err := h.modules.compiler.CompileServer(h.life, b, w.SHA256)
	if !slow.Stop() && err == nil {
		h.say(fmt.Sprintf("compiled %s in %.1f s", name, time.Since(started).Seconds()))
	}
	if err != nil {
		return nil, dirs, err
	}
	fetch, err := h.outside()
	if err != nil {
		m.Close()
		return nil, dirs, err
	}
	server, err := m.OpenServer(uint64(w.Memory), fetch)
	if err != nil {
		m.Close()
		return nil, dirs, err
	}
	return server, dirs, nil
}

// binary is the module of the server.
func (h *host) binary() ([]byte, error) {
	if h.workload.Image == "" {
		return h.modules.read(h.life, &h.workload, h.reach, h.say)
	}
	b, choice, err := h.modules.pull(h.life, h.workload.Image, h.source, h.say)
	if err != nil {
		return nil, err
	}
	for _, note := range choice.Notes {
		h.log.Warn("it is not certain what a module is", "workload", h.workload.Name, "note", note)
	}
	if h.source.told != nil {
		h.source.told(choice)
	}
	return b, nil
}

// outside is what carries the HTTP requests of the server; nil where it reaches nobody.
func (h *host) outside() (wasm.Outside, error) {
	o, ok := h.outlet.(outlet)
	if !ok {
		return nil, nil
	}
	fetch, done, err := guest.ServerFetch(func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := o.Dial(ctx, network, address)
		var no *egress.Refusal
		if !errors.As(err, &no) {
			return c, err
		}
		switch no.Reason {
		case egress.NotResolved:
			return nil, &net.DNSError{Err: "no such host", Name: no.Host, IsNotFound: true}
		case egress.Unreachable:
			return nil, syscall.ECONNREFUSED
		case egress.TooMany:
			return nil, no
		}
		return nil, guest.ErrNotAllowed
	}, h.reach)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = done
	return fetch, nil
}

func closeDirs(dirs []wasi.Dir) {
	for _, d := range dirs {
		_ = d.Root.Close()
	}
}

// Start is stdio.Starter.Start.
func (h *host) Start(ctx context.Context, _ string) (stdio.Process, error) {
	if err := h.ready(ctx); err != nil {
		return nil, err
	}
	env, err := h.environment(ctx)
	if err != nil {
		return nil, err
	}
	w := &h.workload
	in, err := h.server.Start(wasi.Config{
		Args: append([]string{strings.TrimSuffix(path.Base(filepath.ToSlash(located(w))), ".wasm")}, w.Args...), Env: last(env), Dirs: slices.Clone(h.dirs),
	})
	if err != nil {
		return nil, err
	}
	return instance{in}, nil
}

// last leaves the last value of each variable.
func last(env []string) (out []string) {
	at := map[string]int{}
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if i, ok := at[name]; ok {
			out[i] = v
			continue
		}
		at[name] = len(out)
		out = append(out, v)
	}
	return out
}

// pending reports whether the next start has to wait for the module.
func (h *host) pending() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.job == nil || !isClosed(h.job.done)
}

// close frees the module, when all instances have ended.
func (h *host) close() {
	h.mu.Lock()
	h.end() // nothing begins any more
	h.mu.Unlock()
	h.work.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server != nil {
		h.server.Close()
		closeDirs(h.dirs)
		h.server, h.dirs = nil, nil
	}
	if h.done != nil {
		h.done()
	}
}

// hosted is a bridge to a server in WebAssembly, whose instances end with it.
type hosted struct {
	*stdio.Bridge
	host *host
}

// Introduction is backend.OverLines.Introduction.
func (b *hosted) Introduction() time.Duration {
	if b.host.pending() {
		return max(firstStart, b.Bridge.Introduction())
	}
	return b.Bridge.Introduction()
}

// Collect counts what the bridge does, and what the server reaches.
func (b *hosted) Collect(m edge.Emitter) {
	b.Bridge.Collect(m)
	collect(b.host.outlet, m)
}

func (b *hosted) Close() error {
	b.host.end()
	err := b.Bridge.Close()
	b.host.close()
	return err
}

// instance is an instance of a server in WebAssembly, to which the bridge speaks as to a
// process.
type instance struct{ *wasm.Serving }

// pipeIn and pipeOut are the host's ends of its streams.
type (
	pipeIn  struct{ *wasi.Pipe }
	pipeOut struct{ *wasi.Pipe }
)

func (p pipeIn) Close() error  { p.CloseWrite(); return nil }
func (p pipeOut) Close() error { p.CloseRead(); return nil }

func (i instance) Stdin() io.WriteCloser { return pipeIn{i.Serving.Stdin()} }
func (i instance) Stdout() io.ReadCloser { return pipeOut{i.Serving.Stdout()} }
func (i instance) Stderr() io.ReadCloser { return pipeOut{i.Serving.Stderr()} }

// Wait is stdio.Process.Wait.
func (i instance) Wait() stdio.Exit {
	end := i.Serving.Wait()
	exit := stdio.Exit{Code: end.Code, Reason: end.Reason}
	switch {
	case end.Reason == "fuel":
		exit.Reason = "fuel: it computed for too long without waiting for anything"
	case end.Detail != "":
		exit.Reason += ": " + end.Detail
	}
	return exit
}

// Terminate is stdio.Process.Terminate: an instance knows no signals.
func (i instance) Terminate() { i.End() }

// Kill is stdio.Process.Kill.
func (i instance) Kill() { i.End() }
