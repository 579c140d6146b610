package apps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-edge/weir/edge"
)

// maxFile is how large a configuration may be, in bytes.
const maxFile = 5 << 20

// state is a configuration as it is in its file.
type state struct {
	path string // of the file itself, where another leads to it by a symbolic link
	data []byte
	info fs.FileInfo // nil where there is no file
}

// load reads a configuration. One that is not there is empty.
func load(file string) (state, error) {
	broken := func(text, next string) error { return &Error{File: file, Text: text, Next: next} }
	path, err := filepath.EvalSymlinks(file)
	if errors.Is(err, fs.ErrNotExist) {
		if info, err := os.Lstat(file); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return state{}, broken("it is a symbolic link to nothing", "make the file that it leads to, or remove the link")
		}
		// Its directory may be a link, or be made yet.
		if dir, err := filepath.EvalSymlinks(filepath.Dir(file)); err == nil {
			return state{path: filepath.Join(dir, filepath.Base(file))}, nil
		}
		return state{path: file}, nil
	}
	if err != nil {
		return state{}, broken(reason(err), "mend the path")
	}
	info, err := os.Stat(path)
	if err != nil {
		return state{}, broken(reason(err), "make it readable for you")
	}
	switch {
	case info.IsDir():
		return state{}, broken("it is a directory", "move it away: the configuration is a file of this name")
	case !info.Mode().IsRegular():
		return state{}, broken("it is no regular file", "move it away: the configuration is a file of this name")
	case info.Size() > maxFile:
		return state{}, broken(fmt.Sprintf("it has %d bytes, and a configuration of up to %d MiB is changed", info.Size(), maxFile>>20), "add the entry by hand: `weir list --format mcpservers` prints it")
	}
	f, err := os.Open(path)
	if err != nil {
		return state{}, broken(reason(err), "make it readable for you")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return state{}, broken(reason(err), "make it readable for you")
	}
	if len(data) > maxFile {
		return state{}, errChanged
	}
	return state{path, data, info}, nil
}

// reason is an error of the system without the path in it.
func reason(err error) string {
	if e := new(fs.PathError); errors.As(err, &e) {
		err = e.Err
	}
	return err.Error()
}

// errChanged says that a file is not any longer what was read of it.
var errChanged = errors.New("the file has changed")

// settled is how long a file without a value in it has to rest until that is what it has to
// say: whoever writes a file in its place empties it first.
const settled = 2 * time.Second

// unsettled reports whether somebody may have begun to write the file anew and not ended.
func (s state) unsettled() bool {
	return s.blank() && time.Since(s.info.ModTime()).Abs() < settled
}

// blank reports whether there is a file and nothing in it.
func (s state) blank() bool {
	return s.info != nil && len(bytes.TrimSpace(bytes.TrimPrefix(s.data, bom))) == 0
}

// same reports whether the file is still what was read.
func (s state) same() bool {
	info, err := os.Stat(s.path)
	if s.info == nil || err != nil {
		return s.info == nil && errors.Is(err, fs.ErrNotExist)
	}
	if !os.SameFile(s.info, info) || info.Size() != s.info.Size() {
		return false
	}
	now, err := os.ReadFile(s.path)
	return err == nil && bytes.Equal(now, s.data)
}

// replace puts other content into a file, all at once: whoever looks sees the old or the new
// one whole, also after a power cut. Mode and owner stay. What was there before the first
// change, if anything, is kept beside it as NAME.weir.bak. between is called when the new content is written
// and not yet in its place; nil for nothing. The error is errChanged where another program has
// written meanwhile; one that writes in the last few microseconds before the rename is not
// seen.
func (s state) replace(data []byte, between func()) error {
	dir := filepath.Dir(s.path)
	if s.info == nil {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	} else if backup := s.path + ".weir.bak"; !s.blank() && !exists(backup) {
		if err := s.write(backup, s.data, nil); err != nil {
			return err
		}
	}
	return s.write(s.path, data, func() error {
		if between != nil {
			between()
		}
		if !s.same() {
			return errChanged
		}
		return nil
	})
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// write writes a file with the mode and the owner of the state. ready is asked before it takes
// its place; nil for nobody.
func (s state) write(path string, data []byte, ready func() error) (err error) {
	dir, name := filepath.Split(path)
	temp := filepath.Join(dir, "."+name+".weir.tmp")
	// It is there where a process of ours was killed: two never write at a time, by the lock.
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(temp)
		}
	}()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if s.info != nil {
		if err := keepOwner(f, s.info); err != nil {
			return err
		}
		if err := f.Chmod(s.info.Mode().Perm()); err != nil && onUnix {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if ready != nil {
		if err := ready(); err != nil {
			return err
		}
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(dir)
}

// maxLocked is how long the lock is waited for.
const maxLocked = 10 * time.Second

// lock takes the lock of all configurations, which lies beside what is remembered of them.
func lock(path string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), maxLocked)
	defer cancel()
	f, err := edge.AwaitLock(ctx, path)
	if errors.Is(err, edge.ErrHeld) {
		err = edge.ErrHeld
	}
	if err != nil {
		return nil, &Error{File: path, Text: "the lock cannot be had: " + reason(err), Next: "end the other weir, and try again"}
	}
	return func() { _ = f.Close() }, nil
}
