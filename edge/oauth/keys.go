package oauth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"
)

// Bounds of the keys that are accepted.
const (
	maxKeys       = 256 // in one document
	minModulus    = 2048
	maxModulus    = 8192
	maxExponent   = 1<<31 - 1
	maxKeyID      = 256 // bytes
	maxKeyMember  = 2048
	keyDocDepth   = 16
	keysMediaType = "application/jwk-set+json, application/json"
)

// algorithms is the allow-list of signature algorithms (RFC 7518 §3.1, RFC
// 8037, RFC 9864): all of them are asymmetric.
func algorithms(name string) (jwa.SignatureAlgorithm, bool) {
	switch name {
	case "RS256":
		return jwa.RS256(), true
	case "RS384":
		return jwa.RS384(), true
	case "RS512":
		return jwa.RS512(), true
	case "PS256":
		return jwa.PS256(), true
	case "PS384":
		return jwa.PS384(), true
	case "PS512":
		return jwa.PS512(), true
	case "ES256":
		return jwa.ES256(), true
	case "ES384":
		return jwa.ES384(), true
	case "ES512":
		return jwa.ES512(), true
	case "EdDSA":
		return jwa.EdDSA(), true
	case "Ed25519":
		return jwa.EdDSAEd25519(), true
	}
	return jwa.EmptySignatureAlgorithm(), false
}

// Allowed reports whether a signature algorithm is one that tokens may use.
func Allowed(algorithm string) bool {
	_, ok := algorithms(algorithm)
	return ok
}

// Key is a public key of an issuer, fit for use.
type Key struct {
	ID   string // kid; "" for none
	algs []string
	raw  any
}

// Verify checks the signature of a JWS in compact form whose header names the
// algorithm, and returns its payload. That the form is canonical and the header
// sound is the caller's to check.
func (k *Key) Verify(algorithm string, compact []byte) ([]byte, error) {
	alg, ok := algorithms(algorithm)
	if !ok || !slices.Contains(k.algs, algorithm) {
		return nil, errors.New("the key is not for this algorithm")
	}
	payload, err := jws.VerifyCompactFast(k.raw, compact, alg)
	if err != nil {
		return nil, errors.New("the signature does not hold")
	}
	return payload, nil
}

// KeySet is the keys of one issuer. It is immutable.
type KeySet struct {
	keys    []*Key
	byID    map[string]*Key
	digest  [sha256.Size]byte
	Ignored []string // why keys of the document are not used
}

// Find returns the key that a token's kid names. A token without one finds the
// only key of its issuer.
func (s *KeySet) Find(id string) *Key {
	if id == "" {
		if len(s.keys) == 1 {
			return s.keys[0]
		}
		return nil
	}
	return s.byID[id]
}

// Len is how many keys can be used.
func (s *KeySet) Len() int { return len(s.keys) }

// Same reports whether two sets hold the same keys for the same uses.
func (s *KeySet) Same(t *KeySet) bool { return s != nil && t != nil && s.digest == t.digest }

// ParseKeys reads a JWK Set (RFC 7517 §5). Keys that are not public signature
// keys of an allowed algorithm are left out, as are weak ones and all that
// share a kid; the document itself must be sound and leave at least one.
func ParseKeys(document []byte) (*KeySet, error) {
	o, err := ParseObject(document, keyDocDepth)
	if err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	var raws []json.RawMessage
	if k := o["keys"]; len(k) == 0 || k[0] != '[' || json.Unmarshal(k, &raws) != nil {
		return nil, errors.New("key set: keys: not an array")
	}
	if len(raws) > maxKeys {
		return nil, fmt.Errorf("key set: more than %d keys", maxKeys)
	}
	s := &KeySet{byID: map[string]*Key{}}
	twice := map[string]bool{}
	var marks []string
	seen := map[string]int{}
	for _, raw := range raws { // every key counts here, also those of no use
		if j, err := ParseObject(raw, keyDocDepth); err == nil {
			if id, ok := j.Text("kid"); ok {
				seen[id]++
				twice[id] = seen[id] > 1
			}
		}
	}
	for i, raw := range raws {
		key, mark, err := parseKey(raw)
		if err == nil && twice[key.ID] {
			err = errors.New("its kid is not its own")
		}
		if err != nil {
			s.Ignored = append(s.Ignored, fmt.Sprintf("key %d: %s", i+1, err))
			continue
		}
		s.keys = append(s.keys, key)
		if key.ID != "" {
			s.byID[key.ID] = key
		}
		marks = append(marks, mark)
	}
	if len(s.keys) == 0 {
		return nil, fmt.Errorf("key set: no key of use: %s", strings.Join(s.Ignored[:min(len(s.Ignored), 3)], "; "))
	}
	slices.Sort(marks)
	s.digest = sha256.Sum256([]byte(strings.Join(marks, "\n")))
	return s, nil
}

