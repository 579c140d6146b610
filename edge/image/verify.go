package image

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/fulcio/certificate"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	sign "github.com/sigstore/sigstore/pkg/signature"

	"github.com/weir-edge/weir/edge"
)

// signature is one that was found at a registry.
type signature struct {
	bundle  *bundle.Bundle
	payload []byte // what is signed, of one that cosign keeps under a tag; nil for what a bundle says
	broken  error  // why it cannot be read; nil where it can
}

// failure is why a signature does not count. Of several the one with the highest rank is told:
// it came nearest.
type failure struct {
	rank int
	text string
	next string
}

// The ranks of failures.
const (
	unreadable = iota
	ofAnother
	untrusted
	unlogged
	bySomebodyElse
)

func (s *signature) fails(rank int, format string, args ...any) *failure {
	return &failure{rank: rank, text: fmt.Sprintf(format, args...)}
}

// ofBundle reads a bundle.
func ofBundle(text []byte) *signature {
	b := new(bundle.Bundle)
	if err := b.UnmarshalJSON(text); err != nil {
		return &signature{broken: err}
	}
	return &signature{bundle: b}
}

// What cosign says of a signature beside what is signed (its document SIGNATURE_SPEC.md).
const (
	noteSignature   = "dev.cosignproject.cosign/signature"
	noteCertificate = "dev.sigstore.cosign/certificate"
	noteLog         = "dev.sigstore.cosign/bundle"
	noteTime        = "dev.sigstore.cosign/rfc3161timestamp"
)

// ofTag reads a signature that cosign keeps under a tag, as the bundle that it would be.
func ofTag(payload []byte, notes map[string]string) *signature {
	b, err := bundled(payload, notes)
	if err != nil {
		return &signature{broken: err}
	}
	return &signature{bundle: b, payload: payload}
}

func bundled(payload []byte, notes map[string]string) (*bundle.Bundle, error) {
	sig, err := base64.StdEncoding.DecodeString(notes[noteSignature])
	if err != nil || len(sig) == 0 {
		return nil, errors.New("it has no signature")
	}
	sum := sha256.Sum256(payload)
	m := &protobundle.VerificationMaterial{Content: &protobundle.VerificationMaterial_PublicKey{PublicKey: &protocommon.PublicKeyIdentifier{}}}
	if text := notes[noteCertificate]; text != "" {
		block, _ := pem.Decode([]byte(text))
		if block == nil {
			return nil, errors.New("its certificate is not in PEM")
		}
		m.Content = &protobundle.VerificationMaterial_X509CertificateChain{X509CertificateChain: &protocommon.X509CertificateChain{Certificates: []*protocommon.X509Certificate{{RawBytes: block.Bytes}}}}
	}
	if text := notes[noteLog]; text != "" {
		entry, err := logged(text)
		if err != nil {
			return nil, fmt.Errorf("its entry of a log: %w", err)
		}
		m.TlogEntries = []*protorekor.TransparencyLogEntry{entry}
	}
	if text := notes[noteTime]; text != "" {
		var stamp struct{ SignedRFC3161Timestamp []byte }
		if err := json.Unmarshal([]byte(text), &stamp); err != nil {
			return nil, fmt.Errorf("its time stamp: %w", err)
		}
		m.TimestampVerificationData = &protobundle.TimestampVerificationData{Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: stamp.SignedRFC3161Timestamp}}}
	}
	return bundle.NewBundle(&protobundle.Bundle{
		MediaType: bundleType + "+json;version=0.1", VerificationMaterial: m,
		Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: sum[:]}, Signature: sig,
		}},
	})
}

// logged reads an entry of a transparency log as cosign keeps it.
func logged(text string) (*protorekor.TransparencyLogEntry, error) {
	var e struct {
		SignedEntryTimestamp []byte
		Payload              struct {
			Body           []byte `json:"body"`
			IntegratedTime int64  `json:"integratedTime"`
			LogIndex       int64  `json:"logIndex"`
			LogID          string `json:"logID"`
		}
	}
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return nil, err
	}
	var body struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
	}
	if err := json.Unmarshal(e.Payload.Body, &body); err != nil {
		return nil, err
	}
	id, err := hex.DecodeString(e.Payload.LogID)
	return &protorekor.TransparencyLogEntry{
		LogIndex: e.Payload.LogIndex, LogId: &protocommon.LogId{KeyId: id}, KindVersion: &protorekor.KindVersion{Kind: body.Kind, Version: body.APIVersion},
		IntegratedTime: e.Payload.IntegratedTime, InclusionPromise: &protorekor.InclusionPromise{SignedEntryTimestamp: e.SignedEntryTimestamp}, CanonicalizedBody: e.Payload.Body,
	}, err
}

