package oauth

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"

	"github.com/weir-edge/weir/edge"
)

// assertionLife is how long an assertion is good. Servers take 5 minutes at most (threats of
// RFC 7523 §3: the shorter, the less is there to replay).
const assertionLife = time.Minute

// SignAssertion returns a JWT by which a client proves itself to an authorization server
// (private_key_jwt, RFC 7523 §3): iss and sub are its id, aud is the server's issuer, and
// jti is new each time. key is a private key as PEM or JWK: RSA of 2048 bits or more (RS256),
// EC P-256, P-384 or P-521 (ES256, ES384, ES512), or Ed25519 (EdDSA); a kid of a JWK is in the
// header. Errors hold nothing of the key.
func SignAssertion(key []byte, clientID, audience string, now time.Time) (edge.Secret, error) {
	parsed, err := jwk.ParseKey(key, jwk.WithPEM(!bytes.HasPrefix(bytes.TrimSpace(key), []byte("{"))))
	if err != nil {
		return "", errors.New("it holds no private key as PEM or JWK")
	}
	var raw any
	if err := jwk.Export(parsed, &raw); err != nil {
		return "", errors.New("it holds no private key as PEM or JWK")
	}
	alg, err := algorithmOf(raw)
	if err != nil {
		return "", err
	}
	claims, err := json.Marshal(map[string]any{
		"iss": clientID, "sub": clientID, "aud": audience, "jti": rand.Text(), "iat": now.Unix(), "exp": now.Add(assertionLife).Unix(),
	})
	if err != nil {
		return "", err
	}
	header := jws.NewHeaders()
	err = header.Set(jws.TypeKey, "JWT")
	if id, ok := parsed.KeyID(); ok && err == nil {
		err = header.Set(jws.KeyIDKey, id)
	}
	if err != nil {
		return "", err
	}
	signed, err := jws.Sign(claims, jws.WithKey(alg, raw, jws.WithProtectedHeaders(header)))
	if err != nil {
		return "", errors.New("it does not sign")
	}
	return edge.Secret(signed), nil
}

// algorithmOf is how a private key signs.
func algorithmOf(raw any) (jwa.SignatureAlgorithm, error) {
	switch k := raw.(type) {
	case *rsa.PrivateKey:
		if k.N.BitLen() < minModulus {
			return jwa.EmptySignatureAlgorithm(), fmt.Errorf("its RSA key has less than %d bits", minModulus)
		}
		return jwa.RS256(), nil
	case *ecdsa.PrivateKey:
		switch k.Curve.Params().BitSize {
		case 256:
			return jwa.ES256(), nil
		case 384:
			return jwa.ES384(), nil
		case 521:
			return jwa.ES512(), nil
		}
	case ed25519.PrivateKey:
		return jwa.EdDSA(), nil
	}
	return jwa.EmptySignatureAlgorithm(), errors.New("its key is of a kind that is not signed with here")
}
