package sandbox

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// HelperProgram is the helper itself, for an engine that is handed its bytes.
func HelperProgram() ([]byte, error) {
	packed, err := fs.ReadFile(helpers, helperFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &HelperError{"built without the helper: make build"}
	} else if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpack the helper: %w", err)
	}
	program, err := io.ReadAll(io.LimitReader(z, maxHelper))
	if err = errors.Join(err, z.Close()); err != nil || len(program) == maxHelper {
		return nil, fmt.Errorf("unpack the helper: %d bytes: %w", len(program), err)
	}
	return program, nil
}
