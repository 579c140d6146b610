package wasm

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/weir-edge/weir/sdk/abi"
)

// ManifestSection is the name of the custom section in which a module says of
// itself what its operator may want to know, as JSON text (ABI.md, manifest).
const ManifestSection = "weir.manifest"

// MaxModule is the most that a module may have, in bytes.
const MaxModule = maxModule

// Need is a host function of a module that stands behind a grant.
type Need struct{ Function, Grant string }

// About is what can be known of a module without running any of it.
type About struct {
	Digest   string     // SHA-256, in hexadecimal
	Hooks    []abi.Hook // that it has a function for
	Needs    []Need     // in the order of its imports
	Minimum  uint32     // of its memory, in bytes
	Memory   uint64     // bytes of one instance, at most, unless a limit is set
	Manifest []byte     // JSON text that nobody has looked at; nil for none
}

// Check judges a module as Compile does, short of making machine code of it.
// An error is a *Refusal.
func Check(binary []byte) (*About, error) {
	parsed, err := parse(binary)
	if err != nil {
		return nil, err
	}
	m := &Module{}
	if err := m.contract(parsed); err != nil {
		return nil, err
	}
	if _, _, err := meter(parsed, metering{pages: MaxMemory / pageSize, keep: exported}); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(binary)
	limits, _ := m.Defaults(Limits{}) // which are possible
	a := &About{Digest: hex.EncodeToString(sum[:]), Hooks: m.Hooks, Minimum: m.Minimum, Memory: limits.Memory, Manifest: manifest(binary)}
	for _, e := range parsed.imports {
		if f, _ := hostFunctionNamed(e.module, e.name); f.grant != "" {
			a.Needs = append(a.Needs, Need{e.module + "." + e.name, f.grant})
		}
	}
	return a, nil
}

// manifest returns the manifest of a module that parse has accepted, as a copy.
func manifest(binary []byte) []byte {
	r := &reader{b: binary, pos: 8}
	for r.left() > 0 && r.err == nil {
		id := r.byte()
		part := r.bytes(int(r.u32()))
		if id != sectionCustom {
			continue
		}
		c := &reader{b: part}
		if name := c.bytes(int(c.u32())); c.err == nil && string(name) == ManifestSection {
			return append([]byte{}, part[c.pos:]...)
		}
	}
	return nil
}
