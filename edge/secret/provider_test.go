package secret_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/secret"
)

// The variable chooses before what is configured, and that before what is set up.
func TestChoice(t *testing.T) {
	dir, there, absent := t.TempDir(), made(t, nil).Path(), filepath.Join(t.TempDir(), secret.FileName)
	for _, c := range []struct {
		variable, configured, dir, file string
		want, later                     string
	}{
		{file: absent, want: "environment", later: "encrypted"},
		{file: there, want: "encrypted", later: "encrypted"},
		{file: there, dir: dir, want: "directory", later: "directory"},
		{file: there, dir: dir, configured: "environment", want: "environment", later: "environment"},
		{file: there, dir: dir, configured: "environment", variable: "encrypted", want: "encrypted", later: "encrypted"},
		{file: absent, variable: "encrypted", want: "encrypted", later: "encrypted"},
		{file: absent, dir: dir, variable: "environment", want: "environment", later: "environment"},
	} {
		choice := secret.Choice{File: c.file, Dir: c.dir, Configured: c.configured, Lookup: environment(map[string]string{secret.ProviderVariable: c.variable})}
		p, err := choice.Provider()
		if err != nil || p.Name() != c.want {
			t.Errorf("%+v: %v, %v", c, p, err)
		}
		if p, err = choice.Later(); err != nil || p.Name() != c.later {
			t.Errorf("%+v, later: %v, %v", c, p, err)
		}
	}
	for _, c := range []struct {
		choice secret.Choice
		want   string
	}{
		{secret.Choice{Configured: "vault"}, `secrets.provider: there is no provider "vault": write encrypted, environment or directory`},
		{secret.Choice{Lookup: environment(map[string]string{secret.ProviderVariable: "1password"})}, `WEIR_SECRETS_PROVIDER: there is no provider "1password"`},
		{secret.Choice{Configured: "directory"}, "name it with --secrets-dir"},
		{secret.Choice{Dir: absent}, "--secrets-dir: "},
	} {
		if c.choice.Lookup == nil {
			c.choice.Lookup = environment(nil)
		}
		if p, err := c.choice.Provider(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, %v", c.choice, p, err)
		}
	}
}

// search is a search that begins with the provider that is chosen.
func search(t *testing.T, c secret.Choice, password edge.Secret) *secret.Secrets {
	t.Helper()
	p, err := c.Later()
	if err != nil {
		t.Fatal(err)
	}
	if e, ok := p.(*secret.Encrypted); ok && password != "" {
		if err := e.Unlock(password); err != nil {
			t.Fatal(err)
		}
	}
	o, err := c.Options(p)
	if err != nil {
		t.Fatal(err)
	}
	return open(t, o)
}

// A search finds what the provider has, and else what the environment has, where that is not
// kept from it. A store that is locked has no substitute.
func TestSearchFromAProvider(t *testing.T) {
	e := made(t, map[secret.Ref]edge.Secret{own("A"): "of the file"})
	vars := map[string]string{"WEIR_SECRET_A": "of the environment", "WEIR_SECRET_B": "of the environment"}
	c := secret.Choice{File: e.Path(), Lookup: environment(vars)}
	s := search(t, c, password)
	want(t, s, secret.Own, "A", "of the file")
	want(t, s, secret.Own, "B", "of the environment")
	if err := e.Set(t.Context(), map[secret.Ref]edge.Secret{own("A"): "anew"}); err != nil {
		t.Fatal(err)
	}
	want(t, s, secret.Own, "A", "anew")

	_, err := search(t, c, "").Secret(t.Context(), secret.Own, "B")
	if !errors.Is(err, secret.ErrLocked) || edge.KindOf(err) != edge.Unavailable {
		t.Errorf("locked: %v", err)
	}

	for _, no := range []string{"true", "1"} {
		vars[secret.FallbackVariable] = no
		_, err = search(t, c, password).Secret(t.Context(), secret.Own, "B")
		if !errors.Is(err, secret.ErrNowhere) || !strings.Contains(err.Error(), secret.FallbackVariable) {
			t.Errorf("without the environment: %v", err)
		}
	}
	vars[secret.ProviderVariable] = secret.EnvironmentProvider // which is then no fallback
	want(t, search(t, c, ""), secret.Own, "B", "of the environment")
	delete(vars, secret.ProviderVariable)
	vars[secret.FallbackVariable] = "false"
	want(t, search(t, c, password), secret.Own, "B", "of the environment")
	vars[secret.FallbackVariable] = "no thanks"
	p, _ := c.Provider()
	if _, err := c.Options(p); err == nil || !strings.Contains(err.Error(), secret.FallbackVariable) {
		t.Errorf("neither true nor false: %v", err)
	}
}

