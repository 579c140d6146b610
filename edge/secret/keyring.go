package secret

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/zalando/go-keyring"

	"github.com/weir-edge/weir/edge"
)

// keyringService is the name under which passwords lie in a keyring; the account is the path
// of the file.
const keyringService = "weir secrets"

// keyringPatience is how long a keyring may take: somebody may have to open it first.
const keyringPatience = 30 * time.Second

// ErrNoKeyring says that the operating system keeps no passwords here.
var ErrNoKeyring = errors.New("this machine has no keyring that answers")

// InKeyring is the operating system's keyring as a source of the password.
func (e *Encrypted) InKeyring(lookup func(name string) (string, bool)) Source {
	return Source{"the keyring", func(ctx context.Context) (password edge.Secret, err error) {
		err = inKeyring(ctx, lookup, func() error {
			text, err := keyring.Get(keyringService, e.account())
			password = edge.Secret(text)
			return err
		})
		if errors.Is(err, ErrNoKeyring) || errors.Is(err, keyring.ErrNotFound) {
			return "", nil
		}
		return password, err
	}}
}

// KeepInKeyring keeps a password in the operating system's keyring. The error is
// ErrNoKeyring where there is none.
func (e *Encrypted) KeepInKeyring(ctx context.Context, lookup func(name string) (string, bool), password edge.Secret) error {
	return inKeyring(ctx, lookup, func() error { return keyring.Set(keyringService, e.account(), string(password)) })
}

// account is the name of the password.
func (e *Encrypted) account() string {
	if path, err := filepath.Abs(e.path); err == nil {
		return path
	}
	return e.path
}

// inKeyring asks the keyring something, for a while: its library has no end of its own.
func inKeyring(ctx context.Context, lookup func(name string) (string, bool), ask func() error) error {
	if !keyringThere(lookup) {
		return ErrNoKeyring
	}
	ctx, cancel := context.WithTimeout(ctx, keyringPatience)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- ask() }() // ends with the keyring's answer
	select {
	case err := <-answer:
		switch {
		case errors.Is(err, keyring.ErrNotFound) || err == nil:
			return err
		case errors.Is(err, keyring.ErrUnsupportedPlatform):
			return ErrNoKeyring
		}
		return fmt.Errorf("%w: %w", ErrNoKeyring, err)
	case <-ctx.Done():
		return fmt.Errorf("the keyring does not answer: %w", ctx.Err())
	}
}

// keyringThere reports whether there may be a keyring. Where a session bus leads to it and
// there is none, the library would start one.
func keyringThere(lookup func(name string) (string, bool)) bool {
	if runtime.GOOS == "darwin" || runtime.GOOS == "windows" {
		return true
	}
	if address, ok := lookup("DBUS_SESSION_BUS_ADDRESS"); ok && address != "" {
		return address != "autolaunch:"
	}
	for _, name := range []string{"bus", "dbus-session"} {
		if _, err := os.Stat(filepath.Join("/run/user", strconv.Itoa(os.Getuid()), name)); err == nil {
			return true
		}
	}
	return false
}
