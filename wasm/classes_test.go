//go:build unix

package wasm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/need"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm/wasi"
)

// hostileClass is a class of hostile modules, with one of it.
type hostileClass struct {
	class  string
	module []byte
}

// hostile is the classes of hostile modules that rows W01 to W07 of the threat
// model name.
func hostile() []hostileClass {
	plain := func() *encoder { return guestEncoder().hook("", i64(0)) }
	changed := func(e *encoder, change func(*encoder)) []byte {
		change(e)
		return e.bytes()
	}
	tables := func(mins ...uint32) []byte {
		return changed(plain(), func(e *encoder) {
			for _, n := range mins {
				e.tables = append(e.tables, tableType{typeFuncref, span{min: n}})
			}
		})
	}
	growing := guestEncoder()
	growing.tables = []tableType{{typeFuncref, span{min: 1}}}
	small := newEncoder()
	small.fn("", "", "", "")
	name := append(appendName(nil, "name"), make([]byte, 10<<20-1000)...)
	recursive := plain()
	recursive.funcs[3].body = seq(get(0), call(3))
	return []hostileClass{
		{"W01: 2^32-1 locals", withLocals(small, "\xff\xff\xff\xff\x0f\x7f")},
		{"W02: a table of 134 million", tables(134217728)},
		{"W02: 15 tables of 10 million", tables(slicesOf(15, 10_000_000)...)},
		{"W02: table.grow by 100 million", growing.hook("", loop(ins(opRefNull, typeFuncref), i32(100_000_000), ins(opPrefixFC, fcTableGrow, 0, opDrop, opBr, 0)), i64(0)).bytes()},
		{"W03: 65,536 pages", changed(plain(), func(e *encoder) { e.memory.min = 65536 })},
		{"W03: memory.grow by 65,535 and by 1, and all of it written", guestEncoder().hook("",
			i32(65535), ins(opMemoryGrow, 0, opDrop), loop(i32(1), ins(opMemoryGrow, 0), i32(-1), ins(0x47, opBrIf, 0)),
			i32(0), i32(7), ins(opMemorySize, 0), i32(16), ins(0x74), ins(opPrefixFC, fcMemoryFill, 0), i64(0)).bytes()},
		{"W04: an endless loop in a hook", guestEncoder().hook("", forever(), i64(0)).bytes()},
		{"W04: in the start function", changed(plain(), func(e *encoder) { e.start = int(e.fn("", "", "", "", forever())) })},
		{"W04: in _initialize", changed(plain(), func(e *encoder) { e.fn(abi.ExportInitialize, "", "", "", forever()) })},
		{"W04: where memory for the input is asked for", changed(plain(), func(e *encoder) { e.funcs[1].body = seq(forever(), i32(0)) })},
		{"W05: 200,000 nested blocks", changed(plain(), func(e *encoder) {
			e.fn("", "", "", "", bytes.Repeat(ins(opBlock, blockVoid), 200_000), bytes.Repeat(ins(opEnd), 200_000))
		})},
		{"W05: as many functions as may be", changed(plain(), func(e *encoder) { bombs()["functions"](e, (maxFunctions-len(e.funcs))/slower) })},
		{"W05: 100,000 exports", changed(plain(), func(e *encoder) {
			for i := range 100_000 {
				e.exports = append(e.exports, exportEntry{fmt.Sprint("f", i), kindFunc, 0})
			}
		})},
		{"W05: 50,000 types", changed(plain(), func(e *encoder) { e.types = append(e.types, make([]funcType, 50_000)...) })},
		{"W05: a name section of 10 MiB", append(appendU32(append(plain().bytes(), sectionCustom), uint32(len(name))), name...)},
		{"W06: recursion without end", recursive.bytes()},
		{"W07: a result of 2^32-1 bytes at 2^32-1", guestEncoder().hook("", result(1<<32-1, 1<<32-1)).bytes()},
	}
}

