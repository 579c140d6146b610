package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// schema is the one of the reference's format.
const schema = "https://raw.githubusercontent.com/stacklok/toolhive-core/main/registry/types/data/upstream-registry.schema.json"

// Convert reads a registry of any format and writes it in the reference's. Every entry has to
// be right: the error names the first that is not. It says how many there are, and which
// parts besides entries are left out.
func Convert(text []byte, now time.Time) (made []byte, entries int, leftOut []string, err error) {
	d, err := read(text)
	if err != nil {
		return nil, 0, nil, err
	}
	if d.next != "" {
		return nil, 0, nil, &Error{Kind: Invalid, Message: "it is one page of several of a registry's API", Next: "give a file with all of them"}
	}
	for i, one := range d.servers {
		if _, err := parse(one); err != nil {
			return nil, 0, nil, &Error{Kind: Broken, Message: fmt.Sprintf("entry %d: %s", i+1, err)}
		}
	}
	var out struct {
		Schema  string `json:"$schema"`
		Version string `json:"version"`
		Meta    struct {
			LastUpdated string `json:"last_updated"`
		} `json:"meta"`
		Data struct {
			Servers []json.RawMessage `json:"servers"`
		} `json:"data"`
	}
	out.Schema, out.Version, out.Data.Servers = schema, "1.0.0", d.servers
	out.Meta.LastUpdated = d.updated
	if out.Meta.LastUpdated == "" {
		out.Meta.LastUpdated = now.UTC().Format(time.RFC3339)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(out); err != nil {
		return nil, 0, nil, err
	}
	return b.Bytes(), len(d.servers), d.others, nil
}
