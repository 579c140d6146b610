package starlark_test

import (
	"context"
	"strings"
	"testing"

	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// branching is a filter of one branch and one pointer.
const branching = `
subscribe("on_call_request", tools = ["write_*"], pointers = ["/path"])

def on_call_request(c):
    if c.selected[0].startswith("/etc/") and "admin" not in c.principal.groups:
        return deny(403, "only admins write there")
    return set_header("x-tool", c.tool)
`

// branchingInput is what it is asked about, with arguments of 1 KiB.
func branchingInput(path string) *abi.Input {
	who := abi.Principal{Subject: "ann", Tenant: "acme", Groups: []string{"dev", "ops", "staff"}, Scopes: []string{"a", "b"}}
	return &abi.Input{
		Tool: []byte("write_file"), Backend: "files", Method: "tools/call", RequestID: []byte("1"), Principal: who.Append(nil),
		Arguments: []byte(`{"path":"` + path + `","text":"` + strings.Repeat("x", 990) + `"}`), Selected: [][]byte{[]byte(`"` + path + `"`)},
	}
}

// BenchmarkP20 is a call of a filter of one branch, with 1 KiB of arguments and one pointer.
func BenchmarkP20(b *testing.B) {
	for name, path := range map[string]string{"passes": "/home/ann/notes", "denied": "/etc/passwd"} {
		b.Run(name, func(b *testing.B) {
			g := open(b, wasm.Binding{}, branching)
			in, out, ctx := branchingInput(path).Append(nil, 0), make([]byte, 0, 1024), context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Call(ctx, abi.OnCallRequest, "", wasm.Sender{}, in, out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
