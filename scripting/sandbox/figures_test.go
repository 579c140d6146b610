package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-edge/weir/scripting"
)

// fuelOf is the fuel of one run.
func fuelOf(t testing.TB, e *Engine, r *scripting.Run) uint64 {
	t.Helper()
	before := e.ready.interpreter.Stats().Fuel
	if o, err := e.Run(t.Context(), "me", r); err != nil || o.Error != nil {
		t.Fatal(err, said(o))
	}
	return e.ready.interpreter.Stats().Fuel - before
}

// TestP11bFuel: what the script of 25 lines costs does not depend on the machine, and on
// the order of its answers by little.
func TestP11bFuel(t *testing.T) {
	e := engine(t, Options{})
	r := &scripting.Run{Program: program(t, typical, typicalTools()), Call: typicalTools().call}
	first := fuelOf(t, e, r)
	if first > 4_000_000 {
		t.Errorf("%d fuel", first)
	}
	t.Logf("%d fuel", first)
	o, err := e.Run(t.Context(), "me", r)
	if err != nil || o.Memory > 16<<20 {
		t.Errorf("%d bytes of memory, %v", o.Memory, err)
	}
	t.Logf("%d steps, %d calls, %d KiB", o.Steps, o.Calls, o.Memory>>10)
	if s := e.ready.interpreter.Stats(); s.Changed > 0 {
		t.Errorf("%d instances had to grow for it", s.Changed)
	}
}

// TestP11bWaiting: a script that waits for its calls holds no more than 16 MiB.
func TestP11bWaiting(t *testing.T) {
	if raceOn {
		t.Skip("the race detector holds memory of its own")
	}
	const many = 8
	e := engine(t, Options{Most: many, MostPerHolder: many})
	before := rss(t)
	begun, release := make(chan struct{}, many), make(chan struct{})
	s := typicalTools()
	post := s["post_report"]
	s["post_report"] = func(ctx context.Context, c *scripting.Call) scripting.Answer {
		begun <- struct{}{}
		<-release
		return post(ctx, c)
	}
	r := &scripting.Run{Program: program(t, typical, s), Call: s.call}
	ended := make(chan error, many)
	for range many {
		go func() {
			_, err := e.Run(t.Context(), "me", r)
			ended <- err
		}()
	}
	for range many {
		<-begun
	}
	each := (rss(t) - before) / many
	close(release)
	for range many {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d KiB each", each>>10)
	if each > 16<<20 {
		t.Errorf("%d KiB each", each>>10)
	}
}

// idleEnv makes this program measure itself.
const idleEnv = "WEIR_SANDBOX_IDLE"

// TestP11bIdle: an engine that nobody uses holds no more than 64 MiB, from the cache and
// right after it compiled.
func TestP11bIdle(t *testing.T) {
	if raceOn {
		t.Skip("the race detector holds memory of its own")
	}
	dir := t.TempDir()
	if at := os.Getenv(idleEnv); at != "" {
		before := rss(t)
		e := New(Options{CacheDir: at})
		if err := e.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("held %d\n", rss(t)-before)
		e.Close()
		return
	}
	for _, how := range []string{"compiled", "from the cache"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestP11bIdle$", "-test.v")
		cmd.Env = append(os.Environ(), idleEnv+"="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, after, _ := strings.Cut(string(out), "held ")
		line, _, _ := strings.Cut(after, "\n")
		held, err := strconv.Atoi(line)
		if err != nil {
			t.Fatalf("%s", out)
		}
		t.Logf("%s: %d KiB", how, held>>10)
		if held > 64<<20 {
			t.Errorf("%s: %d KiB", how, held>>10)
		}
	}
}
