package guest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// Cache holds the compiled modules and open programs of a process. A program
// that two plans share, or that survives a reload, stays open with its
// instances, breaker and counts. It is safe for concurrent use.
type Cache struct {
	dir   string // for machine code and fetched modules; "" for none
	ca    []byte // PEM certificates for fetching modules; nil for those of the system
	reach edge.Reach
	log   *slog.Logger

	mu       sync.Mutex
	compiler *wasm.Compiler
	programs map[string]*program
	modules  map[string]*compiled // by digest

	untidy  atomic.Bool // memory is about to be returned
	tidying sync.WaitGroup
}

// compiled is a module that programs share.
type compiled struct {
	*wasm.Module
	about *wasm.About
	uses  int
}

// NewCache returns a cache that stores machine code in dir, or with "" in
// memory only. Nothing happens until the first program is opened.
func NewCache(dir string, log *slog.Logger) *Cache {
	return &Cache{dir: dir, log: log, programs: make(map[string]*program), modules: make(map[string]*compiled)}
}

// Reach says what requests of the cache and of programs may do, besides; it is called before
// anything is opened.
func (k *Cache) Reach(r edge.Reach) { k.reach = r }

// Close frees the rest. Everything opened must have been closed.
func (k *Cache) Close() error {
	k.tidying.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.compiler == nil {
		return nil
	}
	err := k.compiler.Close()
	k.compiler = nil
	return err
}

// Loaded is a filter whose program is at hand, or known by its digest if it
// has to be fetched.
type Loaded struct {
	part   *Part
	binary []byte // nil if it has to be fetched
	keys   map[string]edge.Secret
	Digest string // of the program
	Keys   string // digest of its secrets; "" for none
}

// Load reads the files and secrets of filters, which may have changed since
// the last read. Filters that are off are left out.
func Load(specs []Spec, secrets edge.Secrets) ([]Loaded, error) {
	var all []Loaded
	for _, s := range specs {
		if s.off() {
			continue
		}
		l := Loaded{part: &Part{s}, binary: s.Module, Digest: s.SHA256}
		if s.Path != "" {
			var err error
			if l.binary, err = ReadModule(s.Path); err != nil {
				return nil, fmt.Errorf("filter %q: source: %s", s.Name, s.unread(err))
			}
		}
		if l.binary != nil {
			l.Digest = digestOf(l.binary)
		}
		if err := l.read(secrets); err != nil {
			return nil, fmt.Errorf("filter %q: %w", s.Name, err)
		}
		all = append(all, l)
	}
	return all, nil
}

