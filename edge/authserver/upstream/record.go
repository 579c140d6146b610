package upstream

import (
	"encoding/json"
	"time"

	"github.com/weir-edge/weir/edge"
)

// record is what is kept of one grant and one provider, under up:GRANT:PROVIDER. Times are
// Unix nanoseconds, 0 for none.
type record struct {
	Access  string          `json:"a,omitempty"`
	Refresh string          `json:"r,omitempty"`
	ID      string          `json:"i,omitempty"`
	Scope   string          `json:"s,omitempty"`
	Client  string          `json:"c,omitempty"`
	Subject string          `json:"u,omitempty"`
	Claims  json.RawMessage `json:"m,omitempty"`
	Issued  int64           `json:"t,omitempty"`
	Expires int64           `json:"x,omitempty"`

	End   int64  `json:"e"`           // as that of the grant
	Gone  string `json:"g,omitempty"` // why the user has to sign in again; then there are no tokens
	Raw   bool   `json:"w,omitempty"` // nobody has judged the tokens: they can be renewed, and not used
	Fence uint64 `json:"f,omitempty"` // counts leases
	Lease int64  `json:"l,omitempty"` // until when somebody renews; 0 for nobody
	Pause int64  `json:"p,omitempty"` // until when nobody tries, after a failure
}

func readRecord(text []byte) *record {
	r := &record{}
	if len(text) == 0 || json.Unmarshal(text, r) != nil {
		return nil
	}
	return r
}

// put takes tokens into a record.
func (r *record) put(t *Tokens) error {
	claims, err := json.Marshal(t.Claims)
	if err != nil {
		return err
	}
	r.Access, r.Refresh, r.ID, r.Scope, r.Client, r.Subject = string(t.Access), string(t.Refresh), string(t.ID), t.Scope, t.Client, t.Subject
	r.Claims, r.Issued, r.Expires = nil, nanos(t.Issued), nanos(t.Expires)
	if t.Claims != nil {
		r.Claims = claims
	}
	return nil
}

// tokens are those of a record.
func (r *record) tokens() *Tokens {
	t := &Tokens{Access: edge.Secret(r.Access), Refresh: edge.Secret(r.Refresh), ID: edge.Secret(r.ID), Scope: r.Scope, Client: r.Client, Subject: r.Subject, Issued: at(r.Issued), Expires: at(r.Expires)}
	if r.Claims != nil {
		t.Claims = ParseClaims(r.Claims)
	}
	return t
}

// Plain is the tokens as text with their secrets in it, for whoever seals it. Any other way of
// encoding them hides these. ParseTokens reads it.
func (t *Tokens) Plain() ([]byte, error) {
	r := &record{}
	if err := r.put(t); err != nil {
		return nil, err
	}
	return json.Marshal(r)
}

// ParseTokens reads what Plain wrote; nil for anything else.
func ParseTokens(text []byte) *Tokens {
	if r := readRecord(text); r != nil && r.Access != "" {
		return r.tokens()
	}
	return nil
}

// left is how long the record lives.
func (r *record) left(now time.Time) time.Duration { return max(at(r.End).Sub(now), time.Second) }

// pauses reports whether nobody is to try now. A pause that would last longer than any does was
// written by a clock that is ahead of this one, or has been set back since: it is over.
func (r *record) pauses(now time.Time) bool {
	left := at(r.Pause).Sub(now)
	return 0 < left && left <= retryPause
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func at(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}
