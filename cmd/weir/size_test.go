package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest/program"
)

// TestSize holds the program of a release to its size, and the linker to
// leaving out methods that nobody calls: it keeps every exported one when a
// function is linked that finds methods by names which are not known before.
func TestSize(t *testing.T) {
	root, err := program.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "weir")
	said, err := program.Release(t.Context(), root, file, "-dumpdep").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %.2000s", err, said)
	}
	if !strings.Contains(string(said), "main.main -> ") {
		t.Fatalf("the linker did not say what depends on what: %.2000s", said)
	}
	for _, f := range byName(string(said)) {
		t.Errorf("%s finds methods by name, and is linked: go build -tags %s -ldflags=-dumpdep ./cmd/weir says by whom", f, program.Tags)
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return // other systems have other sizes
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > program.MaxSize {
		t.Errorf("the program has %d bytes, and the limit is %d", info.Size(), program.MaxSize)
	}
}

// byName are the functions that find methods by name, in what the linker says
// with -dumpdep: lines of "FROM -> TO", with marks behind the names.
func byName(said string) []string {
	var all []string
	for line := range strings.Lines(said) {
		from, _, _ := strings.Cut(line, " -> ")
		if name, is := strings.CutSuffix(from, " <ReflectMethod>"); is && (len(all) == 0 || all[len(all)-1] != name) {
			all = append(all, name)
		}
	}
	return all
}

func TestByName(t *testing.T) {
	const said = "main.main -> a.B\na.B <ReflectMethod> -> reflect.Value.MethodByName\na.B <ReflectMethod> -> c.D\nc.D -> a.B <ReflectMethod>\n"
	if got := byName(said); len(got) != 1 || got[0] != "a.B" {
		t.Errorf("%q", got)
	}
}
