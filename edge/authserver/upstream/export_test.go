package upstream

import (
	"net/url"
	"time"
)

// Answered judges a callback and returns its code.
func (p *Provider) Answered(leg Leg, query url.Values) (code string, err error) {
	return p.answered(&leg, query)
}

// Find is the text at a path of a document, as identityFromToken reads it.
func Find(path string, document []byte) (string, error) {
	p, err := parsePath(path, true)
	if err != nil {
		return "", err
	}
	return text(p.find(document)), nil
}

// ReadTokens reads an answer of a token endpoint.
func ReadTokens(answer []byte, asked time.Time) (*Tokens, error) {
	r, err := reads(nil)
	if err != nil {
		return nil, err
	}
	return r.tokens(answer, asked)
}
