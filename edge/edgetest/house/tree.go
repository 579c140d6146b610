package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// listed is what the go command says of a package.
type listed struct {
	ImportPath     string
	Dir            string
	Export         string
	GoFiles        []string
	CgoFiles       []string
	IgnoredGoFiles []string // those of other systems, and of tests on them
	TestGoFiles    []string
	XTestGoFiles   []string
	Imports        []string
	Module         *struct{ Path string }
}

// room is a package and what was measured of it.
type room struct {
	path, group  string   // path is below the module's
	imports      []string // paths of the module's packages
	code, tests  int      // lines
	inits, mocks int
	faces, types []kind
	order        []string // files, the upper ones first
	arrows       int
	up           []arrow
}

// kind is an interface, or another declared type.
type kind struct {
	name            string
	fields, methods int
}

// house is a module as measured.
type house struct {
	rooms []*room
	chain []string
}

// measure measures the module that dir is in.
func measure(dir string, groups []group) (*house, error) {
	all, err := list(dir, "./...")
	if err != nil {
		return nil, err
	}
	h, product := &house{}, []string{}
	for _, p := range all {
		r := &room{path: strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")}
		if r.group = groupOf(groups, r.path); r.group == "" {
			return nil, fmt.Errorf("%s is of no group: add it to groups in edge/edgetest/house/limits.go", r.path)
		}
		for _, i := range p.Imports {
			if below, ours := strings.CutPrefix(i, p.Module.Path+"/"); ours {
				r.imports = append(r.imports, below)
			}
		}
		if err := r.count(p); err != nil {
			return nil, err
		}
		h.rooms = append(h.rooms, r)
		if r.product() && len(p.GoFiles) > 0 {
			product = append(product, p.ImportPath)
		}
	}
	if err := h.check(dir, all, product); err != nil {
		return nil, err
	}
	h.chain = longest(h.product())
	return h, nil
}

func (r *room) tool() bool    { return r.group == tools }
func (r *room) product() bool { return !r.tool() && r.code > 0 }

func (h *house) product() []*room {
	return slices.DeleteFunc(slices.Clone(h.rooms), func(r *room) bool { return !r.product() })
}

// list asks the go command for packages, as they are on linux/amd64.
func list(dir string, args ...string) ([]listed, error) {
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Export,GoFiles,CgoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles,Imports,Module"}, args...)...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, p)
	}
}

// check reads the packages of the product with their types. What they import
// comes from the compiler's export data.
func (h *house) check(dir string, all []listed, product []string) error {
	if len(product) == 0 {
		return nil
	}
	deps, err := list(dir, append([]string{"-export", "-deps"}, product...)...)
	if err != nil {
		return err
	}
	exports := map[string]string{}
	for _, d := range deps {
		exports[d.ImportPath] = d.Export
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for i, p := range all {
		if !slices.Contains(product, p.ImportPath) {
			continue
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			files = append(files, file)
		}
		info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
		config := types.Config{Importer: imports, Sizes: types.SizesFor("gc", "amd64")}
		pkg, err := config.Check(p.ImportPath, fset, files, info)
		if err != nil {
			return err
		}
		h.rooms[i].declared(pkg)
		h.rooms[i].link(fset, files, pkg, info)
	}
	return nil
}

// declared notes the types of a package.
func (r *room) declared(pkg *types.Package) {
	for _, name := range pkg.Scope().Names() {
		declared, is := pkg.Scope().Lookup(name).(*types.TypeName)
		if !is || declared.IsAlias() {
			continue
		}
		named := declared.Type().(*types.Named)
		k := kind{name: name, methods: named.NumMethods()}
		switch u := named.Underlying().(type) {
		case *types.Interface:
			if k.methods = u.NumExplicitMethods(); u.NumMethods() > 0 {
				r.faces = append(r.faces, k)
			}
			continue
		case *types.Struct:
			k.fields = u.NumFields()
		}
		r.types = append(r.types, k)
	}
}

// longest is the longest chain of imports; of several, the first by name.
func longest(rooms []*room) []string {
	byPath := map[string]*room{}
	for _, r := range rooms {
		byPath[r.path] = r
	}
	known := map[string][]string{}
	var from func(r *room) []string
	from = func(r *room) []string {
		if chain, is := known[r.path]; is {
			return chain
		}
		var below []string
		for _, i := range slices.Sorted(slices.Values(r.imports)) {
			if next := byPath[i]; next != nil {
				if chain := from(next); len(chain) > len(below) {
					below = chain
				}
			}
		}
		known[r.path] = append([]string{r.path}, below...)
		return known[r.path]
	}
	var chain []string
	for _, r := range rooms {
		if c := from(r); len(c) > len(chain) {
			chain = c
		}
	}
	return chain
}
