package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// identify asks programs whom a verified token identifies. Each sees the
// identity as the one before left it.
func (h *openFilters) identify(ctx context.Context, id *edge.Identity) (*edge.Identity, error) {
	w := newScratch()
	defer w.free()
	for i := range h.at[abi.MapIdentity] {
		a := &h.at[abi.MapIdentity][i]
		in := w.input(a.want, &edge.Exchange{Identity: id}, &subject{})
		if a.want.has(abi.CallClaims) {
			claims, err := json.Marshal(id.Claims)
			if err != nil {
				return nil, edge.Errorf(edge.Internal, "guest", "%w", err)
			}
			in = abi.AppendBytes(in, abi.CallClaims, claims)
		}
		if a.want.has(abi.CallIssuer) {
			in = abi.AppendString(in, abi.CallIssuer, id.Issuer)
		}
		w.in = in
		ops, out, err := a.ask(a.within(ctx, abi.MapIdentity, &edge.Exchange{Identity: id}), abi.MapIdentity, "", wasm.Sender{Identity: id}, in, w.out[:0], may(abi.MapIdentity), maxOps)
		if w.out = out; err != nil {
			return nil, err
		}
		for i := range ops {
			switch o := &ops[i]; o.kind {
			case abi.OpDeny:
				a.denied[abi.MapIdentity].Add(1)
				return nil, o.denial(a.spec.Name, abi.MapIdentity)
			case abi.OpSetPrincipal:
				mapped, err := a.principal(id, o.raw)
				if err != nil {
					return nil, a.broke(abi.MapIdentity, wasm.Sender{Identity: id}, fmt.Errorf("set_principal: %w", err))
				}
				id = mapped
			}
		}
		set, err := a.attributes(abi.MapIdentity, id.Attributes, ops)
		if err != nil {
			return nil, a.broke(abi.MapIdentity, wasm.Sender{Identity: id}, err)
		}
		if set != nil {
			more := *id
			more.Attributes = id.Attributes.With(set)
			id = &more
		}
		a.tell(nil, abi.MapIdentity, ops)
	}
	return id, nil
}

// authenticate asks programs about the header lines of a client at an address
// whose credential nothing else knows. The first that knows the client decides.
func (h *openFilters) authenticate(ctx context.Context, remote string, heard []edge.Header) (*edge.Identity, error) {
	const hook = abi.Authenticate
	from := wasm.Sender{Address: remote}
	w := newScratch()
	defer w.free()
	challenge := ""
	for i := range h.at[hook] {
		a := &h.at[hook][i]
		ops, out, err := a.ask(a.within(ctx, hook, nil), hook, "", from, w.input(a.want, &edge.Exchange{Heard: heard}, &subject{}), w.out[:0], may(hook), maxOps)
		if w.out = out; err != nil {
			return nil, err
		}
		for i := range ops {
			switch o := &ops[i]; o.kind {
			case abi.OpDeny:
				a.denied[hook].Add(1)
				return nil, o.denial(a.spec.Name, hook)
			case abi.OpChallenge:
				challenge = o.text
			case abi.OpSetPrincipal:
				// The identity "nobody" differs from any client's, so
				// replacing it takes the grant identity.
				id, err := a.principal(&edge.Identity{Issuer: "weir-filter-" + a.spec.Name, PolicyClaims: map[string]any{}}, o.raw)
				if err == nil && id.Subject == "" {
					err = errors.New("no principal: it has no subject")
				}
				if err != nil {
					return nil, a.broke(hook, from, fmt.Errorf("set_principal: %w", err))
				}
				return id, nil
			}
		}
	}
	if challenge != "" {
		return nil, &edge.Error{Kind: edge.Unauthenticated, Op: "authenticate", Challenge: challenge, Err: errors.New("a credential is needed")}
	}
	return nil, nil
}

// maxNames bounds the groups, roles and scopes that a program may set.
const maxNames = 1024

// principal returns the identity that a Principal record makes of another.
// The record replaces all of it except issuer and subject, which stay if it
// has none, and which only the grant identity allows to change.
func (p *program) principal(was *edge.Identity, record []byte) (*edge.Identity, error) {
	id := *was
	id.Scopes = nil
	tenant, groups, roles := "", []any{}, []any{}
	r := abi.Reader{B: record}
	for r.Next() {
		if r.Data != nil && !utf8.Valid(r.Data) {
			return nil, errors.New("the text is not UTF-8")
		}
		text := string(r.Data)
		switch r.Num {
		case abi.PrincipalSubject:
			id.Subject = text
		case abi.PrincipalIssuer:
			id.Issuer = text
		case abi.PrincipalTenant:
			tenant = text
		case abi.PrincipalGroup:
			groups = append(groups, text)
		case abi.PrincipalRole:
			roles = append(roles, text)
		case abi.PrincipalScope:
			id.Scopes = append(id.Scopes, text)
		}
		if len(groups)+len(roles)+len(id.Scopes) > maxNames {
			return nil, fmt.Errorf("more than %d groups, roles and scopes", maxNames)
		}
	}
	switch {
	case r.Bad:
		return nil, errors.New("a malformed record")
	case id.Subject == "":
		id.Subject = was.Subject
	}
	if id.Issuer == "" {
		id.Issuer = was.Issuer
	}
	if (id.Subject != was.Subject || id.Issuer != was.Issuer) && !p.spec.granted(abi.GrantIdentity) {
		return nil, errors.New("another principal, which needs the grant identity")
	}
	put := func(was map[string]any) map[string]any {
		claims := maps.Clone(was)
		if claims == nil {
			claims = map[string]any{}
		}
		for _, claim := range append(groupClaims[:], claimRoles, claimTenant) {
			delete(claims, claim)
		}
		if tenant != "" {
			claims[claimTenant] = tenant
		}
		claims["sub"], claims[claimGroups], claims[claimRoles] = id.Subject, groups, roles
		return claims
	}
	id.Claims = put(was.Claims)
	if was.PolicyClaims != nil { // what policies read in place of those
		id.PolicyClaims = put(was.PolicyClaims)
	}
	return &id, nil
}
