package container

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Options are what a Machine is made with.
type Options struct {
	Cache  string                           // directory of the helper
	State  string                           // directory of this user's alone, which is kept; required
	Lookup func(name string) (string, bool) // os.LookupEnv
	Log    *slog.Logger
	Link   Link // how containers are linked; "" for auto
}

// Link is how containers are linked.
type Link string

// The forms of links.
const (
	LinkAuto   Link = "auto"   // by a socket, else attached
	LinkSocket Link = "socket" // of this machine's kernel
	LinkAttach Link = "attach" // over the container's standard streams
)

// Machine is what the containers of a manager share: the engine, which is looked for when the
// first of them is opened, and the mark by which they are known as its own. It is safe for
// concurrent use.
type Machine struct {
	Options

	life context.Context // ends with Close
	end  context.CancelFunc

	mu       sync.Mutex
	engine   *Engine   // that answered last; nil for none
	lost     error     // why none was found when one was looked for last
	lostAt   time.Time // and when
	known    *known    // nil before it was read
	leftover int       // containers that are tried again to be removed

	unswept map[string]func(name string) bool // what is unwanted in engines that a Sweep did not reach, by their hosts

	filling sync.Mutex // of the helper's volume
	filled  string     // the engine and the volume that have it
}

// known is the file that is kept in the state directory, once there was a container.
type known struct {
	Manager string   `json:"manager"` // a mark that no image can guess
	Hosts   []string `json:"hosts"`   // engines that have had containers of ours, the last one first

	Attach []string `json:"attach,omitempty"` // what engines call themselves whose containers are not reached by a socket
}

// maxHosts is how many engines are asked for what is left in them.
const maxHosts = 4

// NewMachine returns the machine. It looks at nothing yet.
func NewMachine(o Options) *Machine {
	m := &Machine{Options: o}
	m.life, m.end = context.WithCancel(context.Background())
	return m
}

// Close gives up connections to the engine, and what is left to be removed.
func (m *Machine) Close() {
	m.end()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.engine != nil {
		m.engine.Close()
		m.engine = nil
	}
}

// Engine returns the container engine. One that answers no longer is looked for anew.
func (m *Machine) Engine(ctx context.Context) (*Engine, error) {
	asked := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch { // who waited while another one looked in vain is told the same
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case m.engine == nil && m.lostAt.After(asked):
		return nil, m.lost
	}
	if m.engine != nil {
		if m.engine.answers(ctx) == nil {
			return m.engine, nil
		}
		m.engine.Close()
		m.engine = nil
	}
	e, err := Find(ctx, m.Lookup)
	if err != nil {
		if ctx.Err() == nil {
			m.lost, m.lostAt = err, time.Now()
		}
		return nil, err
	}
	m.engine = e
	if unwanted := m.unswept[e.host]; unwanted != nil { // while nothing of this process is in it
		delete(m.unswept, e.host)
		ctx, cancel := context.WithTimeout(ctx, sweepWithin)
		defer cancel()
		if err := m.sweep(ctx, e, m.known.Manager, unwanted); err != nil {
			m.Log.Warn("containers that were left over may still be there", "error", err)
		}
	}
	return e, nil
}

// mark returns what containers of ours are known by, and notes that an engine is to have some.
func (m *Machine) mark(e *Engine) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, err := m.read()
	if err != nil {
		return "", err
	}
	if k.Manager != "" && len(k.Hosts) > 0 && k.Hosts[0] == e.host {
		return k.Manager, nil
	}
	next := *k
	if next.Manager == "" {
		next.Manager = rand.Text()
	}
	next.Hosts = append([]string{e.host}, slices.DeleteFunc(slices.Clone(k.Hosts), func(host string) bool { return host == e.host })...)
	next.Hosts = next.Hosts[:min(len(next.Hosts), maxHosts)]
	if err := m.write(&next); err != nil {
		return "", err
	}
	return next.Manager, nil
}

func (m *Machine) file() string { return filepath.Join(m.State, "engines.json") }

// read reads what is kept. The caller has mu.
func (m *Machine) read() (*known, error) {
	if m.known != nil {
		return m.known, nil
	}
	k := &known{}
	text, err := os.ReadFile(m.file())
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case json.Unmarshal(text, k) != nil || len(k.Manager) < 16 || len(k.Hosts) > maxHosts || len(k.Attach) > maxHosts:
		return nil, fmt.Errorf("%s is not as it was written: remove it, and the containers with the label %s that are yours", m.file(), labelManager)
	}
	m.known = k
	return k, nil
}

// write keeps k, which counts from then on: by a mark that is nowhere a later start would not
// find what is ours. Whoever reads the file sees what was there before or what is there now.
func (m *Machine) write(k *known) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(m.State, ".new-") // for its owner alone
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), m.file())
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	m.known = k
	return nil
}

// sweepWithin is how long all engines together may take to say what is left in them.
const sweepWithin = 10 * time.Second

// Sweep removes the containers that an earlier process with the same state left behind, of
// workloads that are unwanted. It asks no engine where there never was a container. In one that
// does not answer now they are removed when Engine finds it.
func (m *Machine) Sweep(ctx context.Context, unwanted func(name string) bool) error {
	m.mu.Lock()
	k, err := m.read()
	m.mu.Unlock()
	if err != nil || k.Manager == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sweepWithin)
	defer cancel()
	var failed []error
	for _, host := range k.Hosts {
		e, err := place{host: host}.open(ctx)
		if err == nil {
			err = m.sweep(ctx, e, k.Manager, unwanted)
			e.Close()
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", host, err))
			m.mu.Lock()
			if m.unswept == nil {
				m.unswept = map[string]func(string) bool{}
			}
			m.unswept[host] = unwanted
			m.mu.Unlock()
		}
	}
	return errors.Join(failed...)
}

// sweep removes from an engine what is left over in it, and says so.
func (m *Machine) sweep(ctx context.Context, e *Engine, manager string, unwanted func(name string) bool) error {
	removed, err := e.sweep(ctx, manager, unwanted)
	for _, id := range removed {
		m.Log.Warn("a container that was left over is removed", "container", id)
	}
	return err
}
