package secret_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/zalando/go-keyring"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/secret"
)

// said is a source that says something.
func said(name string, password edge.Secret, err error) secret.Source {
	return secret.Source{Name: name, Password: func(context.Context) (edge.Secret, error) { return password, err }}
}

// Each source is asked until one has the right password, and an error says what the others
// had, but for the passwords.
func TestUnlockFrom(t *testing.T) {
	path := made(t, map[secret.Ref]edge.Secret{own("A"): "v"}).Path()
	e := secret.NewEncrypted(path)
	never := secret.Source{Name: "never", Password: func(context.Context) (edge.Secret, error) {
		t.Error("asked though it is open")
		return "", nil
	}}
	got, err := e.UnlockFrom(t.Context(), secret.InEnvironment(environment(nil)), said("first", "wrong password", nil), said("second", "", errors.New("broken")), said("third", password, nil), never)
	if err != nil || got != password {
		t.Fatal(err)
	}
	wantValue(t, e, own("A"), "v")
	if got, err := e.UnlockFrom(t.Context(), never); err != nil || got != "" {
		t.Error(err)
	}

	e = secret.NewEncrypted(path)
	_, err = e.UnlockFrom(t.Context(), secret.InEnvironment(environment(map[string]string{secret.PasswordVariable: "wrong password"})), said("second", "", errors.New("broken")))
	if !errors.Is(err, secret.ErrLocked) || !errors.Is(err, secret.ErrPassword) {
		t.Error(err)
	}
	for _, part := range []string{secret.PasswordVariable + ": secrets in " + path, "second: broken", "weir secret unlock"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "wrong password") {
		t.Error(err)
	}
	if _, err := e.UnlockFrom(t.Context()); !errors.Is(err, secret.ErrLocked) {
		t.Error(err)
	}
	if !e.Locked() {
		t.Error("it is open")
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := secret.Source{Name: "terminal", Password: func(context.Context) (edge.Secret, error) { cancel(); return "", context.Canceled }}
	if _, err := e.UnlockFrom(ctx, gone, never); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := secret.NewEncrypted(path+"x").UnlockFrom(t.Context(), never); !errors.Is(err, secret.ErrNotSetUp) {
		t.Error(err)
	}
}

// The keyring keeps the password of one file, and does not know that of another.
func TestKeyring(t *testing.T) {
	keyring.MockInit() // the keyring of this process from here on
	bus := environment(map[string]string{"DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere"})
	path := made(t, nil).Path()
	e := secret.NewEncrypted(path)
	if err := e.KeepInKeyring(t.Context(), bus, password); err != nil {
		t.Fatal(err)
	}
	if got, err := e.UnlockFrom(t.Context(), e.InKeyring(bus)); err != nil || got != password {
		t.Error(err)
	}
	other := secret.NewEncrypted(made(t, nil).Path())
	if got, err := other.InKeyring(bus).Password(t.Context()); err != nil || got != "" {
		t.Errorf("%q, %v", string(got), err)
	}
	if runtime.GOOS == "linux" { // where a session bus leads to it
		none := environment(map[string]string{"DBUS_SESSION_BUS_ADDRESS": "autolaunch:"})
		if got, err := e.InKeyring(none).Password(t.Context()); err != nil || got != "" {
			t.Errorf("without a bus: %q, %v", string(got), err)
		}
		if err := e.KeepInKeyring(t.Context(), none, password); !errors.Is(err, secret.ErrNoKeyring) {
			t.Errorf("without a bus: %v", err)
		}
	}
	keyring.MockInitWithError(errors.New("locked by somebody"))
	if _, err := e.InKeyring(bus).Password(t.Context()); err != nil {
		t.Errorf("a keyring that does not work is asked no more: %v", err)
	}
	if err := e.KeepInKeyring(t.Context(), bus, password); !errors.Is(err, secret.ErrNoKeyring) || !strings.Contains(err.Error(), "locked by somebody") {
		t.Error(err)
	}
	if secret.KeyringPatience > time.Minute {
		t.Errorf("a keyring may take %s", secret.KeyringPatience)
	}
}
