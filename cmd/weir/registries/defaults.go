package registries

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/local"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/registry"
	"github.com/weir-edge/weir/edge/workload"
)

// The file of a user's defaults, workloads.yaml. What a command changes in it is one part of
// it; the rest stays as its user wrote it.

// defaultsFile is the file of the user's defaults.
func defaultsFile(p workload.Paths) string { return filepath.Join(p.Config, local.DefaultsName) }

// registryPart is the part about the registry.
type registryPart struct {
	Source       string `json:"source"`
	AllowPrivate bool   `json:"allowPrivate,omitempty"`
}

// Chosen is the registry that the user has set, or else the default one, and whether it was
// set. A relative path is below the directory of the file.
func Chosen(p workload.Paths) (source registry.Source, set bool, err error) {
	all, err := local.ReadDefaults(defaultsFile(p))
	if err != nil {
		return source, false, &workload.Error{Code: workload.CodeFault, Message: err.Error()}
	}
	if all.Registry == nil {
		source, err = registry.ParseSource(registry.Default, "")
		return source, false, err
	}
	if source, err = registry.ParseSource(all.Registry.Source, p.Config); err != nil {
		return source, true, &workload.Error{Code: workload.CodeFault, Field: "registry.source", Message: defaultsFile(p) + ": registry.source: " + err.Error(), Next: "weir registry set SOURCE"}
	}
	source.AllowPrivate = all.Registry.AllowPrivate
	return source, true, nil
}

// choose keeps the choice of a registry; nil is for the default one.
func choose(p workload.Paths, source *registry.Source) error {
	if err := os.MkdirAll(p.Config, 0o700); err != nil {
		return err
	}
	lock, err := edge.LockFile(filepath.Join(p.Config, ".workloads.lock"))
	if errors.Is(err, edge.ErrHeld) {
		return &workload.Error{Code: workload.CodeFault, Message: defaultsFile(p) + " is being changed by another process", Next: "try again"}
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	path := defaultsFile(p)
	if at, err := filepath.EvalSymlinks(path); err == nil {
		path = at // a link stays one
	}
	old, err := local.ReadDefaultsText(path)
	if err != nil {
		return err
	}
	var part []byte
	if source != nil {
		if part, err = yaml.Marshal(map[string]registryPart{"registry": {source.At, source.AllowPrivate}}); err != nil {
			return err
		}
	}
	made, err := withPart(old, "registry", part)
	if err != nil {
		return &workload.Error{Code: workload.CodeFault, Message: path + ": " + strings.ReplaceAll(err.Error(), "\n", " "), Next: "write it by hand"}
	}
	return cli.WriteFile(path, made, 0o600)
}

// withPart replaces a part of a YAML mapping, by the lines that it stands on, or adds it at
// the end; without a part it is taken out.
func withPart(text []byte, name string, part []byte) ([]byte, error) {
	var was, is, wanted map[string]any
	if err := errors.Join(yaml.Unmarshal(text, &was), yaml.Unmarshal(part, &wanted)); err != nil {
		return nil, err
	}
	var made bytes.Buffer
	inside, done := false, false
	var blank []byte // lines that may be of the part
	for line := range bytes.Lines(text) {
		first := bytes.TrimLeft(line, " \t\r\n")
		switch {
		case bytes.HasPrefix(line, []byte(name+":")):
			if !done {
				made.Write(part)
			}
			inside, done = true, true
			continue
		case inside && len(first) == 0:
			blank = append(blank, line...)
			continue
		case inside && (line[0] == ' ' || line[0] == '\t'):
			blank = nil
			continue // of the part
		}
		inside = false
		made.Write(blank)
		made.Write(line)
		blank = nil
	}
	made.Write(blank)
	if !done && len(part) > 0 {
		if made.Len() > 0 && !bytes.HasSuffix(made.Bytes(), []byte("\n")) {
			made.WriteByte('\n')
		}
		made.Write(part)
	}
	// Nothing else may have changed, however the file is written.
	if err := yaml.Unmarshal(made.Bytes(), &is); err != nil {
		return nil, fmt.Errorf("%s cannot be changed in it", name)
	}
	delete(was, name)
	if maps.Copy(orEmpty(&was), wanted); !reflect.DeepEqual(orEmpty(&is), was) {
		return nil, fmt.Errorf("%s cannot be changed in it", name)
	}
	return made.Bytes(), nil
}

// orEmpty is a map that can be written to.
func orEmpty(m *map[string]any) map[string]any {
	if *m == nil {
		*m = map[string]any{}
	}
	return *m
}
