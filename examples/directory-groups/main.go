// Command directory-groups is a guest that makes roles of the groups that a
// directory puts into tokens, as an attribute that no token can forge, and gives
// each backend a credential of its own:
// one of the edge's, by the user's role, or who the user is and which roles they
// have there, signed with the backend's key.
package main

import (
	"encoding/hex"
	"errors"
	"strconv"

	weir "github.com/weir-edge/weir/sdk"
)

func main() {}

var (
	claim    string            // a JSON pointer to the groups
	tenants  string            // a JSON pointer to the tenant; "" for none
	roles    map[string]string // by group
	lifetime int64             // of a credential, in milliseconds

	credentials map[string]map[string]string // names of the edge's, by backend and role
)

func init() {
	weir.OnInit(func(s *weir.Setup) error {
		claim, tenants, roles, lifetime = "/groups", s.Config.Get("tenantClaim").Text(), map[string]string{}, 60_000
		if c := s.Config.Get("groupsClaim").Text(); c != "" {
			claim = c
		}
		for group, role := range s.Config.Get("roles").Object() {
			roles[group.Text()] = role.Text()
		}
		if len(roles) == 0 {
			return errors.New("roles: there are none")
		}
		credentials = map[string]map[string]string{}
		for backend, of := range s.Config.Get("credentials").Object() {
			byRole := map[string]string{}
			for role, name := range of.Object() {
				byRole[role.Text()] = name.Text()
			}
			credentials[backend.Text()] = byRole
		}
		if len(credentials) > 0 && !s.Granted("credentials") {
			return errors.New("credentials: it needs the grant credentials, with every name that stands there")
		}
		if n, ok := s.Config.Get("lifetimeSeconds").Int(); ok && n > 0 && n <= 3600 {
			lifetime = n * 1000
		} else if s.Config.Get("lifetimeSeconds").Exists() {
			return errors.New("lifetimeSeconds: from 1 to 3600")
		}
		if !s.Granted("keys") || !s.Granted("identity") {
			return errors.New("it needs the grants keys and identity: a key for each backend, by its name")
		}
		return nil
	})
	weir.OnIdentity(identify)
	weir.OnOutgoing(give)
}

// identify keeps the subject and issuer, and says groups and tenant by the
// directory's claims. Roles are an attribute: a claim of roles, which a token may
// bring along, counts for nothing.
func identify(t *weir.VerifiedToken) {
	who := weir.Identity{
		Subject: t.Claims().Get("sub").Text(), Issuer: t.Issuer().String(), Tenant: t.Claims().At(tenants).Text(),
	}
	if who.Subject == "" {
		t.Deny(weir.Unauthenticated, "the token says no subject")
		return
	}
	var has []string
	for g := range t.Claims().At(claim).Array() {
		group := g.Text()
		who.Groups = append(who.Groups, group)
		if role := roles[group]; role != "" && !contains(has, role) {
			has = append(has, role)
		}
	}
	if len(has) == 0 {
		t.Deny(weir.Forbidden, "none of your groups has a role here")
		return
	}
	t.SetPrincipal(who)
	t.SetAttr("roles", list(has))
}

// list writes texts as a JSON array.
func list(texts []string) weir.JSON {
	out := weir.JSON("[")
	for i, s := range texts {
		if i > 0 {
			out += ","
		}
		out += weir.Text(s)
	}
	return out + "]"
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

// give has a message go with the credential of the user's first role that has one
// at the backend. A backend without such credentials is told who the user is.
func give(o *weir.Outgoing) {
	byRole, ok := credentials[o.Backend().String()]
	if !ok {
		sign(o)
		return
	}
	for role := range o.Attr("roles").Array() {
		if name := byRole[role.Text()]; name != "" {
			o.UseCredential(name)
			return
		}
	}
	o.Deny(weir.Forbidden, "none of your roles has a credential for this backend")
}

// sign gives a backend that has a key a credential:
//
//	Authorization: Weir SUBJECT-IN-HEX.ROLES.EXPIRES.SIGNATURE
//
// The signature is HMAC-SHA256 of what stands before its dot, in hexadecimal. A
// backend without a key is asked without a credential.
func sign(o *weir.Outgoing) {
	if !o.Principal().Known() {
		o.Deny(weir.Unauthenticated, "sign in first")
		return
	}
	b := hex.AppendEncode([]byte{}, o.Principal().Subject().Bytes())
	b = append(b, '.')
	first := true
	for role := range o.Attr("roles").Array() {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, role.Text()...)
	}
	b = strconv.AppendInt(append(b, '.'), int64(o.Now())+lifetime, 10)
	sum, err := weir.HMAC(o.Backend().String(), b)
	switch {
	case err == nil:
		o.SetHeader("authorization", "Weir "+string(b)+"."+hex.EncodeToString(sum[:]))
	case !errors.Is(err, weir.ErrNotFound):
		o.Deny(weir.Forbidden, "no credential can be made")
	}
}