// verify says who signed an image: that they are named by the rule, that they signed this
// image, and that a log has it where it has to.
func (s *signature) verify(digest v1.Hash, rule *rule, trusted *root.TrustedRoot) (who string, failed *failure) {
	defer func() { // many libraries read what a stranger wrote
		if r := recover(); r != nil {
			who, failed = "", s.fails(unreadable, "a signature of it cannot be read: %s", edge.Brief(fmt.Sprint(r)))
		}
	}()
	if s.broken != nil {
		return "", s.fails(unreadable, "a signature of it cannot be read: %s", brief(s.broken))
	}
	// 1. What it signs, which is proven with the signature.
	of, err := s.subject(digest.Hex)
	switch {
	case err != nil:
		return "", s.fails(unreadable, "a signature of it cannot be read: %s", brief(err))
	case of != digest.Hex:
		return "", s.fails(ofAnother, "what is attached to it signs another image, %s", short("sha256:"+edge.Brief(of)))
	}
	// 2. Its entry in a log.
	entries, err := s.bundle.TlogEntries()
	switch {
	case err != nil:
		return "", s.fails(unreadable, "a signature of it cannot be read: %s", brief(err))
	case rule.log && len(entries) == 0:
		return "", &failure{unlogged, "its signature is in no transparency log, and " + rule.where + " wants one that is", "have it signed so that it is, or say requireTlog: false there"}
	}
	// 3. Who.
	content, err := s.bundle.VerificationContent()
	if err != nil {
		return "", s.fails(unreadable, "a signature of it cannot be read: %s", brief(err))
	}
	if content.Certificate() == nil {
		return s.byKey(digest, rule, trusted)
	}
	return s.byIdentity(digest, rule, trusted)
}

// maxSubjects is of how many things one signature may be.
const maxSubjects = 256

// subject is the digest of the image that a signature says that it is of. Of several it is the
// wanted one, if that is among them.
func (s *signature) subject(wanted string) (string, error) {
	if s.payload != nil {
		var p struct {
			Critical struct {
				Image struct {
					Digest string `json:"docker-manifest-digest"`
				} `json:"image"`
				Type string `json:"type"`
			} `json:"critical"`
		}
		if err := json.Unmarshal(s.payload, &p); err != nil {
			return "", err
		}
		if p.Critical.Type != "cosign container image signature" {
			return "", fmt.Errorf("it signs a %q", edge.Brief(p.Critical.Type))
		}
		return strings.TrimPrefix(p.Critical.Image.Digest, "sha256:"), nil
	}
	switch of := s.bundle.Content.(type) {
	case *protobundle.Bundle_MessageSignature:
		return hex.EncodeToString(of.MessageSignature.GetMessageDigest().GetDigest()), nil
	case *protobundle.Bundle_DsseEnvelope:
		e, err := s.bundle.Envelope()
		if err != nil {
			return "", err
		}
		statement, err := e.Statement()
		if err != nil {
			return "", err
		}
		if kind := statement.GetPredicateType(); !strings.HasPrefix(kind, "https://sigstore.dev/cosign/sign/") && !strings.HasPrefix(kind, "https://slsa.dev/provenance/") {
			return "", fmt.Errorf("it is neither a signature nor a provenance, but a %s", edge.Brief(kind))
		}
		subjects := statement.GetSubject()
		if len(subjects) == 0 || len(subjects) > maxSubjects {
			return "", fmt.Errorf("it is of %d things", len(subjects))
		}
		for _, one := range subjects {
			if one.GetDigest()["sha256"] == wanted {
				return wanted, nil
			}
		}
		return subjects[0].GetDigest()["sha256"], nil
	}
	return "", errors.New("it is of no kind that is known here")
}

// artifact is what the signature has to be of.
func (s *signature) artifact(digest v1.Hash) (verify.ArtifactPolicyOption, error) {
	if s.payload != nil { // which names the image
		return verify.WithArtifact(bytes.NewReader(s.payload)), nil
	}
	sum, err := hex.DecodeString(digest.Hex)
	return verify.WithArtifactDigest("sha256", sum), err
}

