package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// maxManifest bounds a module's manifest, in bytes.
const maxManifest = 256 << 10

// manifest is the part of a module's manifest that the edge reads
// (wasm/ABI.md, manifest).
type manifest struct {
	Name         string             `json:"name"`
	Version      string             `json:"version"`
	ConfigSchema *jsonschema.Schema `json:"configSchema"`
}

// optionalGrants returns the grants that a module says it does without; nil for
// none.
func optionalGrants(text []byte) []string {
	var m struct {
		Optional []string `json:"optionalGrants"`
	}
	if len(text) == 0 || len(text) > maxManifest || json.Unmarshal(text, &m) != nil {
		return nil // Conforms says why
	}
	return m.Optional
}

// Conforms checks a configuration, JSON text of an object or "" for none, against the schema in
// a module's manifest. A module without a schema takes any.
func Conforms(manifest []byte, config string) error { return conformsTo("module", manifest, config) }

// conformsTo names what the manifest is of.
func conformsTo(what string, text []byte, config string) error {
	if text == nil {
		return nil
	}
	if len(text) > maxManifest {
		return fmt.Errorf("the %s's manifest has %d bytes: at most %d are read", what, len(text), maxManifest)
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("the %s's manifest cannot be read: %s", what, plain(err))
	}
	if m.ConfigSchema == nil {
		return nil
	}
	schema, err := m.ConfigSchema.Resolve(nil) // which fetches nothing
	if err != nil {
		return fmt.Errorf("the %s's schema for it cannot be used: %s", what, plain(err))
	}
	if config == "" {
		config = "{}"
	}
	var value any
	if err := json.Unmarshal([]byte(config), &value); err != nil {
		return errors.New("must be a JSON object")
	}
	if err := schema.Validate(value); err != nil {
		return fmt.Errorf("does not match the %s's schema: %s", what, plain(err))
	}
	return nil
}

// plain returns an error as one line of bounded length.
func plain(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) { // which speaks of types of Go
		text = wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:] + ": it cannot be a " + wrong.Value
	}
	if len(text) > 500 {
		text = strings.ToValidUTF8(text[:497], "") + "…"
	}
	return text
}
