// Package secret finds the values that SecretRef fields refer to: in a
// directory, in a store, in Secret documents and in the environment, in this
// order. A value that changes there is what the next caller gets.
//
// secret.go is the search; ref.go the names, provider.go the places by themselves, which
// "weir secret" writes and lists: of these, encrypted.go is a file that a password opens,
// sealed.go its form, keyring.go and unlock.go are where the password comes from.
package secret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Bounds of reading and caching.
const (
	MaxSize  = 1 << 20 // bytes of one value: what a Secret of Kubernetes may hold
	maxName  = 253     // characters of a name or of a key
	maxFiles = 4096    // values of files that are kept
)

// settled is the age that a file must have when it is read, so that an equal time of
// change later proves that it is the same: file systems count time in steps, and a
// file may be written twice within one.
const settled = time.Second

// ErrNowhere says that no place has the key of a secret.
var ErrNowhere = errors.New("not found")

// ErrUnset is an ErrNowhere of a secret for which there is no other place than the environment of
// this process.
var ErrUnset = fmt.Errorf("%w", ErrNowhere)

// Options say where secrets are.
type Options struct {
	Dir string // holds files NAME/KEY; "" for none

	// Store is asked for what the directory does not have; nil for none.
	Store Provider

	// Lookup finds a variable of the environment. It is os.LookupEnv when nil.
	Lookup func(name string) (string, bool)

	// NoEnvironment says that a secret is not looked for in the environment.
	NoEnvironment bool
}

// Documents are the values of Secret documents by name and key.
type Documents map[string]map[string]edge.Secret

// Secrets is edge.Secrets over all places. It is safe for concurrent use.
type Secrets struct {
	dir       string
	store     Provider
	lookup    func(string) (string, bool) // nil where the environment is no place
	documents atomic.Pointer[Documents]

	mu    sync.RWMutex
	files map[Ref]*file
}

var _ edge.Secrets = (*Secrets)(nil)

// file is a value that was read, and the metadata of its file at that time. It is
// never changed.
type file struct {
	path  string
	info  fs.FileInfo
	sure  bool // that a file which looks the same is the same
	value edge.Secret
}

// New looks for secrets where the options say. It fails when the directory is
// none that can be read.
func New(o Options) (*Secrets, error) {
	s := &Secrets{dir: o.Dir, store: o.Store, lookup: o.Lookup, files: make(map[Ref]*file)}
	switch {
	case o.NoEnvironment:
		s.lookup = nil
	case s.lookup == nil:
		s.lookup = os.LookupEnv
	}
	s.documents.Store(&Documents{})
	if s.dir == "" {
		return s, nil
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, fmt.Errorf("secret: directory: %w", err)
	}
	return s, root.Close()
}

// Secret returns the value of a key of a secret. The error has the kind
// NotFound when it is nowhere, and names the secret, the key and the places;
// it never holds a value.
func (s *Secrets) Secret(ctx context.Context, name, key string) (edge.Secret, error) {
	return s.find(ctx, Ref{name, key}, *s.documents.Load())
}

// find looks in the directory, then in the store, then in the documents, then in the
// environment. What is found and is not sound ends the search: the next place is no
// substitute for it. Nor is one for a store that is locked.
func (s *Secrets) find(ctx context.Context, r Ref, documents Documents) (edge.Secret, error) {
	if !valid(r.Name) || !valid(r.Key) {
		return "", fail(edge.NotFound, Ref{brief(r.Name), brief(r.Key)}, errors.New("no name of a secret and a key: letters, digits, -, _ and ., which a dot does not begin"))
	}
	if s.dir != "" {
		value, err := s.file(r)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return value, err
		}
	}
	if s.store != nil {
		value, err := s.store.Get(ctx, r)
		if err == nil || !errors.Is(err, ErrNowhere) {
			return value, err
		}
	}
	if value, ok := documents[r.Name][r.Key]; ok {
		return checked(r, "its Secret document", value)
	}
	if s.lookup == nil {
		return "", fail(edge.NotFound, r, fmt.Errorf("%w %sin Secret documents; "+FallbackVariable+" keeps from looking in the environment", ErrNowhere, s.places(r)))
	}
	variable := Variable(r.Name, r.Key)
	if value, ok := s.lookup(variable); ok {
		return checked(r, "the environment variable "+variable, edge.Secret(value))
	}
	nowhere := ErrNowhere
	if s.store == nil && s.dir == "" {
		nowhere = ErrUnset
	}
	return "", fail(edge.NotFound, r, fmt.Errorf("%w %sin Secret documents, and in the environment as %s", nowhere, s.places(r), variable))
}