// byKey verifies a signature by a key.
func (s *signature) byKey(digest v1.Hash, rule *rule, trusted *root.TrustedRoot) (string, *failure) {
	if len(rule.keys) == 0 {
		return "", s.fails(bySomebodyElse, "it is signed with a key, and %s names identities alone", rule.where)
	}
	// The time of a signature does not matter: a key is named by the user, who takes it away
	// when it does not count any longer.
	options := []verify.VerifierOption{verify.WithNoObserverTimestamps()}
	if rule.log {
		options = append(options, verify.WithTransparencyLog(1))
	}
	var why error
	for n, key := range rule.keys {
		verifier, err := sign.LoadVerifier(key, crypto.SHA256)
		if err != nil {
			return "", s.fails(untrusted, "%s: keys[%d]: %s", rule.where, n, brief(err))
		}
		material := root.TrustedMaterialCollection{trusted, root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) {
			return root.NewExpiringKey(verifier, time.Time{}, time.Time{}), nil
		})}
		if _, err = s.proven(material, digest, options, verify.WithKey()); err == nil {
			return fmt.Sprintf("signed by key %d of %s", n+1, rule.where), nil
		}
		// One of this key, of which something else does not hold, says more than one of another.
		if _, alone := s.proven(material, digest, []verify.VerifierOption{verify.WithNoObserverTimestamps()}, verify.WithKey()); alone == nil {
			return "", &failure{unlogged, "its signature is of key " + fmt.Sprint(n+1) + " of " + rule.where + ", but its entry in a transparency log does not hold: " + brief(err), ""}
		}
		why = err
	}
	return "", s.fails(bySomebodyElse, "its signature is of no key that %s names: %s", rule.where, brief(why))
}

// byIdentity verifies a signature by a certificate.
func (s *signature) byIdentity(digest v1.Hash, rule *rule, trusted *root.TrustedRoot) (string, *failure) {
	// A certificate is valid for minutes: somebody has to vouch for the time.
	options := []verify.VerifierOption{verify.WithObserverTimestamps(1)}
	if rule.log {
		options = append(options, verify.WithTransparencyLog(1))
	}
	if len(trusted.CTLogs()) > 0 {
		options = append(options, verify.WithSignedCertificateTimestamps(1))
	}
	result, err := s.proven(trusted, digest, options, verify.WithoutIdentitiesUnsafe()) // which are judged below
	if err != nil {
		return "", s.fails(untrusted, "its signature does not hold: %s%s", s.late(), brief(err))
	}
	cert := result.Signature.Certificate
	if cert == nil {
		return "", s.fails(untrusted, "its signature has no certificate")
	}
	if len(rule.ids) == 0 {
		return "", s.fails(bySomebodyElse, "it is signed by %s, and %s names keys alone", signerOf(cert), rule.where)
	}
	why := ""
	for n := range rule.ids {
		if why = rule.ids[n].differs(cert); why == "" {
			return "signed by " + signerOf(cert), nil
		}
	}
	if len(rule.ids) > 1 {
		why = "which is none of those that it names"
	}
	return "", s.fails(bySomebodyElse, "it is signed by %s, and not as %s says: %s", signerOf(cert), rule.where, why)
}

// late says where a log had the signature when its certificate was not valid; "" where that is
// not why it does not hold.
func (s *signature) late() string {
	content, err := s.bundle.VerificationContent()
	if err != nil {
		return ""
	}
	entries, _ := s.bundle.TlogEntries()
	cert := content.Certificate()
	for _, e := range entries {
		if at := e.IntegratedTime(); !at.IsZero() && (at.Before(cert.NotBefore) || at.After(cert.NotAfter)) {
			const form = "2006-01-02 15:04"
			return fmt.Sprintf("its certificate was valid until %s, and it was signed at %s: ", cert.NotAfter.UTC().Format(form), at.UTC().Format(form))
		}
	}
	return ""
}

func (s *signature) proven(material root.TrustedMaterial, digest v1.Hash, options []verify.VerifierOption, who verify.PolicyOption) (*verify.VerificationResult, error) {
	v, err := verify.NewVerifier(material, options...)
	if err != nil {
		return nil, err
	}
	artifact, err := s.artifact(digest)
	if err != nil {
		return nil, err
	}
	return v.Verify(s.bundle, verify.NewPolicy(artifact, who))
}

// signerOf is who a certificate is of, for people.
func signerOf(c *certificate.Summary) string {
	return fmt.Sprintf("%s (%s)", edge.Brief(c.SubjectAlternativeName), edge.Brief(c.Issuer))
}

// differs says in what a certificate is not that of an identity; "" for in nothing.
func (i *identity) differs(c *certificate.Summary) string {
	for _, f := range []struct{ what, want, is string }{
		{"the issuer", i.issuer, c.Issuer}, {"the repository", i.repository, c.SourceRepositoryURI}, {"the revision", i.ref, c.SourceRepositoryRef}, {"the runner", i.runner, c.RunnerEnvironment},
	} {
		if f.want != "" && f.want != f.is {
			return fmt.Sprintf("%s is to be %s", f.what, edge.Brief(f.want))
		}
	}
	if !i.subject.MatchString(c.SubjectAlternativeName) {
		return "the signer is to be " + edge.Brief(i.names)
	}
	return ""
}
