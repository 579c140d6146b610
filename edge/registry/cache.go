package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// What was fetched is kept in a directory, a file for each source. It is asked for anew when
// it is old, and is what there is when the registry cannot be reached.

// Bounds of what is kept.
const (
	freshFor  = 24 * time.Hour
	forgotten = 90 * 24 * time.Hour // what was not renewed for so long goes, but the source's own
	maxKept   = 4                   // sources
	maxFile   = MaxBytes + 16<<20   // bytes: the text, and what stands around it
)

// kept is a registry as it was fetched.
type kept struct {
	Source  string    `json:"source"` // its URL
	Fetched time.Time `json:"fetched"`
	Pages   []page    `json:"pages"`
}

// cacheDir has the files, below the user's directory of what can be had again.
func cacheDir(cache string) string { return filepath.Join(cache, "registry") }

func (s Source) cacheFile(cache string) string {
	sum := sha256.Sum256([]byte(s.At))
	return filepath.Join(cacheDir(cache), hex.EncodeToString(sum[:16])+".json")
}

// load finds what is kept of a source; nil for nothing that can be used.
func (s Source) load(cache string) *kept {
	f, err := os.Open(s.cacheFile(cache))
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	k := &kept{}
	if err != nil || json.Unmarshal(text, k) != nil || k.Source != s.At || k.Fetched.IsZero() {
		return nil
	}
	n := 0
	for _, p := range k.Pages {
		n += len(p.Servers)
	}
	if n > MaxEntries {
		return nil
	}
	return k
}

// fresh reports whether nothing newer is asked for. What was fetched in the future, by a
// clock that was wrong, is not fresh.
func (k *kept) fresh(now time.Time) bool {
	age := now.Sub(k.Fetched)
	return age >= 0 && age < freshFor
}

// save keeps what was fetched, and removes what of other sources is too old or too much.
func (s Source) save(cache string, k *kept) error {
	dir := cacheDir(cache)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if len(text) > maxFile {
		return errTooLarge
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), s.cacheFile(cache))
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	s.tidy(dir, k.Fetched)
	return nil
}

// tidy removes files of other sources, the oldest first, and what an interrupted command left.
func (s Source) tidy(dir string, now time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	own := filepath.Base(s.cacheFile(filepath.Dir(dir)))
	var others []fs.FileInfo
	for _, one := range entries {
		info, err := one.Info()
		if err != nil || !info.Mode().IsRegular() || info.Name() == own {
			continue
		}
		age := now.Sub(info.ModTime())
		if filepath.Ext(info.Name()) != ".json" { // half of one
			if age > time.Hour {
				_ = os.Remove(filepath.Join(dir, info.Name()))
			}
			continue
		}
		others = append(others, info)
	}
	slices.SortFunc(others, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for i, info := range others {
		if i >= maxKept-1 || now.Sub(info.ModTime()) > forgotten {
			_ = os.Remove(filepath.Join(dir, info.Name()))
		}
	}
}
