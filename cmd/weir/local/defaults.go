package local

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/container"
	"github.com/weir-edge/weir/edge/near"
	"github.com/weir-edge/weir/edge/runner"
	"github.com/weir-edge/weir/edge/workload"
)

// DefaultsName is the file of the user's defaults, in the directory of the configuration.
const DefaultsName = "workloads.yaml"

// maxDefaults bounds it, in bytes.
const maxDefaults = 1 << 20

// Defaults are what counts for a user's workloads where neither a flag nor a variable says
// otherwise. The zero value says nothing.
type Defaults struct {
	Engine   string         `json:"engine"`  // where the container engine is, as $WEIR_ENGINE says it
	Link     container.Link `json:"link"`    // how containers are linked
	Sandbox  sandboxWord    `json:"sandbox"` // what processes of this machine run in, as --sandbox says it
	Registry *struct {
		Source       string `json:"source"`
		AllowPrivate bool   `json:"allowPrivate"`
	} `json:"registry"`
	Secrets struct {
		Provider  string `json:"provider"`
		Directory string `json:"directory"`
	} `json:"secrets"`
	Ports         portRange         `json:"ports"`         // of doors without a --proxy-port
	RuntimeImages map[string]string `json:"runtimeImages"` // bases of images that are built: of npx, uvx and go
}

// portRange is FIRST-LAST; the zero value for the usual one.
type portRange struct{ first, last int }

// UnmarshalJSON reads a text such as 30000-30999.
func (r *portRange) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("ports: %w", errPorts)
	}
	first, last, _ := strings.Cut(s, "-")
	var bad [2]error
	r.first, bad[0] = strconv.Atoi(first)
	r.last, bad[1] = strconv.Atoi(last)
	if errors.Join(bad[:]...) != nil || r.first < 1 || r.last > 65535 || r.first > r.last {
		return fmt.Errorf("ports: %q: %w", edge.Brief(s), errPorts)
	}
	return nil
}

var errPorts = errors.New("write FIRST-LAST, such as 30000-30999, within 1-65535")

// sandboxWord is a word of --sandbox. YAML 1.1 takes off for false.
type sandboxWord string

// UnmarshalJSON reads a word, or false.
func (w *sandboxWord) UnmarshalJSON(text []byte) error {
	if string(text) == "false" {
		*w = "off"
		return nil
	}
	return json.Unmarshal(text, (*string)(w))
}

// namesOfDefaults are all that the file may say.
var namesOfDefaults = []string{"engine", "link", "sandbox", "registry", "source", "allowPrivate", "secrets", "provider", "directory", "ports", "runtimeImages"}

// ReadDefaults reads the file of a user's defaults; one that is not there says nothing. What it
// does not know is an error with its name, since it would not hold.
func ReadDefaults(path string) (d Defaults, err error) {
	text, err := ReadDefaultsText(path)
	if err != nil {
		return d, err
	}
	if text, err = yaml.YAMLToJSONStrict(text); err == nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(&d)
	}
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return d, d.check(path)
	case errors.As(err, &wrong): // which speaks of types of Go, and not of the field of a sandboxWord
		return d, fmt.Errorf("%s: %s: a value of another type belongs here", path, edge.Brief(cmp.Or(wrong.Field, "sandbox")))
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok { // in quotes
		name = strings.Trim(name, `"`)
		_, hint := near.Hint(name, namesOfDefaults)
		if hint != "" {
			hint = ": " + hint
		}
		return d, fmt.Errorf("%s: %s: there is no such default%s", path, edge.Brief(name), hint)
	}
	return d, fmt.Errorf("%s: %s", path, edge.Clean(strings.ReplaceAll(err.Error(), "\n", " ")))
}

// ReadDefaultsText is the text of the file; nil for one that is not there.
func ReadDefaultsText(path string) ([]byte, error) {
	text, err := edge.ReadFile(path, maxDefaults)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// check says which value is none.
func (d *Defaults) check(path string) error {
	switch d.Link {
	case "", container.LinkAuto, container.LinkSocket, container.LinkAttach:
	default:
		return fmt.Errorf("%s: link: %q: write auto, socket or attach", path, edge.Brief(string(d.Link)))
	}
	switch d.Sandbox {
	case "", "auto", "bwrap", "landlock", "off":
	default:
		return fmt.Errorf("%s: sandbox: %q: write auto, bwrap, landlock or off", path, edge.Brief(string(d.Sandbox)))
	}
	for _, scheme := range slices.Sorted(maps.Keys(d.RuntimeImages)) {
		if !slices.Contains([]string{runner.SchemeNPX, runner.SchemeUVX, runner.SchemeGo}, scheme) {
			return fmt.Errorf("%s: runtimeImages: %s: write npx, uvx or go", path, edge.Brief(scheme))
		}
		if err := runner.CheckBase(d.RuntimeImages[scheme], nil); err != nil {
			return fmt.Errorf("%s: runtimeImages: %s: %s", path, scheme, err)
		}
	}
	return nil
}

// RuntimeImage is the base of the image that is built for a server such as npx://PACKAGE; ""
// for the usual one.
func (d *Defaults) RuntimeImage(server string) string {
	scheme, _, ok := strings.Cut(server, "://")
	if !ok {
		return ""
	}
	return d.RuntimeImages[scheme]
}

// Ports are the ports of doors without a given one; see workload.KeeperOptions. The file is read
// each time, so that a manager need not start again.
func Ports(paths workload.Paths) func() (first, last int, err error) {
	return func() (first, last int, err error) {
		d, err := ReadDefaults(filepath.Join(paths.Config, DefaultsName))
		return d.Ports.first, d.Ports.last, err
	}
}

// OfUser are the defaults in the directory of a user's configuration.
func OfUser(paths func() (workload.Paths, error)) (Defaults, error) {
	p, err := paths()
	if err != nil {
		return Defaults{}, err
	}
	return ReadDefaults(filepath.Join(p.Config, DefaultsName))
}

// Engine finds the container engine: that of a variable, of the user's defaults, or a usual one.
func Engine(ctx context.Context, paths func() (workload.Paths, error), lookup func(string) (string, bool)) (*container.Engine, error) {
	d, err := OfUser(paths)
	if err != nil {
		return nil, err
	}
	return container.Find(ctx, d.Lookup(lookup))
}

// Lookup is lookup, a search for variables, that knows the engine of the defaults.
func (d *Defaults) Lookup(lookup func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if name == container.DefaultEngine {
			return d.Engine, d.Engine != ""
		}
		return lookup(name)
	}
}
