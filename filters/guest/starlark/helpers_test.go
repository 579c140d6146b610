package starlark_test

import (
	"context"
	"strings"
	"testing"

	"github.com/weir-edge/weir/filters/guest/starlark"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// open opens a text that has to be right.
func open(t testing.TB, b wasm.Binding, text string) *starlark.Guest {
	t.Helper()
	g, err := tryOpen(b, text)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func tryOpen(b wasm.Binding, text string) (*starlark.Guest, error) {
	p, err := starlark.Compile("f.star", []byte(text))
	if err != nil {
		return nil, err
	}
	if b.Name == "" {
		b.Name = "f"
	}
	return p.Open(context.Background(), starlark.Options{Binding: b})
}

// ask asks a program and returns its operations, as they are written in texts.
func ask(t testing.TB, g *starlark.Guest, hook abi.Hook, in *abi.Input) (string, error) {
	t.Helper()
	out, err := g.Call(context.Background(), hook, "", wasm.Sender{}, in.Append(nil, 0), nil)
	if err != nil {
		return "", err
	}
	return shown(t, out), nil
}

// shown writes the operations of an answer, such as `deny code=1 text=no; hide item=2`.
func shown(t testing.TB, answer []byte) string {
	t.Helper()
	var all []string
	r := abi.Reader{B: answer}
	for r.Next() {
		op := abi.Reader{B: r.Data}
		if !op.Next() {
			t.Fatalf("no operation: %x", r.Data)
		}
		one := names[op.Num]
		arg := abi.Reader{B: op.Data}
		for arg.Next() {
			one += " " + args[arg.Num] + "="
			if arg.Data == nil {
				one += string(rune('0' + arg.Uint))
			} else {
				one += string(arg.Data)
			}
		}
		if arg.Bad || op.Next() {
			t.Fatalf("a malformed operation: %x", r.Data)
		}
		all = append(all, one)
	}
	if r.Bad {
		t.Fatalf("a malformed answer: %x", answer)
	}
	return strings.Join(all, "; ")
}

var args = map[int]string{
	abi.ArgPointer: "pointer", abi.ArgRaw: "raw", abi.ArgName: "name", abi.ArgText: "text", abi.ArgCode: "code", abi.ArgIndex: "index", abi.ArgItem: "item",
}

var names = map[int]string{
	abi.OpSetArg: "set_arg", abi.OpDelArg: "del_arg", abi.OpSetArguments: "set_arguments", abi.OpSetTool: "set_tool", abi.OpSetBackend: "set_backend",
	abi.OpSetHeader: "set_header", abi.OpDelHeader: "del_header", abi.OpRespond: "respond", abi.OpDeny: "deny", abi.OpSetAttr: "set_attr",
	abi.OpSetCarry: "set_carry", abi.OpLogField: "log_field", abi.OpPatchResult: "patch_result", abi.OpDropContent: "drop_content", abi.OpRedact: "redact",
	abi.OpRename: "rename", abi.OpDescribe: "describe", abi.OpHide: "hide", abi.OpAnnotate: "annotate", abi.OpSetSchema: "set_schema",
	abi.OpPinArg: "pin_arg", abi.OpHideArg: "hide_arg", abi.OpUseCredential: "use_credential", abi.OpSetPrincipal: "set_principal", abi.OpChallenge: "challenge",
	abi.OpPatchItem: "patch_item",
}

func contains(s, part string) bool { return strings.Contains(s, part) }

func tryOpenWith(text string, conforms func([]byte) error) (*starlark.Guest, error) {
	p, err := starlark.Compile("f.star", []byte(text))
	if err != nil {
		return nil, err
	}
	grants := []string{abi.GrantKV}
	return p.Open(context.Background(), starlark.Options{Binding: wasm.Binding{Name: "f", Grants: grants}, Conforms: conforms})
}
