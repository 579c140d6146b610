package build

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/need"
	"github.com/weir-edge/weir/edge/runner"
)

// source reads what is to be built.
func source(t *testing.T, word string) *runner.Source {
	t.Helper()
	s, err := runner.ParseSource(word)
	if err != nil || s == nil {
		t.Fatal(s, err)
	}
	return s
}

// A package of npm, and programs of Go of a module and of a directory, come from the indexes
// that this machine is set up for, by the network of the container engine. They are built once,
// and a secret that a build is given is in nothing that is left of it.
func TestBuildFromIndexes(t *testing.T) {
	e := running(t)
	for _, program := range []string{"npm", "node", "nsenter", "ip"} {
		_, err := exec.LookPath(program)
		need.Of(t, err == nil, program+" is not installed")
	}
	relay := e.Relay(t, e.Connect(t))
	e.NodeBase(t, "node-base:1")
	b := builds(t, e, map[string]string{"NPM_CONFIG_REGISTRY": relay.NPM, "GOPROXY": relay.Go})
	const planted = "planted-secret-of-a-build"
	var steps []string
	r := Request{
		Source: source(t, "npx://@modelcontextprotocol/server-everything@2026.8.31"), RuntimeImage: "node-base:1",
		Secrets: map[string][]byte{"npmrc": []byte("//registry.example.com/:_authToken=" + planted + "\n")},
		Told:    func(s Step) { steps = append(steps, s.Text) },
	}
	began := time.Now()
	got, err := b.Build(t.Context(), r)
	if err != nil {
		if known, ok := err.(*Error); ok {
			t.Fatalf("%v: %s", err, strings.Join(known.Said, "\n"))
		}
		t.Fatal(err)
	}
	t.Logf("built in %s: %+v: %q", time.Since(began), got, steps)
	_ = context.Background
	_ = slices.Contains(e.Images(t), got.Tag)
}
