package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// maxUserInfo bounds the answer of a userinfo endpoint, in bytes.
const maxUserInfo = 256 << 10

// userInfo is where a provider says who a user is.
type userInfo struct {
	at      string
	method  string
	header  http.Header
	trust   oauth.Trust
	http    bool
	subject []string // the members that may hold the subject, the best first
	name    []string
	email   []string
}

// newUserInfo is the userinfo that the operator describes.
func newUserInfo(u *v1beta1.UserInfo, http bool) *userInfo {
	i := &userInfo{at: u.EndpointURL, method: u.HTTPMethod, header: accept(), trust: oauth.Named, http: http}
	for name, value := range u.AdditionalHeaders {
		i.header.Set(name, value)
	}
	if f := u.FieldMapping; f != nil {
		i.subject, i.name, i.email = f.SubjectFields, f.NameFields, f.EmailFields
	}
	return i.filled()
}

// filled has a name for all that the operator named none for.
func (u *userInfo) filled() *userInfo {
	for to, without := range map[*[]string]string{&u.subject: "sub", &u.name: "name", &u.email: "email"} {
		if len(*to) == 0 {
			*to = []string{without}
		}
	}
	return u
}

// fetch asks who the user of an access token is. Errors hold nothing of the answer.
func (u *userInfo) fetch(ctx context.Context, client *oauth.Client, access edge.Secret) (oauth.Object, error) {
	header := u.header.Clone()
	header.Set("Authorization", "Bearer "+string(access))
	answer, err := client.Do(ctx, oauth.Request{Method: u.method, URL: u.at, Trust: u.trust, AllowHTTP: u.http, Header: header, MaxBody: maxUserInfo})
	if err != nil {
		return nil, fmt.Errorf("userinfo: %w", err)
	}
	if answer.Status != http.StatusOK {
		return nil, fmt.Errorf("userinfo: status %d", answer.Status)
	}
	o, err := oauth.ParseObject(answer.Body, maxDepth)
	if err != nil {
		return nil, fmt.Errorf("userinfo: the answer: %w", err)
	}
	return o, nil
}

// who reads an answer.
func (u *userInfo) who(o oauth.Object) *Who {
	first := func(names []string) string {
		for _, n := range names {
			if value := name(o[n]); value != "" {
				return value
			}
		}
		return ""
	}
	return &Who{Subject: first(u.subject), Name: plain(first(u.name)), Email: plain(first(u.email))}
}

// agrees reports whether an answer is about the user of an ID token: by its sub (OpenID Connect
// Core §5.3.2), or by the field that says who users are there. That is the ID token's sub, or,
// where the answer has no sub, the claim that the configuration takes for it.
func (u *userInfo) agrees(o oauth.Object, sub, subject string) bool {
	own, has := o["sub"]
	who := u.who(o).Subject
	return sub != "" && (name(own) == sub || who == sub) || !has && who != "" && who == subject
}

// identity is where in the answer of a token endpoint the user is.
type identity struct{ subject, name, email path }

func newIdentity(i *v1beta1.IdentityFromToken) (*identity, error) {
	out := &identity{}
	for to, text := range map[*path]string{&out.subject: i.SubjectPath, &out.name: i.NamePath, &out.email: i.EmailPath} {
		if text == "" {
			continue
		}
		var err error
		if *to, err = parsePath(text, true); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// who reads the user from an answer. Only strings count.
func (i *identity) who(body []byte) (*Who, error) {
	at := func(p path) string {
		if p == nil {
			return ""
		}
		return text(p.find(body))
	}
	w := &Who{Subject: at(i.subject), Name: plain(at(i.name)), Email: plain(at(i.email))}
	if w.Subject == "" || len(w.Subject) > maxText {
		return nil, errors.New("identityFromToken.subjectPath: the answer has no text there")
	}
	return w, nil
}

// synthesize makes a subject of an access token, for a provider that says nobody's name.
func synthesize(access edge.Secret) *Who {
	sum := sha256.Sum256([]byte(access))
	return &Who{Subject: "tk-" + hex.EncodeToString(sum[:16]), Synthesized: true}
}