// What runs already finds the secrets of a file that is set up later.
func TestSearchFromAFileThatComesLater(t *testing.T) {
	c := secret.Choice{File: filepath.Join(t.TempDir(), secret.FileName), Lookup: environment(map[string]string{"WEIR_SECRET_A": "of the environment"})}
	p, err := c.Later()
	if err != nil {
		t.Fatal(err)
	}
	o, err := c.Options(p)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, o)
	want(t, s, secret.Own, "A", "of the environment")
	if _, err := s.Secret(t.Context(), secret.Own, "B"); !errors.Is(err, secret.ErrNowhere) {
		t.Error(err)
	}
	e := secret.Cheap(secret.NewEncrypted(c.File))
	if err := e.Create(t.Context(), password, nil); err != nil {
		t.Fatal(err)
	}
	if err := e.Set(t.Context(), map[secret.Ref]edge.Secret{own("B"): "of the file"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Secret(t.Context(), secret.Own, "B"); !errors.Is(err, secret.ErrLocked) {
		t.Error(err)
	}
	if err := p.(*secret.Encrypted).Unlock(password); err != nil {
		t.Fatal(err)
	}
	want(t, s, secret.Own, "B", "of the file")
}

// Variables are read alone, and each refusal says what to do.
func TestEnvironmentProvider(t *testing.T) {
	p, err := secret.Choice{Configured: secret.EnvironmentProvider, Lookup: environment(map[string]string{"WEIR_SECRET_A": "a", "WEIR_SECRET_TLS_KEY_PEM": "k", "WEIR_SECRET_EMPTY": ""})}.Provider()
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, p, own("A"), "a")
	wantValue(t, p, secret.Ref{Name: "tls", Key: "key.pem"}, "k")
	if _, err := p.Get(t.Context(), own("EMPTY")); err == nil {
		t.Error("an empty variable is a secret")
	}
	if _, err := p.Get(t.Context(), own("B")); !errors.Is(err, secret.ErrNowhere) || !strings.Contains(err.Error(), "WEIR_SECRET_B") {
		t.Error(err)
	}
	_, listErr := p.List(t.Context())
	cannot(t, listErr, "names")
	cannot(t, p.Set(t.Context(), map[secret.Ref]edge.Secret{own("B"): "planted"}), "WEIR_SECRET_B")
	cannot(t, p.Set(t.Context(), map[secret.Ref]edge.Secret{own("B"): "planted", own("C"): "planted"}), "weir secret setup")
	cannot(t, p.Delete(t.Context(), own("B")), "unset WEIR_SECRET_B")
}

func cannot(t *testing.T, err error, next string) {
	t.Helper()
	if !errors.Is(err, secret.ErrCannot) || !strings.Contains(err.Error(), next) || strings.Contains(err.Error(), "planted") {
		t.Errorf("%v lacks %q", err, next)
	}
}

// A directory has files NAME/KEY, and NAME alone as engines mount them. It is read and
// listed, and nothing that is listed cannot be read.
func TestDirectoryProvider(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "tls", "key.pem", "k", time.Hour)
	write(t, dir, secret.Own, "TOKEN", "of the secret", time.Hour)
	write(t, dir, ".", "TOKEN", "of the file", time.Hour)
	write(t, dir, ".", "PLAIN", "plain", time.Hour)
	write(t, dir, ".", ".hidden", "no", time.Hour)
	write(t, dir, "tls", "no name", "no", time.Hour)
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "OUT")); err != nil {
		t.Fatal(err)
	}
	c := secret.Choice{Dir: dir, Lookup: environment(map[string]string{"WEIR_SECRET_TLS": "of the environment"})}
	p, err := c.Provider()
	if err != nil {
		t.Fatal(err)
	}
	all, err := p.List(t.Context())
	if err != nil || fmt.Sprint(all) != "[PLAIN TOKEN tls/key.pem]" {
		t.Errorf("%v, %v", all, err)
	}
	for _, r := range all {
		if _, err := p.Get(context.Background(), r); err != nil {
			t.Error(err)
		}
	}
	wantValue(t, p, own("TOKEN"), "of the secret")
	wantValue(t, p, own("PLAIN"), "plain")
	wantValue(t, p, secret.Ref{Name: "tls", Key: "key.pem"}, "k")
	want(t, search(t, c, ""), secret.Own, "tls", "of the environment") // a directory is no value
	for r, want := range map[secret.Ref]error{own("NONE"): secret.ErrNowhere, own("tls"): secret.ErrNowhere, {Name: "..", Key: "x"}: secret.ErrName} {
		if _, err := p.Get(t.Context(), r); !errors.Is(err, want) {
			t.Errorf("%s: %v", r, err)
		}
	}
	if _, err := p.Get(t.Context(), own("OUT")); err == nil {
		t.Error("a link leads out")
	}
	cannot(t, p.Set(t.Context(), map[secret.Ref]edge.Secret{own("B"): "planted"}), filepath.Join(dir, secret.Own, "B"))
	cannot(t, p.Delete(t.Context(), secret.Ref{Name: "tls", Key: "key.pem"}), filepath.Join(dir, "tls", "key.pem"))
}
