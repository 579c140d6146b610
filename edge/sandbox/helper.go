package sandbox

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// helperMode lets the helper's owner run it and nobody read it: what the kernel runs from a
// file that the caller cannot read is undumpable from its first instruction on. In a container
// it is run by another user.
const (
	helperMode          = 0o100
	containerHelperMode = 0o111
)

// maxHelper bounds the helper's size when it is unpacked, in bytes.
const maxHelper = 8 << 20

// Helper returns the path of the helper, unpacked into a directory of the user's own by the
// digest of what is embedded. What is there already is used: nobody else can write there.
func Helper(dir string) (string, error) { return helper(dir, "", helperMode) }

// ContainerHelper is as Helper, of a file that any user may run, and nobody but root read. It
// is mounted into containers; who may run it outside is a matter of the directory.
func ContainerHelper(dir string) (string, error) {
	return helper(dir, "-container", containerHelperMode)
}

func helper(dir, suffix string, mode fs.FileMode) (string, error) {
	name, err := helperName()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name+suffix)
	if info, err := os.Lstat(path); err == nil && info.Mode() == mode && ownedByUs(info) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("directory of the helper: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", fmt.Errorf("directory of the helper: %w", err)
	}
	if onUnix && (info.Mode().Perm()&0o022 != 0 || !ownedByUs(info)) {
		return "", &HelperError{fmt.Sprintf("directory of the helper: %s: others can write there: chmod 700 it, or remove it", dir)}
	}
	packed, err := fs.ReadFile(helpers, helperFile)
	if err != nil {
		return "", err
	}
	if err := unpack(packed, path, mode); err != nil {
		return "", fmt.Errorf("unpack the helper: %w", err)
	}
	return path, nil
}

// HelperText is the helper's program, for whoever puts it elsewhere.
func HelperText() ([]byte, error) {
	if _, err := helperName(); err != nil {
		return nil, err
	}
	packed, err := fs.ReadFile(helpers, helperFile)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(z, maxHelper))
	return text, errors.Join(err, z.Close())
}

// helperName is the name of the unpacked helper's file, made at first use.
var helperName = sync.OnceValues(func() (string, error) {
	packed, err := fs.ReadFile(helpers, helperFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &HelperError{"built without the helper: make build"}
	} else if err != nil {
		return "", err
	}
	digest := sha256.Sum256(packed)
	return "weir-inside-" + hex.EncodeToString(digest[:12]), nil
})

// unpack writes the helper beside, and renames it: two managers may do so at once.
func unpack(packed []byte, path string, mode fs.FileMode) (err error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "weir-inside-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if n, err := io.Copy(f, io.LimitReader(z, maxHelper)); err != nil || n == maxHelper {
		return fmt.Errorf("%d bytes: %w", n, errors.Join(err, z.Close()))
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
