//go:build wasip1

// Command hostile is a twin of the interpreter that keeps to none of its promises. What it
// does is the name of the program that it is given.
package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime/debug"
	"strings"
	"unsafe"
)

func main() {}

//go:wasmimport weir_script_v1 submit
func submit(kind uint32, name unsafe.Pointer, nameLen uint32, args unsafe.Pointer, argsLen uint32) int64

//go:wasmimport weir_script_v1 wait
func wait(ms int64) int64

//go:wasmimport weir_script_v1 answer
func answer(id int64, p unsafe.Pointer, room uint32) int64

//go:wasmimport weir_script_v1 print
func printLine(p unsafe.Pointer, n uint32)

//go:wasmimport weir_script_v1 progress
func progress(done, total float64, p unsafe.Pointer, n uint32)

var (
	input, output []byte
	secret        []byte
	hoard         [][]byte
)

//go:wasmexport weir_abi
func abi() uint32 { debug.SetGCPercent(-1); return 1 << 16 }

//go:wasmexport weir_buf
func buf(n uint32) unsafe.Pointer {
	if uint32(len(input)) < n {
		input = make([]byte, n)
	}
	return at(input)
}

//go:wasmexport weir_script_rest
func rest() {}

func at(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func call(kind uint32, name string, args []byte) int64 {
	return submit(kind, unsafe.Pointer(unsafe.StringData(name)), uint32(len(name)), at(args), uint32(len(args)))
}

// noArgs are the arguments of a call without any.
var noArgs = []byte{0, 0, 0, 0, 0, 8, 0, 0, 0, 0}

func number(b []byte, n uint64) []byte { return binary.LittleEndian.AppendUint64(append(b, 3), n) }

func text(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}

// value is the end of a run with a value.
func value(steps uint64, wire ...byte) []byte {
	return append(append(number(number(nil, steps), 0), 0), wire...)
}

func str(s string) []byte { return text([]byte{6}, s) }

//go:wasmexport weir_script_run
func run(n uint32) uint64 {
	output = do(input[:n])
	return uint64(uintptr(at(output)))<<32 | uint64(len(output))
}

func do(in []byte) []byte {
	does := func(name string) bool { return bytes.Contains(in, []byte(name+".star")) }
	switch {
	case does("calls"):
		for range 1_000_000 {
			call(0, "work", noArgs)
		}
	case does("waits"):
		wait(-1)
	case does("polls"):
		for {
			wait(0)
		}
	case does("spins"):
		for {
		}
	case does("lies"):
		return value(1<<62, 1)
	case does("garbage"):
		return []byte("garbage that is no end of a run")
	case does("nothing"):
		return nil
	case does("cut"):
		return value(1, 7, 255, 255, 255, 255)
	case does("deep"):
		return value(1, bytes.Repeat([]byte{7, 1, 0, 0, 0}, 1_000_000)...)
	case does("large"):
		return value(1, str(strings.Repeat("a", 3<<20))...)
	case does("wide"):
		return value(1, append([]byte{7, 128, 132, 30, 0}, make([]byte, 2_000_000)...)...)
	case does("binary"):
		return value(1, str("\xff\xfe")...)
	case does("beyond"):
		return append(value(1, 0), "more"...)
	case does("error"):
		b := append(number(number(nil, 7), 0), 1)
		b = number(number(number(b, 1<<62), 1<<63), 1<<40)
		b = text(text(b, "\x1b[31mgoroutine 1 [running]:\n"+strings.Repeat("long ", 1<<18)), "tool\x00\n")
		for range 1000 {
			b = text(b, "script.star:1:1: in \x1b[0m"+strings.Repeat("f", 1<<10))
		}
		return b
	case does("ids"):
		id := call(0, "work", noArgs)
		for _, no := range []int64{0, -1, id, id + 1, 1 << 31, 1 << 32, 1<<32 + id, -1 << 63} {
			if answer(no, nil, 0) != -1 {
				return value(1, str("there is an answer before its call was waited for")...)
			}
		}
		if wait(-1) != id || answer(id, nil, 0) <= 0 {
			return value(1, str("there is no answer")...)
		}
		b := make([]byte, 64)
		if n := answer(id, at(b), 64); n <= 0 || n > 64 || answer(id, at(b), 64) != -1 {
			return value(1, str("an answer was not forgotten")...)
		}
		return value(1, 2)
	case does("args"):
		for _, args := range [][]byte{nil, {9}, []byte("garbage"), {0, 255, 255, 255, 255}, {0, 0, 0, 0, 0, 8, 255, 255, 255, 255}, bytes.Repeat([]byte{7}, 1<<20)} {
			call(0, "work", args)
			if wait(-1) <= 0 {
				return value(1, str("there is no answer")...)
			}
		}
		return value(1, 2)
	case does("kinds"):
		call(7, "work", noArgs)
	case does("names"):
		call(0, strings.Repeat("n", 1<<20), noArgs)
	case does("outside"):
		submit(0, unsafe.Pointer(uintptr(0xfffffff0)), 100, nil, 0)
	case does("prints"):
		line := bytes.Repeat([]byte("line\n"), 1<<10)
		for {
			printLine(at(line), uint32(len(line)))
		}
	case does("progress"):
		line := bytes.Repeat([]byte("p"), 1<<10)
		for {
			progress(1, 2, at(line), uint32(len(line)))
		}
	case does("panics"):
		panic("/root/secret: goroutine 1")
	case does("exits"):
		os.Exit(0)
	case does("hoards"):
		for {
			hoard = append(hoard, make([]byte, 1<<20))
		}
	case does("overflows"):
		return value(1, str(string(rune(depth(1))))...)
	case does("keeps"):
		found := secret
		secret = []byte("secret of " + string(in))
		return value(1, str(string(found))...)
	}
	return value(1, 2)
}

func depth(n int) int {
	if n == 0 {
		return 0
	}
	return depth(n+1) + 1
}
