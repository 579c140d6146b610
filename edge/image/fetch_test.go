package image

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	fake "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/weir-edge/weir/edge/edgetest/signer"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// refused is what an image is refused with.
func (s *shelf) refused(text string) string {
	s.t.Helper()
	got, err := s.choose(text, v1beta1.VerifyEnabled)
	var known *Error
	if !errors.As(err, &known) {
		s.t.Fatalf("%+v, %v", got, err)
	}
	return known.Error()
}

// signed is a registry with an image that somebody signed, and a rule that says so.
func signed(t *testing.T) (*shelf, name.Digest) {
	t.Helper()
	s := newShelf(t, fake.WithReferrersSupport(true))
	image := s.push("tool:1")
	s.identities(by)
	s.signer.Sign(image, signer.Signing{Identity: by, Issuer: issuer})
	return s, image
}

// A tag that moves between the look-up and the start changes nothing: what was verified is
// named by its digest.
func TestTagMoves(t *testing.T) {
	s, image := signed(t)
	var evil name.Digest
	s.meddle = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/referrers/") && evil.DigestStr() == "" {
			s.meddle = nil
			evil = s.push("tool:1")
		}
		return false
	}
	got, err := s.choose("tool:1", v1beta1.VerifyEnabled)
	if err != nil || got.Image != s.host+"/tool@"+image.DigestStr() || evil.DigestStr() == "" || evil.DigestStr() == image.DigestStr() {
		t.Errorf("%+v, %v; the tag moved to %s", got, err, evil)
	}
	if said := s.refused("tool:1"); !strings.Contains(said, "no signature of "+short(evil.DigestStr())) {
		t.Errorf("what it moved to: %s", said)
	}
}

// The list of what refers to an image may have pages, a type with parameters, or not be there:
// a signature is found all the same. A list that leads elsewhere, or has no end, is not followed
// there, hides none that was found before, and is told of where none was.
func TestPagesOfReferrers(t *testing.T) {
	const list = "application/vnd.oci.image.index.v1+json"
	page := func(w http.ResponseWriter, link string) bool {
		w.Header().Set("Content-Type", list)
		w.Header().Set("Link", link)
		_, err := fmt.Fprintf(w, `{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":10,"artifactType":"application/spdx+json"}]}`, list, zerosOf(64))
		return err == nil
	}
	var other int
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { other++ }))
	defer elsewhere.Close()
	const broken = "a signature of it cannot be read: the list of what refers to the image breaks off, leads out of its repository, or has more than 16 pages"
	for what, c := range map[string]struct {
		link   string // of every page before the last one; HOST is the registry, AT the place of the list
		pages  int    // before that
		status int    // of the list instead; 0 for none
		words  string // of the refusal; "" where the signature is found
		asked  int    // how often the list is asked for; 0 for once and each page
	}{
		"a query alone":                {link: `<?last=x>; rel="next"`, pages: 1},
		"a path, and pages":            {link: `</prev>; rel="prev", <AT?n=1&last=x;y,z>; title=a; rel=next`, pages: 15},
		"a whole URL without TLS":      {link: `<http://HOSTAT?last=x>; rel="last Next"`, pages: 2},
		"a whole URL with TLS":         {link: `<https://HOSTAT?last=x>; rel="next"`, pages: 2},
		"no next one":                  {link: `<AT?last=x>; rel="prev"`, pages: 1, words: "no signature of ", asked: 1},
		"another host":                 {link: `<` + elsewhere.URL + `AT?last=x>; rel="next"`, pages: 1, words: broken, asked: 1},
		"another repository":           {link: `</v2/evil/referrers/x>; rel="next"`, pages: 1, words: broken, asked: 1},
		"another repository, hid":      {link: `</v2/tool/%2e%2e/evil/referrers/x>; rel="next"`, pages: 1, words: broken, asked: 1},
		"a name of a user":             {link: `<http://a:b@HOSTAT?last=x>; rel="next"`, pages: 1, words: broken, asked: 1},
		"no end":                       {link: `<?last=x>; rel="next"`, pages: 1000, words: broken, asked: 16},
		"a next one that is not there": {link: `</v2/tool/referrers/none>; rel="next"`, pages: 1, words: broken, asked: 2},
		"a next one that is no list":   {link: `</v2/tool/referrers/bad>; rel="next"`, pages: 1, words: broken, asked: 2},
		"no method":                    {status: http.StatusMethodNotAllowed},
		"not there":                    {status: http.StatusNotFound},
		"not made yet":                 {status: http.StatusNotImplemented},
		"not for this one, closed":     {status: http.StatusForbidden, words: "its registry cannot be asked: "},
	} {
		for form, sign := range map[string]signer.Signing{"bundle": {Identity: by, Issuer: issuer}, "cosign": {Identity: by, Issuer: issuer, Tagged: true}} {
			if c.status == 0 && form == "cosign" && c.words != "" {
				continue // it is found under its tag
			}
			t.Run(what+", "+form, func(t *testing.T) {
				s := newShelf(t, fake.WithReferrersSupport(c.status == 0))
				image := s.push("tool:1")
				s.identities(by)
				s.signer.Sign(image, sign)
				asked := 0
				s.meddle = func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.Contains(r.URL.Path, "/referrers/") {
						return false
					}
					if asked++; c.status != 0 {
						w.WriteHeader(c.status)
						return true
					}
					if strings.HasSuffix(r.URL.Path, "/bad") {
						w.Header().Set("Content-Type", list)
						_, err := w.Write([]byte("{"))
						return err == nil
					}
					if asked > c.pages {
						s.handler.ServeHTTP(&overwriting{w, "Content-Type", list + "; charset=utf-8"}, r)
						return true
					}
					return page(w, strings.NewReplacer("HOST", s.host, "AT", r.URL.Path).Replace(c.link))
				}
				got, err := s.choose("tool:1", v1beta1.VerifyEnabled)
				if c.words == "" && (err != nil || got.Verified == "") || c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)) {
					t.Errorf("%+v, %v", got, err)
				}
				if want := cmp.Or(c.asked, c.pages+1); asked != want || other > 0 {
					t.Errorf("the list was asked for %d times and not %d; another host %d times", asked, want, other)
				}
			})
		}
	}
	// What was found before a list leads elsewhere counts.
	s, _ := signed(t)
	s.meddle = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/referrers/") {
			w.Header().Set("Link", `<https://evil.example/>; rel="next"`)
		}
		return false
	}
	if got, err := s.choose("tool:1", v1beta1.VerifyEnabled); err != nil || got.Verified == "" {
		t.Errorf("%+v, %v", got, err)
	}
}

