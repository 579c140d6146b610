package main

import (
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// What people write who begin with policies.
func TestZ20Mistakes(t *testing.T) { mistakes(t, "policies", nil) }

// What people write who know another proxy, and what one error hid of the next.
func TestZ24Mistakes(t *testing.T) { mistakes(t, "words", nil) }

// A kind's schema is printed by each of its names, and completion offers them.
func TestZ24ShortNames(t *testing.T) {
	said := func(args ...string) (string, int) {
		var out strings.Builder
		a := &app{in: strings.NewReader(""), out: &out, err: &out, exit: func(int) {}}
		code := a.run(args)
		return out.String(), code
	}
	names := map[string]string{}
	for _, k := range v1beta1.Kinds() {
		whole, code := said("schema", k.Name)
		if code != 0 || !strings.Contains(whole, `"title": "`+k.Name+`"`) {
			t.Fatalf("%s: %d", k.Name, code)
		}
		for _, name := range append([]string{strings.ToLower(k.Name), k.Plural}, k.ShortNames...) {
			if other := names[name]; other != "" && other != k.Name {
				t.Errorf("%s is %s and %s", name, other, k.Name)
			}
			names[name] = k.Name
			if text, code := said("schema", name); code != 0 || text != whole {
				t.Errorf("schema %s: %d, %.80s", name, code, text)
			}
		}
		for _, short := range k.ShortNames {
			if text, _ := said("__complete", "schema", short[:1]); !strings.Contains(text, short+"\t"+k.Name+"\n") {
				t.Errorf("completion of %s has no %s: %s", short[:1], short, text)
			}
		}
	}
}
