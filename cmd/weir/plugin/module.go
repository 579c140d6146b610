package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/wasm"
)

// patience is how long a module may take to compile. An edge gives it less, but
// a machine on which somebody works may be busy.
const patience = 2 * time.Minute

// Compile compiles the module of a file as the edge does. The compiler is
// closed after the module. cache is a directory for machine code, "" for none.
func Compile(ctx context.Context, file, cache string) (*wasm.Compiler, *wasm.Module, error) {
	binary, err := guest.ReadModule(file)
	if err != nil {
		return nil, nil, err
	}
	c, err := wasm.NewCompiler(wasm.Compilation{Dir: cache, Timeout: patience})
	if err != nil {
		return nil, nil, err
	}
	m, err := c.Compile(ctx, binary, "")
	if err != nil {
		_ = c.Close() // it holds nothing yet
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, m, nil
}

// CacheDir is where machine code of modules is kept from one command to the
// next; "" when this user has no such place.
func CacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	dir = filepath.Join(dir, "weir", "plugin")
	if os.MkdirAll(dir, 0o700) != nil {
		return ""
	}
	return dir
}

func digest(module []byte) string {
	sum := sha256.Sum256(module)
	return hex.EncodeToString(sum[:])
}
