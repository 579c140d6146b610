package workflow_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/scripting/workflow"
)

// quick is a host whose tools answer at once.
func quick() *workflow.Host {
	known := &workflow.Tool{}
	return &workflow.Host{
		Tool: func(string) (*workflow.Tool, bool) { return known, true },
		Call: func(_ context.Context, c *workflow.Call) workflow.Answer {
			return workflow.Answer{Result: []byte(`{"content":[],"structuredContent":{"x":"v"}}`)}
		},
	}
}

func benchmark(b *testing.B, text string) {
	w := parse(b, composite(b, text))
	host := quick()
	b.ReportAllocs()
	for b.Loop() {
		if out, err := w.Run(b.Context(), []byte(`{"x":"v"}`), host); err != nil || out.Error != nil {
			b.Fatal(err, told(out))
		}
	}
}

// BenchmarkOneStep is what a composite of one step takes besides its call.
func BenchmarkOneStep(b *testing.B) {
	benchmark(b, params+`steps: [{id: a, tool: w.t, arguments: {x: "{{.params.x}}"}}]`)
}

// BenchmarkChain is what a chain of a hundred steps takes besides its calls.
func BenchmarkChain(b *testing.B) {
	var text strings.Builder
	text.WriteString(params + "steps:\n- {id: s0, tool: w.t}\n")
	for i := 1; i < 100; i++ {
		fmt.Fprintf(&text, "- {id: s%d, tool: w.t, arguments: {x: \"{{.steps.s%d.output.x}}\"}}\n", i, i-1)
	}
	benchmark(b, text.String())
}
