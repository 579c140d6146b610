package apps

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Scope says which workloads a client has: those of some groups and some of their own, or all
// where it names none.
type Scope struct {
	Groups    []string `json:"groups,omitempty"`
	Workloads []string `json:"workloads,omitempty"`
}

func (s Scope) has(w Server) bool {
	return len(s.Groups)+len(s.Workloads) == 0 || slices.Contains(s.Groups, w.Group) || slices.Contains(s.Workloads, w.Name)
}

// owned is what is remembered of all clients: clients.json in the state directory.
type owned struct {
	Version int                `json:"version"`
	Clients map[string]*client `json:"clients"`
}

// client is what is remembered of a client that was set up.
type client struct {
	File    string              `json:"file"`
	Scope   Scope               `json:"scope"`
	Entries map[string]*written `json:"entries"`
}

// written is an entry that we wrote. Only what is still one of the values is ours.
type written struct {
	// Values are what we wrote, the newest last. There are two while one is being replaced by
	// another: if the process ends then, either may stand in the file.
	Values []map[string]any `json:"values"`
	// Pending says that it was about to be written for the first time, and may not be there.
	Pending bool `json:"pending,omitempty"`
}

// mine reports whether a value in a file is one that we wrote.
func (w *written) mine(value any) bool {
	return w != nil && slices.ContainsFunc(w.Values, func(v map[string]any) bool { return same(any(v), value) })
}

const ownedVersion = 1

// maxOwned is how large clients.json may be, in bytes.
const maxOwned = 16 << 20

func ownedFile(dir string) string { return filepath.Join(dir, "clients.json") }

// remembered reads clients.json; without one nothing is ours.
func remembered(dir string) (*owned, error) {
	o := &owned{Version: ownedVersion, Clients: map[string]*client{}}
	file := ownedFile(dir)
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	broken := func(text string) error {
		return &Error{File: file, Text: text, Next: "move it away: entries that Weir wrote are then yours, and `weir client setup` begins anew"}
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxOwned {
		return nil, broken("it cannot be read: it has to be a file of up to 16 MiB")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, broken("it cannot be read: " + reason(err))
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(o); err != nil || o.Version != ownedVersion {
		return nil, broken("it is none that this version of Weir has written")
	}
	for name, c := range o.Clients {
		if c == nil || !filepath.IsAbs(c.File) {
			return nil, broken("it is none that this version of Weir has written")
		}
		if c.Entries == nil {
			c.Entries = map[string]*written{}
		}
		for server, w := range c.Entries {
			if w == nil {
				delete(c.Entries, server)
			}
		}
		if _, known := Named(name); !known {
			return nil, broken("it is none that this version of Weir has written")
		}
	}
	return o, nil
}

// save writes clients.json.
func (o *owned) save(dir string) error {
	data, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return err
	}
	if err := (state{}).write(ownedFile(dir), append(data, '\n'), nil); err != nil {
		return &Error{File: ownedFile(dir), Text: reason(err), Next: "make room, and see that you may write there"}
	}
	return nil
}