// ReadModule reads the module in a file, of at most the size that a module may
// have.
func ReadModule(path string) ([]byte, error) {
	f, err := edge.OpenFile(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, wasm.MaxModule+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(b) > wasm.MaxModule {
		return nil, fmt.Errorf("%s: more than %d bytes, which is the limit of a module", path, wasm.MaxModule)
	}
	return b, nil
}

// open returns the program of a filter for a server, open already or new.
// release gives it up.
func (k *Cache) open(server, store string, l Loaded, env edge.Env) (*program, func(), error) {
	text, err := json.Marshal(struct {
		Server, Store string
		Loaded        Loaded
		Spec          Spec
	}{server, store, l, l.part.spec})
	if err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(text)
	key := string(sum[:])
	release := sync.OnceFunc(func() { k.release(key) })
	k.mu.Lock()
	if p := k.programs[key]; p != nil {
		p.uses++
		k.mu.Unlock()
		return p, release, nil
	}
	k.mu.Unlock()
	p, err := k.start(l, env)
	if err != nil {
		return nil, nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p.uses, p.server = 1, server
	k.programs[key] = p
	return p, release, nil
}

func (k *Cache) release(key string) {
	k.mu.Lock()
	p := k.programs[key]
	p.uses--
	if p.uses > 0 {
		k.mu.Unlock()
		return
	}
	delete(k.programs, key)
	k.mu.Unlock()
	p.close()
	k.log.Info("a filter is closed", "server", p.server, "filter", p.spec.Name, "sha256", p.digest)
}

// start compiles and opens a program.
func (k *Cache) start(l Loaded, env edge.Env) (*program, error) {
	s := &l.part.spec
	fail := func(err error) error { return fmt.Errorf("filter %q: %w", s.Name, err) }

	//
	// 1. The module as machine code, or the compiled script.
	open, digest, done, err := k.compiled(s, l)
	if err != nil {
		return nil, fail(err)
	}

	//
	// 2. The program, initialized.
	p := newProgram(s, digest, k.log)
	p.done, p.keys = done, l.Keys
	if p.fetcher, err = newFetcher(s, k.ca, k.reach); err != nil {
		p.close()
		return nil, fail(err)
	}
	if p.guest, err = open(s.binding(p, l.keys, env)); err == nil {
		err = p.subscribe()
	}
	if err != nil {
		p.close()
		return nil, fail(err)
	}
	return p, nil
}

// compiled returns what opens the program of a filter, its digest, and what gives it up.
func (k *Cache) compiled(s *Spec, l Loaded) (open func(wasm.Binding) (Engine, error), digest string, done func(), err error) {
	if s.Script {
		script, err := k.script(s, l)
		if err != nil {
			return nil, "", nil, err
		}
		return func(b wasm.Binding) (Engine, error) { return s.openScript(script, b) }, script.Digest, func() {}, nil
	}
	module, err := k.module(s, l)
	if err != nil {
		return nil, "", nil, err
	}
	return func(b wasm.Binding) (Engine, error) {
		b.Optional = optionalGrants(module.about.Manifest)
		g, err := module.Open(context.Background(), b)
		if err != nil {
			return nil, err // not a *wasm.Guest that is nil
		}
		return g, nil
	}, module.Digest, func() { k.leave(module) }, nil
}

// module returns the module of a filter, which another program may already
// use.
func (k *Cache) module(s *Spec, l Loaded) (*compiled, error) {
	k.mu.Lock()
	m := k.modules[l.Digest]
	if m != nil {
		m.uses++
	}
	k.mu.Unlock()
	if m != nil {
		if faults := s.misfits(m.about); len(faults) > 0 {
			k.leave(m)
			return nil, faults[0]
		}
		return m, nil
	}
	binary := l.binary
	if binary == nil {
		var err error
		if binary, err = k.fetch(s); err != nil {
			return nil, fmt.Errorf("source: %w", err)
		}
	}
	about, err := wasm.Check(binary)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	if faults := s.misfits(about); len(faults) > 0 {
		return nil, faults[0]
	}
	c, err := k.compilerFor()
	if err != nil {
		return nil, err
	}
	k.log.Info("compiling a filter", "filter", s.Name, "sha256", l.Digest, "bytes", len(binary))
	made, err := c.Compile(context.Background(), binary, s.SHA256)
	if err != nil {
		return nil, err
	}
	k.log.Info("a filter is compiled", "filter", s.Name, "sha256", made.Digest, "took", made.Elapsed.Round(time.Millisecond).String())
	m = &compiled{made, about, 1}
	k.mu.Lock()
	k.modules[made.Digest] = m
	k.mu.Unlock()
	k.tidy()
	return m, nil
}

// leave gives up a module.
func (k *Cache) leave(m *compiled) {
	k.mu.Lock()
	m.uses--
	last := m.uses == 0
	if last {
		delete(k.modules, m.Digest)
	}
	k.mu.Unlock()
	if last {
		m.Close()
		k.tidy()
	}
}

// tidy returns the memory of a compilation or a closed module: tens of MiB,
// which the runtime would keep for minutes, and machine code for two
// collections. Requests made while one begins join it. Close waits for its
// end.
func (k *Cache) tidy() {
	if k.untidy.Swap(true) {
		return
	}
	k.tidying.Go(func() {
		k.untidy.Store(false)
		debug.FreeOSMemory()
	})
}

// compileWithin bounds the compilation of one module: many times what the
// largest takes, since no request waits for it.
const compileWithin = time.Minute

func (k *Cache) compilerFor() (*wasm.Compiler, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.compiler == nil {
		dir := k.dir
		if dir != "" {
			dir = filepath.Join(dir, "code")
		}
		c, err := wasm.NewCompiler(wasm.Compilation{Dir: dir, Timeout: compileWithin, Log: k.log})
		if err != nil {
			return nil, err
		}
		k.compiler = c
	}
	return k.compiler, nil
}

// fetchWithin bounds the download of a module.
const fetchWithin = 30 * time.Second

// fetch downloads a module over HTTPS unless the directory holds it.
func (k *Cache) fetch(s *Spec) ([]byte, error) {
	kept := ""
	if k.dir != "" {
		kept = filepath.Join(k.dir, "modules", s.SHA256+s.instead(".star", ".wasm"))
		if b, err := ReadModule(kept); err == nil && digestOf(b) == s.SHA256 {
			return b, nil
		}
	}
	client, err := oauth.New(oauth.Options{Timeout: fetchWithin, CABundle: k.ca, Reach: k.reach})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	k.log.Info("fetching a filter", "filter", s.Name, "sha256", s.SHA256)
	answer, err := client.Do(context.Background(), oauth.Request{URL: s.URL, Trust: oauth.Named, Redirects: 3, MaxBody: wasm.MaxModule})
	where, _, _ := strings.Cut(s.URL, "?") // its query may be a credential
	switch {
	case err != nil:
		return nil, err
	case answer.Status != 200:
		return nil, fmt.Errorf("%s: status %d in place of a %s", where, answer.Status, s.instead("script", "module"))
	}
	if got := digestOf(answer.Body); got != s.SHA256 {
		return nil, fmt.Errorf("%s: the %s's sha256 is %s, and %s is asked for", where, s.instead("script", "module"), got, s.SHA256)
	}
	if kept != "" {
		k.keep(kept, answer.Body)
	}
	return answer.Body, nil
}

// keep stores a module so that the next start need not fetch it.
func (k *Cache) keep(path string, module []byte) {
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		next := path + ".new"
		if err = os.WriteFile(next, module, 0o600); err == nil {
			err = os.Rename(next, path)
		}
	}
	if err != nil {
		k.log.Warn("a fetched filter cannot be kept for the next start", "error", err)
	}
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// read reads the secrets of the grant keys.
func (l *Loaded) read(secrets edge.Secrets) error {
	refs := l.part.spec.Keys
	if len(refs) == 0 {
		return nil
	}
	if secrets == nil {
		return errors.New("grants.keys: no source of secrets is configured")
	}
	l.keys = make(map[string]edge.Secret, len(refs))
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		v, err := secrets.Secret(context.Background(), refs[name].Name, refs[name].Key)
		if err == nil && v == "" {
			err = errors.New("it is empty")
		}
		if err != nil {
			return fmt.Errorf("grants.keys[%s]: %w", name, err)
		}
		l.keys[name] = v
		fmt.Fprintf(h, "%d:%s%d:%s", len(name), name, len(v), string(v))
	}
	l.Keys = hex.EncodeToString(h.Sum(nil))
	return nil
}

// Owner returns the filter that a key of the store belongs to; "" for none.
func Owner(key string) string {
	if rest, ours := strings.CutPrefix(key, wasm.KeyPrefix); ours {
		name, _, _ := strings.Cut(rest, ":")
		return name
	}
	return ""
}

// binding tells package wasm about a filter. It lets no failure pass: this
// package decides about failures.
func (s *Spec) binding(p *program, keys map[string]edge.Secret, env edge.Env) wasm.Binding {
	b := wasm.Binding{
		Name: s.Name, Grants: s.Grants, Log: p.log, Store: env.Store, Keys: keys, Metric: p.metric,
		Limits: wasm.Limits{Memory: uint64(s.Memory), Fuel: s.Fuel, Timeout: s.Timeout, Output: uint64(s.Output), Instances: s.Instances},
	}
	if s.waits() {
		b.Limits.Instances, b.Limits.Wait = cmp.Or(s.Instances, waiting), waitingFor
	}
	if p.fetcher != nil {
		b.Fetch = p.counted(fetches, p.fetch)
	}
	if s.granted(abi.GrantTools) {
		b.Tool = p.counted(calls, p.tool)
	}
	if s.granted(abi.GrantEvents) {
		b.Emit = func(ctx context.Context, hook abi.Hook, name string, data []byte) int64 {
			return p.out[emits].note(p.emit(ctx, hook, name, data))
		}
	}
	if s.Config != "" {
		b.Config = []byte(s.Config)
	}
	for h := range abi.Hooks {
		b.Passes[h] = p.passes(h)
	}
	switch s.Isolation {
	case "per_request":
		b.Isolation = wasm.PerRequest
	case "per_session":
		b.Isolation = wasm.PerSession
	}
	return b
}

// waits reports whether a program may wait for others, holding an instance
// meanwhile.
func (s *Spec) waits() bool { return s.granted(abi.GrantHTTP) || s.granted(abi.GrantTools) }

// waiting is the default number of instances of such a program, and
// waitingFor how long a message waits for a free one.
const (
	waiting    = 16
	waitingFor = 5 * time.Second
)

func (s *Spec) granted(name string) bool {
	for _, g := range s.Grants {
		if g == name {
			return true
		}
	}
	return false
}
