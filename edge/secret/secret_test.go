package secret_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/secret"
)

// write makes a file NAME/KEY that was last changed some time ago.
func write(t testing.TB, dir, name, key, value string, ago time.Duration) {
	t.Helper()
	path := filepath.Join(dir, name, key)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-ago)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, o secret.Options) *secret.Secrets {
	t.Helper()
	s, err := secret.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func want(t *testing.T, s edge.Secrets, name, key, value string) {
	t.Helper()
	got, err := s.Secret(t.Context(), name, key)
	if err != nil || string(got) != value {
		t.Errorf("%s/%s: %q, %v; want %q", name, key, string(got), err, value)
	}
}

func environment(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := values[name]; return v, ok }
}

// The directory comes before the documents, and these before the environment.
func TestOrderOfPlaces(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "github", "token", "of the directory", time.Hour)
	s := open(t, secret.Options{Dir: dir, Lookup: environment(map[string]string{
		"WEIR_SECRET_GITHUB_TOKEN": "of the environment", "WEIR_SECRET_A_KEY": "of the environment", "WEIR_SECRET_B_KEY": "of the environment"})})
	s.Draft(secret.Documents{"github": {"token": "of a document"}, "a": {"key": "of a document"}}).Adopt()
	want(t, s, "github", "token", "of the directory")
	want(t, s, "a", "key", "of a document")
	want(t, s, "b", "key", "of the environment")
}

func TestVariable(t *testing.T) {
	for _, c := range []struct{ name, key, want string }{
		{"github", "token", "WEIR_SECRET_GITHUB_TOKEN"},
		{"github-app", "private-key.pem", "WEIR_SECRET_GITHUB_APP_PRIVATE_KEY_PEM"},
		{"a.b", "C_d9", "WEIR_SECRET_A_B_C_D9"},
	} {
		if got := secret.Variable(c.name, c.key); got != c.want {
			t.Errorf("%s/%s: %s, want %s", c.name, c.key, got, c.want)
		}
	}
}

// Without an option, the environment is that of the process.
func TestEnvironmentOfTheProcess(t *testing.T) {
	t.Setenv("WEIR_SECRET_ENV_KEY", "v")
	want(t, open(t, secret.Options{}), "env", "key", "v")
}

// An error names the secret, the key and the places, and has a kind.
func TestNotFound(t *testing.T) {
	dir := t.TempDir()
	_, err := open(t, secret.Options{Dir: dir, Lookup: environment(nil)}).Secret(t.Context(), "github", "token")
	if edge.KindOf(err) != edge.NotFound {
		t.Errorf("kind %d", edge.KindOf(err))
	}
	for _, part := range []string{"github/token", filepath.Join(dir, "github", "token"), "Secret documents", "WEIR_SECRET_GITHUB_TOKEN"} {
		if !strings.Contains(fmt.Sprint(err), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
}

// What is found and not sound is an error: no other place stands in for it, and
// no error shows a value.
func TestUnsound(t *testing.T) {
	const planted = "hunter2-is-planted"
	dir := t.TempDir()
	write(t, dir, "empty", "key", "", time.Hour)
	write(t, dir, "large", "key", planted+strings.Repeat("x", secret.MaxSize), time.Hour)
	if err := os.MkdirAll(filepath.Join(dir, "folder", "key"), 0o700); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte(planted), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "link"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link", "key")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../"+filepath.Base(filepath.Dir(outside))+"/outside", filepath.Join(dir, "link", "up")); err != nil {
		t.Fatal(err)
	}
	s := open(t, secret.Options{Dir: dir, Lookup: func(name string) (string, bool) { return planted, true }})
	s.Draft(secret.Documents{"d": {"empty": "", "large": edge.Secret(planted + strings.Repeat("x", secret.MaxSize))}}).Adopt()
	for ref, kind := range map[[2]string]edge.Kind{
		{"empty", "key"}:  edge.NotFound,
		{"large", "key"}:  edge.TooLarge,
		{"folder", "key"}: edge.Unavailable,
		{"link", "key"}:   edge.Unavailable,
		{"link", "up"}:    edge.Unavailable,
		{"d", "empty"}:    edge.NotFound,
		{"d", "large"}:    edge.TooLarge,
	} {
		v, err := s.Secret(t.Context(), ref[0], ref[1])
		if err == nil || v != "" || edge.KindOf(err) != kind {
			t.Errorf("%v: %v, kind %d", ref, err, edge.KindOf(err))
		}
		if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, v), planted) {
			t.Errorf("%v: the error shows the value", ref)
		}
	}
}

