package oauth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jws"

	"github.com/weir-edge/weir/edge"
)

// Signer signs JWTs with one private key. It is safe for concurrent use.
type Signer struct {
	ID     string          // kid: the thumbprint of the key (RFC 7638)
	Public json.RawMessage // the public part as a JWK, with kid, use and alg

	alg jwa.SignatureAlgorithm
	raw any
}

// NewSigner reads a private key as PEM: PKCS#8, SEC 1 or PKCS#1; of P-256 (ES256), P-384
// (ES384), RSA with 2048 bits or more (RS256), or Ed25519 (EdDSA). Errors hold nothing of it.
func NewSigner(text []byte) (*Signer, error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil, errors.New("it holds no private key as PEM")
		}
		var raw any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			raw, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			raw, err = x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			raw, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		default: // such as EC PARAMETERS, which openssl writes before the key
			continue
		}
		if err != nil {
			return nil, errors.New("its private key is malformed")
		}
		return signerOf(raw)
	}
}

// NewSigningKey returns a new private key of P-256 as PEM (PKCS#8).
func NewSigningKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func signerOf(raw any) (*Signer, error) {
	alg, err := algorithmOf(raw)
	if err != nil {
		return nil, err
	}
	b64 := base64.RawURLEncoding.EncodeToString
	members := map[string]string{} // those of the thumbprint, which sorted by name are in its order
	switch k := raw.(type) {
	case *rsa.PrivateKey:
		members["kty"], members["n"] = "RSA", b64(k.N.Bytes())
		e := []byte{byte(k.E >> 24), byte(k.E >> 16), byte(k.E >> 8), byte(k.E)}
		for len(e) > 1 && e[0] == 0 {
			e = e[1:]
		}
		members["e"] = b64(e)
	case *ecdsa.PrivateKey:
		point, err := k.PublicKey.Bytes()
		if err != nil || k.Curve.Params().BitSize > 384 {
			return nil, errors.New("its curve is not one of P-256 and P-384")
		}
		half := (len(point) - 1) / 2
		members["kty"], members["crv"], members["x"], members["y"] = "EC", k.Curve.Params().Name, b64(point[1:1+half]), b64(point[1+half:])
	case ed25519.PrivateKey:
		members["kty"], members["crv"], members["x"] = "OKP", "Ed25519", b64(k.Public().(ed25519.PublicKey))
	}
	text, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	print := sha256.Sum256(text)
	s := &Signer{ID: b64(print[:]), alg: alg, raw: raw}
	members["kid"], members["use"], members["alg"] = s.ID, "sig", alg.String()
	if s.Public, err = json.Marshal(members); err != nil {
		return nil, err
	}
	if _, _, err := parseKey(s.Public); err != nil { // what signs here is fit to verify with
		return nil, err
	}
	return s, nil
}

// Algorithm is the alg of its JWTs.
func (s *Signer) Algorithm() string { return s.alg.String() }

// Sign returns a JWT of claims, a JSON object, with a typ.
func (s *Signer) Sign(typ string, claims []byte) (edge.Secret, error) {
	header := jws.NewHeaders()
	err := header.Set(jws.TypeKey, typ)
	if err == nil {
		err = header.Set(jws.KeyIDKey, s.ID)
	}
	if err != nil {
		return "", err
	}
	signed, err := jws.Sign(claims, jws.WithKey(s.alg, s.raw, jws.WithProtectedHeaders(header)))
	if err != nil {
		return "", errors.New("the signing key does not sign")
	}
	return edge.Secret(signed), nil
}

// KeysDocument is the JWK Set of signers (RFC 7517 §5).
func KeysDocument(signers []*Signer) []byte {
	all := struct {
		Keys []json.RawMessage `json:"keys"`
	}{[]json.RawMessage{}}
	for _, s := range signers {
		all.Keys = append(all.Keys, s.Public)
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // each is JSON that this package made
	}
	return text
}
