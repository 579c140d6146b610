package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/image"
	"github.com/weir-edge/weir/wasm"
)

// Modules of registries. They are found and verified as images are, and fetched by digest: what
// was verified is what runs. A note beside the module says for which name it was fetched, so
// that it is there while the registry is not.

// pulledNote says what a name stood for when its module was fetched.
type pulledNote struct {
	Image  string `json:"image"`  // NAME@DIGEST
	SHA256 string `json:"sha256"` // of the module
}

// pull returns the module of a registry, and what is known of it.
func (m *modules) pull(ctx context.Context, name string, from origin, say func(string)) ([]byte, *image.Choice, error) {
	note, b := m.noted(name)
	want := from.want
	want.Name, want.Held = name, func(context.Context) (*image.Held, error) {
		if b == nil {
			return nil, nil
		}
		return &image.Held{Digests: []string{note.Image}}, nil
	}
	slow := time.AfterFunc(sayAfter, func() { say("fetching " + name) })
	defer slow.Stop()
	choice, err := from.images.Choose(ctx, want)
	if err != nil || !choice.Pull {
		return b, choice, err
	}
	got, err := from.images.Module(ctx, choice.Image, wasm.MaxServerModule)
	if err != nil && choice.Fallback != "" && b != nil {
		choice.Notes = append(slices.Clip(choice.Notes), fmt.Sprintf("%v: what is on this machine is run", err))
		choice.Image = note.Image
		return b, choice, nil
	}
	if err != nil {
		return nil, nil, err
	}
	choice.Image = got.Image
	if err = m.keep(got.SHA256, got.Bytes); err == nil {
		err = m.note(name, pulledNote{got.Image, got.SHA256})
	}
	m.unkept(err)
	return got.Bytes, choice, nil
}

// noteFile is where the note of a name is.
func (m *modules) noteFile(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(m.dir, "pulled-"+hex.EncodeToString(sum[:])+".json")
}

// maxNote bounds a note, in bytes.
const maxNote = 4 << 10

// noted is what a name stood for, and the module; nil where it is not here.
func (m *modules) noted(name string) (n pulledNote, b []byte) {
	f, err := os.Open(m.noteFile(name))
	if err != nil {
		return n, nil
	}
	defer f.Close()
	text := make([]byte, maxNote)
	size, _ := f.Read(text) // what is no note is one that is not there
	if json.Unmarshal(text[:size], &n) != nil || !isSHA256(n.SHA256) || !strings.Contains(n.Image, "@sha256:") {
		return n, nil
	}
	return n, m.kept(n.SHA256)
}

func isSHA256(text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(b) == sha256.Size
}

func (m *modules) note(name string, n pulledNote) error {
	text, err := json.Marshal(n)
	if err == nil {
		err = keep(m.noteFile(name), text)
	}
	if err != nil {
		return fmt.Errorf("cache of modules: %w", err)
	}
	return nil
}
