package signer

import (
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sign "github.com/sigstore/sigstore/pkg/signature"
	"github.com/theupdateframework/go-tuf/v2/metadata"
)

// Repository is a repository of The Update Framework, on the loopback of this machine, that
// has roots of trust.
type Repository struct {
	URL  string
	Root []byte // root.json, by which it is believed

	t     testing.TB
	keys  map[string]sign.Signer
	mu    sync.Mutex
	files map[string][]byte
}

// NewRepository makes one that has nothing yet.
func NewRepository(t testing.TB) *Repository {
	t.Helper()
	r := &Repository{t: t, keys: map[string]sign.Signer{}, files: map[string][]byte{}}
	root := metadata.Root(time.Now().Add(24 * time.Hour).UTC())
	for _, role := range []string{metadata.ROOT, metadata.TARGETS, metadata.SNAPSHOT, metadata.TIMESTAMP} {
		_, private, err := ed25519.GenerateKey(nil)
		r.must(err)
		key, err := metadata.KeyFromPublicKey(private.Public())
		r.must(err)
		r.must(root.Signed.AddKey(key, role))
		r.keys[role], err = sign.LoadSigner(private, crypto.Hash(0))
		r.must(err)
	}
	_, err := root.Sign(r.keys[metadata.ROOT])
	r.must(err)
	r.Root, err = root.ToBytes(false)
	r.must(err)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		text, ok := r.files[strings.TrimPrefix(q.URL.Path, "/")]
		r.mu.Unlock()
		if !ok {
			http.NotFound(w, q)
			return
		}
		_, _ = w.Write(text)
	}))
	t.Cleanup(s.Close)
	r.URL = s.URL
	return r
}

func (r *Repository) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// Publish has the repository have roots, by a version of their metadata. A version may be
// published again.
func (r *Repository) Publish(version int64, roots []byte) {
	r.t.Helper()
	files := map[string][]byte{"1.root.json": r.Root}
	end := time.Now().Add(24 * time.Hour).UTC()
	sum := sha256.Sum256(roots)
	target, err := metadata.TargetFile().FromBytes("trusted_root.json", roots, "sha256")
	r.must(err)
	files["targets/"+hex.EncodeToString(sum[:])+".trusted_root.json"] = roots

	targets := metadata.Targets(end)
	targets.Signed.Version, targets.Signed.Targets["trusted_root.json"] = version, target
	_, err = targets.Sign(r.keys[metadata.TARGETS])
	r.must(err)
	text, err := targets.ToBytes(false)
	r.must(err)
	files[fmt.Sprintf("%d.targets.json", version)] = text

	snapshot := metadata.Snapshot(end)
	snapshot.Signed.Version, snapshot.Signed.Meta["targets.json"] = version, metadata.MetaFile(version)
	_, err = snapshot.Sign(r.keys[metadata.SNAPSHOT])
	r.must(err)
	text, err = snapshot.ToBytes(false)
	r.must(err)
	files[fmt.Sprintf("%d.snapshot.json", version)] = text

	timestamp := metadata.Timestamp(end)
	timestamp.Signed.Version, timestamp.Signed.Meta["snapshot.json"] = version, metadata.MetaFile(version)
	_, err = timestamp.Sign(r.keys[metadata.TIMESTAMP])
	r.must(err)
	files["timestamp.json"], err = timestamp.ToBytes(false)
	r.must(err)
	r.mu.Lock()
	r.files = files
	r.mu.Unlock()
}

// Spoil has the repository say something else in one of its files, whose name ends so.
func (r *Repository) Spoil(name string, change func([]byte) []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for file, text := range r.files {
		if strings.HasSuffix(file, name) {
			r.files[file] = change(text)
		}
	}
}
