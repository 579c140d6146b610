package secret

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/weir-edge/weir/edge"
)

// Provider is one place where secrets are kept. What a provider cannot do is an error that
// is ErrCannot and says what to do instead. Errors show no value.
type Provider interface {
	// Name is the word by which it is chosen.
	Name() string
	// Get returns a value. The error is ErrNowhere where there is none.
	Get(ctx context.Context, r Ref) (edge.Secret, error)
	// List returns the names of all values, in order.
	List(ctx context.Context) ([]Ref, error)
	// Set keeps values, all of them or none, in the place of those of the same names.
	Set(ctx context.Context, values map[Ref]edge.Secret) error
	// Delete forgets a value. The error is ErrNowhere where there is none.
	Delete(ctx context.Context, r Ref) error
}

// The names of the providers.
const (
	EncryptedProvider   = "encrypted"
	EnvironmentProvider = "environment"
	DirectoryProvider   = "directory"
)

// Providers are the names of all of them.
func Providers() []string {
	return []string{EncryptedProvider, EnvironmentProvider, DirectoryProvider}
}

// Variables by which a provider is chosen.
const (
	ProviderVariable = "WEIR_SECRETS_PROVIDER"
	FallbackVariable = "WEIR_DISABLE_ENV_FALLBACK" // true: a secret that the provider lacks is nowhere
)

// ErrCannot says that a provider has no way to do something.
var ErrCannot = errors.New("it cannot be done there")

// Choice is what the choice of a provider depends on.
type Choice struct {
	File       string // of the encrypted provider
	Dir        string // of the directory provider; "" for none
	Configured string // provider that a file of settings names; "" for none

	// Lookup finds a variable of the environment.
	Lookup func(name string) (string, bool)
}

// Provider is the provider that WEIR_SECRETS_PROVIDER names, else the configured one, else
// what is set up: a directory that is given, a file of secrets that is there, or the
// environment.
func (c Choice) Provider() (Provider, error) {
	name, from := c.Configured, "secrets.provider"
	if text, ok := c.Lookup(ProviderVariable); ok && text != "" {
		name, from = text, ProviderVariable
	}
	if name == "" {
		switch _, err := os.Lstat(c.File); {
		case c.Dir != "":
			name = DirectoryProvider
		case err == nil:
			name = EncryptedProvider
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("secrets: %w", err)
		default:
			name = EnvironmentProvider
		}
	}
	switch name {
	case EncryptedProvider:
		return NewEncrypted(c.File), nil
	case EnvironmentProvider:
		return environment{c.Lookup}, nil
	case DirectoryProvider:
		if c.Dir == "" {
			return nil, fmt.Errorf("%s: the provider directory needs one: name it with --secrets-dir", from)
		}
		s, err := New(Options{Dir: c.Dir, NoEnvironment: true})
		if err != nil {
			return nil, fmt.Errorf("--secrets-dir: %w: name a directory with a file NAME/KEY for each secret", err)
		}
		return directory{s}, nil
	}
	return nil, fmt.Errorf("%s: there is no provider %q: write encrypted, environment or directory", from, edge.Brief(name))
}

// Later is the provider of what runs for long: as Provider, but where nothing names one and
// nothing is set up it is the encrypted one, whose file may come later.
func (c Choice) Later() (Provider, error) {
	p, err := c.Provider()
	if named, _ := c.Lookup(ProviderVariable); err == nil && p.Name() == EnvironmentProvider && named == "" && c.Configured == "" {
		e := NewEncrypted(c.File)
		e.later = true
		return e, nil
	}
	return p, err
}

// Options are those of a search that begins with a provider, which goes on in the
// environment unless WEIR_DISABLE_ENV_FALLBACK keeps it from that.
func (c Choice) Options(p Provider) (Options, error) {
	o := Options{Dir: c.Dir, Lookup: c.Lookup}
	switch p.Name() {
	case EncryptedProvider:
		o.Store = p
	case EnvironmentProvider:
		return o, nil
	}
	if text, ok := c.Lookup(FallbackVariable); ok && text != "" {
		yes, err := strconv.ParseBool(text)
		if err != nil {
			return o, fmt.Errorf("%s: %q is neither true nor false", FallbackVariable, edge.Brief(text))
		}
		o.NoEnvironment = yes
	}
	return o, nil
}

