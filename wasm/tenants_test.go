package wasm

import (
	"compress/gzip"
	"io"
	"os"
	"testing"
	"time"
)

// BenchmarkInterpreterReset is P11b: what a reset of the edge's own interpreter costs. It
// copies all of the image, whatever the run did.
func BenchmarkInterpreterReset(b *testing.B) {
	f, err := os.Open("../scripting/sandbox/guest.wasm.gz")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		b.Fatal(err)
	}
	binary, err := io.ReadAll(z)
	if err != nil {
		b.Fatal(err)
	}
	r := &ScriptRun{Host: noHost(), Input: []byte("no program"), CPU: 10 * time.Second}
	p, err := compileInterpreter(b, binary).OpenInterpreter(b.Context(), Interpretation{
		Memory: MaxMemory, Input: 1 << 20, Output: 1 << 20, Instances: 2, Idle: 1, Warm: []*ScriptRun{r},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	in := p.guest.pool.take()
	defer p.guest.pool.put(in)
	for b.Loop() {
		if !in.reset() {
			b.Fatal("no reset")
		}
	}
	b.ReportMetric(float64(in.base.snapshot.Size())/(1<<20), "MiB")
}
