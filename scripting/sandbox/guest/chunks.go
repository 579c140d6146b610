//go:build wasip1 && chunks

package main

import (
	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/scriptingtest/language"
)

// start runs a program of the tests, which has the values of package language. What `assert`
// finds is printed.
func start(p *scripting.Program, data []byte, limits scripting.Limits, h *scripting.Host) *scripting.End {
	values, err := language.Values()
	if err != nil {
		return &scripting.End{Error: &scripting.Error{Message: err.Error()}}
	}
	begin := func(thread *starlark.Thread) {
		language.Report(thread, func(text string) { h.Print("assert: " + text) })
	}
	return scripting.InterpretWith(values, begin, p, data, limits, h)
}
