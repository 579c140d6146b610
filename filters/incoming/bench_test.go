package incoming_test

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-edge/weir/edge"
)

// ofSize is a token of the RSA key of exactly that many bytes.
func ofSize(t testing.TB, p *provider, size int) string {
	t.Helper()
	for pad := 0; pad < size; pad++ {
		if token := theRSA().mint(p.claims(map[string]any{"pad": strings.Repeat("x", pad)})); len(token) >= size {
			return token
		}
	}
	t.Fatal("no such size")
	return ""
}

// TestCachedAllocations holds that a remembered token costs no memory.
func TestCachedAllocations(t *testing.T) {
	p := newProvider(t, theRSA())
	g := open(t, p.spec())
	token := ofSize(t, p, 1024)
	sent := edge.Secret("Bearer " + token)
	remembered(t, g, token)
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() { _, _ = g.Identify(ctx, sent, "") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkCached is P13: a token of 1 KiB that is remembered.
func BenchmarkCached(b *testing.B) {
	p := newProvider(b, theRSA())
	g := open(b, p.spec())
	token := ofSize(b, p, 1024)
	sent := edge.Secret("Bearer " + token)
	remembered(b, g, token)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Identify(ctx, sent, ""); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCachedByMany is the same on all processors, each with tokens of its
// own and with one that all of them have.
func BenchmarkCachedByMany(b *testing.B) {
	p := newProvider(b, theRSA())
	g := open(b, p.spec())
	var sent []edge.Secret
	for i := range 64 {
		token := theRSA().mint(p.claims(map[string]any{"jti": i, "pad": strings.Repeat("x", 240)}))
		sent = append(sent, edge.Secret("Bearer "+token))
		remembered(b, g, token)
	}
	ctx := b.Context()
	var next atomic.Int64
	for name, same := range map[string]bool{"same": true, "own": false} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := int(next.Add(32)); pb.Next(); i++ {
					if same {
						i = 0
					}
					if _, err := g.Identify(ctx, sent[i%len(sent)], ""); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkUnknownKey is a token that names a key which nobody has.
func BenchmarkUnknownKey(b *testing.B) {
	p := newProvider(b, theRSA())
	g := open(b, p.spec())
	token := strings.SplitN(ofSize(b, p, 1024), ".", 2)[1]
	header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"a stranger's"}`))
	sent := edge.Secret("Bearer " + header + "." + token)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Identify(ctx, sent, ""); edge.KindOf(err) != edge.Unauthenticated {
			b.Fatal(err)
		}
	}
}

// BenchmarkVerify is P13: tokens that are not remembered, beside the bare cost
// of checking such a signature.
func BenchmarkVerify(b *testing.B) {
	p := newProvider(b, theRSA())
	g := open(b, p.spec())
	b.Run("token", func(b *testing.B) {
		sent := make([]edge.Secret, b.N)
		for i := range sent {
			sent[i] = edge.Secret("Bearer " + theRSA().mint(p.claims(map[string]any{"jti": fmt.Sprint(i, b.N)})))
		}
		ctx := b.Context()
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			if _, err := g.Identify(ctx, sent[i], ""); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("bare", func(b *testing.B) {
		s := theRSA()
		sum := sha256.Sum256([]byte("text"))
		sig := s.raw("text")
		pub := s.key.Public().(*rsa.PublicKey)
		for b.Loop() {
			if err := rsa.VerifyPKCS1v15(pub, crypto.SHA256, sum[:], sig); err != nil {
				b.Fatal(err)
			}
		}
	})
}
