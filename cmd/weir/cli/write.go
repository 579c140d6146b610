package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weir-edge/weir/edge"
)

// WriteFile writes a file that the user named: it is there whole, or as it was. A link stays and
// leads to it, and what is no file, such as /dev/stdout or a named pipe, is written to. A file has
// the mode as far as the umask lets it, and no more than it had before.
func WriteFile(path string, text []byte, mode fs.FileMode) error {
	info, err := os.Stat(path)
	switch {
	case path == "":
		return Usagef("no file is named: name one to write to")
	case err == nil && info.IsDir():
		return Usagef("%s is a directory: name a file in it", edge.Brief(path))
	case err == nil && !info.Mode().IsRegular():
		err = os.WriteFile(path, text, mode)
	default:
		if err == nil {
			mode &= info.Mode().Perm()
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		err = replace(path, text, mode)
	}
	var at *fs.PathError // of a file beside it, whose name says nothing to the user
	if errors.As(err, &at) {
		return fmt.Errorf("%s: %w", edge.Brief(path), at.Err)
	}
	return err
}

func replace(path string, text []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-"+rand.Text()), os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone by then, when all went well
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
