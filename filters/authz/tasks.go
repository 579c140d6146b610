package authz

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// The bounds of what is kept of a call that made a task.
const (
	taskArguments = 64 << 10 // bytes
	taskShort     = time.Hour
	taskLong      = 7 * 24 * time.Hour
)

// tasks remembers which call made which task, for every replica: what a client
// does to a task is judged as the call was. A task belongs to the principal
// that made it.
type tasks struct {
	store  edge.Store // nil for none: then no task is known
	ledger *Ledger
	log    *slog.Logger
}

func newTasks(env edge.Env) *tasks {
	log := env.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ledger := env.Shared.Of(ledgerKey{}, env, func(func(func())) any { return &Ledger{} }).(*Ledger)
	return &tasks{env.Store, ledger, log}
}

// made is what is kept of a call.
type made struct {
	Thing     edge.Target     `json:"thing"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Cut       bool            `json:"cut,omitempty"` // it had arguments that are not kept
}

const taskPrefix = "weir:authz:task:"

func taskKey(x *edge.Exchange, id string) string {
	h := sha256.New()
	write(h, x.Server, x.Identity.Principal(), id)
	return taskPrefix + hex.EncodeToString(h.Sum(nil))
}

// remember keeps what a call asked for when its answer is a task (2025-11-25
// basic/utilities/tasks, result.task; 2026-07-28 extension
// io.modelcontextprotocol/tasks, resultType).
func (t *tasks) remember(ctx context.Context, x *edge.Exchange, a *ask, r *edge.Response, arguments bool) {
	if r.Kind != mcp.Result || t.store == nil {
		return
	}
	id, ttl := "", ""
	if r.Says("resultType", "task") {
		id, ttl = r.Text("taskId"), string(r.Get("ttlMs").Of(r.Raw))
	} else if task := r.Get("task").Of(r.Raw); task != nil {
		id, ttl = mcp.String(mcp.Lookup(task, "taskId")), string(mcp.Lookup(task, "ttl"))
	}
	if id == "" {
		return
	}
	m := made{Thing: a.thing}
	switch {
	case len(a.arguments) == 0:
	case arguments && len(a.arguments) <= taskArguments:
		m.Arguments = a.arguments
	default:
		m.Cut = true
	}
	text, err := json.Marshal(m)
	if err == nil {
		err = t.put(ctx, Task{Owner: taskOwner(x), Key: taskKey(x, id), Value: text}, taskTTL(ttl))
	}
	if err != nil {
		t.log.Error("authz: a task is not remembered, and will be denied to its client", "tool", a.thing.Name, "err", err)
	}
}

// put keeps a task, and what it displaces no longer.
func (t *tasks) put(ctx context.Context, one Task, ttl time.Duration) error {
	one.Until = time.Now().Add(ttl)
	for _, key := range t.ledger.add(one) {
		_ = t.store.Delete(context.WithoutCancel(ctx), key) // if that fails, it goes with its lifetime
	}
	err := t.store.Put(ctx, one.Key, one.Value, ttl)
	if err == nil && !t.ledger.used(one.Key) { // others displaced it meanwhile
		_ = t.store.Delete(context.WithoutCancel(ctx), one.Key)
	}
	return err
}

// taskTTL is how long a task is remembered: somewhat longer than its server
// keeps it, in milliseconds, and within bounds.
func taskTTL(milliseconds string) time.Duration {
	ms, err := strconv.ParseInt(milliseconds, 10, 64)
	if err != nil || ms > taskLong.Milliseconds() {
		return taskLong
	}
	return min(max(time.Duration(ms)*time.Millisecond, 0)+taskShort, taskLong)
}

// recall returns what the call that made a task asked for.
func (t *tasks) recall(ctx context.Context, x *edge.Exchange, id string, arguments bool) (ask, bool) {
	if t.store == nil || id == "" {
		return ask{}, false
	}
	key := taskKey(x, id)
	t.ledger.used(key)
	text, err := t.store.Get(ctx, key)
	if err != nil {
		t.log.Error("authz: a task is denied, since the store does not answer", "err", err)
		return ask{}, false
	}
	var m made
	if text == nil || json.Unmarshal(text, &m) != nil || m.Cut && arguments {
		return ask{}, false
	}
	return ask{server: x.Server, thing: m.Thing, arguments: m.Arguments}, true
}
