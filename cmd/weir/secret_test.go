package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/workload"
)

// unlockable is a manager that takes a password, or refuses it.
type unlockable struct {
	workload.Manager
	got     edge.Secret
	refuses error
}

func (m *unlockable) Unlock(_ context.Context, password edge.Secret) error {
	m.got = password
	return m.refuses
}

// secretApp runs commands for a home of its own.
func secretApp(t *testing.T, m workload.Manager, environ ...string) (run func(args ...string) (said string, code int), a *app) {
	t.Helper()
	var out bytes.Buffer
	a = &app{in: strings.NewReader(""), out: &out, err: &out, environ: append([]string{"WEIR_HOME=" + t.TempDir()}, environ...), exit: func(int) {}}
	a.managed = func(context.Context, bool) (workload.Manager, error) {
		if m == nil {
			return nil, workload.ErrNoManager
		}
		return m, nil
	}
	return func(args ...string) (string, int) {
		out.Reset()
		a.password = "" // each command is a process
		code := a.run(append([]string{"secret"}, args...))
		return out.String(), code
	}, a
}

// A manager that runs gets the password when secrets are set up, and by `weir secret unlock`;
// never one that is wrong.
func TestSecretUnlock(t *testing.T) {
	m := &unlockable{}
	run, a := secretApp(t, m, "WEIR_SECRETS_PASSWORD=the right password")
	if said, code := run("setup"); code != 0 || m.got != "the right password" {
		t.Fatalf("%d, %s", code, said)
	}
	m.got = ""
	if said, code := run("unlock"); code != 0 || said != "the manager has the password\n" || m.got != "the right password" {
		t.Errorf("%d, %s", code, said)
	}
	m.refuses = &workload.Error{Code: workload.CodeRefused, Message: "it has another file"}
	if said, code := run("unlock"); code != 9 || !strings.Contains(said, "it has another file") {
		t.Errorf("%d, %s", code, said)
	}
	m.got = ""
	a.environ = append(a.environ, "WEIR_SECRETS_PASSWORD=a wrong password")
	if said, code := run("unlock"); code != 1 || m.got != "" || strings.Contains(said, "a wrong password") {
		t.Errorf("%d, %s", code, said)
	}
	for _, old := range []workload.Manager{struct{ workload.Manager }{}} {
		a.managed = func(context.Context, bool) (workload.Manager, error) { return old, nil }
		a.environ = append(a.environ, "WEIR_SECRETS_PASSWORD=the right password")
		if said, code := run("unlock"); code != 1 || !strings.Contains(said, "the manager takes no password") {
			t.Errorf("%d, %s", code, said)
		}
	}
}

// What keeps workloads has the user's secrets: unlocked where the password is known without
// asking, and else to be unlocked later.
func TestSecretsOfWorkloads(t *testing.T) {
	run, a := secretApp(t, nil, "WEIR_SECRETS_PASSWORD=the right password", "WEIR_SECRET_OTHER=of the environment")
	search := func(dir string) (*secret.Secrets, *secret.Encrypted, error) {
		t.Helper()
		a.password = ""
		o, e, locked, err := a.secrets().OfWorkloads(t.Context(), dir, false)
		if err != nil {
			t.Fatal(err)
		}
		s, err := secret.New(o)
		if err != nil {
			t.Fatal(err)
		}
		return s, e, locked
	}
	find := func(s *secret.Secrets, name, want string) {
		t.Helper()
		if got, err := s.Secret(t.Context(), secret.Own, name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, string(got), err)
		}
	}

	// 1. Before anything is set up, and after.
	early, e, locked := search("")
	if e == nil || locked != nil {
		t.Errorf("%v, %v", e, locked)
	}
	find(early, "OTHER", "of the environment")
	run("setup")
	a.in = strings.NewReader("of the file\n")
	if said, code := run("set", "TOKEN"); code != 0 {
		t.Fatalf("%d, %s", code, said)
	}
	if err := e.Unlock("the right password"); err != nil {
		t.Fatal(err)
	}
	find(early, "TOKEN", "of the file")

	// 2. With the password.
	s, _, locked := search("")
	if locked != nil {
		t.Error(locked)
	}
	find(s, "TOKEN", "of the file")
	find(s, "OTHER", "of the environment")

	// 3. Without it.
	a.environ = append(a.environ, "WEIR_SECRETS_PASSWORD=")
	s, e, locked = search("")
	if !errors.Is(locked, secret.ErrLocked) {
		t.Error(locked)
	}
	if _, err := s.Secret(t.Context(), secret.Own, "TOKEN"); !errors.Is(err, secret.ErrLocked) || !strings.Contains(err.Error(), "weir secret unlock") {
		t.Error(err)
	}
	if err := e.Unlock("the right password"); err != nil {
		t.Fatal(err)
	}
	find(s, "TOKEN", "of the file")

	// 4. Another provider.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "TOKEN"), []byte("of the directory"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, e, _ = search(dir)
	if e != nil {
		t.Error("a directory has a password")
	}
	find(s, "TOKEN", "of the directory")
	a.environ = append(a.environ, "WEIR_SECRETS_PROVIDER=environment")
	if s, e, _ = search(""); e != nil {
		t.Error("the environment has a password")
	}
	find(s, "OTHER", "of the environment")
	a.environ = append(a.environ, "WEIR_SECRETS_PROVIDER=odd")
	if _, _, _, err := a.secrets().OfWorkloads(t.Context(), "", false); err == nil {
		t.Error("an odd provider is taken")
	}
}

// Names are completed where no password has to be asked for.
func TestSecretCompletion(t *testing.T) {
	run, a := secretApp(t, nil, "WEIR_SECRETS_PASSWORD=the right password")
	run("setup")
	a.in = strings.NewReader("v")
	run("set", "GITHUB_TOKEN")
	complete := func() string {
		var out bytes.Buffer
		b := *a
		b.out, b.err = &out, &bytes.Buffer{}
		b.run([]string{"__complete", "secret", "get", ""})
		return out.String()
	}
	if got := complete(); !strings.Contains(got, "GITHUB_TOKEN\n") {
		t.Error(got)
	}
	a.environ = append(a.environ, "WEIR_SECRETS_PASSWORD=")
	if got := complete(); strings.Contains(got, "GITHUB_TOKEN") {
		t.Error(got)
	}
}
