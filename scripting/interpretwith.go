//go:build chunks

package scripting

import (
	"maps"

	"go.starlark.net/starlark"
)

// InterpretWith is Interpret for a test build of the guest: it has values for the names in
// Scope.Extra, and begin is told the thread before the program runs.
func InterpretWith(values starlark.StringDict, begin func(*starlark.Thread), p *Program, data []byte, limits Limits, h *Host) *End {
	r := newRun(p.compiled, &p.names, limits, h)
	r.counted = func(scope starlark.StringDict) { maps.Copy(scope, values) }
	t := r.task(0)
	begin(t.thread)
	return r.interpret(t, data)
}
