package authserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver/upstream"
)

// requestLife is how long an approved request waits for the user to come back.
const requestLife = 10 * time.Minute

// records are what the authorization server keeps, each value sealed for its key. What does
// not open is not there.
type records struct {
	store    edge.Store
	material *materials
	prefix   string
	bad      atomic.Uint64 // values that did not open
}

func newRecords(store edge.Store, m *materials, issuer string) *records {
	sum := sha256.Sum256([]byte(issuer))
	return &records{store: store, material: m, prefix: "as:" + hex.EncodeToString(sum[:8]) + ":"}
}

// Keys of records. They hold digests of what whoever shows it must know.
func requestKey(state string) string { return "req:" + digest(state) }
func codeKey(code string) string     { return "code:" + digest(code) }
func grantKey(id string) string      { return "grant:" + digest(id) }

func (r *records) open(ctx context.Context, key string, sealed []byte) []byte {
	if sealed == nil {
		return nil
	}
	text, _, ok := r.material.current(ctx).ring.open(useRecord, sealed, r.prefix+key)
	if !ok {
		r.bad.Add(1)
		return nil
	}
	return text
}

// Get returns a value; nil for none. It is upstream.Records.Get.
func (r *records) Get(ctx context.Context, key string) ([]byte, error) {
	sealed, err := r.store.Get(ctx, r.prefix+key)
	if err != nil {
		return nil, err
	}
	return r.open(ctx, key, sealed), nil
}

// Put keeps a value.
func (r *records) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return r.store.Put(ctx, r.prefix+key, r.material.current(ctx).ring.seal(useRecord, value, r.prefix+key), ttl)
}

// Update changes a value, once whoever else changes it. It is upstream.Records.Update.
func (r *records) Update(ctx context.Context, key string, ttl time.Duration, change func(old []byte) ([]byte, error)) error {
	return r.store.Update(ctx, r.prefix+key, ttl, func(sealed []byte) ([]byte, error) {
		next, err := change(r.open(ctx, key, sealed))
		if err != nil || next == nil {
			return nil, err
		}
		return r.material.current(ctx).ring.seal(useRecord, next, r.prefix+key), nil
	})
}

// Delete removes a value.
func (r *records) Delete(ctx context.Context, key string) error {
	return r.store.Delete(ctx, r.prefix+key)
}

// pending is an approved request whose user is at an upstream.
type pending struct {
	Ask    ask
	Cookie string // that names the login cookie
	Digest string // of its value
	Legs   int    // that are done
	Leg    upstream.Leg
	Who    *upstream.Who
	Tokens []tokens // of the legs that are done
}

// errAbsent is a record that is not there.
var errAbsent = errors.New("there is no such record")

// takeRequest takes the request of a state, which nobody else gets.
func (r *records) takeRequest(ctx context.Context, state string) (*pending, error) {
	var got []byte
	err := r.Update(ctx, requestKey(state), requestLife, func(old []byte) ([]byte, error) {
		if got = old; old == nil {
			return nil, errAbsent
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	p := &pending{}
	if json.Unmarshal(got, p) != nil {
		return nil, errAbsent
	}
	return p, nil
}

// codeRecord is what a code stands for. It holds the grant as it was made, so that whoever
// spends the code has tokens of it, even if another shows the code at the same time and so
// ends the grant.
type codeRecord struct {
	Grant     string // its id
	Of        grant
	Redirect  string
	Challenge string    `json:",omitempty"`
	Nonce     string    `json:",omitempty"` // of the ID token
	Until     time.Time `json:",omitzero"`
	Spent     bool
}

// spent is what is left of it once it is spent: what tells whether somebody shows it again. It
// stays as long as its access token, one for each login.
func (c *codeRecord) spent() *codeRecord {
	return &codeRecord{Grant: c.Grant, Of: grant{Client: c.Of.Client, Server: c.Of.Server}, Redirect: c.Redirect, Spent: true}
}

// grant is what a user has allowed a client.
type grant struct {
	Client     string    `json:",omitempty"` // its key
	ClientID   string    `json:",omitempty"`
	Subject    string    `json:",omitempty"`
	Name       string    `json:",omitempty"`
	Email      string    `json:",omitempty"`
	Scopes     []string  `json:",omitempty"`
	Resource   string    `json:",omitempty"` // as it was asked for; "" for none
	Server     string    `json:",omitempty"` // audience of the server
	Refreshes  bool      `json:",omitempty"`
	Generation uint64    `json:",omitempty"` // of the refresh token that is good
	Rotated    time.Time `json:",omitzero"`  // when it was made
	AuthTime   time.Time `json:",omitzero"`
	Until      time.Time `json:",omitzero"`  // when it ends unless it is renewed
	End        time.Time `json:",omitzero"`  // when it ends
	Again      []string  `json:",omitempty"` // providers that need a new login
	Sealed     string    `json:",omitempty"` // names the secret that the client is registered under; "" for none
}

// ends is when a grant ends unless it is renewed.
func (g *grant) ends() time.Time {
	if g.End.Before(g.Until) {
		return g.End
	}
	return g.Until
}

// over reports whether a grant has ended.
func (g *grant) over(now time.Time) bool { return !now.Before(g.Until) || !now.Before(g.End) }

// grant returns a grant that lives; errAbsent for none.
func (r *records) grant(ctx context.Context, id string, now time.Time) (*grant, error) {
	text, err := r.Get(ctx, grantKey(id))
	if err != nil {
		return nil, err
	}
	return parseGrant(text, now)
}

func parseGrant(text []byte, now time.Time) (*grant, error) {
	g := &grant{}
	if text == nil || json.Unmarshal(text, g) != nil || g.over(now) {
		return nil, errAbsent
	}
	return g, nil
}

// again notes that a grant needs a new login at a provider.
func (r *records) again(ctx context.Context, id, provider string, life time.Duration) error {
	err := r.Update(ctx, grantKey(id), life, func(old []byte) ([]byte, error) {
		g := &grant{}
		if old == nil || json.Unmarshal(old, g) != nil {
			return nil, errAbsent
		}
		if slices.Contains(g.Again, provider) {
			return nil, errSame
		}
		g.Again = append(g.Again, provider)
		return encode(g), nil
	})
	if errors.Is(err, errAbsent) || errors.Is(err, errSame) {
		return nil
	}
	return err
}

// tokens are upstream.Tokens as a record has them: sealed, where secrets are in the clear.
type tokens struct {
	Provider            string
	Access, Refresh, ID string
	Scope               string
	Issued, Expires     time.Time
	Client, Subject     string
	Claims              json.RawMessage `json:",omitempty"`
}

func tokensOf(provider string, t *upstream.Tokens) (tokens, error) {
	kept := tokens{
		Provider: provider, Access: string(t.Access), Refresh: string(t.Refresh), ID: string(t.ID), Scope: t.Scope,
		Issued: t.Issued, Expires: t.Expires, Client: t.Client, Subject: t.Subject,
	}
	if t.Claims == nil {
		return kept, nil
	}
	text, err := json.Marshal(t.Claims)
	kept.Claims = text
	return kept, err
}

// back is tokens as upstream has them.
func (t *tokens) back() *upstream.Tokens {
	got := &upstream.Tokens{
		Access: edge.Secret(t.Access), Refresh: edge.Secret(t.Refresh), ID: edge.Secret(t.ID), Scope: t.Scope,
		Issued: t.Issued, Expires: t.Expires, Client: t.Client, Subject: t.Subject,
	}
	if t.Claims != nil {
		got.Claims = upstream.ParseClaims(t.Claims)
	}
	return got
}

// encode is a record's text. What is encoded is data of this package.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