// environment is the provider of variables: it knows no names, and changes nothing.
type environment struct {
	lookup func(name string) (string, bool)
}

func (environment) Name() string { return EnvironmentProvider }

func (e environment) Get(_ context.Context, r Ref) (edge.Secret, error) {
	variable := Variable(r.Name, r.Key)
	value, ok := e.lookup(variable)
	if !ok {
		return "", fail(edge.NotFound, r, fmt.Errorf("%w in the environment as %s", ErrNowhere, variable))
	}
	return checked(r, "the environment variable "+variable, edge.Secret(value))
}

func (environment) List(context.Context) ([]Ref, error) {
	return nil, fmt.Errorf("secrets of the environment: %w: the names of variables do not say the names of secrets: `weir secret setup` makes a file that lists them", ErrCannot)
}

func (environment) Set(_ context.Context, values map[Ref]edge.Secret) error {
	where := "variables"
	for r := range values {
		if len(values) == 1 {
			where = Variable(r.Name, r.Key)
		}
	}
	return fmt.Errorf("secrets of the environment: %w: set %s, or keep secrets in a file that `weir secret setup` makes", ErrCannot, where)
}

func (environment) Delete(_ context.Context, r Ref) error {
	return fmt.Errorf("secrets of the environment: %w: unset %s", ErrCannot, Variable(r.Name, r.Key))
}

// directory is the provider of files NAME/KEY, and of Own also of files KEY, which somebody
// else writes.
type directory struct{ secrets *Secrets }

func (directory) Name() string { return DirectoryProvider }

func (d directory) Get(_ context.Context, r Ref) (edge.Secret, error) {
	if !valid(r.Name) || !valid(r.Key) {
		return "", ErrName
	}
	value, err := d.secrets.file(r)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fail(edge.NotFound, r, fmt.Errorf("%w in %s", ErrNowhere, d.path(r)))
	}
	return value, err
}

func (d directory) path(r Ref) string { return filepath.Join(d.secrets.dir, r.Name, r.Key) }

// List takes for a secret what Get would look at: whatever has a name of one, and is no
// directory.
func (d directory) List(context.Context) ([]Ref, error) {
	root, err := os.OpenRoot(d.secrets.dir)
	if err != nil {
		return nil, fmt.Errorf("secrets of a directory: %w", err)
	}
	defer root.Close()
	found := make(map[Ref]edge.Secret)
	below := func(dir string, each func(name string, info fs.FileInfo)) {
		entries, readErr := fs.ReadDir(root.FS(), dir)
		err = errors.Join(err, readErr)
		for _, e := range entries {
			if info, err := root.Stat(filepath.Join(dir, e.Name())); err == nil && valid(e.Name()) {
				each(e.Name(), info)
			}
		}
	}
	below(".", func(name string, info fs.FileInfo) {
		if !info.IsDir() {
			found[Ref{Own, name}] = ""
			return
		}
		below(name, func(key string, info fs.FileInfo) {
			if !info.IsDir() {
				found[Ref{name, key}] = ""
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("secrets of a directory: %w", err)
	}
	return sorted(found), nil
}

func (d directory) Set(_ context.Context, values map[Ref]edge.Secret) error {
	where := filepath.Join(d.secrets.dir, "NAME", "KEY")
	for r := range values {
		if len(values) == 1 {
			where = d.path(r)
		}
	}
	return fmt.Errorf("secrets of a directory: %w: write the file %s", ErrCannot, where)
}

func (d directory) Delete(_ context.Context, r Ref) error {
	return fmt.Errorf("secrets of a directory: %w: remove the file %s", ErrCannot, d.path(r))
}
