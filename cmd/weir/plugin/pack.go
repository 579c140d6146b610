package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/sdk/abi"
)

// Packed is a module with its manifest, or a script.
type Packed struct {
	Module   []byte // or the text of the script
	Manifest *Manifest
	Digest   string // SHA-256, in hexadecimal

	script bool
}

// Pack puts the manifest of a project into its module. The module is started
// with the project's configuration and grants first: what does not start is
// not packed. A script stays as it is.
func Pack(ctx context.Context, p *Project, file, cache string) (*Packed, error) {
	binary, err := guest.ReadModule(file)
	if err != nil {
		return nil, err
	}
	m, err := Load(ctx, file, cache)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	for _, g := range m.grants() {
		if !slices.Contains(p.Grants, g) && !slices.Contains(p.OptionalGrants, g) {
			return nil, fmt.Errorf("the %s asks for what needs the grant %s: name it in grants of %s, or in optionalGrants if the guest works without it", m.kind(), g, ManifestFile)
		}
	}
	store := kv.Memory(kv.Limits{})
	defer store.Close()
	b := Lenient(p.Name, p.Config, store)
	b.Grants, b.Optional = p.Grants, p.OptionalGrants
	for name, secret := range p.Keys {
		b.Keys[name] = edge.Secret(secret)
	}
	g, err := m.open(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("with config and grants of %s: %w", ManifestFile, err)
	}
	defer g.Close()
	if err := guest.JudgeSubscriptions(g, p.Grants, p.Claims); err != nil {
		return nil, fmt.Errorf("with grants of %s: %w", ManifestFile, err)
	}
	manifest := p.Manifest
	manifest.ABI = fmt.Sprintf("%d.%d", abi.Major, abi.Minor)
	manifest.Hooks = hooksOf(g)
	if m.script != nil {
		return &Packed{Module: binary, Manifest: &manifest, Digest: m.Digest, script: true}, nil
	}
	module, err := manifest.with(binary)
	if err != nil {
		return nil, err
	}
	if content, err := section(module, manifestSection); err != nil {
		return nil, err
	} else if err := guest.Conforms(content, string(p.Config)); err != nil {
		return nil, fmt.Errorf("%s: config: %w", ManifestFile, err)
	}
	return &Packed{Module: module, Manifest: &manifest, Digest: digest(module)}, nil
}

// EdgeFilter returns the manifest with which an edge runs the packed program
// from a file beside it.
func (p *Packed) EdgeFilter(project *Project, path string) ([]byte, error) {
	grants := map[string]any{}
	for _, g := range project.Grants {
		switch g {
		case abi.GrantCredentials:
			var refs []map[string]string
			for _, name := range project.Credentials {
				refs = append(refs, map[string]string{"name": name})
			}
			grants[g] = refs
			continue
		case abi.GrantHTTP:
			grants[g] = project.HTTP
			continue
		case abi.GrantTools:
			grants[g] = project.Tools
			continue
		case abi.GrantClaims:
			grants[g] = project.Claims
			continue
		case abi.GrantKeys:
		default:
			grants[g] = true
			continue
		}
		keys := map[string]any{}
		for name := range project.Keys {
			keys[name] = map[string]string{"name": project.Name + "-keys", "key": name}
		}
		grants["keys"] = keys
	}
	kind := "wasm"
	if p.script {
		kind = "starlark"
	}
	spec := map[string]any{"type": kind, "source": map[string]string{"path": path}, "sha256": p.Digest}
	if len(grants) > 0 {
		spec["grants"] = grants
	}
	// Names are sorted, which is the order in which people read a manifest.
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": v1beta1.APIVersion, "kind": "EdgeFilter", "metadata": map[string]string{"name": project.Name}, "spec": spec,
	})
	if project.Config != nil { // as JSON, which is YAML: numbers keep every digit
		text = append(text, "  config: "+string(project.Config)+"\n"...)
	}
	return text, err
}

// Schema returns the JSON Schema of a manifest's configuration, with an indent;
// "" for none.
func (m *Manifest) Schema() string {
	if m == nil || m.ConfigSchema == nil {
		return ""
	}
	text, err := json.MarshalIndent(m.ConfigSchema, "", "  ")
	if err != nil {
		return ""
	}
	return string(text)
}
