package apps

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

const onUnix = false

// keepOwner leaves it to the rights of the directory.
func keepOwner(*os.File, fs.FileInfo) error { return nil }

func syncDir(string) error { return nil }

var errHeld = errors.New("another process holds it")

// errSharing is ERROR_SHARING_VIOLATION.
const errSharing = syscall.Errno(32)

// lockFile opens a file that nobody else may open meanwhile.
func lockFile(path string) (*os.File, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errSharing) {
		return nil, errHeld
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(h), path), nil
}