// hostileServers is the same of servers. What hooks do theirs do as they begin, and in place of
// what the host asks of a guest there is what a server asks of the host.
func hostileServers() []hostileClass {
	server := func(change func(*encoder), imports ...string) []byte {
		e := newEncoder()
		for _, name := range imports {
			i := slices.IndexFunc(wasi.Functions(), func(f wasi.Function) bool { return f.Name == name })
			e.imported(wasiP1, name, wasi.Functions()[i].Params, wasi.Functions()[i].Results)
		}
		e.memory = &span{min: 1}
		e.exports = append(e.exports, exportEntry{"memory", kindMemory, 0})
		change(e)
		return e.bytes()
	}
	begins := func(body ...[]byte) func(*encoder) {
		return func(e *encoder) { e.fn("_start", "", "", "", body...) }
	}
	beside := func(change func(*encoder)) func(*encoder) {
		return func(e *encoder) { change(e); begins()(e) }
	}
	tables := func(mins ...uint32) []byte {
		return server(beside(func(e *encoder) {
			for _, n := range mins {
				e.tables = append(e.tables, tableType{typeFuncref, span{min: n}})
			}
		}))
	}
	name := append(appendName(nil, "name"), make([]byte, 10<<20-1000)...)
	last := i32(-1) // 2^32-1
	return []hostileClass{
		{"W01: 2^32-1 locals", server(func(e *encoder) { begins()(e); e.funcs[0].run = "\xff\xff\xff\xff\x0f\x7f" })},
		{"W02: a table of 134 million", tables(134217728)},
		{"W02: 15 tables of 10 million", tables(slicesOf(15, 10_000_000)...)},
		{"W02: table.grow by 100 million", server(func(e *encoder) {
			e.tables = []tableType{{typeFuncref, span{min: 1}}}
			begins(loop(ins(opRefNull, typeFuncref), i32(100_000_000), ins(opPrefixFC, fcTableGrow, 0, opDrop, opBr, 0)))(e)
		})},
		{"W03: 65,536 pages", server(beside(func(e *encoder) { e.memory.min = 65536 }))},
		{"W03: memory.grow by 65,535 and by 1, and all of it written", server(begins(
			i32(65535), ins(opMemoryGrow, 0, opDrop), loop(i32(1), ins(opMemoryGrow, 0), i32(-1), ins(0x47, opBrIf, 0)),
			i32(0), i32(7), ins(opMemorySize, 0), i32(16), ins(0x74), ins(opPrefixFC, fcMemoryFill, 0)))},
		{"W04: an endless loop", server(begins(forever()))},
		{"W04: in the start function", server(beside(func(e *encoder) { e.start = int(e.fn("", "", "", "", forever())) }))},
		{"W04: of calls of the host", server(begins(loop(call(0), ins(opDrop, opBr, 0))), "sched_yield")},
		{"W04: of reads of what has ended", server(begins(i32(0), i32(64), ins(0x36, 2, 0), i32(0), i32(4096), ins(0x36, 2, 4), loop(i32(0), i32(0), i32(1), i32(8), call(0), ins(opDrop, opBr, 0))), "fd_read")},
		{"W05: 200,000 nested blocks", server(beside(func(e *encoder) {
			e.fn("", "", "", "", bytes.Repeat(ins(opBlock, blockVoid), 200_000), bytes.Repeat(ins(opEnd), 200_000))
		}))},
		{"W05: as many functions as may be", server(beside(func(e *encoder) { bombs()["functions"](e, (maxFunctions-1)/slower) }))},
		{"W05: 100,000 exports", server(beside(func(e *encoder) {
			e.fn("", "", "", "")
			for i := range 100_000 {
				e.exports = append(e.exports, exportEntry{fmt.Sprint("f", i), kindFunc, 0})
			}
		}))},
		{"W05: 50,000 types", server(beside(func(e *encoder) { e.types = append(e.types, make([]funcType, 50_000)...) }))},
		{"W05: a name section of 10 MiB", append(appendU32(append(server(begins()), sectionCustom), uint32(len(name))), name...)},
		{"W06: recursion without end", server(begins(call(0)))},
		{"W07: lists of 2^32-1 at 2^32-1", server(begins(
			i32(1), last, last, last, call(0), ins(opDrop),
			last, last, last, last, call(1), ins(opDrop),
			i32(0), i32(4096), i32(1_000_000), i32(8), call(1), ins(opDrop)), "fd_write", "poll_oneoff")},
	}
}

// TestG22 gives each of them to a process of its own, which checks, compiles,
// opens and calls it as an edge does, and says what that cost.
func TestG22(t *testing.T) {
	giveClasses(t, asGuests, hostile())
}

// TestV43 does it with them as MCP servers, which live until they end by themselves.
func TestV43(t *testing.T) { giveClasses(t, asLasting, hostileServers()) }

func giveClasses(t *testing.T, as string, all []hostileClass) {
	need.Of(t, runtime.GOOS == "linux", "limits of a child process are set the way of Linux")
	if len(all) != 17 {
		t.Errorf("%d classes", len(all))
	}
	for _, c := range all {
		t.Run(c.class, func(t *testing.T) {
			var out bytes.Buffer
			began := time.Now()
			give := func() error {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), mutantEnv+"="+as)
				cmd.Stdin = bytes.NewReader(append(binary.LittleEndian.AppendUint32(nil, uint32(len(c.module))), c.module...))
				out.Reset()
				cmd.Stdout, cmd.Stderr = &out, &out
				return cmd.Run()
			}
			err := give()
			if err != nil && strings.Contains(out.String(), "of CPU") { // which is more where others share the caches
				t.Logf("again, after %v: %.200s", err, out.Bytes())
				err = give()
			}
			if err != nil {
				t.Fatalf("the child ended with %v: %.2000s", err, out.Bytes())
			}
			var tried, accepted, opened, called, memory int
			var used time.Duration
			if _, err := fmt.Sscan(strings.TrimSpace(out.String()), &tried, &accepted, &opened, &called, (*int64)(&used), &memory); err != nil || tried != 1 {
				t.Fatalf("%v: %q", err, out.String())
			}
			t.Logf("%d bytes: accepted %d, opened %d, %d calls returned; %v in all, %v of CPU, %d MiB resident",
				len(c.module), accepted, opened, called, time.Since(began).Round(time.Millisecond), used.Round(time.Millisecond), memory>>20)
			if used > mutantWork || memory > mutantMemory {
				t.Errorf("it cost %v of CPU and %d MiB", used, memory>>20)
			}
			if as == asLasting && opened != called {
				t.Error("nothing ends it")
			}
		})
	}
}
