package webhook_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/heavy"
	"github.com/weir-edge/weir/filters/webhook"
)

// TestZ03 makes patches of as many operations as there may be in messages that
// are as much work as their size allows: at the front and the end of what is
// wide, at the bottom of what is deep, and tests of the whole.
func TestZ03(t *testing.T) {
	deep := strings.Repeat("/0", 900)
	patches := map[string]string{"": `{"op":"test","path":"/mcp_request/params/name","value":"a"}`}
	for i := range 40 {
		for name, op := range map[string]string{
			"front": `{"op":"add","path":"/mcp_request/params/arguments/a/0","value":1}`,
			"end":   `{"op":"add","path":"/mcp_request/params/arguments/a/-","value":1}`,
			"cut":   `{"op":"remove","path":"/mcp_request/params/arguments/a/0"}`,
			"names": fmt.Sprintf(`{"op":"add","path":"/mcp_request/params/arguments/a/new%d","value":1}`, i),
			"deep":  `{"op":"replace","path":"/mcp_request/params/arguments/a` + deep + `","value":[1]}`,
			"deepa": `{"op":"add","path":"/mcp_request/params/arguments/a` + strings.Repeat("/0/a", 400) + `/x","value":[1]}`,
			"copy":  fmt.Sprintf(`{"op":"copy","from":"/mcp_request/params/arguments/a","path":"/mcp_request/params/arguments/c%d"}`, i),
			"move":  `{"op":"move","from":"/mcp_request/params/arguments/a","path":"/mcp_request/params/arguments/b"},{"op":"move","from":"/mcp_request/params/arguments/b","path":"/mcp_request/params/arguments/a"}`,
		} {
			if patches[name] != "" {
				op = patches[name] + "," + op
			}
			patches[name] = op
		}
	}
	for _, shape := range heavy.Shapes() {
		value := heavy.Value(shape, 500<<10, 980)
		message := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","arguments":{"a":` + value + `}}}`)
		patches["same"] = `{"op":"test","path":"/mcp_request/params/arguments/a","value":` + value + `}`
		for name, ops := range patches {
			took := heavy.Least(time.Second, func() { _, _ = webhook.Apply([]byte("["+ops+"]"), message) })
			if took > time.Second {
				t.Errorf("%s, %s: %v", shape, name, took)
			} else if took > 100*time.Millisecond {
				t.Logf("%s, %s: %v", shape, name, took)
			}
		}
		if _, err := webhook.Apply([]byte("["+patches["same"]+"]"), message); err != nil {
			t.Errorf("%s: a value is not the same as itself: %v", shape, err)
		}
	}
}

// TestZ03Elements: as many operations as there may be, at the front of a large
// array, cost little more than two.
func TestZ03Elements(t *testing.T) {
	message := []byte(`{"a":[` + strings.Repeat("0,", 500_000) + `1]}`)
	for name, op := range map[string]string{
		"add":    `{"op":"add","path":"/mcp_request/a/0","value":1}`,
		"remove": `{"op":"remove","path":"/mcp_request/a/0"}`,
		"move":   `{"op":"move","from":"/mcp_request/a/7","path":"/mcp_request/a/0"}`,
	} {
		patch := func(n int) time.Duration {
			return heavy.CPU(func() {
				if _, err := webhook.Apply([]byte("["+strings.Repeat(op+",", n-1)+op+"]"), message); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		few, many := min(patch(2), patch(2)), min(patch(128), patch(128))
		if t.Logf("%s: 2 take %v, 128 %v", name, few, many); many > 5*few+20*time.Millisecond {
			t.Errorf("%s: 2 take %v, 128 %v", name, few, many)
		}
	}
}
