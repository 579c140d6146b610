package guest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/sdk/abi"
)

// answer is an operation: its number, and the fields NUMBER VALUE….
func answer(op int, fields ...any) []byte {
	var b []byte
	for i := 0; i < len(fields); i += 2 {
		switch v := fields[i+1].(type) {
		case string:
			b = abi.AppendString(b, fields[i].(int), v)
		case int:
			b = abi.AppendUint(b, fields[i].(int), uint64(v))
		}
	}
	return abi.AppendBytes(nil, abi.OpsOp, abi.AppendBytes(nil, op, b))
}

// TestZ36JudgeIsTheEdge gives answers to Judge and to an edge that has just asked
// for them: what Judge refuses is answered with 503, and logged in the same words;
// everything else is carried out.
func TestZ36JudgeIsTheEdge(t *testing.T) {
	t.Parallel()
	const arguments, result = `{"c":1}`, `{"content":[{"type":"text","text":"x"}]}`
	many := make([]byte, 0, 4096)
	for range 257 {
		many = append(many, answer(abi.OpLogField, abi.ArgName, "a", abi.ArgText, "b")...)
	}
	for hook, answers := range map[abi.Hook]map[string][]byte{
		abi.OnCallRequest: {
			"nothing": {}, "half": answer(abi.OpDeny, abi.ArgText, "no")[:4], "unknown": answer(27), "of another hook": answer(abi.OpRedact, abi.ArgPointer, "/c"),
			"denied": answer(abi.OpDeny, abi.ArgText, "no"), "too many": many,
			"denied after nonsense": append(answer(abi.OpSetArg, abi.ArgPointer, "/a/b", abi.ArgRaw, "1"), answer(abi.OpDeny)...),
			"set":                   answer(abi.OpSetArg, abi.ArgPointer, "/d", abi.ArgRaw, "2"), "set nowhere": answer(abi.OpSetArg, abi.ArgPointer, "/a/b", abi.ArgRaw, "1"),
			"set no JSON": answer(abi.OpSetArg, abi.ArgPointer, "/d", abi.ArgRaw, "{"), "all of it": answer(abi.OpSetArg, abi.ArgPointer, "", abi.ArgRaw, "1"),
			"cut": answer(abi.OpDelArg, abi.ArgPointer, "/c"), "cut nothing": answer(abi.OpDelArg, abi.ArgPointer, "/none"), "cut nowhere": answer(abi.OpDelArg, abi.ArgPointer, "c"),
			"header": answer(abi.OpSetHeader, abi.ArgName, "X-A", abi.ArgText, "b"), "the edge's header": answer(abi.OpSetHeader, abi.ArgName, "Host", abi.ArgText, "b"),
			"a credential": answer(abi.OpSetHeader, abi.ArgName, "Authorization", abi.ArgText, "b"), "a line break": answer(abi.OpSetHeader, abi.ArgName, "X-A", abi.ArgText, "b\nc"),
			"respond": answer(abi.OpRespond, abi.ArgRaw, result), "respond with a list": answer(abi.OpRespond, abi.ArgRaw, "[]"),
			"respond without content": answer(abi.OpRespond, abi.ArgRaw, `{"text":"x"}`), "respond with text": answer(abi.OpRespond, abi.ArgRaw, `{"content":"x"}`), "respond with a block of no type": answer(abi.OpRespond, abi.ArgRaw, `{"content":[{"text":"x"}]}`),
			"respond with a failure that is none": answer(abi.OpRespond, abi.ArgRaw, `{"content":[],"isError":1}`), "respond with structure": answer(abi.OpRespond, abi.ArgRaw, `{"content":[],"structuredContent":[1]}`), "nobody's field": answer(abi.OpSetAttr, abi.ArgName, "a", abi.ArgRaw, "1", 99, "x"),
		},
		abi.OnCallResponse: {
			"nothing": {}, "patch": answer(abi.OpPatchResult, abi.ArgPointer, "/isError", abi.ArgRaw, "false"), "patch nowhere": answer(abi.OpPatchResult, abi.ArgPointer, "/a/b", abi.ArgRaw, "1"),
			"redact": answer(abi.OpRedact, abi.ArgPointer, "/content/0/text", abi.ArgText, "y"), "redact nothing": answer(abi.OpRedact, abi.ArgPointer, "/none", abi.ArgText, "y"),
			"drop": answer(abi.OpDropContent, abi.ArgIndex, 0), "drop nothing": answer(abi.OpDropContent, abi.ArgIndex, 7), "a header": answer(abi.OpSetHeader, abi.ArgName, "X-A", abi.ArgText, "b"),
			"all of it": answer(abi.OpPatchResult, abi.ArgPointer, "", abi.ArgRaw, "7"), "content that is text": answer(abi.OpPatchResult, abi.ArgPointer, "/content", abi.ArgRaw, `"x"`), "denied": answer(abi.OpDeny), "no pointer": answer(abi.OpRedact, abi.ArgPointer, "a~2", abi.ArgText, "y"),
		},
		abi.OnHTTPRequest: {
			"header": answer(abi.OpSetHeader, abi.ArgName, "X-A", abi.ArgText, "b"), "origin": answer(abi.OpSetHeader, abi.ArgName, "Origin", abi.ArgText, "b"),
			"a credential": answer(abi.OpDelHeader, abi.ArgName, "Cookie"), "denied": answer(abi.OpDeny), "a frame": answer(abi.OpDelHeader, abi.ArgName, "Content-Length"),
		},
		abi.OnUpstreamRequest: {
			"header": answer(abi.OpSetHeader, abi.ArgName, "X-A", abi.ArgText, "b"), "a credential": answer(abi.OpDelHeader, abi.ArgName, "Cookie"), "denied": answer(abi.OpDeny),
		},
		abi.OutgoingAuth: {
			"header": answer(abi.OpSetHeader, abi.ArgName, "X-A", abi.ArgText, "b"), "a credential": answer(abi.OpSetHeader, abi.ArgName, "Authorization", abi.ArgText, "b"), "denied": answer(abi.OpDeny),
		},
		abi.OverrideTools: {
			"hide nothing": answer(abi.OpHide, abi.ArgItem, 7), "describe": answer(abi.OpDescribe, abi.ArgItem, 0, abi.ArgText, "x"), "a schema": answer(abi.OpSetSchema, abi.ArgItem, 0, abi.ArgRaw, "[]"),
			"the name": answer(abi.OpPatchItem, abi.ArgItem, 0, abi.ArgPointer, "/name", abi.ArgRaw, `"x"`), "patch nowhere": answer(abi.OpPatchItem, abi.ArgItem, 0, abi.ArgPointer, "/a/b", abi.ArgRaw, "1"),
			"pin": answer(abi.OpPinArg, abi.ArgItem, 0, abi.ArgPointer, "/c", abi.ArgRaw, "2"), "denied": answer(abi.OpDeny),
		},
	} {
		for name, record := range answers {
			t.Run(fmt.Sprintf("%v/%s", hook, name), func(t *testing.T) {
				t.Parallel()
				q := &guest.Asked{Hook: hook, Tool: "echo"}
				switch hook {
				case abi.OnCallRequest:
					q.Arguments = []byte(arguments)
				case abi.OnCallResponse:
					q.Result = []byte(result)
				case abi.OverrideTools:
					q.Items = [][]byte{[]byte(`{"name":"echo","inputSchema":{"type":"object"}}`)}
				}
				judged := guest.Judge("f", q, record)

				module := filepath.Join(t.TempDir(), "f.wasm")
				if err := os.WriteFile(module, edgetest.Module{Hook: hook.String(), Answer: record}.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
				back := edgetest.NewServer(t, edgetest.Modern)
				offers(back, "echo")
				e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", path: module}}))
				c := newClient(e, edgetest.Modern)
				var r *edgetest.Response
				if hook == abi.OverrideTools { // which is asked when the backend has said what it offers
					edgetest.Until(t, "the backend's list", func() bool {
						r = c.request(t, "tools/list", "{}")
						return r.Status != 200 || strings.Contains(string(r.Body), `"name"`)
					})
				} else {
					r = c.call(t, "echo", arguments)
				}
				if refused := r.Status == 503; refused != (judged != nil) {
					t.Fatalf("Judge says %v, and the edge answers %d: %s", judged, r.Status, r.Body)
				}
				if judged != nil && !strings.Contains(e.Log(), strings.ReplaceAll(judged.Error(), `"`, `\"`)) {
					t.Errorf("Judge says %v; the edge's log has no such words", judged)
				}
			})
		}
	}
}