// places names the places before the documents, for an error.
func (s *Secrets) places(r Ref) (text string) {
	if s.dir != "" {
		text = fmt.Sprintf("in %s, ", filepath.Join(s.dir, r.Name, r.Key))
	}
	if s.store != nil {
		text += fmt.Sprintf("among %s secrets, ", s.store.Name())
	}
	return text
}

// checked is a value that was found, or why it is none.
func checked(r Ref, where string, value edge.Secret) (edge.Secret, error) {
	switch {
	case value == "":
		return "", fail(edge.NotFound, r, fmt.Errorf("%s is empty", where))
	case len(value) > MaxSize:
		return "", fail(edge.TooLarge, r, fmt.Errorf("%s has more than %d bytes", where, MaxSize))
	}
	return value, nil
}

func fail(kind edge.Kind, r Ref, err error) error {
	return &edge.Error{Kind: kind, Op: "secret " + r.String(), Err: err}
}

// file returns the present content of the file of a secret. The error is
// fs.ErrNotExist if there is none.
func (s *Secrets) file(r Ref) (edge.Secret, error) {
	s.mu.RLock()
	known := s.files[r]
	s.mu.RUnlock()
	if known != nil && known.sure {
		// To look at a file costs less than to read it. What is read is what the
		// root lets be read.
		if now, err := os.Stat(known.path); err == nil && same(known.info, now) {
			return known.value, nil
		}
	}
	read, err := s.read(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.files, r)
		return "", err
	}
	if len(s.files) >= maxFiles {
		clear(s.files)
	}
	s.files[r] = read
	return read.value, nil
}

// same reports whether two looks at a file saw the same one, unchanged.
func same(a, b fs.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}

// read reads the file of a secret. Links are followed, as Kubernetes makes them
// in what it mounts, and lead to nothing outside the directory.
func (s *Secrets) read(r Ref) (*file, error) {
	wrong := func(err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return fail(edge.Unavailable, r, fmt.Errorf("file: %w", err))
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		// Were it not there, other places would stand in for all that it holds.
		return nil, fail(edge.Unavailable, r, errors.New("the directory of secrets cannot be opened"))
	}
	defer root.Close()
	below := filepath.Join(r.Name, r.Key)
	info, err := root.Stat(below)
	if r.Name == Own && errors.Is(err, fs.ErrNotExist) { // a file by the name alone, as engines mount them
		below = r.Key
		if info, err = root.Stat(below); err == nil && info.IsDir() {
			err = fs.ErrNotExist // it has the keys of another secret
		}
	}
	if err != nil {
		return nil, wrong(err)
	}
	if !info.Mode().IsRegular() { // to open a pipe would wait for its other end
		return nil, wrong(errors.New("it is not a regular file"))
	}
	f, err := root.Open(below)
	if err != nil {
		return nil, wrong(err)
	}
	defer f.Close()
	now := time.Now()
	if info, err = f.Stat(); err != nil {
		return nil, wrong(err)
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, wrong(err)
	}
	value, err := checked(r, "its file", edge.Secret(text))
	if err != nil {
		return nil, err
	}
	return &file{
		path: filepath.Join(s.dir, below), info: info, value: value,
		sure: now.Sub(info.ModTime()) > settled && int64(len(text)) == info.Size(),
	}, nil
}

// Draft is the secrets as they will be with the documents of a set that is
// about to be served. Parts of that set open with it and keep it. Once it is
// adopted it says what Secrets says, so that a part which lives on sees the
// documents of later sets, too.
type Draft struct {
	secrets   *Secrets
	documents atomic.Pointer[Documents] // nil once adopted
}

var _ edge.Secrets = (*Draft)(nil)

// Draft returns the secrets with other documents. What serves goes on with
// those that it has, and a draft that is never adopted leaves nothing behind.
func (s *Secrets) Draft(d Documents) *Draft {
	own := make(Documents, len(d))
	for name, values := range d {
		own[name] = maps.Clone(values)
	}
	draft := &Draft{secrets: s}
	draft.documents.Store(&own)
	return draft
}

// Secret is Secrets.Secret with the documents of the draft.
func (d *Draft) Secret(ctx context.Context, name, key string) (edge.Secret, error) {
	if documents := d.documents.Load(); documents != nil {
		return d.secrets.find(ctx, Ref{name, key}, *documents)
	}
	return d.secrets.Secret(ctx, name, key)
}

// Adopt makes the documents of the draft those of all: its set is served now.
// Only the first call does anything.
func (d *Draft) Adopt() {
	if documents := d.documents.Load(); documents != nil {
		d.secrets.documents.Store(documents)
		d.documents.Store(nil)
	}
}
