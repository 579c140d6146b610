//go:build wasip1 && !chunks

package main

import "github.com/weir-edge/weir/scripting"

// start runs a program.
func start(p *scripting.Program, data []byte, limits scripting.Limits, h *scripting.Host) *scripting.End {
	return scripting.Interpret(p, data, limits, h)
}
