//go:build unix

package stdio_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/stdio"
)

var modes = map[string]stdio.Mode{"session": stdio.PerSession, "shared": stdio.Shared}

// each runs a test with clients of both eras, before servers of both, in both modes.
func each(t *testing.T, test func(t *testing.T, client, server edgetest.Era, b *behind)) {
	for name, mode := range modes {
		for _, server := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
				t.Run(fmt.Sprintf("%s/%s before %s", name, client, server), func(t *testing.T) {
					t.Parallel()
					test(t, client, server, start(t, server.String(), func(c *stdio.Config) { c.Mode = mode }))
				})
			}
		}
	}
}

// A call and what comes before its answer pass in all four cells, and in both modes; the
// id and the token of progress are the client's.
func TestCallInEveryCell(t *testing.T) {
	each(t, func(t *testing.T, client, _ edgetest.Era, b *behind) {
		c := b.NewClient().As(client, "")
		for _, id := range []string{`7`, `"an id that is longer than any number is"`} {
			r := c.CallTool(id, "echo", `{"text":"héllo\nyou"}`)
			m := r.Message()
			if string(m.ID) != id {
				t.Errorf("answered under the id %s", m.ID)
			}
		}
		if got := text(t, c.CallTool("1", "echo", `{"text":"héllo\nyou"}`)); got != "héllo\nyou" {
			t.Errorf("echoed %q", got)
		}
		r := c.CallTool("2", "progress", `{"n":3}`, `"progressToken":"my token"`)
		for i := range 3 {
			m := r.NextMessage()
			if m.Method != "notifications/progress" || !strings.Contains(string(m.Params), `"my token"`) || !strings.Contains(string(m.Params), fmt.Sprintf(`"progress":%d`, i+1)) {
				t.Errorf("instead of progress %d: %s %s", i+1, m.Method, m.Params)
			}
		}
		if got := text(t, r); got != "done" {
			t.Errorf("then said %q", got)
		}
		if !strings.Contains(c.Ask("3", "tools/list", "").Result(), `"echo"`) {
			t.Error("no list of tools")
		}
	})
}