// What a registry says of a digest is believed of nothing that it sends.
func TestRegistryLies(t *testing.T) {
	// 1. Its word for what a tag is: the content counts, whatever form it is said to have.
	s, image := signed(t)
	evil := s.push("evil:1")
	for _, kind := range []types.MediaType{types.OCIManifestSchema1, types.DockerManifestSchema1Signed} {
		s.meddle = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/v2/tool/manifests/1" {
				r.URL.Path = "/v2/evil/manifests/1"
				s.handler.ServeHTTP(&overwriting{&overwriting{w, "Content-Type", string(kind)}, "Docker-Content-Digest", image.DigestStr()}, r)
				return true
			}
			return false
		}
		if said := s.refused("tool:1"); !strings.Contains(said, "no signature of "+short(evil.DigestStr())) {
			t.Errorf("%s: %s", kind, said)
		}
	}
	// 2. The content of a signature, or of its manifest.
	for _, part := range []string{"/blobs/sha256:", "/manifests/sha256:"} {
		s, _ := signed(t)
		s.meddle = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, part) {
				_, _ = w.Write([]byte(`{"schemaVersion": 2}`))
				return true
			}
			return false
		}
		if said := s.refused("tool:1"); !strings.Contains(said, "its registry cannot be asked: ") {
			t.Errorf("%s: %s", part, said)
		}
	}
}

// overwriting is an answer of which one header is another.
type overwriting struct {
	http.ResponseWriter
	name, value string
}

func (o *overwriting) WriteHeader(code int) {
	o.Header().Set(o.name, o.value)
	o.ResponseWriter.WriteHeader(code)
}