// No name leads out of the directory, and one that is no name is not shown: it
// may be a secret in the wrong place.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "in", "key", "inside", time.Hour)
	write(t, filepath.Dir(dir), "out", "key", "outside", time.Hour)
	s := open(t, secret.Options{Dir: filepath.Join(dir, "in"), Lookup: func(string) (string, bool) { return "found", true }})
	for _, name := range []string{"", ".", "..", "../out", "a/b", `a\b`, "/etc", ".hidden", "a\x00b", "a b", "ä", strings.Repeat("a", 254), "hunter2 is planted"} {
		for _, ref := range [][2]string{{name, "key"}, {"in", name}} {
			v, err := s.Secret(t.Context(), ref[0], ref[1])
			if err == nil || v != "" {
				t.Errorf("%q: %q", ref, string(v))
			} else if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v shows the name", err)
			}
		}
	}
}

// A file that changes is read again by the next call, however it changes.
func TestFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, secret.Options{Dir: dir, Lookup: environment(map[string]string{"WEIR_SECRET_A_KEY": "environment"})})
	want(t, s, "a", "key", "environment")
	write(t, dir, "a", "key", "one", time.Hour)
	want(t, s, "a", "key", "one")
	want(t, s, "a", "key", "one")
	write(t, dir, "a", "key", "two", time.Minute)
	want(t, s, "a", "key", "two")

	// Of the same size and twice within a step of the clock.
	at := time.Now()
	for i := range 20 {
		value := fmt.Sprint("v", i%10)
		write(t, dir, "a", "key", value, 0)
		if err := os.Chtimes(filepath.Join(dir, "a", "key"), at, at); err != nil {
			t.Fatal(err)
		}
		want(t, s, "a", "key", value)
	}

	// Replaced by another file of the same size and time.
	write(t, dir, "a", "key", "three", time.Hour)
	want(t, s, "a", "key", "three")
	info, err := os.Stat(filepath.Join(dir, "a", "key"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "a", "new", "eerht", 0)
	if err := os.Chtimes(filepath.Join(dir, "a", "new"), info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "a", "new"), filepath.Join(dir, "a", "key")); err != nil {
		t.Fatal(err)
	}
	want(t, s, "a", "key", "eerht")

	if err := os.Remove(filepath.Join(dir, "a", "key")); err != nil {
		t.Fatal(err)
	}
	want(t, s, "a", "key", "environment")
}

// A directory that is gone is an error, not an empty one.
func TestDirectoryGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	if _, err := secret.New(secret.Options{Dir: dir}); err == nil {
		t.Error("a directory that is not there")
	}
	write(t, dir, "a", "key", "one", time.Hour)
	s := open(t, secret.Options{Dir: dir, Lookup: func(string) (string, bool) { return "environment", true }})
	want(t, s, "a", "key", "one")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Secret(t.Context(), "a", "key"); edge.KindOf(err) != edge.Unavailable {
		t.Error(v, err)
	}
}

