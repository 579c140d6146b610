//go:build wasip1

// Command guest is the interpreter of package scripting as a guest in WebAssembly: what
// the sandbox runs. All that it does to the outside goes through the import module
// weir_script_v1, whose host holds every budget.
package main

import (
	"encoding/binary"
	"runtime"
	"runtime/debug"
	"unsafe"

	"github.com/weir-edge/weir/scripting"
)

func main() {}

//go:wasmimport weir_script_v1 submit
func submit(kind uint32, name unsafe.Pointer, nameLen uint32, args unsafe.Pointer, argsLen uint32) int64

//go:wasmimport weir_script_v1 wait
func wait(ms int64) int64

//go:wasmimport weir_script_v1 answer
func answer(id int64, p unsafe.Pointer, room uint32) int64

//go:wasmimport weir_script_v1 steps
func steps(n int64)

//go:wasmimport weir_script_v1 print
func printLine(p unsafe.Pointer, n uint32)

//go:wasmimport weir_script_v1 progress
func progress(done, total float64, p unsafe.Pointer, n uint32)

// Both are kept here for as long as the host looks at them.
var (
	input  []byte
	output []byte
	memory uint64 // that the collector knows of
)

// Nothing is collected until the memory is nearly used up: instances are thrown back to
// their image after each run, and most runs end long before. What the runtime itself
// needs beyond its heap, and cannot be collected, is left out of what it may use, and so is
// a part of the memory: while it collects, the script goes on.
const reserve = 4 << 20

func within(most uint64) {
	if most != memory {
		memory = most
		debug.SetMemoryLimit(int64(most - reserve - most/8))
	}
}

//go:wasmexport weir_abi
func abi() uint32 {
	debug.SetGCPercent(-1)
	return 1 << 16
}

//go:wasmexport weir_buf
func buf(n uint32) unsafe.Pointer {
	if uint32(len(input)) < n {
		input = make([]byte, n)
	}
	return unsafe.Pointer(unsafe.SliceData(input))
}

// rest is called once, after the warm runs and before the image of the instance is taken:
// what they used is free for the runs to come.
//
//go:wasmexport weir_script_rest
func rest() {
	output = nil
	clear(input)
	runtime.GC()
	runtime.GC() // sweeps what the first one found
}

//go:wasmexport weir_script_run
func run(n uint32) uint64 {
	grow()
	output = interpret(input[:n]).Encode()
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(output))))<<32 | uint64(len(output))
}

func interpret(b []byte) *scripting.End {
	failed := func(what string) *scripting.End { return &scripting.End{Error: &scripting.Error{Message: what}} }
	if len(b) < 36 {
		return failed("the run is cut off")
	}
	number := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	limits := scripting.Limits{Steps: number(0), Parallel: int(number(1)), Calls: int(number(2))}
	within(number(3))
	size, b := uint64(binary.LittleEndian.Uint32(b[32:])), b[36:]
	if size > uint64(len(b)) {
		return failed("the run is cut off")
	}
	p, err := scripting.Load(b[:size])
	if err != nil {
		return failed("the program cannot be loaded")
	}
	var data []byte
	if uint64(len(b)) > size {
		data = b[size:]
	}
	return start(p, data, limits, &scripting.Host{
		Submit: func(kind scripting.Kind, tool string, args []byte) uint32 {
			return uint32(submit(uint32(kind), text(tool), uint32(len(tool)), bytes(args), uint32(len(args))))
		},
		Wait: func() uint32 { return uint32(wait(-1)) },
		Answer: func(id uint32) []byte {
			n := answer(int64(id), nil, 0)
			if n <= 0 {
				return nil
			}
			b := make([]byte, n)
			answer(int64(id), bytes(b), uint32(n))
			return b
		},
		Print:    func(line string) { printLine(text(line), uint32(len(line))) },
		Steps:    func(n uint64) { steps(int64(n)) },
		Progress: func(done, total float64, message string) { progress(done, total, text(message), uint32(len(message))) },
	})
}

// grow makes room on the stack while there is next to nothing on it that would have to
// move: the interpreter calls deep, and a stack that grows with it moves many times.
//
//go:noinline
func grow() {
	var room [32 << 10]byte
	room[len(input)%len(room)] = 1
	runtime.KeepAlive(&room)
}

func text(s string) unsafe.Pointer  { return unsafe.Pointer(unsafe.StringData(s)) }
func bytes(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
