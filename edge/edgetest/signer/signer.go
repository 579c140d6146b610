// Package signer is a Sigstore of a test's own, with an authority, a transparency log and a
// clock, which signs images as cosign does: by bundles that refer to them, or under a tag.
package signer

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"github.com/sigstore/sigstore-go/pkg/verify"
)

// Authority is a Sigstore of its own.
type Authority struct {
	t testing.TB
	v *ca.VirtualSigstore
}

// New makes one.
func New(t testing.TB) *Authority {
	t.Helper()
	v, err := ca.NewVirtualSigstore()
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{t, v}
}

func (a *Authority) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// Roots is what has to be trusted for its signatures to count: a trusted_root.json.
func (a *Authority) Roots() []byte {
	a.t.Helper()
	logs := a.v.RekorLogs()
	for id, l := range logs { // whose ids are those of files in hexadecimal
		raw, err := hex.DecodeString(id)
		a.must(err)
		l.ID = raw
	}
	tr, err := root.NewTrustedRoot(root.TrustedRootMediaType01, a.v.FulcioCertificateAuthorities(), nil, a.v.TimestampingAuthorities(), logs)
	a.must(err)
	text, err := tr.MarshalJSON()
	a.must(err)
	return text
}

// Key makes a key, and its public half in PEM.
func Key(t testing.TB) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: text}))
}

// Signing is how an image is signed.
type Signing struct {
	Identity string            // the mail address of a certificate
	Issuer   string            // who vouches for it
	Key      *ecdsa.PrivateKey // in place of a certificate; nil for one

	Of       string        // digest that is signed, in place of the image's; "" for that
	Subject  string        // media type of what is said of it; "" for a signature of cosign
	Late     time.Duration // of the entry in the log
	Unlogged bool          // no log has it
	Stamped  bool          // a clock has vouched for the time
	Tagged   bool          // cosign's older form, under a tag
	Spoil    func(text []byte) []byte
}

// Sign signs an image that is at a registry, and puts the signature there. It returns what
// it put.
func (a *Authority) Sign(image name.Digest, s Signing, opts ...remote.Option) []byte {
	a.t.Helper()
	of := image.DigestStr()
	if s.Of != "" {
		of = s.Of
	}
	if s.Tagged {
		return a.tag(image, of, s, opts)
	}
	text := a.Bundle(of, s)
	subject, err := remote.Head(image, opts...)
	a.must(err)
	kind := types.MediaType("application/vnd.dev.sigstore.bundle.v0.3+json")
	of1, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), kind), static.NewLayer(text, kind))
	a.must(err)
	of2 := mutate.Subject(of1, v1.Descriptor{MediaType: subject.MediaType, Size: subject.Size, Digest: subject.Digest}).(v1.Image)
	digest, err := of2.Digest()
	a.must(err)
	a.must(remote.Write(image.Context().Digest(digest.String()), of2, opts...))
	return text
}

