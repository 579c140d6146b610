package registry

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

func TestMain(m *testing.M) { edgetest.Main(m) }

// risky stands for the sandbox's rule.
func risky(name string) bool { return name == "NODE_OPTIONS" || strings.HasPrefix(name, "LD_") }

var rules = Rules{Risky: risky, Source: Source{At: "https://registry.example.com"}}

// file is a file of testdata.
func file(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// entries reads a text of any format.
func entries(t *testing.T, text string) map[string]*Entry {
	t.Helper()
	d, err := read([]byte(text))
	if err != nil {
		t.Fatalf("%v\n%.300s", err, text)
	}
	all := map[string]*Entry{}
	for _, one := range d.servers {
		e, err := parse(one)
		if err != nil {
			t.Fatalf("%v\n%.300s", err, one)
		}
		all[e.Name] = e
	}
	return all
}

// entryOf is an entry a.example/x with a package, or other members.
func entryOf(t *testing.T, members string) *Entry {
	t.Helper()
	return entries(t, `{"name":"a.example/x","description":"x","version":"1.0.0",`+members+`}`)["a.example/x"]
}

// npm is a package of npm with more members.
func npm(more string) string {
	return `"packages":[{"registryType":"npm","identifier":"x-mcp","version":"1.0.0","transport":{"type":"stdio"}` + more + `}]`
}

// said is an error with its kind and what to do, for tables.
func said(err error) string {
	e := new(Error)
	if !errors.As(err, &e) {
		return fmt.Sprint(err)
	}
	return fmt.Sprintf("%d %s", e.Kind, e)
}
