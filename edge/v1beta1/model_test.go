package v1beta1

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// document is one manifest of testdata as plain JSON values.
type document struct {
	kind, name string // name says which file and which place in it
	value      map[string]any
}

// good returns the manifests of testdata/good, which are all valid and
// together give every field that the kinds have.
func good(t testing.TB) []document {
	t.Helper()
	var out []document
	for _, k := range Kinds() {
		out = append(out, goodOf(t, k.Name)...)
	}
	return out
}

func goodOf(t testing.TB, kind string) []document {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "good", kind+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var out []document
	r := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		part, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		d := document{kind: kind, name: fmt.Sprintf("%s#%d", kind, len(out))}
		asJSON, err := yaml.ToJSON(part)
		if err != nil {
			t.Fatalf("%s: %v", d.name, err)
		}
		d.value = decodeNumbers(t, asJSON).(map[string]any)
		if d.value["kind"] != kind {
			t.Fatalf("%s is a %v", d.name, d.value["kind"])
		}
		out = append(out, d)
	}
}

// one returns the first good manifest of a kind that has path, or the first of
// the kind when path is empty.
func one(t testing.TB, kind, path string) document {
	t.Helper()
	for _, d := range goodOf(t, kind) {
		if path == "" || lookup(d.value, path) != nil {
			return d
		}
	}
	t.Fatalf("no good %s has %s", kind, path)
	return document{}
}

func decodeNumbers(t testing.TB, text []byte) any {
	t.Helper()
	var v any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// object decodes a manifest strictly: a field that the kind does not have is
// an error.
func object(kind string, value any) (Object, error) {
	k, ok := KindNamed(kind)
	if !ok {
		return nil, fmt.Errorf("no kind %s", kind)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	o := k.New()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return o, dec.Decode(o)
}

// judge decodes, completes and checks a manifest.
func judge(t testing.TB, kind string, value any) field.ErrorList {
	t.Helper()
	o, err := object(kind, value)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	o.Default()
	errs := o.Validate()
	note(kind, errs)
	return errs
}

// said are the messages that the tests of this run have provoked, by the kind and
// the field, without the indexes and keys of items.
var said = struct {
	sync.Mutex
	lines map[string]bool
}{lines: map[string]bool{}}

var item = regexp.MustCompile(`\[[^\]]*\]`)

func note(kind string, errs field.ErrorList) {
	said.Lock()
	defer said.Unlock()
	for _, e := range errs {
		said.lines[kind+" "+item.ReplaceAllString(e.Field, "[]")+": "+e.ErrorBody()] = true
	}
}

var update = flag.Bool("update", false, "write the golden file of messages")

// TestMain holds what users read to a golden file, when all tests have run. Each
// line is a message that a test provokes; what a test makes at random is not noted.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.fuzz").Value.String() == "" && !testing.Short() {
		code = compareMessages("testdata/messages.golden")
	}
	os.Exit(code)
}

func compareMessages(golden string) int {
	have := slices.Sorted(maps.Keys(said.lines))
	if *update {
		if err := os.WriteFile(golden, []byte(strings.Join(have, "\n")+"\n"), 0o644); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	text, err := os.ReadFile(golden)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	want := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	wrong := 0
	for _, line := range have {
		if !slices.Contains(want, line) {
			fmt.Println("a new message, or another: ", line)
			wrong = 1
		}
	}
	for _, line := range want {
		if !said.lines[line] {
			fmt.Println("a message that is gone:    ", line)
			wrong = 1
		}
	}
	return wrong
}

// paths returns the fields of errors.
func paths(errs field.ErrorList) []string {
	var out []string
	for _, e := range errs {
		out = append(out, e.Field)
	}
	return out
}

// split takes a path such as spec.steps[0].output.properties[count] apart.
func split(path string) []string {
	var out []string
	for path != "" {
		switch path[0] {
		case '.':
			path = path[1:]
		case '[':
			end := strings.IndexByte(path, ']')
			out = append(out, path[1:end])
			path = path[end+1:]
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			out = append(out, path[:end])
			path = path[end:]
		}
	}
	return out
}

// lookup returns the value at path, nil when there is none.
func lookup(v any, path string) any {
	for _, step := range split(path) {
		switch in := v.(type) {
		case map[string]any:
			v = in[step]
		case []any:
			i, err := index(step, len(in))
			if err != nil {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}

func index(step string, length int) (int, error) {
	var i int
	if _, err := fmt.Sscan(step, &i); err != nil {
		return 0, err
	}
	if i < 0 || i >= length {
		return 0, fmt.Errorf("%d of %d", i, length)
	}
	return i, nil
}

// gone is a value that edit takes away.
type gone struct{}

// edit returns a copy of v in which path has the value to. Objects on the way
// are made; an index equal to the length of a list adds an item.
func edit(v any, path []string, to any) any {
	if len(path) == 0 {
		return to
	}
	switch in := v.(type) {
	case []any:
		out := append([]any(nil), in...)
		i, err := index(path[0], len(in)+1)
		if err != nil {
			panic(err)
		}
		if i == len(out) {
			out = append(out, nil)
		}
		if to == (gone{}) && len(path) == 1 {
			return append(out[:i:i], out[i+1:]...)
		}
		out[i] = edit(out[i], path[1:], to)
		return out
	default:
		m, _ := in.(map[string]any)
		out := make(map[string]any, len(m)+1)
		for k, e := range m {
			out[k] = e
		}
		if to == (gone{}) && len(path) == 1 {
			delete(out, path[0])
		} else {
			out[path[0]] = edit(out[path[0]], path[1:], to)
		}
		return out
	}
}

func TestGoodManifestsAreValid(t *testing.T) {
	for _, d := range good(t) {
		t.Run(d.name, func(t *testing.T) {
			if errs := judge(t, d.kind, d.value); len(errs) > 0 {
				t.Errorf("errors:\n%v", errs.ToAggregate())
			}
		})
	}
}
