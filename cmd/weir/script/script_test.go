package script_test

import (
	"testing"

	"github.com/weir-edge/weir/cmd/weir/script"
)

func TestTraced(t *testing.T) {
	for call, want := range map[string]string{
		`{"id":1,"parent":0,"tool":"add","attempt":1,"outcome":"ok","ms":1.5}`:                     "add: ok, 1.5 ms",
		`{"id":1,"parent":0,"tool":"add","step":"sum","attempt":3,"outcome":"error","ms":12}`:      "step sum: add, attempt 3: error, 12 ms",
		`{"id":1,"parent":0,"step":"sum","attempt":1,"outcome":"denied","ms":0}`:                   "step sum: denied, 0 ms",
		`{"id":1,"parent":0,"tool":"a\n\u001b[31mb","step":"s","attempt":1,"outcome":"ok","ms":1}`: "step s: a [31mb: ok, 1 ms",
	} {
		if got := script.Traced([]byte(call)); got != want {
			t.Errorf("%s is %q, want %q", call, got, want)
		}
	}
}
