package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/weir-edge/weir/filters/guest/starlark"
	"github.com/weir-edge/weir/wasm"
)

// script returns the compiled text of a filter of type starlark.
func (k *Cache) script(s *Spec, l Loaded) (*starlark.Program, error) {
	text := l.binary
	if text == nil {
		var err error
		if text, err = k.fetch(s); err != nil {
			return nil, fmt.Errorf("source: %w", err)
		}
	}
	script, err := starlark.Compile(s.file(), text)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	if faults := s.scriptMisfits(script); len(faults) > 0 {
		return nil, faults[0]
	}
	return script, nil
}

// file is what stands for a script in its errors: the name of its file, or that of the filter.
func (s *Spec) file() string {
	if s.Path != "" {
		return filepath.Base(s.Path)
	}
	return s.Name + ".star"
}

// startWithin bounds the start of a script, in which it runs its text once.
const startWithin = 10 * time.Second

// openScript runs the text of a script once.
func (s *Spec) openScript(script *starlark.Program, b wasm.Binding) (Engine, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	g, err := script.Open(ctx, starlark.Options{Binding: b, Conforms: s.conforms})
	if err != nil {
		return nil, err // not a *starlark.Guest that is nil
	}
	return g, nil
}

// conforms checks the configuration against a schema that a script declares.
func (s *Spec) conforms(schema []byte) error { return ConfigConforms(schema, s.Config) }

// ConfigConforms checks a configuration, JSON text of an object or "" for none, against the
// JSON text of a schema.
func ConfigConforms(schema []byte, config string) error {
	text, err := json.Marshal(struct {
		ConfigSchema json.RawMessage `json:"configSchema"`
	}{schema})
	if err != nil {
		return errors.New("the schema is not JSON")
	}
	return conformsTo("script", text, config)
}

// scriptFaults lists what is wrong with a script: all that its text shows, or, where that is
// well-formed, what it shows when it runs once, in which it asks nobody for anything.
func (s *Spec) scriptFaults(text []byte) []fault {
	script, err := starlark.Compile(s.file(), text)
	if err != nil {
		return scriptFaults(err)
	}
	all := s.scriptMisfits(script)
	if len(all) > 0 {
		return all
	}
	b := wasm.Binding{Name: s.Name, Grants: s.Grants}
	if s.Config != "" {
		b.Config = []byte(s.Config)
	}
	g, err := s.openScript(script, b)
	if err != nil {
		return scriptFaults(err)
	}
	defer g.Close()
	p := program{spec: s, guest: g}
	if err := p.subscribe(); err != nil {
		return []fault{{"source", s.file() + ": " + err.Error()}}
	}
	return nil
}

func scriptFaults(err error) []fault {
	var list starlark.Faults
	if !errors.As(err, &list) {
		return []fault{{"source", err.Error()}}
	}
	var all []fault
	for _, f := range list {
		at := "source"
		if f.Config {
			at = "config"
		}
		all = append(all, fault{at, f.Error()})
	}
	return all
}

// scriptMisfits lists where a filter and its script disagree.
func (s *Spec) scriptMisfits(script *starlark.Program) []fault {
	var all []fault
	if s.SHA256 != "" && s.SHA256 != script.Digest {
		all = append(all, fault{"sha256", fmt.Sprintf("the script's digest is %s: use the script that is meant, or correct the digest", script.Digest)})
	}
	var said []string
	for _, n := range script.Needs {
		if !s.granted(n.Grant) && !slices.Contains(said, n.Grant) {
			said = append(said, n.Grant)
			all = append(all, fault{"grants", fmt.Sprintf("the script calls %s: grant %s, or do without it", n.Function, n.Grant)})
		}
	}
	return all
}
