package upstream

import "time"

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