// parseKey reads one key and judges it. The mark tells keys apart.
func parseKey(raw []byte) (*Key, string, error) {
	// 1. What it is and what it is for.
	o, err := ParseObject(raw, keyDocDepth)
	if err != nil {
		return nil, "", err
	}
	kty, _ := o.Text("kty")
	var members []string
	switch kty {
	case "RSA":
		members = []string{"n", "e"}
	case "EC":
		members = []string{"crv", "x", "y"}
	case "OKP":
		members = []string{"crv", "x"}
	default:
		return nil, "", errors.New("it is of no type for public signature keys")
	}
	id, ok := o.Text("kid")
	switch {
	case o.Has("kid") && (!ok || id == "" || len(id) > maxKeyID):
		return nil, "", errors.New("its kid cannot be right")
	case o.Has("d") || o.Has("k") || o.Has("p"):
		return nil, "", errors.New("it is private, and so no secret any more")
	}
	if use, ok := o.Text("use"); o.Has("use") && (!ok || use != "sig") {
		return nil, "", errors.New("it is not for signatures")
	}
	if ops, ok := o.Texts("key_ops"); o.Has("key_ops") && (!ok || !slices.Contains(ops, "verify")) {
		return nil, "", errors.New("it is not for verifying")
	}

	// 2. Only what makes the key reaches the library, in its one spelling.
	plain := map[string]string{"kty": kty}
	for _, name := range members {
		text, ok := o.Text(name)
		if !ok || len(text) > maxKeyMember || name != "crv" && (text == "" || !Canonical(text)) {
			return nil, "", fmt.Errorf("its %s cannot be right", name)
		}
		plain[name] = text
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return nil, "", err
	}
	parsed, err := jwk.ParseKey(text)
	if err != nil {
		return nil, "", errors.New("it is malformed")
	}

	// 3. Its strength, and the algorithms of its type.
	key := &Key{ID: id}
	switch kty {
	case "RSA":
		var k rsa.PublicKey
		if err := jwk.Export(parsed, &k); err != nil {
			return nil, "", errors.New("it is malformed")
		}
		if err := judgeRSA(&k); err != nil {
			return nil, "", err
		}
		key.raw, key.algs = &k, []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
	case "EC":
		var k ecdsa.PublicKey
		if err := jwk.Export(parsed, &k); err != nil {
			return nil, "", errors.New("it is malformed")
		}
		if _, err := k.ECDH(); err != nil {
			return nil, "", errors.New("its point is not on its curve")
		}
		alg, ok := map[string]string{"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}[k.Curve.Params().Name]
		if !ok {
			return nil, "", errors.New("its curve is not one of P-256, P-384, P-521")
		}
		key.raw, key.algs = &k, []string{alg}
	case "OKP":
		var k ed25519.PublicKey
		if plain["crv"] != "Ed25519" || jwk.Export(parsed, &k) != nil || len(k) != ed25519.PublicKeySize {
			return nil, "", errors.New("it is not of Ed25519")
		}
		key.raw, key.algs = k, []string{"EdDSA", "Ed25519"}
	}
	if o.Has("alg") {
		alg, ok := o.Text("alg")
		if !ok || !slices.Contains(key.algs, alg) {
			return nil, "", errors.New("its alg is not one of its type")
		}
		key.algs = []string{alg}
	}
	mark, err := json.Marshal([]any{id, key.algs, plain})
	return key, string(mark), err
}

// DecodeSegment decodes base64url without padding. ok is false for any but the
// one spelling of those bytes.
func DecodeSegment(text string) (decoded []byte, ok bool) {
	if strings.ContainsAny(text, "\r\n") { // which the decoder skips
		return nil, false
	}
	decoded, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return decoded, err == nil
}

// Canonical reports whether text is base64url without padding, in the one
// spelling that its bytes have (RFC 7515 §2, RFC 4648 §3.5): whether
// DecodeSegment would decode it.
func Canonical(text string) bool {
	last := 0
	for i := range len(text) {
		switch c := text[i]; {
		case 'A' <= c && c <= 'Z':
			last = int(c - 'A')
		case 'a' <= c && c <= 'z':
			last = int(c-'a') + 26
		case '0' <= c && c <= '9':
			last = int(c-'0') + 52
		case c == '-':
			last = 62
		case c == '_':
			last = 63
		default:
			return false
		}
	}
	// What the last character holds beyond whole bytes is zero.
	switch len(text) % 4 {
	case 1:
		return false
	case 2:
		return last&15 == 0
	case 3:
		return last&3 == 0
	}
	return true
}

func judgeRSA(k *rsa.PublicKey) error {
	switch bits := k.N.BitLen(); {
	case bits < minModulus || bits > maxModulus:
		return fmt.Errorf("its modulus has %d bits, not %d to %d", bits, minModulus, maxModulus)
	case k.N.Bit(0) == 0:
		return errors.New("its modulus is even")
	case k.E < 3 || k.E > maxExponent || k.E%2 == 0:
		return errors.New("its exponent cannot be right")
	case roca(k.N):
		return errors.New("its modulus is of a generator that is broken (CVE-2017-15361)")
	}
	return nil
}

// roca reports whether a modulus has the fingerprint of CVE-2017-15361: modulo
// each of the small primes it is a power of 65537 (Nemec et al., The Return of
// Coppersmith's Attack, §2.2). A sound modulus has it with a chance of 2⁻²⁷.
func roca(n *big.Int) bool {
	var m big.Int
	for _, p := range []int64{
		3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97,
		101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
	} {
		rest := m.Mod(n, big.NewInt(p)).Int64()
		power, in := int64(1), false
		for range p {
			if power == rest {
				in = true
				break
			}
			power = power * 65537 % p
		}
		if !in {
			return false
		}
	}
	return true
}
