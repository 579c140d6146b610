package outgoing_test

import (
	"os"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/source"
)

// Every set of the READMEs here and of secrets is one that weir validate takes,
// and what it sends its backends can be opened.
func TestReadme(t *testing.T) {
	t.Setenv("SEARCH_KEY", "v")
	t.Setenv("EDGE_SECRET", "v")
	for _, name := range []string{"README.md", "../secret/README.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		opened := 0
		for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			set, _ := source.Read(name, []byte(block)) // what it finds wrong is in the result
			r := set.Compile()
			var said strings.Builder
			if err := r.Render(&said); err != nil || said.Len() > 0 || r.Plan == nil {
				t.Fatalf("%s: %v\n%s", name, err, said.String())
			}
			v := &fake.Secrets{}
			for secret, values := range r.Plan.Secrets {
				for key, value := range values {
					v.Set(secret+"/"+key, value)
				}
			}
			if missing := r.Missing(t.Context(), v); len(missing) > 0 {
				t.Error(missing)
			}
			for _, b := range r.Plan.Servers[0].Backends {
				c, err := b.Outgoing.Open(edge.Env{Secrets: v})
				if err != nil {
					t.Error(err)
				}
				if c != nil {
					opened++
				}
			}
		}
		if opened == 0 {
			t.Errorf("%s has nothing that is sent", name)
		}
	}
}
