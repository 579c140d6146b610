package settings_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/settings"
)

// TestLookAtFiles looks at files that are there and right, and at ones that are
// not.
func TestLookAtFiles(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const key = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n"
	for _, test := range []struct {
		name  string
		got   edge.Finding
		level edge.Level
		cause string
	}{
		{"two keys", secret.LookAtStateKeys(write("two", key+"\n"+key, 0o600)), edge.LevelOK, ""},
		{"a short key", secret.LookAtStateKeys(write("short", key+"c2hvcnQ=\n", 0o600)), edge.LevelProblem, "short:2: not a key"},
		{"no key", secret.LookAtStateKeys(write("none", "\n", 0o600)), edge.LevelProblem, "no key"},
		{"no file", secret.LookAtStateKeys(filepath.Join(dir, "nowhere")), edge.LevelProblem, "no such file"},
		{"a directory", secret.LookAtStateKeys(dir), edge.LevelProblem, "is a directory"},
		{"no certificate", door.TLS{Cert: write("cert", "x", 0o600), Key: write("key", "y", 0o600)}.Look(now), edge.LevelProblem, "failed to find any PEM data"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.got.Level != test.level || !strings.Contains(test.got.Cause, test.cause) || test.level != edge.LevelOK && test.got.Next == "" {
				t.Errorf("%+v", test.got)
			}
		})
	}
	if runtime.GOOS != "windows" {
		path := write("open", key, 0o600)
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		if c := secret.LookAtStateKeys(path); c.Level != edge.LevelWarning || !strings.Contains(c.Next, "chmod o-r") {
			t.Errorf("a key that all can read: %+v", c)
		}
	}

	// A certificate and its key, by what day it is.
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(1000 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &pair.PublicKey, pair)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(pair)
	if err != nil {
		t.Fatal(err)
	}
	cert := write("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), 0o644)
	private := write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})), 0o600)
	for _, test := range []struct {
		after time.Duration
		level edge.Level
		class string
	}{{0, edge.LevelOK, ""}, {-2 * time.Hour, edge.LevelProblem, edge.ClassClock}, {900 * time.Hour, edge.LevelWarning, edge.ClassFile}, {1001 * time.Hour, edge.LevelProblem, edge.ClassFile}} {
		if c := (door.TLS{Cert: cert, Key: private}).Look(now.Add(test.after)); c.Level != test.level || c.Class != test.class {
			t.Errorf("after %s: %+v", test.after, c)
		}
	}

	// The settings name them all, and a directory that is not there.
	s := settings.Settings{
		FilterCache: dir, StateKeyFile: filepath.Join(dir, "two"), TLSCert: cert, TLSKey: private,
		TLSClientCA: cert, StoreCA: private, HandOver: filepath.Join(dir, "nowhere", "weir.sock"),
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var said []string
	look := func(name string, f func() edge.Finding) {
		one := f()
		said = append(said, name+": "+one.Level.String())
	}
	s.LookAtFiles(now, look)
	(&settings.Settings{HandOver: cert}).LookAtFiles(now, look)
	want := []string{"filter-cache: ok", "state-key-file: ok", "tls-cert: ok", "tls-client-ca: ok", "store-ca: problem", "hand-over: problem", "hand-over: problem"}
	if !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
}
