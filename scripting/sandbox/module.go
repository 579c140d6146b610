package sandbox

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
)

//go:generate go run ./build

//go:embed guest.wasm.gz
var packed []byte

//go:embed guest.txt
var about string

// module is an interpreter before it is compiled.
type module struct {
	code   []byte
	digest string // SHA-256 in hexadecimal
	made   string // by which version of Go
}

// largestModule bounds what the module unpacks to, as build does.
const largestModule = 6 << 20

// interpreter returns the module that lies in this program.
func interpreter() (module, error) { return unpack(packed, about, largestModule) }

// unpack unpacks a module of at most so many bytes.
func unpack(packed []byte, about string, most int) (m module, err error) {
	for line := range strings.Lines(about) {
		word, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "sha256":
			m.digest = value
		case "go":
			m.made = value
		}
	}
	if m.digest == "" || m.made == "" {
		return m, errors.New("sandbox: guest.txt does not name a digest and a version of Go: run go generate")
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return m, fmt.Errorf("sandbox: the module: %w", err)
	}
	if m.code, err = io.ReadAll(io.LimitReader(z, int64(most)+1)); err != nil {
		return m, fmt.Errorf("sandbox: the module: %w", err)
	}
	if len(m.code) > most {
		return m, fmt.Errorf("sandbox: the module has more than %d bytes", most)
	}
	return m, nil
}
