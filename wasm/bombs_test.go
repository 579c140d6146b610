package wasm

import "bytes"

// bombs are functions whose compilation is work that grows faster than they
// do. Each makes one of size n, with the run of locals that it wants.
func bombs() map[string]func(e *encoder, n int) {
	long := func(locals int, unit []byte) func(*encoder, int) {
		return func(e *encoder, n int) {
			e.fn("", vI32, "", "", bytes.Repeat(unit, n))
			if locals > 0 {
				e.funcs[len(e.funcs)-1].run = localRun(locals)
			}
		}
	}
	return map[string]func(*encoder, int){
		"empty blocks":  long(0, block()),
		"nested blocks": long(0, seq(bytes.Repeat(ins(opBlock, blockVoid), 990), bytes.Repeat(ins(opEnd), 990))),
		"nested exits":  long(0, seq(bytes.Repeat(ins(opBlock, blockVoid), 100), get(0), ins(opBrIf, 99), bytes.Repeat(ins(opEnd), 100))),
		"loops":         long(0, loop(get(0), ins(opDrop))),
		"turns":         long(0, loop(get(0), ins(opBrIf, 0))),
		"exits":         long(0, block(get(0), ins(opBrIf, 0))),
		"ifs":           long(0, seq(get(0), ins(opIf, blockVoid), get(0), set(0), ins(opElse), get(0), i32(1), ins(opAdd32), set(0), ins(opEnd))),
		"adds":          long(0, seq(get(0), get(0), ins(opAdd32), set(0))),
		"fills":         long(0, seq(get(0), get(0), get(0), ins(opPrefixFC, fcMemoryFill, 0))),
		"stores":        long(0, seq(get(0), get(0), store8(0))),
		"growth":        long(0, seq(get(0), ins(opMemoryGrow, 0), set(0))),
		"locals":        long(maxLocals-2, seq(get(0), set(48_000))),
		"many locals":   func(e *encoder, n int) { localsBomb(e, 49_000, n) },
		"some locals":   func(e *encoder, n int) { localsBomb(e, 1_000, n) },
		"labels":        labelsBomb,
		"deep stack": func(e *encoder, n int) {
			e.fn("", vI32, vI32, "", bytes.Repeat(seq(get(0), load8(0)), n), bytes.Repeat(ins(opAdd32), n-1))
		},
		"arguments": func(e *encoder, n int) {
			f := e.fn("", string(bytes.Repeat(ins(typeI32), maxTypeValues)), "", "")
			e.fn("", vI32, "", "", bytes.Repeat(seq(bytes.Repeat(get(0), maxTypeValues), call(f)), n))
		},
		"results": func(e *encoder, n int) {
			typ := e.sig("", string(bytes.Repeat(ins(typeI32), maxTypeValues)))
			unit := seq(ins(opBlock), appendS64(nil, int64(typ)), bytes.Repeat(get(0), maxTypeValues), get(0), ins(opBrIf, 0, opEnd), bytes.Repeat(ins(opDrop), maxTypeValues))
			e.fn("", vI32, "", "", bytes.Repeat(unit, n))
		},
		"functions": func(e *encoder, n int) {
			body := bytes.Repeat(seq(get(0), load8(0), get(0), ins(opAdd32), set(0)), 8)
			for range n {
				e.funcs = append(e.funcs, encodedFunc{typ: e.sig(vI32, ""), body: body})
			}
		},
	}
}

func localRun(n int) string { return string(append(appendU32(nil, uint32(n)), typeI32)) }

// withLocals encodes a module whose last function has one run of locals.
func withLocals(e *encoder, run string) []byte {
	e.funcs[len(e.funcs)-1].run = run
	return e.bytes()
}

// localsBomb changes many locals and then needs them through so many loops.
func localsBomb(e *encoder, locals, loops int) {
	var change []byte
	for i := 0; i < locals; i += 7 {
		change = append(change, seq(get(uint32(i)), set(uint32((i+1)%locals)))...)
	}
	e.fn("", vI32, "", "", change, bytes.Repeat(loop(get(0), set(uint32(locals-1)), get(0), ins(opBrIf, 0)), loops), change)
	e.funcs[len(e.funcs)-1].run = localRun(locals)
}

// labelsBomb is one br_table of n labels.
func labelsBomb(e *encoder, n int) {
	labels := appendU32(nil, uint32(n))
	for i := range n {
		labels = append(labels, byte(i%100))
	}
	e.fn("", vI32, "", "", bytes.Repeat(ins(opBlock, blockVoid), 100), get(0), ins(opBrTable), labels, ins(0), bytes.Repeat(ins(opEnd), 100))
}

// largest encodes the largest module with one bomb, or with copies of it up to
// the limit of a module, that the limits let through.
func largest(bomb func(*encoder, int), copies bool) []byte {
	build := func(n, copies int) []byte {
		e := guestEncoder().hook("", i64(0))
		for range copies {
			bomb(e, n)
		}
		return e.bytes()
	}
	most := func(build func(int) []byte) int {
		fits := func(n int) bool { _, err := parse(build(n)); return err == nil }
		high := 1
		for fits(high) {
			high *= 2
		}
		low := high / 2 // fits
		for low+1 < high {
			if mid := (low + high) / 2; fits(mid) {
				low = mid
			} else {
				high = mid
			}
		}
		return low
	}
	n := most(func(n int) []byte { return build(n, 1) })
	if !copies {
		return build(n, 1)
	}
	return build(n, most(func(k int) []byte { return build(n, k) }))
}
