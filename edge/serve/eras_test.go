package serve_test

import (
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

func TestSmoke(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			s := edgetest.NewServer(t, era)
			e := edgetest.Start(t, edgetest.Manifest(s))
			c := e.NewClient()
			l := c.Initialize("")
			t.Log(l.Result)
			t.Log(l.Call("1", "echo", `{"a":1}`).Result())
			t.Log(c.Modern("1", "tools/call", edgetest.CallParams("echo", `{"a":1}`)).Result())
		})
	}
}
