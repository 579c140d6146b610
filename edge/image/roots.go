package image

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/sigstore/sigstore-go/pkg/root"
)

// builtIn are the roots of trust of the public Sigstore: its authorities and logs, as its
// repository of The Update Framework has them. Each release has the newest.
//
//go:embed trusted_root.json
var builtIn []byte

// maxRoots bounds a file of roots, in bytes.
const maxRoots = 1 << 20

// roots are the roots of trust: those of the user's file, else the built-in ones.
func (i *Images) roots() (*root.TrustedRoot, error) {
	text, err := readFile(i.RootsFile, maxRoots)
	if errors.Is(err, fs.ErrNotExist) {
		return root.NewTrustedRootFromJSON(builtIn)
	}
	if err != nil {
		return nil, fmt.Errorf("the roots of trust: %w", err)
	}
	r, err := root.NewTrustedRootFromJSON(text)
	if err != nil {
		return nil, fmt.Errorf("the roots of trust in %s cannot be read: %s", i.RootsFile, brief(err))
	}
	return r, nil
}
