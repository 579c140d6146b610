package plugin

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Beside returns the path of a file as a manifest in another file writes it:
// relative to the directory of that.
func Beside(manifest, file string) (string, error) {
	from, err := filepath.Abs(filepath.Dir(manifest))
	if err != nil {
		return "", err
	}
	to, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	path, err := filepath.Rel(from, to)
	if err != nil { // on another volume
		return filepath.ToSlash(to), nil
	}
	return filepath.ToSlash(path), nil
}

// WrittenTo returns the file that output goes to, such as that of a redirection;
// "" where it goes to no file, or the system does not say to which.
func WrittenTo(out io.Writer) string {
	f, ok := out.(*os.File)
	if !ok {
		return ""
	}
	is, err := f.Stat()
	if err != nil || !is.Mode().IsRegular() {
		return ""
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return ""
	}
	if at, err := os.Stat(path); err != nil || !os.SameFile(at, is) {
		return ""
	}
	return path
}
