package catalog_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
)

var update = flag.Bool("update", false, "write the golden files")

// scene is what a NAME.yaml of testdata holds.
type scene struct {
	Bare        bool                                 `json:"bare"`
	Aggregation *v1beta1.Aggregation                 `json:"aggregation"`
	ToolConfigs map[string]v1beta1.MCPToolConfigSpec `json:"toolConfigs"`
	Own         []any                                `json:"own"`
	Backends    []struct {
		Name         string                     `json:"name"`
		Config       *v1beta1.MCPToolConfigSpec `json:"config"` // of the backend's own object
		Capabilities any                        `json:"capabilities"`
		Tools        []any                      `json:"tools"` // a name, JSON text or an object
		Count        int                        `json:"count"` // of further tools, t00000 and so on
		Prompts      []any                      `json:"prompts"`
		Resources    []any                      `json:"resources"`
		Templates    []any                      `json:"templates"`
		Down         bool                       `json:"down"`
		TTL          int                        `json:"ttlMs"`
		Public       bool                       `json:"public"`
	} `json:"backends"`
	Read  []string `json:"read"`  // URIs to look up
	Whole []string `json:"whole"` // tools to look up as workflows do
}

// Each NAME.yaml gives NAME.golden: what is wrong with the rules, what clients
// see and where it leads, and what was found.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Errorf("%d pairs, want 20 or more", len(files))
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var s scene
			if err := yaml.UnmarshalStrict(text, &s); err != nil {
				t.Fatal(err)
			}
			got := s.play(t)
			golden := strings.TrimSuffix(name, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func (s *scene) play(t *testing.T) []byte {
	rules, wrong := s.rules()
	var out bytes.Buffer
	for _, e := range wrong {
		fmt.Fprintf(&out, "wrong: %v\n", e)
	}
	c := catalog.Build(rules, s.offers(t))
	for _, thing := range []edge.Thing{edge.Tool, edge.Prompt, edge.Resource, edge.Template} {
		heading := []string{"", "tools", "prompts", "resources", "templates"}[thing]
		n := 0
		for target, raw := range c.Items(thing) {
			if n == 0 {
				fmt.Fprintf(&out, "# %s\n", heading)
			}
			if n++; n > 12 {
				continue
			}
			fmt.Fprintf(&out, "%s -> %s.%s%s\n    %s\n", target.Name, target.Backend, target.Original, hints(target), raw)
		}
		if n > 12 {
			fmt.Fprintf(&out, "and %d more\n", n-12)
		}
	}
	if len(s.Whole) > 0 {
		out.WriteString("# whole\n")
		for _, name := range s.Whole {
			if target := c.LookupWhole(name); target != nil {
				fmt.Fprintf(&out, "%s -> %s.%s known as %s%s\n", name, target.Backend, target.Original, target.Name, hints(target))
			} else {
				fmt.Fprintf(&out, "%s -> nothing\n", name)
			}
		}
	}
	if len(s.Read) > 0 {
		out.WriteString("# read\n")
		for _, uri := range s.Read {
			if target := c.Resource(uri); target != nil {
				fmt.Fprintf(&out, "%s -> %s\n", uri, target.Backend)
			} else {
				fmt.Fprintf(&out, "%s -> nothing\n", uri)
			}
		}
	}
	fmt.Fprintf(&out, "# capabilities\n%s\n", c.Capabilities())
	if n := len(c.Report().Findings); n > 0 {
		out.WriteString("# findings\n")
		for i, f := range c.Report().Findings {
			if i == 40 {
				fmt.Fprintf(&out, "and %d more\n", n-40+c.Report().More)
				break
			}
			if f.Reason.Withheld() {
				out.WriteString("withheld, ")
			}
			fmt.Fprintf(&out, "%s\n", f)
		}
	}
	out.WriteString("# lists\n")
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		text, err := c.List(edge.Tool, era, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := mcp.Valid(text); err != nil {
			t.Fatal(err)
		}
		if len(text) > 2000 {
			text = append(append([]byte(nil), text[:200]...), "..."+string(text[len(text)-100:])...)
		}
		fmt.Fprintf(&out, "%s: %s\n", era, text)
	}
	return out.Bytes()
}

func (s *scene) rules() (*catalog.Rules, field.ErrorList) {
	if s.Bare {
		return catalog.Bare(), nil
	}
	var backends []catalog.Backend
	for _, b := range s.Backends {
		backends = append(backends, catalog.Backend{Name: b.Name, Tools: b.Config})
	}
	configs := map[string]*v1beta1.MCPToolConfig{}
	for name, spec := range s.ToolConfigs {
		configs[name] = &v1beta1.MCPToolConfig{Spec: spec}
	}
	return catalog.Parse(field.NewPath("spec", "config", "aggregation"), s.Aggregation, backends, configs)
}

func (s *scene) offers(t testing.TB) []catalog.Offer {
	var offers []catalog.Offer
	for _, b := range s.Backends {
		list := func(member, need string, items []any) *catalog.List {
			l := &catalog.List{Down: b.Down, TTL: time.Duration(b.TTL) * time.Millisecond, Public: b.Public}
			for _, i := range items {
				l.Items = append(l.Items, itemOf(t, member, i))
				if last := &l.Items[len(l.Items)-1]; mcp.Valid(*last) == nil && (*last)[0] == '{' {
					*last = must(*last, need)
				}
			}
			return l
		}
		for i := range b.Count {
			b.Tools = append(b.Tools, fmt.Sprintf("t%05d", i))
		}
		caps, err := json.Marshal(b.Capabilities)
		if err != nil {
			t.Fatal(err)
		}
		offers = append(offers, catalog.Offer{
			Backend: b.Name, Capabilities: caps,
			Tools: list("name", "inputSchema", b.Tools), Prompts: list("name", "", b.Prompts),
			Resources: list("uri", "name", b.Resources), Templates: list("uriTemplate", "name", b.Templates),
		})
	}
	if s.Own != nil {
		own := &catalog.List{}
		for _, i := range s.Own {
			own.Items = append(own.Items, itemOf(t, "name", i))
		}
		offers = append(offers, catalog.Offer{Tools: own})
	}
	return offers
}

// must gives an item what clients want of it that its scene does not say.
func must(item []byte, need string) []byte {
	if need == "" || mcp.Lookup(item, need) != nil {
		return item
	}
	value := map[string]string{"inputSchema": `{"type":"object"}`, "name": `"n"`}[need]
	return append(bytes.TrimRight(item[:bytes.LastIndexByte(item, '}'):bytes.LastIndexByte(item, '}')], " "), `,"`+need+`":`+value+`}`...)
}

// itemOf makes an item of its name, of JSON text, or of an object.
func itemOf(t testing.TB, member string, from any) []byte {
	if text, ok := from.(string); ok {
		if strings.HasPrefix(strings.TrimSpace(text), "{") {
			return []byte(text)
		}
		return mcp.Change(nil, nil, mcp.Raw(member, mcp.Quote(text)))
	}
	text, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func hints(t *edge.Target) string {
	var out string
	for _, h := range []struct {
		name string
		is   *bool
	}{{"readOnly", t.ReadOnly}, {"destructive", t.Destructive}, {"idempotent", t.Idempotent}, {"openWorld", t.OpenWorld}} {
		if h.is != nil {
			out += fmt.Sprintf(" %s=%v", h.name, *h.is)
		}
	}
	return out
}
