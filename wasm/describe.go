package wasm

import "strings"

// Grants returns what the host functions that the module asks for stand
// behind: without all of these it does not open. Which ones its operations
// need, only its answers show.
func (m *Module) Grants() []string {
	var grants []string
	for _, name := range m.Imports {
		module, function, _ := strings.Cut(name, ".")
		if f, ok := hostFunctionNamed(module, function); ok && f.grant != "" && !contains(grants, f.grant) {
			grants = append(grants, f.grant)
		}
	}
	return grants
}

// Memory returns the bytes of linear memory of the largest instance that no
// call is using, 0 when there is none.
func (g *Guest) Memory() uint64 {
	var most uint64
	var taken []*instance
	for in := g.pool.take(); in != nil; in = g.pool.take() {
		most = max(most, uint64(in.memory.Size()))
		taken = append(taken, in)
	}
	for _, in := range taken {
		g.pool.put(in)
	}
	return most
}
