package plugin

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	weir "github.com/weir-edge/weir/sdk"
)

//go:embed all:templates
var templates embed.FS

// lay says which files of the SDK a language's projects get, and where.
// A pattern without a match is a mistake that tests find.
var lay = map[string][]struct{ from, to string }{
	"go":             {{"*.go", "weir/sdk"}, {"abi/*.go", "weir/sdk/abi"}, {"weirtest/*.go", "weir/sdk/weirtest"}},
	"assemblyscript": {{"assemblyscript/assembly/*.ts", "weir"}, {"assemblyscript/package-lock.json", "."}},
	"rust":           {{"rust/Cargo.toml", "weir"}, {"rust/src/*.rs", "weir/src"}},
	"c":              {{"c/weir.h", "weir"}},

	"server-go":   {{"server/*.go", "weir/sdk/server"}, {"abi/*.go", "weir/sdk/abi"}},
	"server-rust": {{"rust/Cargo.toml", "weir"}, {"rust/src/*.rs", "weir/src"}},
}

// New makes a directory with a guest that works: its sources, fixtures and
// manifest, and the SDK. It returns the files that it made, and never writes
// over one.
func New(dir, name string, l Language) ([]string, error) {
	return layOut(dir, name, l.Name, "common", l.Name)
}

// layOut makes a directory of templates, the later ones over the earlier, with what lay says
// of the last.
func layOut(dir, name, language string, from ...string) ([]string, error) {
	if !projectName.MatchString(name) {
		return nil, fmt.Errorf("%q: use small letters, digits and -, at most 63, for the name of a guest", name)
	}
	if language == "rust" && (name[0] <= '9' || name == "weir") {
		return nil, fmt.Errorf("%q: a crate begins with a letter, and is not called as the SDK: choose another name", name)
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("%s: there are files in it: name a directory that is new or empty", dir)
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	files := map[string][]byte{}
	var order []string
	put := func(to string, text []byte) {
		if _, there := files[to]; !there {
			order = append(order, to)
		}
		files[to] = text
	}
	// 1. What all languages have in common, then what is the language's own.
	for _, from := range from {
		from = "templates/" + from
		err := fs.WalkDir(templates, from, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := templates.ReadFile(file)
			if err != nil {
				return err
			}
			swap := strings.NewReplacer("NAME", name, "LANGUAGE", language)
			put(swap.Replace(strings.TrimSuffix(strings.TrimPrefix(file, from+"/"), ".txt")), []byte(swap.Replace(string(text))))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	// 2. The SDK.
	for _, s := range lay[from[len(from)-1]] {
		found, err := fs.Glob(weir.Sources, s.from)
		if err != nil || len(found) == 0 {
			return nil, errors.Join(err, fmt.Errorf("the SDK has no files %s", s.from))
		}
		for _, file := range found {
			base := path.Base(file)
			if strings.HasSuffix(base, "_test.go") || file == "sources.go" {
				continue
			}
			text, err := weir.Sources.ReadFile(file)
			if err != nil {
				return nil, err
			}
			put(path.Join(s.to, base), text)
		}
	}
	for _, to := range order {
		at := filepath.Join(dir, filepath.FromSlash(to))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(at, files[to], 0o644); err != nil {
			return nil, err
		}
	}
	return order, nil
}
