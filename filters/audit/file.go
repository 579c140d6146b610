package audit

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// file is where records go.
type file interface {
	io.WriteCloser

	// SetWriteDeadline ends a Write that waits, where that can be done.
	SetWriteDeadline(time.Time) error

	// place says whether the file is still what its name stands for.
	place() place
}

// place is where a file is.
type place uint8

const (
	here    place = iota
	moved         // something else, or nothing, has its name
	deleted       // and nobody can find it under another
)

// openFile opens the file of a name to append to it, and makes it for its owner
// alone when it is not there. The name "" is standard output.
func openFile(name string) (file, error) {
	if name == "" {
		return stdout{os.Stdout}, nil
	}
	// A pipe that nobody reads is an error and no reason to wait.
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if torn(f, name) {
		if _, err := f.WriteString("\n"); err != nil {
			f.Close()
			return nil, err
		}
	}
	return &logFile{f, name}, nil
}

// LookAt returns why no record could be appended to the file of a name, which it does not make.
func LookAt(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.Open(filepath.Dir(name) + "/") // it is made in there
	}
	if err == nil {
		err = f.Close()
	}
	return err
}

// torn reports whether the file ends in the middle of a line, which another
// record must not go on with.
func torn(f *os.File, name string) bool {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	r, err := os.Open(name)
	if err != nil {
		return false
	}
	defer r.Close()
	var last [1]byte
	_, err = r.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}

// logFile is a file by its name.
type logFile struct {
	*os.File
	name string
}

func (f *logFile) place() place {
	now, err := os.Stat(f.name)
	mine, failed := f.Stat()
	switch {
	case failed != nil:
		return moved
	case err == nil && os.SameFile(now, mine):
		return here
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return here // it cannot be known
	case links(mine) == 0:
		return deleted
	}
	return moved
}

// stdout is the standard output of the process, which others write to as well.
type stdout struct{ *os.File }

func (stdout) place() place { return here }

// Close does nothing: the output belongs to the process.
func (stdout) Close() error { return nil }
