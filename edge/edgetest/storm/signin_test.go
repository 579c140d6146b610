package main

import (
	"bytes"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/program"
)

// TestSignIns runs the rows of people who sign in, scaled down, side by side: A14, A15, A17, G20
// and R03 over two edges with one Redis, upstream tokens that end and are revoked, and what
// edges write of it all (K16).
func TestSignIns(t *testing.T) {
	edgetest.Need(t, runtime.GOOS == "linux", "storm reads the kernel's own tables, which are Linux's")
	for _, name := range []string{"redis-server", "redis-cli"} {
		_, err := exec.LookPath(name)
		edgetest.Need(t, err == nil, name+" is not on PATH (Debian: apt-get install redis-server)")
	}
	weir, err := program.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		args []string
		bars int
	}{
		{[]string{"--count", "10", "signin"}, 14},
		{[]string{"signin-races"}, 10},
		{[]string{"--length", "6s", "signin-tokens"}, 9},
		{[]string{"signin-abuse"}, 13},
	} {
		t.Run(one.args[len(one.args)-1], func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if err := command(t.Context(), append([]string{"--weir", weir, "--quick"}, one.args...), &out, io.Discard); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			if n := strings.Count(out.String(), "  ok "); n != one.bars {
				t.Errorf("%d bars:\n%s", n, out.String())
			}
		})
	}
}

// What nobody may read is found wherever it stands, and nothing else is.
func TestNeedles(t *testing.T) {
	n := newNeedles()
	n.add("a-secret-of-somebody")
	n.add("a-secret-of-another")
	n.add("short")
	for text, want := range map[string]int{
		"": 0, "a-secret-of-": 0, "a-secret-of-nobody, short": 0, "xa-secret-of-anothery": 1, "a-secret-of-somebodya-secret-of-another": 2,
	} {
		if got, around := n.in(text); got != want || (around == "") != (want == 0) {
			t.Errorf("%q: %d, %q", text, got, around)
		}
	}
}
