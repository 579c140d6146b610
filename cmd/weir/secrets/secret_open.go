package secrets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/term"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/local"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/workload"
)

// lookup finds a variable of the environment.
func (a *Commands) Lookup(name string) (string, bool) { return cli.Lookup(a.Environ, name) }

// encrypted is the provider of encrypted secrets, locked.
func (a *Commands) encrypted() (*secret.Encrypted, error) {
	paths, err := a.Paths()
	if err != nil {
		return nil, err
	}
	return secret.NewEncrypted(filepath.Join(paths.Data, secret.FileName)), nil
}

// choice is what the choice of a provider of the user's secrets depends on: dir is that of
// --secrets-dir, "" for none.
func (a *Commands) choice(dir string) (c secret.Choice, err error) {
	paths, err := a.Paths()
	if err != nil {
		return c, err
	}
	defaults, err := local.ReadDefaults(filepath.Join(paths.Config, local.DefaultsName))
	if err != nil {
		return c, err
	}
	if dir == "" {
		dir, _ = a.Lookup("WEIR_SECRETS_DIR")
	}
	if dir == "" {
		dir = defaults.Secrets.Directory
	}
	return secret.Choice{File: filepath.Join(paths.Data, secret.FileName), Dir: dir, Configured: defaults.Secrets.Provider, Lookup: a.Lookup}, nil
}

// provider is the provider of the user's secrets.
func (a *Commands) provider(dir string) (secret.Provider, error) {
	c, err := a.choice(dir)
	if err != nil {
		return nil, err
	}
	return c.Provider()
}

// OfWorkloads are the options of the search for secrets of workloads, and the provider
// that a password unlocks; nil for another one. locked says why that has not been unlocked,
// which keeps nothing from being started but what needs a secret. The user is asked for a
// password where ask says so.
func (a *Commands) OfWorkloads(ctx context.Context, dir string, ask bool) (o secret.Options, e *secret.Encrypted, locked, err error) {
	c, err := a.choice(dir)
	if err != nil {
		return o, nil, nil, err
	}
	p, err := c.Later()
	if err != nil {
		return o, nil, nil, err
	}
	if e, _ = p.(*secret.Encrypted); e != nil {
		if _, locked = a.unlock(ctx, e, ask); errors.Is(locked, secret.ErrNotSetUp) {
			locked = nil // told by whoever needs it
		}
	}
	o, err = c.Options(p)
	return o, e, locked, err
}

// Unlocked is the provider of the user's secrets, after the password was found where one is
// needed.
func (a *Commands) Unlocked(ctx context.Context, dir string) (secret.Provider, error) {
	p, err := a.provider(dir)
	if err != nil {
		return nil, err
	}
	if e, ok := p.(*secret.Encrypted); ok {
		if _, err := a.unlock(ctx, e, true); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// unlock looks for the password of encrypted secrets, at the terminal last and only where ask
// says so, and unlocks them with it.
func (a *Commands) unlock(ctx context.Context, e *secret.Encrypted, ask bool) (edge.Secret, error) {
	from := []secret.Source{secret.InEnvironment(a.Lookup), e.InKeyring(a.Lookup)}
	if *a.Password != "" {
		from = []secret.Source{{Name: "what was given before", Password: func(context.Context) (edge.Secret, error) { return *a.Password, nil }}}
	} else if ask {
		from = append(from, secret.Source{Name: "the terminal", Password: func(ctx context.Context) (edge.Secret, error) {
			text, _, err := a.AskUnseen(ctx, "Password of your secrets: ")
			return text, err
		}})
	}
	password, err := e.UnlockFrom(ctx, from...)
	if password != "" { // which it is where it was unlocked already
		*a.Password = password
	}
	return password, err
}

// Searched are the options of the search for secrets of what serves manifests: those that its
// settings and its environment name, and no file of the user's that is merely there.
func Searched(ctx context.Context, dir string, environ []string) (o secret.Options, err error) {
	c := secret.Choice{Dir: dir, Lookup: func(name string) (string, bool) { return cli.Lookup(environ, name) }}
	if name, _ := c.Lookup(secret.ProviderVariable); name == secret.EncryptedProvider {
		paths, err := workload.PathsOf(c.Lookup)
		if err != nil {
			return o, err
		}
		c.File = filepath.Join(paths.Data, secret.FileName)
	}
	p, err := c.Provider()
	if err != nil {
		return o, err
	}
	if e, ok := p.(*secret.Encrypted); ok {
		if _, err := e.UnlockFrom(ctx, secret.InEnvironment(c.Lookup), e.InKeyring(c.Lookup)); err != nil {
			return o, err
		}
	}
	return c.Options(p)
}

// valueOf is the value of a secret that is to be kept: what is typed, or standard input.
func (a *Commands) valueOf(ctx context.Context, r secret.Ref) (edge.Secret, error) {
	if cli.Terminal(a.In) {
		value, _, err := a.AskUnseen(ctx, r.String()+": ")
		if err == nil && value == "" {
			err = errors.New("the value is empty: nothing is kept")
		}
		return value, err
	}
	text, err := io.ReadAll(io.LimitReader(a.In, secret.MaxSize+int64(len("\r\n"))+1))
	if err != nil {
		return "", fmt.Errorf("standard input: %w", err)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	switch {
	case value == "":
		return "", errors.New("standard input is empty: nothing is kept")
	case len(value) > secret.MaxSize:
		return "", fmt.Errorf("the value has more than %d bytes", secret.MaxSize)
	}
	return edge.Secret(value), nil
}

// AskUnseen asks on the terminal for something that it does not show; asked is false where
// there is no terminal. Where standard input is none, the one of the process is used.
func (a *Commands) AskUnseen(ctx context.Context, prompt string) (text edge.Secret, asked bool, err error) {
	in, ok := a.In.(*os.File)
	if !ok {
		return "", false, nil // no process of a user's
	}
	var out io.Writer = a.Err
	if !cli.Terminal(in) {
		if in, err = os.OpenFile(terminalName(), os.O_RDWR, 0); err != nil {
			return "", false, nil // it has none
		}
		defer in.Close()
		out = in
	}
	fd := int(in.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", false, nil // it is none
	}
	_, _ = io.WriteString(out, prompt)
	type answer struct {
		text []byte
		err  error
	}
	answered := make(chan answer, 1)
	go func() { // ends with a line, or with the process
		text, err := term.ReadPassword(fd)
		answered <- answer{text, err}
	}()
	defer func() { _, _ = io.WriteString(out, "\n") }()
	select {
	case got := <-answered:
		if got.err != nil && !errors.Is(got.err, io.EOF) {
			return "", true, fmt.Errorf("the terminal: %w", got.err)
		}
		return edge.Secret(got.text), true, nil
	case <-ctx.Done():
		_ = term.Restore(fd, before) // which does not show what is typed as long as it is read
		return "", true, ctx.Err()
	}
}

// terminalName is the file of the process's terminal.
func terminalName() string {
	if runtime.GOOS == "windows" {
		return "CONIN$"
	}
	return "/dev/tty"
}
