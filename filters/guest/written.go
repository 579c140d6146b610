package guest

import (
	"slices"
	"sync"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/sdk/abi"
)

// written is a header line that a program set in one message.
type written struct {
	name, value string
	by          *program
}

// maxClashes is how many pairs of filters and header names are told of.
const maxClashes = 64

// clash is two filters that set one header.
type clash struct{ first, last, name string }

// clashes are those that were told of. It is safe for concurrent use.
type clashes struct {
	mu   sync.Mutex
	told []clash
}

// first reports whether a clash has not been told of, and is to be.
func (c *clashes) first(one clash) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.told) == maxClashes || slices.Contains(c.told, one) {
		return false
	}
	c.told = append(c.told, one)
	return true
}

// wrote notes the header lines that a program's operations set in a message, and
// tells the operator when another program had set one of them to something else:
// the last counts.
func (h *openFilters) wrote(w *scratch, hook abi.Hook, a *subscriber, ops []op) {
	for i := range ops {
		o := &ops[i]
		if o.kind != abi.OpSetHeader && o.kind != abi.OpDelHeader {
			continue
		}
		at := slices.IndexFunc(w.written, func(one written) bool { return edge.SameHeader(one.name, o.name) })
		if at >= 0 {
			was := w.written[at]
			w.written = slices.Delete(w.written, at, at+1)
			if o.kind == abi.OpSetHeader && was.by != a.program && was.value != o.text && h.clashes.first(clash{was.by.spec.Name, a.spec.Name, o.name}) {
				a.log.Warn("two filters set one header, and the last one counts: leave it to one of them",
					"server", a.server, "hook", hook.String(), "header", o.name, "first", was.by.spec.Name, "last", a.spec.Name)
			}
		}
		if o.kind == abi.OpSetHeader {
			w.written = append(w.written, written{o.name, o.text, a.program})
		}
	}
}