// tag adds a signature to those under the tag of an image.
func (a *Authority) tag(image name.Digest, of string, s Signing, opts []remote.Option) []byte {
	a.t.Helper()
	payload := []byte(fmt.Sprintf(`{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, image.Context().Name(), of))
	sig, cert, entry, stamp := a.message(payload, s)
	notes := map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(sig)}
	if cert != nil {
		notes["dev.sigstore.cosign/certificate"] = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	}
	if entry != nil {
		text, err := json.Marshal(map[string]any{
			"SignedEntryTimestamp": entry.promise,
			"Payload":              map[string]any{"body": entry.body, "integratedTime": entry.at, "logIndex": entry.index, "logID": entry.log},
		})
		a.must(err)
		notes["dev.sigstore.cosign/bundle"] = string(text)
	}
	if stamp != nil {
		text, err := json.Marshal(map[string][]byte{"SignedRFC3161Timestamp": stamp})
		a.must(err)
		notes["dev.sigstore.cosign/rfc3161timestamp"] = string(text)
	}
	if s.Spoil != nil {
		payload = s.Spoil(payload)
	}
	tag := image.Context().Tag("sha256-" + image.DigestStr()[len("sha256:"):] + ".sig")
	before, err := remote.Image(tag, opts...)
	if err != nil {
		before = mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	}
	now, err := mutate.Append(before, mutate.Addendum{Layer: static.NewLayer(payload, "application/vnd.dev.cosign.simplesigning.v1+json"), Annotations: notes})
	a.must(err)
	a.must(remote.Write(tag, now, opts...))
	return payload
}

// Bundle is a signature of a digest: a statement that is signed.
func (a *Authority) Bundle(of string, s Signing) []byte {
	a.t.Helper()
	kind := s.Subject
	if kind == "" {
		kind = "https://sigstore.dev/cosign/sign/v1"
	}
	statement := []byte(fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q}}],"predicateType":%q,"predicate":{}}`, of[len("sha256:"):], kind))
	var e *ca.TestEntity
	var err error
	if s.Key == nil {
		e, err = a.v.AttestAtTime(s.Identity, s.Issuer, statement, time.Now().Add(5*time.Minute+s.Late), true)
		a.must(err)
	}
	b := map[string]any{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json"}
	material := map[string]any{}
	if s.Key != nil {
		const payloadType = "application/vnd.in-toto+json"
		sig := signed(a.t, s.Key, []byte(fmt.Sprintf("DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(statement), statement)))
		b["dsseEnvelope"] = map[string]any{"payload": statement, "payloadType": payloadType, "signatures": []any{map[string]any{"sig": sig}}}
		material["publicKey"] = map[string]any{"hint": "test"}
		s.Unlogged = true // entries of statements by keys are not made here
	} else {
		of, err := e.SignatureContent()
		a.must(err)
		envelope := of.EnvelopeContent().RawEnvelope()
		b["dsseEnvelope"] = map[string]any{"payload": envelope.Payload, "payloadType": envelope.PayloadType, "signatures": []any{map[string]any{"sig": envelope.Signatures[0].Sig}}}
		material["certificate"] = map[string]any{"rawBytes": certificate(a.t, e)}
		stamps, err := e.Timestamps()
		a.must(err)
		if s.Stamped {
			material["timestampVerificationData"] = map[string]any{"rfc3161Timestamps": []any{map[string]any{"signedTimestamp": stamps[0]}}}
		}
	}
	if !s.Unlogged {
		entries, err := e.TlogEntries()
		a.must(err)
		t := entries[0].TransparencyLogEntry()
		l := a.entry(t.CanonicalizedBody, t.IntegratedTime, t.LogIndex)
		material["tlogEntries"] = []any{map[string]any{
			"logIndex": fmt.Sprint(t.LogIndex), "logId": map[string]any{"keyId": t.LogId.KeyId}, "kindVersion": map[string]any{"kind": l.kind, "version": l.version},
			"integratedTime": fmt.Sprint(t.IntegratedTime), "inclusionPromise": map[string]any{"signedEntryTimestamp": l.promise},
			"inclusionProof": map[string]any{
				"logIndex": fmt.Sprint(t.InclusionProof.LogIndex), "rootHash": t.InclusionProof.RootHash, "treeSize": fmt.Sprint(t.InclusionProof.TreeSize),
				"hashes": t.InclusionProof.Hashes, "checkpoint": map[string]any{"envelope": t.InclusionProof.Checkpoint.Envelope},
			},
			"canonicalizedBody": t.CanonicalizedBody,
		}}
	}
	b["verificationMaterial"] = material
	text, err := json.Marshal(b)
	a.must(err)
	if s.Spoil != nil {
		text = s.Spoil(text)
	}
	return text
}

// message signs bytes.
func (a *Authority) message(payload []byte, s Signing) (sig, cert []byte, entry *entry, stamp []byte) {
	a.t.Helper()
	if s.Key != nil {
		sig = signed(a.t, s.Key, payload)
		if !s.Unlogged {
			entry = a.logs(payload, sig, s.Key)
		}
		return sig, nil, entry, nil
	}
	e, err := a.v.SignAtTime(s.Identity, s.Issuer, payload, time.Now().Add(5*time.Minute+s.Late))
	a.must(err)
	of, err := e.SignatureContent()
	a.must(err)
	if s.Stamped {
		stamps, err := e.Timestamps()
		a.must(err)
		stamp = stamps[0]
	}
	if !s.Unlogged {
		entries, err := e.TlogEntries()
		a.must(err)
		t := entries[0].TransparencyLogEntry()
		entry = a.entry(t.CanonicalizedBody, t.IntegratedTime, t.LogIndex)
	}
	return of.Signature(), certificate(a.t, e), entry, stamp
}

// logs makes the entry of a signature by a key in the log.
func (a *Authority) logs(payload, sig []byte, key *ecdsa.PrivateKey) *entry {
	a.t.Helper()
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	a.must(err)
	sum := sha256.Sum256(payload)
	body, err := json.Marshal(map[string]any{
		"apiVersion": "0.0.1", "kind": "hashedrekord",
		"spec": map[string]any{
			"data":      map[string]any{"hash": map[string]any{"algorithm": "sha256", "value": hex.EncodeToString(sum[:])}},
			"signature": map[string]any{"content": sig, "publicKey": map[string]any{"content": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})}},
		},
	})
	a.must(err)
	return a.entry(body, time.Now().Unix(), 1)
}

// entry is one of the log, with its promise to have it.
type entry struct {
	body          []byte
	at, index     int64
	log           string // its id, in hexadecimal
	kind, version string
	promise       []byte
}

func (a *Authority) entry(body []byte, at, index int64) *entry {
	a.t.Helper()
	var says struct{ Kind, APIVersion string }
	a.must(json.Unmarshal(body, &says))
	e := &entry{body: body, at: at, index: index, kind: says.Kind, version: says.APIVersion}
	var err error
	e.log, err = a.v.RekorLogID()
	a.must(err)
	e.promise, err = a.v.RekorSignPayload(tlog.RekorPayload{Body: base64.StdEncoding.EncodeToString(body), IntegratedTime: at, LogIndex: index, LogID: e.log})
	a.must(err)
	return e
}

func signed(t testing.TB, key *ecdsa.PrivateKey, text []byte) []byte {
	t.Helper()
	sum := sha256.Sum256(text)
	sig, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

func certificate(t testing.TB, e verify.SignedEntity) []byte {
	t.Helper()
	of, err := e.VerificationContent()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(of.Certificate().Raw)
}
