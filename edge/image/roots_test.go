package image

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/weir-edge/weir/edge/edgetest/signer"
)

// Roots of trust are renewed of their repository, never by what is older or by what its root
// does not vouch for; and a file of the user's own is left alone.
func TestRenew(t *testing.T) {
	dir := t.TempDir()
	keep := filepath.Join(dir, "data", "roots")
	repo := signer.NewRepository(t)
	first, second := signer.New(t).Roots(), signer.New(t).Roots()
	repo.Publish(1, first)
	write := func(file, text string) string {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rootFile := write("root.json", string(repo.Root))
	i := &Images{PolicyFile: write(PolicyFile, "roots:\n  mirror: "+repo.URL+"/\n  root: "+rootFile+"\n"), RootsFile: filepath.Join(dir, "config", RootsFile)}
	renew := func() (*Renewed, error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return i.Renew(ctx, keep)
	}
	has := func(want []byte) {
		t.Helper()
		if text, err := os.ReadFile(i.RootsFile); err != nil || !bytes.Equal(text, want) {
			t.Errorf("%v: the roots are not those", err)
		}
	}

	// 1. The first, again, and the next.
	if got, err := renew(); err != nil || !got.Changed || got.Mirror != repo.URL {
		t.Fatalf("%+v, %v", got, err)
	}
	has(first)
	if got, err := renew(); err != nil || got.Changed {
		t.Errorf("%+v, %v", got, err)
	}
	repo.Publish(2, second)
	if got, err := renew(); err != nil || !got.Changed {
		t.Errorf("%+v, %v", got, err)
	}
	has(second)

	// 2. Older ones, and what nobody vouches for.
	repo.Publish(1, first)
	if _, err := renew(); err == nil {
		t.Error("older roots are taken")
	}
	for _, file := range []string{"timestamp.json", ".targets.json", ".trusted_root.json"} {
		repo.Publish(3, first)
		repo.Spoil(file, func(text []byte) []byte { return bytes.Replace(text, []byte("20"), []byte("21"), 1) })
		if _, err := renew(); err == nil {
			t.Errorf("%s: what somebody changed is taken", file)
		}
	}
	repo.Publish(4, []byte("{}"))
	if _, err := renew(); err == nil {
		t.Error("roots that are none are taken")
	}
	stranger := signer.NewRepository(t)
	stranger.Publish(9, first)
	write(PolicyFile, "roots:\n  mirror: "+stranger.URL+"\n  root: "+rootFile+"\n")
	if _, err := renew(); err == nil {
		t.Error("roots of a repository that its root does not know are taken")
	}
	has(second)

	// 3. Nobody answers.
	write(PolicyFile, "roots:\n  mirror: http://127.0.0.1:1\n  root: "+rootFile+"\n")
	if _, err := renew(); err == nil || !strings.Contains(err.Error(), "http://127.0.0.1:1: ") {
		t.Error(err)
	}
	has(second)

	// 4. The user's own.
	own := signer.New(t).Roots()
	if err := os.WriteFile(i.RootsFile, own, 0o600); err != nil {
		t.Fatal(err)
	}
	write(PolicyFile, "roots:\n  mirror: "+repo.URL+"\n  root: "+rootFile+"\n")
	repo.Publish(5, second)
	if _, err := renew(); !errors.Is(err, ErrOwn) {
		t.Error(err)
	}
	has(own)
}

// The roots that are built in are sound, and verify what the public Sigstore has signed: a
// provenance of npm's, of which a copy stands in the module of the library.
func TestBuiltIn(t *testing.T) {
	i := &Images{RootsFile: filepath.Join(t.TempDir(), "none")}
	trusted, err := i.roots()
	if err != nil || len(trusted.FulcioCertificateAuthorities()) == 0 || len(trusted.RekorLogs()) == 0 || len(trusted.CTLogs()) == 0 || len(trusted.TimestampingAuthorities()) == 0 {
		t.Fatalf("%+v, %v", trusted, err)
	}
	text, err := os.ReadFile("testdata/provenance.json")
	if err != nil {
		t.Fatal(err)
	}
	var b bundle.Bundle
	if err := b.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	verifier, err := verify.NewVerifier(trusted, verify.WithObserverTimestamps(1), verify.WithTransparencyLog(1), verify.WithSignedCertificateTimestamps(1))
	if err != nil {
		t.Fatal(err)
	}
	got, err := verifier.Verify(&b, verify.NewPolicy(verify.WithoutArtifactUnsafe(), verify.WithoutIdentitiesUnsafe()))
	if err != nil {
		t.Fatal(err)
	}
	id := identity{issuer: "https://token.actions.githubusercontent.com", repository: "https://github.com/sigstore/sigstore-js", runner: "github-hosted"}
	if id.subject, err = pattern("https://github.com/sigstore/sigstore-js/.github/workflows/*", false); err != nil {
		t.Fatal(err)
	}
	if why := id.differs(got.Signature.Certificate); why != "" {
		t.Errorf("%s: %+v", why, got.Signature.Certificate)
	}
	for _, other := range []identity{{issuer: "https://elsewhere.example", subject: id.subject}, {issuer: id.issuer, subject: id.subject, repository: "https://github.com/a/b"}, {issuer: id.issuer, subject: id.subject, ref: "refs/heads/none"}, {issuer: id.issuer, subject: id.subject, runner: "self-hosted"}} {
		if why := other.differs(got.Signature.Certificate); !strings.Contains(why, " is to be ") {
			t.Errorf("%+v: %q", other, why)
		}
	}
	// Another Sigstore's roots do not.
	other, err := root.NewTrustedRootFromJSON(signer.New(t).Roots())
	if err != nil {
		t.Fatal(err)
	}
	if verifier, err = verify.NewVerifier(other, verify.WithObserverTimestamps(1), verify.WithTransparencyLog(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := verifier.Verify(&b, verify.NewPolicy(verify.WithoutArtifactUnsafe(), verify.WithoutIdentitiesUnsafe())); err == nil {
		t.Error("another root vouches for it")
	}
}
