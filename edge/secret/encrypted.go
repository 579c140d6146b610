package secret

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// FileName is the name of the file of the encrypted provider in the folder of data.
const FileName = "secrets.enc"

// Bounds of passwords, in bytes, and of waiting for a lock.
const (
	MinPassword = 8
	MaxPassword = 1024

	maxLocked = 15 * time.Second // how long others may hold the lock
)

// Errors of the encrypted provider.
var (
	ErrLocked   = errors.New("its password is not known")
	ErrNotSetUp = errors.New("there is no file of secrets")
	ErrSetUp    = errors.New("there is a file of secrets already")
)

// Encrypted is the provider that keeps secrets in a file, which a password opens. It is
// locked until Unlock has been given that. Other processes may change the file. It is safe
// for concurrent use.
type Encrypted struct {
	path  string
	cost  cost
	later bool // without the file nothing is amiss: no secret is there

	mu     sync.Mutex
	key    *key    // nil while it is locked
	opened *opened // what was read last; nil for nothing
}

var _ Provider = (*Encrypted)(nil)

// opened are the values of a file that was read, and the metadata of that file. It is never
// changed.
type opened struct {
	info   fs.FileInfo
	sure   bool // that a file which looks the same is the same
	values map[Ref]edge.Secret
}

// NewEncrypted is the provider with the file of a path, which need not be there.
func NewEncrypted(path string) *Encrypted { return &Encrypted{path: path, cost: usual} }

// Name is the word by which it is chosen.
func (*Encrypted) Name() string { return EncryptedProvider }

// Path is that of the file.
func (e *Encrypted) Path() string { return e.path }

// about says which file an error is about, and what to do.
func (e *Encrypted) about(err error) error {
	next := ""
	switch {
	case errors.Is(err, ErrLocked):
		next = ": give it with `weir secret unlock` at a terminal, or in " + PasswordVariable
	case errors.Is(err, ErrNotSetUp):
		next = ": make one with `weir secret setup`"
	case errors.Is(err, ErrSetUp):
		next = ": move it away to begin anew"
	case errors.Is(err, ErrDamaged):
		next = ": bring back a copy of it, or move it away and begin anew with `weir secret setup`"
	case errors.Is(err, ErrNewer):
		next = ": update weir"
	}
	return fmt.Errorf("secrets in %s: %w%s", e.path, err, next)
}

// Create makes a file without secrets. The error is ErrSetUp where there is one. before, which
// may be nil, is called when nothing speaks against it any more, and can still do so: it may
// keep the password.
func (e *Encrypted) Create(ctx context.Context, password edge.Secret, before func() error) error {
	if len(password) < MinPassword || len(password) > MaxPassword {
		return fmt.Errorf("a password has from %d to %d bytes", MinPassword, MaxPassword)
	}
	unlock, err := e.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Lstat(e.path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = ErrSetUp
		}
		return e.about(err)
	}
	if before != nil {
		if err := before(); err != nil {
			return err
		}
	}
	var salt [saltSize]byte
	_, _ = rand.Read(salt[:]) // which does not fail (crypto/rand)
	k := newKey(password, e.cost, salt)
	if err := e.write(k, nil); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.key, e.opened = k, nil
	return nil
}

// Unlock gives the password. The error is ErrPassword where it is another one, and then what
// was unlocked stays so. It takes some 0.1 s and 64 MiB for a moment.
func (e *Encrypted) Unlock(password edge.Secret) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, _, _, err := e.read()
	if err != nil {
		return e.about(err)
	}
	if len(password) > MaxPassword {
		return e.about(ErrPassword)
	}
	k := newKey(password, s.cost, s.salt)
	if !s.made(k) {
		return e.about(ErrPassword)
	}
	if _, err := s.open(k); err != nil { // better told now than by who needs a value
		return e.about(err)
	}
	e.key, e.opened = k, nil
	return nil
}

// Locked reports whether a password is needed before anything can be read: also that of a
// file which was made anew since.
func (e *Encrypted) Locked() bool {
	_, err := e.load()
	return errors.Is(err, ErrLocked)
}

// Get returns a value.
func (e *Encrypted) Get(_ context.Context, r Ref) (edge.Secret, error) {
	values, err := e.load()
	if err != nil && !(e.later && errors.Is(err, ErrNotSetUp)) {
		return "", &edge.Error{Kind: edge.Unavailable, Op: "secret " + r.String(), Err: err}
	}
	value, ok := values[r]
	if !ok {
		return "", fail(edge.NotFound, r, fmt.Errorf("%w in %s", ErrNowhere, e.path))
	}
	return value, nil
}

