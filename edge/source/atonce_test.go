package source_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/source"
)

// breakage is one thing done to an object.
type breakage struct {
	at   string // of what is changed, as messages name it
	do   func(object any)
	kind string
}

// breakages lists what can be done to a value: a member taken out, of another
// type, or one that is no field put in.
func breakages(v any, path string, reach func(any) any) (list []breakage) {
	switch v := v.(type) {
	case map[string]any:
		list = append(list, breakage{path + ".zzz", func(o any) { reach(o).(map[string]any)["zzz"] = 1 }, "unknown"})
		for _, k := range slices.Sorted(maps.Keys(v)) {
			at := strings.TrimPrefix(path+"."+k, ".")
			list = append(list,
				breakage{at, func(o any) { delete(reach(o).(map[string]any), k) }, "out"},
				breakage{at, func(o any) { reach(o).(map[string]any)[k] = []any{[]any{}} }, "type"})
			list = append(list, breakages(v[k], at, func(o any) any { return reach(o).(map[string]any)[k] })...)
		}
	case []any:
		for i := range v {
			list = append(list, breakages(v[i], fmt.Sprintf("%s[%d]", path, i), func(o any) any { return reach(o).([]any)[i] })...)
		}
	}
	return list
}

// Whatever two things are wrong with an object, each is told beside the other as
// it is told alone: nobody corrects one to read of the next. What a value
// decides, such as type, is wrong alone: what depends on it is not judged.
func TestZ24AllAtOnce(t *testing.T) {
	files, err := filepath.Glob("../v1beta1/testdata/good/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	pairs := 0
	for _, file := range files {
		kind := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(kind, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			fresh := func() any {
				var o map[string]any
				if err := yaml.Unmarshal(text, &o); err != nil {
					t.Fatal(err)
				}
				return o
			}
			name := filepath.Join(t.TempDir(), "object.json")
			told := func(all ...breakage) map[string]string {
				o := fresh()
				for _, b := range all {
					b.do(o)
				}
				broken, err := json.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, broken, 0o600); err != nil {
					t.Fatal(err)
				}
				out := map[string]string{}
				for _, f := range source.Open(name).Findings {
					if f.Severity == compile.Error {
						out[f.Path] = f.Message
					}
				}
				return out
			}
			before := told()
			all := slices.DeleteFunc(breakages(fresh(), "", func(o any) any { return o }), func(b breakage) bool {
				return b.at == "kind" || b.at == "apiVersion" || b.at == "spec" || b.at == "metadata"
			})
			alone := make([]map[string]string, len(all))
			for i, b := range all {
				alone[i] = told(b)
				maps.DeleteFunc(alone[i], func(path, _ string) bool { return before[path] != "" })
			}
			r := rand.New(rand.NewPCG(24, 24))
			for range 400 {
				i, j := r.IntN(len(all)), r.IntN(len(all))
				a, b := all[i], all[j]
				if strings.HasPrefix(a.at, b.at) || strings.HasPrefix(b.at, a.at) {
					continue
				}
				both := told(a, b)
				pairs++
				for path, message := range alone[i] {
					if !said(both, path) && !strings.HasPrefix(path, b.at) && !decides(b) {
						t.Errorf("%s %s hides %s: %s (%s %s)", b.kind, b.at, path, message, a.kind, a.at)
					}
				}
			}
		})
	}
	if pairs < 2_000 {
		t.Errorf("%d pairs", pairs)
	}
}

// said reports whether something is said of the field at path, or of a section
// that it stands in: that it is missing, or that it cannot be read.
func said(messages map[string]string, path string) bool {
	for at := range messages {
		if rest, ok := strings.CutPrefix(path, at); ok && at != "" && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

// decides reports whether what is broken decides what else is judged.
func decides(b breakage) bool {
	for _, name := range []string{"type", "provider", "enabled"} {
		if strings.HasSuffix(b.at, "."+name) {
			return true
		}
	}
	return false
}
