package incoming

import (
	"time"

	"github.com/weir-edge/weir/edge/oauth"
)

// Missing is the challenge to who sends no token.
func (t *Incoming) Missing() string { return t.challenges.missing }

// Signed is what a gate does with a token and the keys of its issuer: the
// payload when the signature holds.
func Signed(keys *oauth.KeySet, token string) ([]byte, error) {
	payload, _, err := signed(token, func(kid string) (*oauth.Key, error) {
		if key := keys.Find(kid); key != nil {
			return key, nil
		}
		return nil, &oauth.UnknownKeyError{}
	})
	return payload, err
}

// SetClock makes the gate read another clock.
func (g *Gate) SetClock(read func() (wall int64, mono time.Duration)) { g.clock.read = read }

// Claims reads claims as a gate for this issuer and audience does.
func Claims(text []byte, issuer, audience string, introspected bool) error {
	_, err := parseClaims(text, rules{issuer: issuer, audience: audience, now: time.Now(), introspected: introspected})
	return err
}

// MaxToken is maxToken.
const MaxToken = maxToken
