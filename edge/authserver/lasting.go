package authserver

import (
	"crypto/rand"

	"github.com/weir-edge/weir/edge/oauth"
)

// Lasting is what an issuer has of its process, and keeps when its Spec changes: the secret and
// the key that were made at start, the requests whose users are at an upstream, how secrets are
// used, and which grants have ended. It is safe for concurrent use.
type Lasting struct {
	node    string // of the process, among replicas
	secret  []byte
	key     *oauth.Signer
	waiting waiting
	usage   usage
	ended   ended
}

// NewLasting makes a secret and a signing key.
func NewLasting() (*Lasting, error) {
	l := &Lasting{node: short() + short(), secret: make([]byte, minSecret)}
	_, _ = rand.Read(l.secret) // it never fails
	text, err := oauth.NewSigningKey()
	if err != nil {
		return nil, err
	}
	l.key, err = oauth.NewSigner(text)
	return l, err
}
