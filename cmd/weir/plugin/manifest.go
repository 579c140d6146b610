package plugin

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/sdk/abi"
)

// ManifestFile is what an author says of a guest, beside its sources.
const ManifestFile = "plugin.yaml"

// manifestSection is the custom section of a module that says the same.
const manifestSection = "weir.manifest"

// Manifest says what a guest is, for those who operate it. In a module it is
// JSON text in the custom section weir.manifest; in plugin.yaml it lacks what
// the module itself shows.
type Manifest struct {
	Name         string          `json:"name"`
	Version      string          `json:"version"`
	Description  string          `json:"description,omitempty"`
	License      string          `json:"license,omitempty"`
	ABI          string          `json:"abi,omitempty"`    // of the module: MAJOR.MINOR
	Hooks        []string        `json:"hooks,omitempty"`  // of the module: those that it subscribes to
	Grants       []string        `json:"grants,omitempty"` // it does not work without
	ConfigSchema json.RawMessage `json:"configSchema,omitempty"`

	OptionalGrants []string `json:"optionalGrants,omitempty"` // it does without, and asks whether it has them
}

// Project is the file plugin.yaml: the manifest, and what trying the guest out
// needs.
type Project struct {
	Manifest
	Language string            `json:"language,omitempty"` // found out when it is empty
	Config   json.RawMessage   `json:"config,omitempty"`   // an example that the guest accepts
	Keys     map[string]string `json:"keys,omitempty"`     // made-up secrets of the grant keys, by name

	Credentials []string `json:"credentials,omitempty"` // names for the grant credentials
	HTTP        []string `json:"http,omitempty"`        // hosts for the grant http
	Tools       []string `json:"tools,omitempty"`       // globs for the grant tools
	Claims      []string `json:"claims,omitempty"`      // JSON pointers for the grant claims
}

var (
	projectName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	grantNames  = []string{abi.GrantRandom, abi.GrantKV, abi.GrantMetrics, abi.GrantKeys, abi.GrantIdentity,
		abi.GrantCredentials, abi.GrantHTTP, abi.GrantTools, abi.GrantEvents, abi.GrantClaims}
)

// maxText bounds a file about a guest, such as its fixtures, in bytes.
const maxText = 64 << 20

