package sandbox

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/turns"
)

// TestCompilingTakesTurns: a script waits for those that are under way, and not for all that
// another client has sent before it.
func TestCompilingTakesTurns(t *testing.T) {
	var (
		c     = NewCompiler()
		text  = strings.Repeat("a=1\n", 16<<10)
		many  = 20 * turns.Most()
		ended atomic.Int64
		all   sync.WaitGroup
	)
	for range many {
		all.Go(func() {
			_, _ = c.Compile(t.Context(), "loud", "f.star", text, scripting.Scope{}) // the last ones may wait too long
			ended.Add(1)
		})
	}
	fake.Until(t, "half of the texts wait", func() bool { return c.places.Waiting() >= many/2 })
	before := ended.Load()
	if _, err := c.Compile(t.Context(), "quiet", "f.star", "return 1", scripting.Scope{}); err != nil {
		t.Error(err)
	}
	if n := ended.Load() - before; n > int64(3*turns.Most()) {
		t.Errorf("%d scripts of another client were compiled before it", n)
	}
	all.Wait()
}