// Kubernetes mounts a secret as links to links, and swaps one of them.
func TestKubernetesMount(t *testing.T) {
	dir := t.TempDir()
	mount := filepath.Join(dir, "github")
	step := func(name, value string) {
		t.Helper()
		write(t, mount, name, "token", value, time.Hour)
		if err := os.Symlink(name, filepath.Join(mount, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(mount, "..data_tmp"), filepath.Join(mount, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	step("..2026_01", "first-")
	if err := os.Symlink("..data/token", filepath.Join(mount, "token")); err != nil {
		t.Fatal(err)
	}
	s := open(t, secret.Options{Dir: dir, Lookup: environment(nil)})
	want(t, s, "github", "token", "first-")
	step("..2026_02", "second")
	want(t, s, "github", "token", "second")
}

// Every byte of a value counts, those of no text included.
func TestBytes(t *testing.T) {
	dir := t.TempDir()
	value := string([]byte{0, 0xff, '\n', 'a', '\r', '\n'})
	write(t, dir, "a", "key", value, time.Hour)
	s := open(t, secret.Options{Dir: dir})
	want(t, s, "a", "key", value)
}

// A draft sees its own documents, those of others do not until it is adopted,
// and then it sees those of later ones.
func TestDraft(t *testing.T) {
	s := open(t, secret.Options{Lookup: environment(nil)})
	given := secret.Documents{"a": {"key": "one"}}
	first := s.Draft(given)
	given["a"]["key"] = "changed by the caller"
	want(t, first, "a", "key", "one")
	if _, err := s.Secret(t.Context(), "a", "key"); edge.KindOf(err) != edge.NotFound {
		t.Error("seen before it is adopted", err)
	}
	first.Adopt()
	want(t, s, "a", "key", "one")

	failed := s.Draft(secret.Documents{"a": {"key": "never"}})
	want(t, failed, "a", "key", "never")
	want(t, s, "a", "key", "one")

	second := s.Draft(secret.Documents{"a": {"key": "two"}})
	want(t, first, "a", "key", "one")
	second.Adopt()
	want(t, first, "a", "key", "two")
	first.Adopt()
	want(t, s, "a", "key", "two")
}

// Readers and a writer who rotates by renaming: each value is whole.
func TestRotationUnderLoad(t *testing.T) {
	dir := t.TempDir()
	pad := strings.Repeat("x", 10_000)
	write(t, dir, "a", "key", pad+"0", 0)
	s := open(t, secret.Options{Dir: dir})
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if v, err := s.Secret(t.Context(), "a", "key"); err != nil || len(v) != len(pad)+1 {
					t.Errorf("%d bytes, %v", len(v), err)
					return
				}
			}
		})
	}
	for i := range 200 {
		write(t, dir, "a", "next", pad+fmt.Sprint(i%10), 0)
		if err := os.Rename(filepath.Join(dir, "a", "next"), filepath.Join(dir, "a", "key")); err != nil {
			t.Fatal(err)
		}
		want(t, s, "a", "key", pad+fmt.Sprint(i%10))
	}
	close(done)
	readers.Wait()
}

// The error of a missing file stays inside: fs.ErrNotExist is how the places
// are told apart, not what callers see.
func TestErrorsAreOurs(t *testing.T) {
	_, err := open(t, secret.Options{Dir: t.TempDir(), Lookup: environment(nil)}).Secret(t.Context(), "a", "b")
	if errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func FuzzNames(f *testing.F) {
	base := f.TempDir()
	dir := filepath.Join(base, "secrets")
	write(f, dir, "a", "key", "inside", time.Hour)
	write(f, base, "b", "key", "outside", time.Hour)
	s := open(f, secret.Options{Dir: dir, Lookup: environment(nil)})
	f.Add("a", "key")
	f.Add("..", "b/key")
	f.Add("../b", "key")
	f.Add("a/../../b", "key")
	f.Fuzz(func(t *testing.T, name, key string) {
		v, err := s.Secret(t.Context(), name, key)
		if err == nil && (string(v) != "inside" || name != "a" || key != "key") {
			t.Errorf("%q/%q: %q", name, key, string(v))
		}
		if err != nil && !bytes.Contains([]byte(err.Error()), []byte("secret ")) {
			t.Error(err)
		}
	})
}

func BenchmarkFile(b *testing.B) {
	dir := b.TempDir()
	write(b, dir, "github", "token", "t", time.Hour)
	s := open(b, secret.Options{Dir: dir})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Secret(b.Context(), "github", "token"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDocumentBesideADirectory(b *testing.B) {
	s := open(b, secret.Options{Dir: b.TempDir()})
	s.Draft(secret.Documents{"github": {"token": "t"}}).Adopt()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Secret(b.Context(), "github", "token"); err != nil {
			b.Fatal(err)
		}
	}
}