// ReadProject reads plugin.yaml of a directory.
func ReadProject(dir string) (*Project, error) {
	file := filepath.Join(dir, ManifestFile)
	text, err := edge.ReadFile(file, maxText)
	if err != nil && isServer(dir) {
		return nil, fmt.Errorf("%s: an MCP server, and no guest: `weir plugin build` compiles it, and `weir run` starts the module", dir)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: `weir plugin new` writes one", file, os.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	var p Project
	d := source.Decode(file, text, &p)
	p.check(d)
	if err := d.Err(); err != nil {
		return nil, err
	}
	return &p, nil
}

// check judges what plugin.yaml says.
func (p *Project) check(d *source.Document) {
	switch {
	case p.Name == "":
		d.Fault("name", "required: give the guest a name, such as admins-only")
	case !projectName.MatchString(p.Name):
		d.Fault("name", "%q: use small letters, digits and -, at most 63", p.Name)
	}
	if p.Version == "" {
		d.Fault("version", "required: such as 0.1.0")
	}
	if p.ABI != "" {
		d.Fault("abi", "the module itself says it: take it out")
	}
	if p.Hooks != nil {
		d.Fault("hooks", "the module itself says them: take them out")
	}
	if _, ok := LanguageNamed(p.Language); p.Language != "" && !ok {
		d.Fault("language", "there is no %q%s", p.Language, meant(p.Language, LanguageNames()))
	}
	if l, ok := LanguageNamed(p.Language); ok && !l.Compiled() && p.OptionalGrants != nil {
		d.Fault("optionalGrants", "of a module alone: a script needs the grant of each function that it calls")
	}
	lists := map[string][]string{abi.GrantCredentials: p.Credentials, abi.GrantHTTP: p.HTTP, abi.GrantTools: p.Tools, abi.GrantClaims: p.Claims}
	for i, g := range p.Grants {
		list, listed := lists[g]
		switch {
		case !slices.Contains(grantNames, g):
			d.Fault(fmt.Sprintf("grants[%d]", i), "there is no %q%s", g, meant(g, grantNames))
		case listed && len(list) == 0:
			d.Fault(fmt.Sprintf("grants[%d]", i), "%s is granted for what is listed: add the list %s beside grants", g, g)
		}
	}
	for i, g := range p.OptionalGrants {
		switch {
		case !slices.Contains(grantNames, g):
			d.Fault(fmt.Sprintf("optionalGrants[%d]", i), "there is no %q%s", g, meant(g, grantNames))
		case slices.Contains(p.Grants, g):
			d.Fault(fmt.Sprintf("optionalGrants[%d]", i), "%s stands in grants, too: the guest works without it, or it does not", g)
		}
	}
	for _, g := range slices.Sorted(maps.Keys(lists)) {
		if len(lists[g]) > 0 && !slices.Contains(p.Grants, g) {
			d.Fault(g, "listed and not granted: name %s in grants, too", g)
		}
	}
	for _, one := range []struct {
		name  string
		value json.RawMessage
	}{{"configSchema", p.ConfigSchema}, {"config", p.Config}} {
		if one.value != nil && (len(one.value) == 0 || one.value[0] != '{') {
			d.Fault(one.name, "want a mapping")
		}
	}
}

// ManifestOf returns what a module says of itself, nil when it says nothing.
func ManifestOf(module []byte) (*Manifest, error) {
	content, err := section(module, manifestSection)
	if content == nil || err != nil {
		return nil, err
	}
	var m Manifest
	if err := json.Unmarshal(content, &m); err != nil {
		return nil, fmt.Errorf("section %s: it is no manifest: `weir plugin pack` writes one", manifestSection)
	}
	return &m, nil
}

// manifestIn returns what the module of a file says of itself, nil when it says nothing.
func manifestIn(file string) (*Manifest, error) {
	module, err := guest.ReadModule(file)
	if err != nil {
		return nil, err
	}
	m, err := ManifestOf(module)
	if err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return m, err
}

// with returns the module with a manifest in the place of any that it had.
func (m *Manifest) with(module []byte) ([]byte, error) {
	var content bytes.Buffer
	e := json.NewEncoder(&content)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		return nil, err
	}
	out := append([]byte{}, module[:header]...)
	err := sections(module, func(name string, whole, _ []byte) {
		if name != manifestSection {
			out = append(out, whole...)
		}
	})
	body := append(binary.AppendUvarint(nil, uint64(len(manifestSection))), manifestSection...)
	body = append(body, bytes.TrimSpace(content.Bytes())...)
	return append(binary.AppendUvarint(append(out, 0), uint64(len(body))), body...), err
}

// header is the length of what every module begins with.
const header = 8

// sections calls each with every section of a module: its name, "" for one that
// is not custom, all its bytes, and the content of a custom one.
func sections(module []byte, each func(name string, whole, content []byte)) error {
	if len(module) < header || string(module[:4]) != "\x00asm" {
		return errors.New("it is no WebAssembly module")
	}
	broken := errors.New("a section of the module ends too early")
	for b := module[header:]; len(b) > 0; {
		n, at, ok := length(b[1:])
		if at++; !ok || n > len(b)-at {
			return broken
		}
		name, content := "", []byte(nil)
		if b[0] == 0 {
			size, from, ok := length(b[at : at+n])
			if !ok || size > n-from {
				return broken
			}
			name = string(b[at+from : at+from+size])
			content = b[at+from+size : at+n]
		}
		each(name, b[:at+n], content)
		b = b[at+n:]
	}
	return nil
}

// section returns the content of a custom section, nil when there is none.
func section(module []byte, name string) (found []byte, err error) {
	err = sections(module, func(n string, _, content []byte) {
		if n == name && found == nil {
			found = append([]byte{}, content...)
		}
	})
	return found, err
}

// length reads a number of at most 31 bits, and how many bytes it takes.
func length(b []byte) (n, size int, ok bool) {
	v, size := binary.Uvarint(b[:min(len(b), 5)])
	return int(v), size, size > 0 && v <= math.MaxInt32
}

// hooksOf are the hooks that a guest subscribes to.
func hooksOf(g guest.Engine) []string {
	var hooks []string
	for _, s := range g.Subscriptions() {
		if name := s.Hook.String(); !slices.Contains(hooks, name) {
			hooks = append(hooks, name)
		}
	}
	return hooks
}
