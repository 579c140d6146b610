package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest/engine"
)

// TestG32Containers runs the row of containers, scaled down: the same holds for servers in them,
// also when the containers are removed and the engine is killed, and nothing is left over.
func TestG32Containers(t *testing.T) {
	engine.Need(t)
	var out bytes.Buffer
	if err := command(t.Context(), []string{"--quick", "--count", "2", "containers"}, &out, io.Discard); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if n := strings.Count(out.String(), "  ok "); n != 10 {
		t.Errorf("%d bars:\n%s", n, out.String())
	}
}