// List returns the names of all values.
func (e *Encrypted) List(context.Context) ([]Ref, error) {
	values, err := e.load()
	return sorted(values), err
}

// Set keeps values.
func (e *Encrypted) Set(ctx context.Context, values map[Ref]edge.Secret) error {
	for r, value := range values {
		if strings.ContainsRune(string(value), 0) {
			return fmt.Errorf("secret %s: the value has a NUL byte, which no variable and no header can have: give it as text, such as base64", r)
		}
	}
	return e.change(ctx, func(all map[Ref]edge.Secret) error {
		maps.Copy(all, values)
		return nil
	})
}

// Delete forgets a value.
func (e *Encrypted) Delete(ctx context.Context, r Ref) error {
	return e.change(ctx, func(all map[Ref]edge.Secret) error {
		if _, ok := all[r]; !ok {
			return fail(edge.NotFound, r, fmt.Errorf("%w in %s", ErrNowhere, e.path))
		}
		delete(all, r)
		return nil
	})
}

// load returns the present values, which nobody changes.
func (e *Encrypted) load() (map[Ref]edge.Secret, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.opened; known != nil && known.sure {
		if now, err := os.Stat(e.path); err == nil && same(known.info, now) {
			return known.values, nil
		}
	}
	e.opened = nil
	s, info, at, err := e.read()
	if err != nil {
		return nil, e.about(err)
	}
	if e.key == nil || !s.made(e.key) { // it was made anew, with another salt or password
		return nil, e.about(ErrLocked)
	}
	values, err := s.open(e.key)
	if err != nil {
		return nil, e.about(err)
	}
	e.opened = &opened{info: info, sure: at.Sub(info.ModTime()) > settled, values: values}
	return values, nil
}

// read reads the file, as far as it goes without its key.
func (e *Encrypted) read() (s *sealed, info fs.FileInfo, at time.Time, err error) {
	at = time.Now()
	info, err = os.Stat(e.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, at, ErrNotSetUp
	case err != nil:
		return nil, nil, at, err
	case !info.Mode().IsRegular(): // to open a pipe would wait for its other end
		return nil, nil, at, errors.New("it is not a regular file")
	}
	f, err := os.Open(e.path)
	if err != nil {
		return nil, nil, at, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, nil, at, err
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, nil, at, err
	}
	s, err = decode(text)
	return s, info, at, err
}

// change replaces the file, while no other process does. A file that cannot be read is not
// replaced.
func (e *Encrypted) change(ctx context.Context, f func(map[Ref]edge.Secret) error) error {
	unlock, err := e.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	values, err := e.load()
	if err != nil {
		return err
	}
	values = maps.Clone(values)
	if err := f(values); err != nil {
		return err
	}
	e.mu.Lock()
	k := e.key
	e.mu.Unlock()
	return e.write(k, values)
}

// write replaces the file: whoever reads it sees the old one or the new one, also after the
// power has failed. The lock is held.
func (e *Encrypted) write(k *key, values map[Ref]edge.Secret) error {
	text, err := k.encode(values)
	if err != nil {
		return e.about(err)
	}
	// What a process left that was killed while it wrote is nobody's now.
	left, _ := filepath.Glob(e.path + ".new-*")
	for _, path := range left {
		_ = os.Remove(path)
	}
	dir := filepath.Dir(e.path)
	f, err := os.CreateTemp(dir, filepath.Base(e.path)+".new-*") // 0600
	if err != nil {
		return e.about(err)
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), e.path)
	}
	if err != nil {
		return e.about(errors.Join(err, os.Remove(f.Name())))
	}
	if runtime.GOOS == "windows" { // whose directories cannot be synced
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return e.about(err)
	}
	if err = errors.Join(d.Sync(), d.Close()); err != nil {
		return e.about(err)
	}
	return nil
}

// lock takes the lock of the file, which ends with the process. The lock file stays: who
// removed it would give the lock to two.
func (e *Encrypted) lock(ctx context.Context) (unlock func(), err error) {
	dir := filepath.Dir(e.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, e.about(err)
	}
	ctx, cancel := context.WithTimeout(ctx, maxLocked)
	defer cancel()
	f, err := edge.AwaitLock(ctx, e.path+".lock")
	if errors.Is(err, edge.ErrHeld) {
		return nil, e.about(fmt.Errorf("another process holds the lock: %w", ctx.Err()))
	}
	if err != nil {
		return nil, e.about(fmt.Errorf("lock: %w", err))
	}
	return func() { _ = f.Close() }, nil // which gives the lock back
}
