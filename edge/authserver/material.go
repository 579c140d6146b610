package authserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// rereadEvery is how often secrets and keys are read again.
const rereadEvery = 10 * time.Second

// material is the secrets and keys of one moment. It is immutable.
type material struct {
	ring       *ring
	signers    []*oauth.Signer // the first one signs
	document   []byte          // the public keys
	keys       *oauth.KeySet
	generation uint64 // of the keys
	Ephemeral  bool   // something of it was made at start
}

// materials are read from the secrets again and again, so that a change needs no restart.
type materials struct {
	config  *Spec
	secrets edge.Secrets
	fail    func(error) // hears why what was read last is kept

	now     atomic.Pointer[material]
	mu      sync.Mutex // of what follows, and of reading
	last    time.Time
	made    [][]byte      // the secret made at start; nil where secrets are given
	madeKey *oauth.Signer // likewise
}

// newMaterials reads all for the first time.
func newMaterials(ctx context.Context, c *Spec, secrets edge.Secrets, lasting *Lasting, fail func(error)) (*materials, error) {
	m := &materials{config: c, secrets: secrets, fail: fail, last: time.Now()}
	if len(c.Secrets) == 0 {
		m.made = [][]byte{lasting.secret}
	}
	if len(c.Keys) == 0 {
		m.madeKey = lasting.key
	}
	first, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	m.now.Store(first)
	return m, nil
}

// current returns what is good now. It reads again when the last time is long ago; one caller
// does, and the others go on with what there is.
func (m *materials) current(ctx context.Context) *material {
	if !m.mu.TryLock() {
		return m.now.Load()
	}
	defer m.mu.Unlock()
	if time.Since(m.last) < rereadEvery {
		return m.now.Load()
	}
	m.last = time.Now()
	next, err := m.read(context.WithoutCancel(ctx))
	if err != nil {
		m.fail(err)
		return m.now.Load()
	}
	m.now.Store(next)
	return next
}

// read reads all secrets and keys.
func (m *materials) read(ctx context.Context) (*material, error) {
	next := &material{Ephemeral: m.made != nil || m.madeKey != nil}
	secrets := m.made
	for _, ref := range m.config.Secrets {
		value, err := m.secret(ctx, ref)
		if err != nil {
			return nil, fmt.Errorf("hmacSecretRefs: %w", err)
		}
		secrets = append(secrets, hmacSecret(value))
	}
	var err error
	if next.ring, err = newRing(m.config.Issuer, secrets); err != nil {
		return nil, err
	}
	if m.madeKey != nil {
		next.signers = []*oauth.Signer{m.madeKey}
	}
	for _, ref := range m.config.Keys {
		value, err := m.secret(ctx, ref)
		if err != nil {
			return nil, fmt.Errorf("signingKeySecretRefs: %w", err)
		}
		signer, err := oauth.NewSigner(bytes.TrimRight(value, "\r\n"))
		if err != nil {
			return nil, fmt.Errorf("signingKeySecretRefs: secret %s, key %s: %w", ref.Name, ref.Key, err)
		}
		next.signers = append(next.signers, signer)
	}
	next.document = oauth.KeysDocument(next.signers)
	if was := m.now.Load(); was != nil {
		if next.keys, next.generation = was.keys, was.generation+1; bytes.Equal(was.document, next.document) {
			next.generation = was.generation
			return next, nil
		}
	}
	next.keys, err = oauth.ParseKeys(next.document)
	return next, err
}

func (m *materials) secret(ctx context.Context, ref v1beta1.SecretRef) ([]byte, error) {
	if m.secrets == nil {
		return nil, errors.New("there is nowhere to read it")
	}
	value, err := m.secrets.Secret(ctx, ref.Name, ref.Key)
	return []byte(value), err
}

// hmacSecret is a secret as it stands in a file: text without the line breaks at its end. Random
// bytes may end with what a line break is made of, and are taken as they are where that makes the
// difference between enough of them and too few.
func hmacSecret(value []byte) []byte {
	text := bytes.TrimRight(value, "\r\n")
	if len(text) < minSecret && len(value) >= minSecret && bytes.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return value
	}
	return text
}

// Sound judges the value of a secret that the field at a path of a manifest refers to: whether
// it can be one of hmacSecretRefs or signingKeySecretRefs. It is nil for any other field.
func Sound(path string, value []byte) (err error) {
	switch {
	case strings.Contains(path, "hmacSecretRefs["):
		if n := len(hmacSecret(value)); n < minSecret {
			err = fmt.Errorf("it has %d bytes, and needs %d: make one with: weir auth keygen", n, minSecret)
		}
	case strings.Contains(path, "signingKeySecretRefs["):
		_, err = oauth.NewSigner(bytes.TrimRight(value, "\r\n"))
	}
	return err
}
