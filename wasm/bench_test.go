package wasm

import (
	"context"
	"fmt"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

func benchCall(b *testing.B, g *Guest, in []byte) {
	ctx, out := context.Background(), make([]byte, 0, 4<<10)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Call(ctx, hook, "s", Sender{}, in, out); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	s := g.Stats()
	b.ReportMetric(float64(s.Fuel)/float64(s.Hooks[hook].Ops+s.Hooks[hook].Pass), "fuel/op")
}

// BenchmarkHook is one call of a hook in whole: acquiring an instance, input
// in, the guest's work under metering, output out, and the reset.
func BenchmarkHook(b *testing.B) {
	for _, c := range []struct {
		name      string
		isolation Isolation
	}{{"shared", Shared}, {"per_request", PerRequest}, {"per_session", PerSession}} {
		change := func(b *Binding) { b.Isolation = c.isolation }
		for _, n := range []int{200, 1 << 10, 16 << 10} {
			b.Run(fmt.Sprintf("c-like/%s/%d", c.name, n), func(b *testing.B) {
				benchCall(b, open(b, scanner().bytes(), change), record(n))
			})
			b.Run(fmt.Sprintf("go/%s/%d", c.name, n), func(b *testing.B) {
				benchCall(b, openGo(b, change), record(n))
			})
		}
	}
}

func BenchmarkHookParallel(b *testing.B) {
	g := open(b, scanner().bytes())
	in := record(1 << 10)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		ctx, out := context.Background(), make([]byte, 0, 4<<10)
		for p.Next() {
			if _, err := g.Call(ctx, hook, "", Sender{}, in, out); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkMeter compares the same module with and without metering, without
// the pool around it.
func BenchmarkMeter(b *testing.B) {
	binary := scanner().bytes()
	parsed, err := parse(binary)
	if err != nil {
		b.Fatal(err)
	}
	metered, _, err := meter(parsed, metering{pages: 16})
	if err != nil {
		b.Fatal(err)
	}
	fuel := func(_ context.Context, s []uint64) { s[0] = slice }
	for name, module := range map[string][]byte{"plain": binary, "metered": metered} {
		b.Run(name, func(b *testing.B) {
			ctx := context.Background()
			r := wazero.NewRuntime(ctx)
			defer r.Close(ctx)
			if _, err := r.NewHostModuleBuilder(meterModule).NewFunctionBuilder().
				WithGoFunction(api.GoFunc(fuel), []byte(vI64+vI64), []byte(vI64)).Export(meterYield).Instantiate(ctx); err != nil {
				b.Fatal(err)
			}
			m, err := r.Instantiate(ctx, module)
			if err != nil {
				b.Fatal(err)
			}
			in := record(1 << 10)
			m.Memory().Write(bufferAt, in)
			f := m.ExportedFunction(hook.Export())
			stack := make([]uint64, 2)
			for b.Loop() {
				stack[0] = uint64(len(in))
				if err := f.CallWithStack(ctx, stack); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLoop is a loop of a million turns of next to no work: what metering
// costs at worst.
func BenchmarkLoop(b *testing.B) {
	e := guestEncoder().hook("\x01\x7f", loop(get(1), i32(1), ins(opAdd32, opLocalTee, 1), i32(1_000_000), ins(0x49, opBrIf, 0)), i64(0))
	g := open(b, e.bytes())
	benchCall(b, g, nil)
}

func BenchmarkCompileGo(b *testing.B) {
	binary, err := goGuest()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("meter", func(b *testing.B) {
		b.SetBytes(int64(len(binary)))
		for b.Loop() {
			m, err := parse(binary)
			if err != nil {
				b.Fatal(err)
			}
			out, _, err := meter(m, metering{pages: 16, keep: exported})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(len(out))/float64(len(binary)), "growth")
		}
	})
	for name, dir := range map[string]string{"new": "", "cached": b.TempDir()} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				c, err := NewCompiler(Compilation{Dir: dir})
				if err != nil {
					b.Fatal(err)
				}
				m, err := c.Compile(context.Background(), binary, "")
				if err != nil {
					b.Fatal(err)
				}
				m.Close()
				c.Close()
			}
		})
	}
	b.Run("copy", func(b *testing.B) {
		g := openGo(b)
		for b.Loop() {
			in, _, err := g.newInstance(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			in.close()
		}
	})
}
