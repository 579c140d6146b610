package oauth

import (
	"errors"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
)

// TypeIDJAG is the typ of an identity assertion
// (draft-ietf-oauth-identity-assertion-authz-grant).
const TypeIDJAG = "oauth-id-jag+jwt"

// IDJAG is what an identity assertion was asked for.
type IDJAG struct {
	Audience string // issuer of the authorization server that is to take it
	Resource string // "" for any
	ClientID string // at that authorization server; "" for any
}

// Fits compares an identity assertion with what it was asked for, before anybody else sees it:
// one that is for another party does not leave. Its signature is for that party to check.
func (a IDJAG) Fits(assertion edge.Secret, now time.Time) error {
	header, err := Header(assertion)
	if err != nil {
		return err
	}
	claims, err := Claims(assertion)
	if err != nil {
		return err
	}
	typ, _ := header.Text("typ")
	client, _ := claims.Text("client_id")
	expires, wrong := claims.Time("exp")
	switch {
	case !strings.EqualFold(typ, TypeIDJAG):
		return errors.New("typ: it is another than " + TypeIDJAG)
	case !claims.only("aud", a.Audience):
		return errors.New("aud: it is for another authorization server")
	case a.Resource != "" && !claims.only("resource", a.Resource):
		return errors.New("resource: it is for another resource")
	case a.ClientID != "" && client != a.ClientID:
		return errors.New("client_id: it is for another client")
	case wrong != nil || !expires.After(now):
		return errors.New("exp: it is over, or is no time")
	}
	return nil
}

// only reports whether a claim is a text, or a list of it alone.
func (o Object) only(name, text string) bool {
	if one, ok := o.Text(name); ok {
		return one == text
	}
	list, _ := o.Texts(name)
	return len(list) == 1 && list[0] == text
}