// A registry that is broken, busy, endless or huge is one that cannot be asked, in bounded
// time and with few requests.
func TestRegistryFaults(t *testing.T) {
	for what, c := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		words  string
	}{
		"busy": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "later", http.StatusServiceUnavailable) }, "answers 503 Service Unavailable"},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("{"))
			panic(http.ErrAbortHandler)
		}, "EOF"},
		"slow": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
			_, _ = w.Write([]byte("{"))
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(20 * time.Second):
			}
		}, "not done within"},
		"huge": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}, ""},
		"nonsense": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
			_, _ = w.Write([]byte("<html>"))
		}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			s, _ := signed(t)
			s.forget()
			s.meddle = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "/referrers/") {
					c.answer(w, r)
					return true
				}
				return false
			}
			ctx := context.Background()
			if what == "slow" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, time.Second, errors.New("not done within a second"))
				defer cancel()
			}
			start := time.Now()
			_, err := s.images.Choose(ctx, Want{Name: s.host + "/tool:1", Mode: v1beta1.VerifyEnabled, Held: func(context.Context) (*Held, error) { return nil, nil }})
			var known *Error
			if !errors.As(err, &known) || known.Kind != Refused || !strings.Contains(known.What, "its registry cannot be asked: ") || !strings.Contains(known.What, c.words) {
				t.Errorf("%v", err)
			}
			if took := time.Since(start); took > 8*time.Second || len(s.asked()) > 12 {
				t.Errorf("it took %s and %d requests", took, len(s.asked()))
			}
		})
	}
}

// What a stranger attaches to an image is bounded: it neither takes for ever nor hides what
// counts, which is the newest.
func TestMuchIsAttached(t *testing.T) {
	s := newShelf(t, fake.WithReferrersSupport(true))
	image := s.push("tool:1")
	s.identities(by)
	for range 40 {
		s.signer.Sign(image, signer.Signing{Identity: "other@example.com", Issuer: issuer, Tagged: true})
	}
	if said := s.refused("tool:1"); !strings.Contains(said, "it is signed by other@example.com") {
		t.Error(said)
	}
	s.forget()
	s.signer.Sign(image, signer.Signing{Identity: by, Issuer: issuer, Tagged: true})
	if _, err := s.choose("tool:1", v1beta1.VerifyEnabled); err != nil || len(s.asked()) > 200 {
		t.Errorf("%v; %d requests", err, len(s.asked()))
	}
}

// What is attached to an image and is too large, or is listed and gone, hides no signature that
// counts.
func TestAttachedHidesNothing(t *testing.T) {
	is := signer.Signing{Identity: by, Issuer: issuer}
	much := is
	much.Spoil = func([]byte) []byte { return bytes.Repeat([]byte(","), maxSignature+1) }
	parts := is
	parts.Spoil = func([]byte) []byte { return bytes.Repeat([]byte(","), maxParts+1) }
	tagged := func(s signer.Signing) signer.Signing { s.Tagged = true; return s }
	for what, c := range map[string]struct {
		sign signer.Signing
		part string                      // of the path where what is attached then is answered so
		as   func(w http.ResponseWriter) // nil for as it is
	}{
		"a bundle of too many bytes":   {much, "", nil},
		"a bundle of too many parts":   {parts, "", nil},
		"a bundle that is gone":        {is, "/manifests/sha256:", func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }},
		"a bundle without its content": {is, "/blobs/", func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }},
		"a description of too many parts": {is, "/manifests/sha256:", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
			_, _ = w.Write(bytes.Repeat([]byte(","), maxParts+1))
		}},
		"cosign's of too many bytes":   {tagged(much), "", nil},
		"cosign's of too many parts":   {tagged(parts), "", nil},
		"cosign's without its content": {tagged(is), "/blobs/", func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }},
		"cosign's list of too many parts": {tagged(is), ".sig", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
			_, _ = w.Write(bytes.Repeat([]byte(","), maxParts+1))
		}},
	} {
		t.Run(what, func(t *testing.T) {
			s, image := signed(t)
			if _, err := s.choose("tool:1", v1beta1.VerifyEnabled); err != nil {
				t.Fatal(err)
			}
			counts := s.asked() // all that it takes to see that it is signed
			s.signer.Sign(image, c.sign)
			answered := false
			s.meddle = func(w http.ResponseWriter, r *http.Request) bool {
				if c.as == nil || !strings.Contains(r.URL.Path, c.part) || c.part != ".sig" && slices.Contains(counts, r.Method+" "+r.URL.Path) {
					return false
				}
				answered = true
				c.as(w)
				return true
			}
			if got, err := s.choose("tool:1", v1beta1.VerifyEnabled); err != nil || got.Verified == "" || answered != (c.as != nil) {
				t.Errorf("%+v, %v; answered %v", got, err, answered)
			}
		})
	}
}

