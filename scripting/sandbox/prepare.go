package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"

	"github.com/weir-edge/weir/wasm"
)

// largestPrepared bounds a file that is read: what metering makes of the largest module.
const largestPrepared = 4 * largestModule

// prepare checks and meters the module, or reads what an earlier start kept of that in dir;
// "" for none. A file counts by its digest alone, which lies in this program: neither
// another version of the program nor anybody else can put another one there.
func (m *module) prepare(dir string) (*wasm.Prepared, error) {
	file := ""
	if dir != "" && m.prepared != "" {
		file = filepath.Join(dir, "interpreter-"+m.prepared)
		if b := read(file); b != nil && digest(b) == m.prepared {
			return wasm.LoadPrepared(b)
		}
	}
	code, err := m.code()
	if err != nil {
		return nil, err
	}
	p, err := wasm.PrepareInterpreter(code, m.digest)
	if err != nil {
		return nil, err
	}
	if b := p.Encode(); file != "" && digest(b) == m.prepared {
		keep(file, b)
	}
	return p, nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// read returns a kept file; nil where there is none.
func read(file string) []byte {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > largestPrepared {
		return nil
	}
	b := make([]byte, info.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil
	}
	return b
}

// keep writes a file at once or not at all. Where it cannot be, the next start prepares the
// module again.
func keep(file string, b []byte) {
	f, err := os.CreateTemp(filepath.Dir(file), ".interpreter-")
	if err != nil {
		return
	}
	_, err = f.Write(b)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil || os.Rename(f.Name(), file) != nil {
		_ = os.Remove(f.Name())
	}
}
