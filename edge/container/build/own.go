package build

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// What this user's builds have made is known by its digest: a file of that name in the state
// directory says so. A tag, or a label, anybody can give an image.

// Known is what is known of an image that was built here.
type Known struct {
	Verified string `json:"verified,omitempty"` // who made what it is built on; "" where that was not certain
}

// maxKnown bounds such a file, in bytes.
const maxKnown = 64 << 10

// Own returns what is known of an image, by its ID; nil where no build with that state directory
// made it.
func Own(state, id string) *Known {
	path, ok := ownFile(state, id)
	if !ok {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	k := &Known{}
	if text, err := io.ReadAll(io.LimitReader(f, maxKnown)); err != nil || json.Unmarshal(text, k) != nil {
		return nil
	}
	return k
}

// keep notes that an image is of a build.
func keep(state, id, verified string) error {
	path, ok := ownFile(state, id)
	if !ok {
		return errors.New("the engine names the image by something else than its digest")
	}
	if was := Own(state, id); was != nil && was.Verified == verified {
		return nil
	}
	text, err := json.Marshal(Known{verified})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// ownFile is the file of an image.
func ownFile(state, id string) (path string, ok bool) {
	digest := strings.TrimPrefix(id, "sha256:")
	b, err := hex.DecodeString(digest)
	return filepath.Join(state, "built", digest), err == nil && len(b) == 32 && state != ""
}
