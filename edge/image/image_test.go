package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	fake "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/edge/edgetest/signer"
	"github.com/weir-edge/weir/edge/v1beta1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	by     = "release@example.com"
	issuer = "https://login.example.com"
)

// shelf is a registry of a test's own, with what is done to its answers.
type shelf struct {
	t       *testing.T
	host    string
	images  *Images
	dir     string
	signer  *signer.Authority
	meddle  func(w http.ResponseWriter, r *http.Request) bool // reports that it has answered
	handler http.Handler

	mu    sync.Mutex
	heard []string // requests, since the last forget
}

// asked are the requests since the last forget.
func (s *shelf) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.heard)
}

func (s *shelf) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = nil
}

func newShelf(t *testing.T, options ...fake.Option) *shelf {
	t.Helper()
	s := &shelf{t: t, dir: t.TempDir(), signer: signer.New(t)}
	s.handler = fake.New(append(options, fake.Logger(log.New(io.Discard, "", 0)))...)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.heard = append(s.heard, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		if s.meddle == nil || !s.meddle(w, r) {
			s.handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	s.host = strings.TrimPrefix(server.URL, "http://")
	s.images = &Images{PolicyFile: filepath.Join(s.dir, "image-policy.yaml"), RootsFile: filepath.Join(s.dir, "trusted_root.json"), keychain: authn.NewMultiKeychain()}
	s.write("trusted_root.json", string(s.signer.Roots()))
	return s
}

func (s *shelf) write(file, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, file), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// push puts an image there, and returns its name by digest.
func (s *shelf) push(text string) name.Digest {
	s.t.Helper()
	img, err := random.Image(64, 1)
	if err != nil {
		s.t.Fatal(err)
	}
	tag, err := name.NewTag(s.host + "/" + text)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := remote.Write(tag, img); err != nil {
		s.t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		s.t.Fatal(err)
	}
	return tag.Context().Digest(digest.String())
}

// identities is a rule by which a signer counts.
func (s *shelf) identities(who string) {
	s.write("image-policy.yaml", fmt.Sprintf("images:\n- image: %s/**\n  identities:\n  - issuer: %s\n    subject: %q\n", s.host, issuer, who))
}

// keys is a rule by which a key counts.
func (s *shelf) keys(pem string, log bool) {
	s.write("image-policy.yaml", fmt.Sprintf("images:\n- image: %s/**\n  requireTlog: %v\n  keys:\n  - |\n    %s\n", s.host, log, strings.ReplaceAll(strings.TrimSpace(pem), "\n", "\n    ")))
}

// choose is what becomes of an image that the engine does not have.
func (s *shelf) choose(text string, mode v1beta1.ImageVerification) (*Choice, error) {
	return s.chooseHeld(text, mode, nil)
}

func (s *shelf) chooseHeld(text string, mode v1beta1.ImageVerification, held *Held) (*Choice, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return s.images.Choose(ctx, Want{Name: s.host + "/" + text, Mode: mode, Held: func(context.Context) (*Held, error) { return held, nil }})
}

// Each way in which an image can be signed, or not, has an answer of its own in each mode:
// enabled refuses what warn says, and disabled asks nobody.
func TestModes(t *testing.T) {
	for _, c := range []struct {
		what     string
		make     func(t *testing.T, s *shelf, image name.Digest)
		verified string // where it counts
		words    string // where it does not
	}{
		{"signed by a key", func(t *testing.T, s *shelf, image name.Digest) {
			key, pem := signer.Key(t)
			s.keys(pem, true)
			s.signer.Sign(image, signer.Signing{Key: key, Tagged: true})
		}, "signed by key 1 of ", ""},
		{"signed by an identity", func(t *testing.T, s *shelf, image name.Digest) {
			s.identities(by)
			s.signer.Sign(image, signer.Signing{Identity: by, Issuer: issuer})
		}, "signed by release@example.com (https://login.example.com)", ""},
		{"signed by somebody else", func(t *testing.T, s *shelf, image name.Digest) {
			s.identities(by)
			s.signer.Sign(image, signer.Signing{Identity: "other@example.com", Issuer: issuer})
		}, "", "it is signed by other@example.com (https://login.example.com), and not as FILE, images[0] says: the signer is to be release@example.com"},
		{"the signature of another image", func(t *testing.T, s *shelf, image name.Digest) {
			s.identities(by)
			s.signer.Sign(image, signer.Signing{Identity: by, Issuer: issuer, Of: "sha256:" + strings.Repeat("ab", 32)})
		}, "", "what is attached to it signs another image, sha256:abababababab…"},
		{"signed when the certificate had expired", func(t *testing.T, s *shelf, image name.Digest) {
			s.identities(by)
			s.signer.Sign(image, signer.Signing{Identity: by, Issuer: issuer, Late: 30 * time.Minute})
		}, "", "its signature does not hold: its certificate was valid until "},
		{"in no log", func(t *testing.T, s *shelf, image name.Digest) {
			s.identities(by)
			s.signer.Sign(image, signer.Signing{Identity: by, Issuer: issuer, Unlogged: true, Stamped: true})
		}, "", "its signature is in no transparency log, and FILE, images[0] wants one that is: have it signed so that it is, or say requireTlog: false there"},
		{"roots that somebody changed", func(t *testing.T, s *shelf, image name.Digest) {
			s.identities(by)
			s.signer.Sign(image, signer.Signing{Identity: by, Issuer: issuer})
			s.write("trusted_root.json", string(signer.New(t).Roots()))
		}, "", "its signature does not hold: "},
		{"no registry", func(t *testing.T, s *shelf, image name.Digest) {
			s.identities(by)
			s.signer.Sign(image, signer.Signing{Identity: by, Issuer: issuer})
			s.meddle = func(w http.ResponseWriter, _ *http.Request) bool {
				panic(http.ErrAbortHandler) // the connection is cut
			}
		}, "", "its registry cannot be asked: "},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newShelf(t, fake.WithReferrersSupport(true))
			image := s.push("tool:1")
			c.make(t, s, image)
			words := strings.ReplaceAll(c.words, "FILE", s.images.PolicyFile)
			whole := "image " + s.host + "/tool:1 is not verified: " + words
			s.forget()

			// 1. Disabled: nobody is asked, and status says so.
			got, err := s.choose("tool:1", v1beta1.VerifyDisabled)
			if err != nil || got.Image != s.host+"/tool:1" || !got.Pull || got.Verified != "not verified: --image-verification disabled" || len(got.Notes) > 0 || len(s.asked()) > 0 {
				t.Errorf("disabled: %+v, %v; asked %v", got, err, s.asked())
			}
			// 2. Warn.
			got, err = s.choose("tool:1", v1beta1.VerifyWarn)
			if err != nil || !got.Pull {
				t.Fatalf("warn: %+v, %v", got, err)
			}
			if c.verified != "" && (!strings.HasPrefix(got.Verified, c.verified) || len(got.Notes) > 0) || c.verified == "" && (got.Verified != "" || len(got.Notes) != 1 || !strings.HasPrefix(got.Notes[0], whole)) {
				t.Errorf("warn: %+v", got)
			}
			if by := s.host + "/tool@" + image.DigestStr(); s.meddle == nil && got.Image != by {
				t.Errorf("warn: %s is run, not %s", got.Image, by)
			}
			// 3. Enabled.
			got, err = s.choose("tool:1", v1beta1.VerifyEnabled)
			var known *Error
			switch {
			case c.verified != "":
				if err != nil || !strings.HasPrefix(got.Verified, c.verified) || got.Image != s.host+"/tool@"+image.DigestStr() {
					t.Errorf("enabled: %+v, %v", got, err)
				}
			case !errors.As(err, &known) || known.Kind != Refused || !strings.HasPrefix(known.Error(), whole) || known.Next == "":
				t.Errorf("enabled: %+v, %v, want %s", got, err, whole)
			}
		})
	}
}
