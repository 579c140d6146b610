package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-edge/weir/edge"
)

// MaxManifest is how many bytes the manifests of a workload may have.
const MaxManifest = 1 << 20

// maxRecord is how many bytes status.json may have.
const maxRecord = 256 << 10

// checkName says why a text is no name of a workload or a group. Nothing else becomes a
// part of a path.
func checkName(what, name string) error {
	if IsName(name) {
		return nil
	}
	if len(name) > 63 {
		name = name[:63] + "…"
	}
	return &Error{Code: CodeInvalid, Field: "name", Message: fmt.Sprintf("%q is no name of a %s: lower-case letters, digits and -, 63 at most, a letter or digit at both ends", name, what)}
}

// record is status.json: what a manager knew of a workload. It may be lost without harm.
type record struct {
	Boot       string     `json:"boot"` // of the system; what is of another is not believed
	PID        int        `json:"pid"`  // of whoever wrote it
	State      State      `json:"state"`
	Since      time.Time  `json:"since"`
	Reason     string     `json:"reason,omitempty"`
	Failure    string     `json:"failure,omitempty"`
	Next       string     `json:"next,omitempty"`
	Stderr     []string   `json:"stderr,omitempty"`
	Created    time.Time  `json:"created"`
	Started    *time.Time `json:"started,omitempty"`
	Restarts   int        `json:"restarts,omitempty"`
	URL        string     `json:"url,omitempty"`
	Foreground bool       `json:"foreground,omitempty"` // it is gone when its process is
	Sandbox    string     `json:"sandbox,omitempty"`    // of one in the foreground, for other processes
	Open       bool       `json:"open,omitempty"`       // its network, likewise
	Speaks     *speaks    `json:"speaks,omitempty"`
}

// speaks is what a server turned out to speak.
type speaks struct {
	Digest string `json:"digest"` // of all that shapes the server
	Modern bool   `json:"modern"`
}

// folder is the directory of one workload, of which this process has the lock.
type folder struct {
	path string
	lock *os.File
}

func (f *folder) manifest() string { return filepath.Join(f.path, "manifest.yaml") }
func (f *folder) status() string   { return filepath.Join(f.path, "status.json") }
func (f *folder) home() string     { return filepath.Join(f.path, "home") }

// privateDir makes a directory that only this user may look into, or says why one that is
// there is none.
func privateDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return checkDir(path)
}

// checkDir says why what lies at a path is no directory of this user alone.
func checkDir(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case info.Mode().Type() == fs.ModeSymlink:
		return fmt.Errorf("%s is a link, which is not followed: remove it", path)
	case !info.IsDir():
		return fmt.Errorf("%s is no directory: remove it", path)
	}
	return owned(path, info)
}

// makeFolder makes the directory of a workload and takes its lock. The error is
// fs.ErrExist where there is one.
func makeFolder(path string) (*folder, error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, err
	}
	f, err := openFolder(path)
	if err == nil {
		if err = os.Mkdir(f.home(), 0o700); err != nil {
			f.close()
		}
	}
	if err != nil {
		_ = os.RemoveAll(path) // what cannot be used is nobody's
		return nil, err
	}
	return f, nil
}

// openFolder takes the lock of a workload's directory. The error is edge.ErrHeld while another
// process has it.
func openFolder(path string) (*folder, error) {
	if err := checkDir(path); err != nil {
		return nil, err
	}
	lock, err := edge.LockFile(filepath.Join(path, "lock"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &folder{path, lock}, nil
}

// close gives the lock back.
func (f *folder) close() { f.lock.Close() }

// read reads what the directory says of its workload. A record that cannot be read is as
// good as none, a manifest is not.
func (f *folder) read() (manifest []byte, r record, err error) {
	if manifest, err = readOwn(f.manifest(), MaxManifest); err != nil {
		return nil, r, err
	}
	return manifest, readRecord(f.path), nil
}

// readRecord reads status.json of a workload's directory; a zero one where there is none.
func readRecord(path string) (r record) {
	text, err := readOwn(filepath.Join(path, "status.json"), maxRecord)
	if err == nil && json.Unmarshal(text, &r) != nil {
		return record{}
	}
	return r
}

// keep writes status.json. A kill leaves the old record or the new one. A power cut may leave
// neither, and the state is unknown then until the manager has looked; that is cheaper than to
// wait for the disk at each transition. What a process in the foreground leaves behind is to be
// removed, and known by its record alone, so that one is waited for.
func (f *folder) keep(r *record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return replaceOwn(f.status(), append(text, '\n'), r.Foreground)
}

// readOwn reads a file of this user's alone, up to a size. It follows no link.
func readOwn(path string, most int64) ([]byte, error) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil, err
	case info.Mode().Type() == fs.ModeSymlink:
		return nil, fmt.Errorf("%s is a link, which is not followed: put the file itself there", path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file: remove it", path)
	}
	if err := owned(path, info); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if now, err := f.Stat(); err != nil || !os.SameFile(info, now) {
		return nil, errors.Join(fmt.Errorf("%s was replaced while it was read", path), err)
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > most:
		return nil, fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return text, nil
}

// writeOwn replaces a file: who reads it sees the old one or the new one, whatever ends
// this process or the system meanwhile.
func writeOwn(path string, text []byte) error { return replaceOwn(path, text, true) }

// syncFile has the system write a file to its disk.
var syncFile = (*os.File).Sync

// replaceOwn is writeOwn, or without lasting what holds whatever ends this process, and not the
// system.
func replaceOwn(path string, text []byte, lasting bool) (err error) {
	if old, err := readOwn(path, int64(len(text))); err == nil && bytes.Equal(old, text) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-") // for its owner alone
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if err == nil && lasting {
		err = syncFile(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	if !lasting {
		return nil
	}
	return syncDir(filepath.Dir(path))
}

// sweep removes what writeOwn left behind when it was cut.
func sweep(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, ".new-*"))
	for _, path := range left {
		_ = os.Remove(path)
	}
}
