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
	packed   []byte
	most     int    // bytes that it may unpack to
	digest   string // SHA-256 of its code in hexadecimal
	prepared string // SHA-256 of its prepared form in hexadecimal; "" for one that is not kept
	made     string // by which version of Go
}

// largestModule bounds what the module unpacks to, as build does.
const largestModule = 6 << 20

// interpreter returns the module that lies in this program.
func interpreter() (module, error) { return moduleOf(packed, about) }

func moduleOf(packed []byte, about string) (module, error) {
	m := module{packed: packed, most: largestModule}
	for line := range strings.Lines(about) {
		word, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "sha256":
			m.digest = value
		case "prepared":
			m.prepared = value
		case "go":
			m.made = value
		}
	}
	if m.digest == "" || m.made == "" {
		return m, errors.New("sandbox: guest.txt does not name a digest and a version of Go: run go generate")
	}
	return m, nil
}

// code unpacks the module.
func (m *module) code() ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(m.packed))
	if err != nil {
		return nil, fmt.Errorf("sandbox: the module: %w", err)
	}
	code, err := io.ReadAll(io.LimitReader(z, int64(m.most)+1))
	if err != nil {
		return nil, fmt.Errorf("sandbox: the module: %w", err)
	}
	if len(code) > m.most {
		return nil, fmt.Errorf("sandbox: the module has more than %d bytes", m.most)
	}
	return code, nil
}
