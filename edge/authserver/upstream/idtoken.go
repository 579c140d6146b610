package upstream

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// skew is by how much the clock of a provider may be wrong.
const skew = time.Minute

// signed returns the claims of a JWT that the provider has signed, and its algorithm. An
// error is an awayError where the keys cannot be had.
func (p *published) signed(ctx context.Context, token edge.Secret) (claims oauth.Object, alg string, err error) {
	header, err := oauth.Header(token)
	if err != nil {
		return nil, "", err
	}
	for _, name := range []string{"crit", "b64", "zip", "enc", "cty", "jwk", "jku", "x5c", "x5u"} {
		if header.Has(name) {
			return nil, "", errors.New("its header holds " + name)
		}
	}
	for part := range strings.SplitSeq(string(token), ".") {
		if part == "" || !oauth.Canonical(part) {
			return nil, "", errors.New("it is not in canonical base64url")
		}
	}
	alg, _ = header.Text("alg")
	if !oauth.Allowed(alg) {
		return nil, "", errors.New("its alg is not allowed")
	}
	kid, _ := header.Text("kid")
	key, err := p.key(ctx, kid)
	if err != nil {
		return nil, "", err
	}
	payload, err := key.Verify(alg, []byte(token))
	if err != nil {
		return nil, "", err
	}
	claims, err = oauth.ParseObject(payload, maxDepth)
	return claims, alg, err
}

// expected is what the claims of an ID token are held against.
type expected struct {
	issuer, client string
	nonce          string // "" for any: at a refresh
	access         edge.Secret
	alg            string // of its signature; "" where that was not checked
	now            time.Time
}

// judge holds the claims of an ID token against what is expected (OpenID Connect Core
// §3.1.3.7, §12.2).
func (x *expected) judge(claims oauth.Object) error {
	// 1. From whom, for whom.
	if iss, _ := claims.Text("iss"); iss != x.issuer {
		return errors.New("iss: it is another issuer's")
	}
	if !claims.Audience(x.client) {
		return errors.New("aud: it is for another client")
	}
	azp, has := claims.Text("azp")
	many, _ := claims.Texts("aud")
	if claims.Has("azp") && (!has || azp != x.client) || len(many) > 1 && azp != x.client {
		return errors.New("azp: it is another client's")
	}

	// 2. When.
	expires, err := claims.Time("exp")
	if err != nil || !x.now.Before(expires.Add(skew)) {
		return errors.New("exp: it is over, or is no time")
	}
	issued, err := claims.Time("iat")
	if err != nil || issued.After(x.now.Add(skew)) {
		return errors.New("iat: it is in the future, or is no time")
	}
	if from, err := claims.Time("nbf"); claims.Has("nbf") && (err != nil || from.After(x.now.Add(skew))) {
		return errors.New("nbf: it is in the future, or is no time")
	}

	// 3. For this login, with this access token.
	if nonce, _ := claims.Text("nonce"); x.nonce != "" && nonce != x.nonce {
		return errors.New("nonce: it is of another login")
	}
	if claims.Has("at_hash") && x.alg != "" {
		if got, _ := claims.Text("at_hash"); got != hash(x.alg, x.access) {
			return errors.New("at_hash: it is of another access token")
		}
	}
	if sub, _ := claims.Text("sub"); sub == "" {
		return errors.New("sub: there is none")
	}
	return nil
}

// hash is the left half of the digest of a token, by the hash of a signature's algorithm
// (OpenID Connect Core §3.1.3.6).
func hash(alg string, token edge.Secret) string {
	var sum []byte
	switch {
	case strings.HasSuffix(alg, "256"):
		all := sha256.Sum256([]byte(token))
		sum = all[:]
	case strings.HasSuffix(alg, "384"):
		all := sha512.Sum384([]byte(token))
		sum = all[:]
	default: // of 512 bits, and Ed25519, whose hash is SHA-512
		all := sha512.Sum512([]byte(token))
		sum = all[:]
	}
	return base64.RawURLEncoding.EncodeToString(sum[:len(sum)/2])
}

// maxClaims is how many bytes of claims policies may read of a provider.
const maxClaims = 16 << 10

// asClaims are claims as policies read them, numbers as json.Number; nil for too many.
func asClaims(o oauth.Object) map[string]any {
	text, err := json.Marshal(o)
	if err != nil || len(text) > maxClaims {
		return nil
	}
	return ParseClaims(text)
}

// ParseClaims reads claims of Tokens from JSON, numbers as json.Number; nil where it is none.
func ParseClaims(text []byte) map[string]any {
	var claims map[string]any
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	if d.Decode(&claims) != nil {
		return nil
	}
	return claims
}