// Signatures count in each form: as bundles by the registry's list or under the tag that takes
// its place, and as cosign's older ones; without a log where the rule says so. What is attached
// to an image and is no signature of it does not.
func TestForms(t *testing.T) {
	key, pem := signer.Key(t)
	for _, c := range []struct {
		what  string
		sign  signer.Signing
		log   bool
		words string // "" where it counts
	}{
		{"a bundle", signer.Signing{Identity: by, Issuer: issuer}, true, ""},
		{"a provenance", signer.Signing{Identity: by, Issuer: issuer, Subject: "https://slsa.dev/provenance/v1"}, true, ""},
		{"a list of what is in it", signer.Signing{Identity: by, Issuer: issuer, Subject: "https://spdx.dev/Document"}, true, "it is neither a signature nor a provenance, but a https://spdx.dev/Document"},
		{"cosign's", signer.Signing{Identity: by, Issuer: issuer, Tagged: true}, true, ""},
		{"cosign's, of another image", signer.Signing{Identity: by, Issuer: issuer, Tagged: true, Of: "sha256:" + strings.Repeat("cd", 32)}, true, "signs another image, sha256:cdcdcdcdcdcd…"},
		{"cosign's, changed", signer.Signing{Identity: by, Issuer: issuer, Tagged: true, Spoil: func(b []byte) []byte { return append(b, ' ') }}, true, "its signature does not hold"},
		{"a bundle, changed", signer.Signing{Identity: by, Issuer: issuer, Spoil: func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"sig":"`, `"sig":"AAAA`, 1))
		}}, true, "its signature does not hold"},
		{"no bundle", signer.Signing{Identity: by, Issuer: issuer, Spoil: func([]byte) []byte { return []byte("{}") }}, true, "a signature of it cannot be read"},
		{"a bundle of too many parts", signer.Signing{Identity: by, Issuer: issuer, Spoil: func([]byte) []byte {
			return []byte(`{"verificationMaterial":{"tlogEntries":[` + strings.Repeat("{},", maxParts+1) + `{}]}}`)
		}}, true, "a signature of it cannot be read: it has more than 100000 parts"},
		{"a bundle of too many bytes", signer.Signing{Identity: by, Issuer: issuer, Spoil: func([]byte) []byte {
			return make([]byte, maxSignature+1)
		}}, true, "a signature of it cannot be read: it has 4194305 bytes, and the limit is 4194304"},
		{"in no log, with a time", signer.Signing{Identity: by, Issuer: issuer, Unlogged: true, Stamped: true}, false, ""},
		{"cosign's in no log, with a time", signer.Signing{Identity: by, Issuer: issuer, Unlogged: true, Stamped: true, Tagged: true}, false, ""},
		{"in no log, without a time", signer.Signing{Identity: by, Issuer: issuer, Unlogged: true}, false, "its signature does not hold"},
		{"by a key", signer.Signing{Key: key, Unlogged: true}, false, ""},
		{"by a key, cosign's", signer.Signing{Key: key, Unlogged: true, Tagged: true}, false, ""},
		{"by a key, in no log", signer.Signing{Key: key, Unlogged: true, Tagged: true}, true, "it is in no"},
	} {
		for _, lists := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, list %v", c.what, lists), func(t *testing.T) {
				s := newShelf(t, fake.WithReferrersSupport(lists))
				image := s.push("tool:1")
				rule := fmt.Sprintf("images:\n- image: %s/**\n  requireTlog: %v\n  identities:\n  - issuer: %s\n    subject: %q\n  keys:\n  - |\n    %s\n", s.host, c.log, issuer, by, strings.ReplaceAll(strings.TrimSpace(pem), "\n", "\n    "))
				s.write("image-policy.yaml", rule)
				s.signer.Sign(image, c.sign)
				got, err := s.choose("tool:1", v1beta1.VerifyEnabled)
				if c.words == "it is in no" {
					c.words = "its signature is in no transparency log"
				}
				if c.words == "" && (err != nil || got.Verified == "") || c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)) {
					t.Errorf("%+v, %v", got, err)
				}
			})
		}
	}
	// Another key.
	s := newShelf(t)
	image := s.push("tool:1")
	s.keys(pem, false)
	other, _ := signer.Key(t)
	s.signer.Sign(image, signer.Signing{Key: other, Tagged: true})
	if said := s.refused("tool:1"); !strings.Contains(said, "its signature is of no key that") {
		t.Error(said)
	}
	// A key's entry that another log signed.
	key2, pem2 := signer.Key(t)
	s.keys(pem2, true)
	signer.New(t).Sign(s.push("log:1"), signer.Signing{Key: key2, Tagged: true})
	if said := s.refused("log:1"); !strings.Contains(said, "but its entry in a transparency log does not hold") {
		t.Error(said)
	}
}

// An image that the engine has is what the registry called it, and one that came from nowhere
// is not looked up: somebody else may have taken its name there.
func TestHeld(t *testing.T) {
	s, image := signed(t)
	by := s.host + "/tool@" + image.DigestStr()
	there := &Held{Digests: []string{"elsewhere.example/tool@sha256:" + strings.Repeat("ee", 32), by}}

	// 1. A tag that stays is not asked for, and a digest neither.
	for _, text := range []string{"tool:1", "tool:2", "tool@" + image.DigestStr(), "tool:7@" + image.DigestStr()} {
		s.forget()
		got, err := s.chooseHeld(text, v1beta1.VerifyEnabled, there)
		if err != nil || got.Pull || got.Image != by || got.Verified == "" || strings.Contains(fmt.Sprint(s.asked()), "manifests/1") {
			t.Errorf("%s: %+v, %v, asked %v", text, got, err, s.asked())
		}
	}
	// 2. One that moves is: what is new is pulled.
	if got, err := s.chooseHeld("tool", v1beta1.VerifyWarn, there); err != nil || got.Pull || got.Image != by || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "what is on this machine is run") {
		t.Errorf("nothing at the registry: %+v, %v", got, err)
	}
	newer := s.push("tool:latest")
	s.signer.Sign(newer, signer.Signing{Identity: "release@example.com", Issuer: issuer})
	if got, err := s.chooseHeld("tool", v1beta1.VerifyEnabled, there); err != nil || !got.Pull || got.Image != s.host+"/tool@"+newer.DigestStr() {
		t.Errorf("something newer: %+v, %v", got, err)
	}
	for _, text := range []string{"tool", "tool:latest"} {
		if got, err := s.chooseHeld(text, v1beta1.VerifyDisabled, there); err != nil || !got.Pull || got.Fallback != s.host+"/"+text {
			t.Errorf("%s, disabled: %+v, %v", text, got, err)
		}
	}
	// 3. Made on this machine.
	s.forget()
	for _, h := range []*Held{{}, {Digests: []string{"elsewhere.example/tool@sha256:" + strings.Repeat("ee", 32)}}} {
		if got, err := s.chooseHeld("tool", v1beta1.VerifyWarn, h); err != nil || got.Pull || got.Image != s.host+"/tool" || !strings.Contains(got.Notes[0], "it came from no registry") {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := s.chooseHeld("tool", v1beta1.VerifyEnabled, h); err == nil || !strings.Contains(err.Error(), "it came from no registry") {
			t.Error(err)
		}
	}
	if len(s.asked()) > 0 {
		t.Errorf("asked %v", s.asked())
	}
	// 4. Nobody has it.
	for _, mode := range []v1beta1.ImageVerification{v1beta1.VerifyWarn, v1beta1.VerifyEnabled} {
		_, err := s.choose("nothing:1", mode)
		var known *Error
		if !errors.As(err, &known) || known.Kind != NoPull || !strings.Contains(known.Error(), "has none: correct its name") {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

// A registry that wants a login gets the user's, and nobody else does: neither who it leads to,
// nor without TLS. Where it leads to is on the public internet.
func TestLogin(t *testing.T) {
	s, image := signed(t)
	s.images.keychain = keys{s.host: {Username: "somebody", Password: "planted-password"}}
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("somebody:planted-password"))
	s.meddle = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != want {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return false
	}
	if got, err := s.choose("tool:1", v1beta1.VerifyEnabled); err != nil || got.Image != s.host+"/tool@"+image.DigestStr() {
		t.Errorf("%+v, %v", got, err)
	}
	text, err := s.images.Login(t.Context(), s.host+"/tool:1")
	raw, _ := base64.URLEncoding.DecodeString(string(text))
	var is map[string]string
	if json.Unmarshal(raw, &is) != nil || err != nil || is["username"] != "somebody" || is["password"] != "planted-password" || is["serveraddress"] != s.host {
		t.Errorf("%s, %v", raw, err)
	}
	s.images.keychain = keys{}
	_, err = s.choose("tool:1", v1beta1.VerifyEnabled)
	var known *Error
	if !errors.As(err, &known) || known.Kind != NoPull || !strings.Contains(known.Error(), "log in to its registry: docker login "+s.host) {
		t.Error(err)
	}
	if text, err := s.images.Login(t.Context(), s.host+"/tool:1"); text != "" || err != nil {
		t.Errorf("%q, %v", text, err)
	}

	// The one who is led to.
	s.images.keychain = keys{s.host: {Username: "somebody", Password: "planted-password"}}
	var heard []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		heard = append(heard, r.URL.Path+" "+r.Header.Get("Authorization"))
	}))
	defer other.Close()
	elsewhere := strings.Replace(other.URL, "127.0.0.1", "localhost", 1) // another host, on this machine
	for what, meddle := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"a redirect": func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/manifests/") {
				http.Redirect(w, r, elsewhere+"/taken", http.StatusTemporaryRedirect)
				return true
			}
			return false
		},
		"a redirect to where clouds give credentials": func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/manifests/") {
				http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusTemporaryRedirect)
				return true
			}
			return false
		},
		"a challenge": func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+elsewhere+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		},
		"a challenge without TLS": func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://auth.example.com/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		},
	} {
		s.meddle = meddle
		if got, err := s.choose("tool:1", v1beta1.VerifyEnabled); err == nil || strings.Contains(err.Error(), "planted") {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	if len(heard) > 0 {
		t.Errorf("another host has heard %v", heard)
	}
}

// keys are credentials by the name of a registry.
type keys map[string]authn.AuthConfig

func (k keys) Resolve(of authn.Resource) (authn.Authenticator, error) {
	if c, ok := k[of.RegistryStr()]; ok {
		return authn.FromConfig(c), nil
	}
	return authn.Anonymous, nil
}

// Registries elsewhere are spoken with by TLS alone.
func TestGuard(t *testing.T) {
	g := newGuard("registry.example:5000", nil)
	for url, words := range map[string]string{
		"file:///etc/passwd": "leads to what is no https URL", "ftp://registry.example/": "leads to what is no https URL", "https:///v2/": "leads to what is no https URL",
		"http://registry.example:5000/v2/": "is not asked without TLS", "http://10.1.2.3/v2/": "is not asked without TLS",
		"https://10.1.2.3/v2/": "not a public address", "https://[fd00:ec2::254]/v2/": "metadata", "https://169.254.169.254/": "link-local",
	} {
		r, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.RoundTrip(r); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", url, err)
		}
	}
	g = newGuard("10.1.2.3:5000", []byte("no certificate"))
	r, _ := http.NewRequest(http.MethodGet, "http://10.1.2.3:5000/v2/", nil)
	if _, err := g.RoundTrip(r); err == nil || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("a private registry without TLS: %v", err)
	}
}

// What a registry sends is bounded, whoever reads it: one answer, and all of them together.
func TestBounded(t *testing.T) {
	g := &guard{}
	read := func(size int64) error {
		n, err := io.Copy(io.Discard, &bounded{io.NopCloser(io.LimitReader(endless{}, size)), g, maxAnswer, maxParts})
		if n > maxAnswer {
			t.Errorf("%d bytes of one answer", n)
		}
		return err
	}
	if err := read(maxAnswer); err != nil {
		t.Error(err)
	}
	if err := read(maxAnswer + 1); err == nil {
		t.Error("one answer is endless")
	}
	var err error
	for n := 0; n < 8 && err == nil; n++ {
		err = read(maxAnswer)
	}
	if err == nil {
		t.Error("all answers together are endless")
	}
	s, _ := signed(t)
	g = newGuard(s.host, nil)
	defer g.base.CloseIdleConnections()
	for n := range maxRequests + 1 {
		r, _ := http.NewRequest(http.MethodGet, "http://"+s.host+"/v2/", nil)
		answer, err := g.RoundTrip(r)
		if (err != nil) != (n == maxRequests) {
			t.Fatalf("request %d: %v", n, err)
		}
		if err == nil {
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// A program that keeps credentials and does not answer is not waited for.
func TestSlowHelper(t *testing.T) {
	s, _ := signed(t)
	end := make(chan struct{})
	s.images.keychain = slowKeys{end}
	defer close(end)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("not done in time"))
	defer cancel()
	_, err := s.images.Choose(ctx, Want{Name: s.host + "/tool:1", Mode: v1beta1.VerifyEnabled, Held: func(context.Context) (*Held, error) { return nil, nil }})
	if err == nil || !strings.Contains(err.Error(), "not done in time") {
		t.Error(err)
	}
}

type slowKeys struct{ end chan struct{} }

func (s slowKeys) Resolve(authn.Resource) (authn.Authenticator, error) {
	<-s.end
	return authn.Anonymous, nil
}
