package secret_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/secret"
)

const password = "correct horse battery"

// made is a file of secrets, unlocked.
func made(t testing.TB, values map[secret.Ref]edge.Secret) *secret.Encrypted {
	t.Helper()
	e := secret.Cheap(secret.NewEncrypted(filepath.Join(t.TempDir(), "data", "weir", secret.FileName)))
	if err := e.Create(t.Context(), password, nil); err != nil {
		t.Fatal(err)
	}
	if err := e.Set(t.Context(), values); err != nil {
		t.Fatal(err)
	}
	return e
}

func contents(t testing.TB, e *secret.Encrypted) []byte {
	t.Helper()
	text, err := os.ReadFile(e.Path())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func replace(t testing.TB, e *secret.Encrypted, text []byte) {
	t.Helper()
	if err := os.WriteFile(e.Path(), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func own(name string) secret.Ref { return secret.Ref{Name: secret.Own, Key: name} }

func wantValue(t testing.TB, p secret.Provider, r secret.Ref, want string) {
	t.Helper()
	got, err := p.Get(context.Background(), r)
	if err != nil || string(got) != want {
		t.Errorf("%s: %q, %v; want %q", r, string(got), err, want)
	}
}

// What is kept is there for whoever has the password, and for nobody else to read.
func TestEncrypted(t *testing.T) {
	e := made(t, map[secret.Ref]edge.Secret{own("GITHUB_TOKEN"): "of github", {Name: "tls", Key: "key.pem"}: "of tls"})
	if err := e.Set(t.Context(), map[secret.Ref]edge.Secret{own("GITHUB_TOKEN"): "another of github"}); err != nil {
		t.Fatal(err)
	}
	other := secret.NewEncrypted(e.Path())
	if err := other.Unlock(password); err != nil {
		t.Fatal(err)
	}
	wantValue(t, other, own("GITHUB_TOKEN"), "another of github")
	wantValue(t, other, secret.Ref{Name: "tls", Key: "key.pem"}, "of tls")
	all, err := other.List(t.Context())
	if err != nil || fmt.Sprint(all) != "[GITHUB_TOKEN tls/key.pem]" {
		t.Errorf("%v, %v", all, err)
	}
	for _, part := range []string{"github", "GITHUB", "tls", password} {
		if bytes.Contains(contents(t, e), []byte(part)) {
			t.Errorf("%q can be read", part)
		}
	}
	if err := other.Delete(t.Context(), own("GITHUB_TOKEN")); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Get(t.Context(), own("GITHUB_TOKEN")); !errors.Is(err, secret.ErrNowhere) || edge.KindOf(err) != edge.NotFound {
		t.Errorf("after it was deleted elsewhere: %v", err)
	}
	if err := e.Delete(t.Context(), own("GITHUB_TOKEN")); !errors.Is(err, secret.ErrNowhere) {
		t.Errorf("deleted twice: %v", err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	for path, want := range map[string]fs.FileMode{e.Path(): 0o600, e.Path() + ".lock": 0o600, filepath.Dir(e.Path()): fs.ModeDir | 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// The same secrets are another file each time they are written.
func TestEncryptedNonce(t *testing.T) {
	e := made(t, nil)
	seen := map[string]bool{}
	for range 50 {
		if err := e.Set(t.Context(), map[secret.Ref]edge.Secret{own("A"): "same"}); err != nil {
			t.Fatal(err)
		}
		text := contents(t, e)
		nonce := string(text[8+9+16+16:][:12])
		if seen[nonce] {
			t.Fatal("a nonce is used twice")
		}
		seen[nonce] = true
	}
}

// Without the password nothing is read, and nothing is written over. Another password is not
// the same as a file that is damaged.
func TestEncryptedWrongPassword(t *testing.T) {
	e := made(t, map[secret.Ref]edge.Secret{own("A"): "value"})
	before := contents(t, e)
	locked := secret.NewEncrypted(e.Path())
	for _, wrong := range []edge.Secret{"", "correct horse batterz", password + "\n", edge.Secret(strings.Repeat("x", secret.MaxPassword+1))} {
		if err := locked.Unlock(wrong); !errors.Is(err, secret.ErrPassword) || errors.Is(err, secret.ErrDamaged) {
			t.Errorf("%d bytes: %v", len(wrong), err)
		}
	}
	_, getErr := locked.Get(t.Context(), own("A"))
	_, listErr := locked.List(t.Context())
	for what, err := range map[string]error{
		"get": getErr, "list": listErr,
		"set":    locked.Set(t.Context(), map[secret.Ref]edge.Secret{own("B"): "v"}),
		"delete": locked.Delete(t.Context(), own("A")),
	} {
		if !errors.Is(err, secret.ErrLocked) || !strings.Contains(fmt.Sprint(err), "weir secret unlock") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := locked.Create(t.Context(), password, nil); !errors.Is(err, secret.ErrSetUp) {
		t.Errorf("create: %v", err)
	}
	if !bytes.Equal(before, contents(t, e)) {
		t.Error("the file has changed")
	}
	// Who has the password goes on after somebody else has not had it.
	if err := e.Unlock("another password"); !errors.Is(err, secret.ErrPassword) {
		t.Error(err)
	}
	wantValue(t, e, own("A"), "value")
}

// A file that is not whole, or was changed anywhere, is told, and left as it is.
func TestEncryptedTorn(t *testing.T) {
	e := made(t, map[secret.Ref]edge.Secret{own("A"): "value", own("B"): "another"})
	whole := contents(t, e)
	check := func(what string, text []byte, want ...error) {
		t.Helper()
		replace(t, e, text)
		again := secret.NewEncrypted(e.Path())
		_, getErr := e.Get(t.Context(), own("A"))
		for _, err := range []error{again.Unlock(password), getErr, e.Set(t.Context(), map[secret.Ref]edge.Secret{own("C"): "v"}), e.Delete(t.Context(), own("A"))} {
			if !slices.ContainsFunc(want, func(one error) bool { return errors.Is(err, one) }) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if !bytes.Equal(text, contents(t, e)) {
			t.Fatalf("%s: the file has changed", what)
		}
	}
	for n := range len(whole) {
		check(fmt.Sprintf("the first %d bytes", n), whole[:n], secret.ErrDamaged)
		flipped := bytes.Clone(whole)
		flipped[n] ^= 1 << (n % 8)
		check(fmt.Sprintf("byte %d", n), flipped, secret.ErrDamaged, secret.ErrNewer)
	}
	check("a byte more", append(bytes.Clone(whole), 0), secret.ErrDamaged)
	check("zeros", make([]byte, len(whole)), secret.ErrDamaged)

	// Who changes it on purpose can make the digest right, and no more than that.
	for n := range len(whole) - sha256.Size {
		forged := bytes.Clone(whole)
		forged[n] ^= 0x80
		sum := sha256.Sum256(forged[:len(forged)-sha256.Size])
		copy(forged[len(forged)-sha256.Size:], sum[:])
		if n >= 8 && n < 8+9 { // the cost: what is asked for is bounded
			continue
		}
		check(fmt.Sprintf("forged byte %d", n), forged, secret.ErrDamaged, secret.ErrNewer, secret.ErrPassword, secret.ErrLocked)
	}
	replace(t, e, whole)
	wantValue(t, e, own("A"), "value")
}

// A file may not ask for more work than is bounded.
func TestEncryptedCost(t *testing.T) {
	e := made(t, nil)
	for _, cost := range [][]byte{{0, 0, 0, 0, 0, 0, 0, 64, 1}, {255, 255, 255, 255, 0, 0, 0, 64, 1}, {0, 0, 0, 1, 255, 255, 255, 255, 1}, {0, 0, 0, 1, 0, 0, 0, 64, 0}, {0, 0, 0, 1, 0, 0, 0, 7, 1}, {0, 0, 0, 1, 0, 1, 0, 0, 255}} {
		text := contents(t, e)
		copy(text[8:], cost)
		sum := sha256.Sum256(text[:len(text)-sha256.Size])
		copy(text[len(text)-sha256.Size:], sum[:])
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := secret.NewEncrypted(path).Unlock(password); !errors.Is(err, secret.ErrDamaged) {
			t.Errorf("%v: %v", cost, err)
		}
	}
}

// Where there is no file that is said, and where there is something else.
func TestEncryptedNotSetUp(t *testing.T) {
	dir := t.TempDir()
	e := secret.NewEncrypted(filepath.Join(dir, secret.FileName))
	_, err := e.Get(t.Context(), own("A"))
	for _, err := range []error{err, e.Unlock(password), e.Set(t.Context(), map[secret.Ref]edge.Secret{own("A"): "v"})} {
		if !errors.Is(err, secret.ErrNotSetUp) || !strings.Contains(fmt.Sprint(err), "weir secret setup") {
			t.Error(err)
		}
	}
	for _, short := range []edge.Secret{"", "seven c"} {
		if err := e.Create(t.Context(), short, nil); err == nil || strings.Contains(err.Error(), "seven") {
			t.Errorf("created with %q: %v", string(short), err)
		}
	}
	refused := errors.New("the keyring says no")
	if err := e.Create(t.Context(), password, func() error { return refused }); !errors.Is(err, refused) {
		t.Error(err)
	}
	if _, err := os.Stat(e.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file without a password: %v", err)
	}
	if err := os.Mkdir(e.Path(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := e.Unlock(password); err == nil || !strings.Contains(err.Error(), "no regular file") && !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
}

// A file that was made anew, with another password, is locked.
func TestEncryptedMadeAnew(t *testing.T) {
	e := made(t, map[secret.Ref]edge.Secret{own("A"): "old"})
	if err := os.Remove(e.Path()); err != nil {
		t.Fatal(err)
	}
	other := secret.Cheap(secret.NewEncrypted(e.Path()))
	if err := other.Create(t.Context(), "another password", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Get(t.Context(), own("A")); !errors.Is(err, secret.ErrLocked) {
		t.Error(err)
	}
	if err := e.Unlock("another password"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Get(t.Context(), own("A")); !errors.Is(err, secret.ErrNowhere) {
		t.Error(err)
	}
}

// The bounds hold, and what would pass them changes nothing.
func TestEncryptedBounds(t *testing.T) {
	e := made(t, map[secret.Ref]edge.Secret{own("A"): "value"})
	before := contents(t, e)
	many := make(map[secret.Ref]edge.Secret)
	for i := range secret.MaxSecrets {
		many[own(fmt.Sprint("N", i))] = "v"
	}
	large := make(map[secret.Ref]edge.Secret)
	for i := range secret.MaxFile / secret.MaxSize {
		large[own(fmt.Sprint("N", i))] = edge.Secret(strings.Repeat("v", secret.MaxSize))
	}
	for what, values := range map[string]map[secret.Ref]edge.Secret{
		"too many": many, "too large together": large,
		"too large":    {own("B"): edge.Secret(strings.Repeat("v", secret.MaxSize+1))},
		"empty":        {own("B"): ""},
		"no name":      {{Name: "..", Key: "B"}: "v"},
		"a long name":  {{Name: strings.Repeat("n", 254), Key: "B"}: "v"},
		"a slash more": {{Name: "a/b", Key: "c"}: "v"},
	} {
		if err := e.Set(t.Context(), values); err == nil {
			t.Errorf("%s: kept", what)
		}
	}
	if !bytes.Equal(before, contents(t, e)) {
		t.Error("the file has changed")
	}
	delete(many, own("N0"))
	longest := secret.Ref{Name: strings.Repeat("n", 253), Key: strings.Repeat("k", 253)}
	delete(many, own("N1"))
	many[longest] = edge.Secret(strings.Repeat("v", secret.MaxSize))
	if err := e.Set(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	all, err := e.List(t.Context())
	if err != nil || len(all) != secret.MaxSecrets {
		t.Errorf("%d, %v", len(all), err)
	}
	wantValue(t, e, longest, strings.Repeat("v", secret.MaxSize))
}

// Several processes may write at once: nothing that one has kept is lost by another.
func TestEncryptedWritersAtOnce(t *testing.T) {
	e := made(t, nil)
	var all sync.WaitGroup
	for writer := range 6 {
		all.Go(func() {
			mine := secret.NewEncrypted(e.Path())
			if err := mine.Unlock(password); err != nil {
				t.Error(err)
			}
			for i := range 10 {
				r := own(fmt.Sprintf("W%dN%d", writer, i))
				if err := mine.Set(t.Context(), map[secret.Ref]edge.Secret{r: edge.Secret(r.String())}); err != nil {
					t.Error(err)
				}
				wantValue(t, mine, r, r.String())
			}
		})
	}
	all.Wait()
	if names, err := e.List(t.Context()); err != nil || len(names) != 60 {
		t.Errorf("%d, %v", len(names), err)
	}
}

// A directory that cannot be written is an error, and what was kept is kept.
func TestEncryptedReadOnly(t *testing.T) {
	if os.Getuid() == 0 || runtime.GOOS == "windows" {
		// Who may write everywhere finds something in the way of the new file instead.
		e := made(t, map[secret.Ref]edge.Secret{own("A"): "value"})
		if err := os.Remove(e.Path() + ".lock"); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(e.Path()+".lock", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := e.Set(t.Context(), map[secret.Ref]edge.Secret{own("A"): "other"}); err == nil {
			t.Error("it is written without a lock")
		}
		wantValue(t, e, own("A"), "value")
		return
	}
	e := made(t, map[secret.Ref]edge.Secret{own("A"): "value"})
	if err := os.Chmod(filepath.Dir(e.Path()), 0o500); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(filepath.Dir(e.Path()), 0o700) }()
	if err := e.Set(t.Context(), map[secret.Ref]edge.Secret{own("A"): "other"}); err == nil {
		t.Error("it is written where nothing can be")
	}
	wantValue(t, e, own("A"), "value")
}

// Names are written as users write them, and read back as the same.
func TestParseRef(t *testing.T) {
	for text, want := range map[string]secret.Ref{
		"GITHUB_TOKEN": own("GITHUB_TOKEN"), "a.b-c_1": own("a.b-c_1"), "tls/key.pem": {Name: "tls", Key: "key.pem"}, secret.Own + "/X": own("X"),
	} {
		got, err := secret.ParseRef(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if again, err := secret.ParseRef(got.String()); err != nil || again != got {
			t.Errorf("%s is %s: %+v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "/", "a/", "/b", "a/b/c", ".hidden", "a/.b", "..", "a b", "a\nb", "ä", "$HOME", strings.Repeat("n", 254)} {
		if _, err := secret.ParseRef(text); !errors.Is(err, secret.ErrName) || len(text) > 2 && strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if got := secret.Variable(secret.Own, "GITHUB_TOKEN"); got != "WEIR_SECRET_GITHUB_TOKEN" {
		t.Error(got)
	}
}

// What begins anew has no values of before (maps.Clone of nothing is nothing).
func TestEncryptedEmpty(t *testing.T) {
	e := made(t, nil)
	if all, err := e.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	values := map[secret.Ref]edge.Secret{own("A"): "value"}
	given := maps.Clone(values)
	if err := e.Set(t.Context(), given); err != nil || !maps.Equal(given, values) {
		t.Errorf("%v", err)
	}
}
