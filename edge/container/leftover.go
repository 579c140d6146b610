package container

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// When a container that could not be removed is tried again, and until when: an engine that was
// away comes back, and one that begins anew may be busy with what it had.
const (
	removeWithin = 20 * time.Second // one attempt
	againFirst   = time.Second
	againLast    = time.Minute
	againFor     = time.Hour
	maxLeftover  = 256 // containers that are waited for at a time
)

// remove removes a container of a workload. What the engine does not remove now is tried again
// until it is gone, an hour has passed or the machine is closed; then the next Sweep finds it.
func (m *Machine) remove(e *Engine, id, workload string) {
	failed := e.try(id)
	if failed == nil {
		return
	}
	m.mu.Lock()
	full := m.leftover >= maxLeftover
	if !full {
		m.leftover++
	}
	m.mu.Unlock()
	m.Log.Warn("a container is not removed yet", "workload", workload, "container", id, "error", failed)
	if full {
		return
	}
	go func() {
		defer func() {
			m.mu.Lock()
			m.leftover--
			m.mu.Unlock()
		}()
		rest := againFirst
		for end := time.Now().Add(againFor); time.Now().Before(end); rest = min(2*rest, againLast) {
			select {
			case <-m.life.Done():
				return
			case <-time.After(rest):
			}
			if failed = e.try(id); failed == nil {
				m.Log.Info("a container is removed", "workload", workload, "container", id)
				return
			}
		}
		m.Log.Error("a container is left: remove it with the client of its engine", "workload", workload, "container", id, "engine", e.host, "error", failed)
	}()
}

// try tries once to remove a container, also for who waits no longer.
func (e *Engine) try(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), removeWithin)
	defer cancel()
	return e.remove(ctx, id)
}

// still reports whether the engine has a container; one that does not say has it.
func (e *Engine) still(ctx context.Context, id string) bool {
	_, err := e.client.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	return !errdefs.IsNotFound(err)
}

// errStill says that an engine was to remove a container by itself, and has not.
var errStill = errors.New("remove a container: the engine has it still")
