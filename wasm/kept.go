package wasm

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxKept bounds the machine code that a directory keeps, in bytes. A server that the Go
// toolchain made has 60 MB.
const maxKept = 2 << 30

// prune removes machine code beyond most bytes from a directory, the oldest first, also that of
// other versions of the engine, and what a process that was killed has left half written. Who
// runs it has it in memory: it is compiled again when it is needed again. What cannot be
// removed now is tried again.
func prune(dir string, most int64) {
	type kept struct {
		path string
		info fs.FileInfo
	}
	var all []kept
	engines, _ := os.ReadDir(dir) // what can be read of it
	for _, engine := range engines {
		if !strings.HasPrefix(engine.Name(), "wazero-") {
			continue
		}
		files, _ := os.ReadDir(filepath.Join(dir, engine.Name()))
		for _, f := range files {
			path := filepath.Join(dir, engine.Name(), f.Name())
			info, err := f.Info()
			switch {
			case err != nil || !info.Mode().IsRegular(): // it is gone, or not ours
			case !strings.HasSuffix(path, ".tmp"):
				all = append(all, kept{path, info})
			case time.Since(info.ModTime()) > time.Hour:
				_ = os.Remove(path)
			}
		}
	}
	slices.SortFunc(all, func(a, b kept) int { return b.info.ModTime().Compare(a.info.ModTime()) })
	sum := int64(0)
	for _, k := range all {
		if sum += k.info.Size(); sum > most || k.info.Size() == 0 { // an empty one is damaged
			_ = os.Remove(k.path)
		}
	}
}
