package compile_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/source"
)

// TestLacking takes each field of each manifest that is served out, and makes each item of a list
// nothing: whatever is lacking is judged, and is no panic, in its set and alone as a part of one.
// The test calls Compile itself, since source makes an error of a panic.
func TestLacking(t *testing.T) {
	t.Chdir("testdata")
	var names []string
	for _, at := range []string{"*.yaml", "../../../examples/*/weir.yaml"} {
		some, err := filepath.Glob(at)
		if err != nil || len(some) < 5 {
			t.Fatalf("%d files %s, %v", len(some), at, err)
		}
		names = append(names, some...)
	}
	seen, judged := map[string]bool{}, 0
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		documents := strings.Split("\n"+string(text), "\n---\n")
		for i, one := range documents {
			var whole map[string]any
			if err := yaml.Unmarshal([]byte(one), &whole); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			judge := func(at string) {
				changed, err := yaml.Marshal(whole)
				if err != nil {
					t.Fatal(err)
				}
				if seen[string(changed)] {
					return
				}
				seen[string(changed)] = true
				defer func() {
					if why := recover(); why != nil {
						t.Errorf("%s: document %d without %s: %v", name, i+1, at, why)
					}
				}()
				rest := slices.Clone(documents)
				rest[i] = string(changed)
				for _, text := range []string{strings.Join(rest, "\n---\n"), string(changed)} {
					set, _ := source.Read(name, []byte(text))
					for _, how := range how(filepath.Base(name)) {
						how(set)
					}
					set.Part = text == string(changed)
					compile.Compile(set.Set)
					judged++
				}
			}
			lacking("spec", whole["spec"], judge)
		}
	}
	if judged < 2000 {
		t.Errorf("%d sets were judged", judged)
	}
	t.Logf("%d sets", judged)
}

// lacking takes each thing out of a value, has that judged, and puts it back.
func lacking(at string, value any, judge func(at string)) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			one := v[key]
			delete(v, key)
			judge(at + "." + key)
			v[key] = one
			lacking(at+"."+key, one, judge)
		}
	case []any:
		for i, one := range v {
			at := fmt.Sprintf("%s[%d]", at, i)
			v[i] = nil
			judge(at)
			v[i] = one
			lacking(at, one, judge)
		}
	}
}
