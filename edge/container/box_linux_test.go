package container

import (
	"testing"

	"github.com/weir-edge/weir/edge/edgetest/engine"
)

func TestFirst(t *testing.T) {
	e := running(t)
	image(t, e, "probe:1", engine.Config{})
	b := opened(t, machine(t, e), config(t, "status:", "env:", "list:/", "list:/.weir/link", "write:/x", "write:/tmp/x", "write:/home/weir/x", "pid:", "read:/proc/1/environ","read:/etc/resolv.conf"))
	for k, v := range tried(t, b) {
		t.Log(k, v)
	}
}
