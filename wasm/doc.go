// Package wasm is the host of guest modules: programs in WebAssembly that see
// the messages of a server and answer with operations on them. ABI.md says
// what a guest looks like from its own side.
//
// A module walks through the package in one direction. parse decodes all of it
// and holds it to limits, before anything else touches it (validate.go,
// code.go). meter writes it anew with a fuel counter, a bound on recursion and
// bounds on growth (meter.go). A Compiler turns the result into machine code,
// off the path of requests, and keeps that on disk (compile.go, kept.go). A Guest binds
// a compiled module to a configuration and to grants, and answers calls from a
// bounded pool of instances (guest.go, pool.go, instance.go).
//
// One module is no filter: the edge's own interpreter of scripts, which is known by its
// digest and imports functions that no filter can (script.go). It runs in the same host,
// each run in an instance that is as it was after the warm runs (interpreter.go).
//
// Nothing that a module does ends the process, holds up the garbage collector
// or outlives its instance. A module that cannot be decoded, metered or linked
// is refused with the section and the reason.
package wasm
