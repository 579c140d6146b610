package authz

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"github.com/weir-edge/weir/edge"
)

// maxGroups is how many groups a principal may have.
const maxGroups = 16_384

// principal is an identity as policies see it. It is immutable.
type principal struct {
	entity  cedar.Entity
	lineage lineage
	context cedar.Record // claim_… and claimset_…
	digest  [sha256.Size]byte
	key     string // digest, printable
	fault   error  // why nothing can be decided for it; nil for nothing
}

// principalOf makes the principal of an identity whose verified claims are
// given, and what programs say of it. Nothing else that a client sends is looked
// at.
//
// The digest covers what the policies can tell apart: the groups they mention,
// the claims and the attributes of programs they read, and who it is when they
// mention that.
// Principals with equal digests get equal decisions.
func (p *Policies) principalOf(id *edge.Identity, claims map[string]any, said edge.Attributes) *principal {
	w := &principal{}
	uid := cedar.NewEntityUID(typeClient, cedar.String(id.Subject))
	groups, err := p.groupsOf(claims)
	if err != nil {
		w.fault = err
		return w
	}
	static := p.static.all[uid]
	parents := static.Parents.Slice()
	for _, g := range groups {
		group := cedar.NewEntityUID(p.group, cedar.String(g))
		if _, mentioned := p.reads.mentioned[group]; mentioned { // no policy can ask for another
			parents = append(parents, group)
		}
	}

	h := sha256.New()
	told, err := p.claimAttributes(h, id, claims)
	if err != nil {
		w.fault = err
		return w
	}
	w.context = cedar.NewRecord(told)
	attributes := static.Attributes.Map()
	if attributes == nil {
		attributes = cedar.RecordMap{}
	}
	maps.Copy(attributes, told)
	if err := p.saidAttributes(h, attributes, said); err != nil {
		w.fault = err
		return w
	}
	w.entity = cedar.Entity{
		UID: uid, Parents: cedar.NewEntityUIDSet(parents...),
		Attributes: cedar.NewRecord(attributes), Tags: static.Tags,
	}
	w.lineage = lineageOf(&world{static: p.static.all, principal: &w.entity, resource: &w.entity}, uid)
	p.digestLineage(h, &w.lineage)
	h.Sum(w.digest[:0])
	w.key = base64.RawURLEncoding.EncodeToString(w.digest[:])
	return w
}

// digestLineage writes the entities of a lineage that policies can tell from
// others.
func (p *Policies) digestLineage(h hash.Hash, l *lineage) {
	var told []cedar.EntityUID
	for _, uid := range l.all {
		if _, mentioned := p.reads.mentioned[uid]; mentioned {
			told = append(told, uid)
		}
	}
	slices.SortFunc(told, func(a, b cedar.EntityUID) int {
		return cmp.Or(strings.Compare(string(a.Type), string(b.Type)), strings.Compare(string(a.ID), string(b.ID)))
	})
	for _, uid := range told {
		write(h, "entity", string(uid.Type), string(uid.ID))
	}
	if _, mentioned := p.reads.mentioned[l.self]; mentioned {
		write(h, "self", string(l.self.ID))
	}
}

// write adds parts to a digest so that where one ends and the next begins is
// part of it.
func write(h hash.Hash, parts ...string) {
	var n [8]byte
	for _, s := range parts {
		binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
}

// groupsOf returns the groups of a token: those of the first group claim that
// it has, and those of the role claim. A claim is a string or an array of
// strings; a name with dots is a path where no claim has the whole name.
func (p *Policies) groupsOf(claims map[string]any) ([]string, error) {
	var groups []string
	for _, name := range p.groups {
		v, ok := claimAt(claims, name)
		if !ok {
			continue
		}
		list, err := stringsOf(name, v)
		if err != nil {
			return nil, err
		}
		groups = list
		break
	}
	if p.roles != "" {
		if v, ok := claimAt(claims, p.roles); ok {
			list, err := stringsOf(p.roles, v)
			if err != nil {
				return nil, err
			}
			groups = append(slices.Clip(groups), list...)
		}
	}
	if len(groups) > maxGroups {
		return nil, fmt.Errorf("more than %d groups", maxGroups)
	}
	return groups, nil
}

func claimAt(claims map[string]any, name string) (any, bool) {
	if v, ok := claims[name]; ok {
		return v, v != nil
	}
	at := claims
	for {
		first, rest, more := strings.Cut(name, ".")
		v, ok := at[first]
		if !more {
			return v, ok && v != nil
		}
		if at, ok = v.(map[string]any); !ok {
			return nil, false
		}
		name = rest
	}
}

func stringsOf(name string, v any) ([]string, error) {
	switch v := v.(type) {
	case string:
		return []string{v}, nil
	case []string:
		return v, nil
	case []any:
		list := make([]string, len(v))
		for i, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil, fmt.Errorf("claim %q: element %d is no string", name, i)
			}
			list[i] = s
		}
		return list, nil
	}
	return nil, fmt.Errorf("claim %q is neither a string nor an array of strings", name)
}

// claimAttributes makes the attributes of the claims that policies read, and
// writes them to the digest. The subject stands for a missing sub.
func (p *Policies) claimAttributes(h hash.Hash, id *edge.Identity, claims map[string]any) (cedar.RecordMap, error) {
	attributes := cedar.RecordMap{}
	c := newConverter()
	add := func(attribute, name string, set bool) error {
		v, ok := claims[name]
		if !ok && name == "sub" {
			v, ok = id.Subject, true
		}
		if !ok {
			return nil
		}
		if set {
			v = setOf(v)
		}
		text, err := jsonOf(v)
		if err != nil {
			return fmt.Errorf("claim %q: %w", name, err)
		}
		value, err := c.text(text)
		if err != nil {
			return fmt.Errorf("claim %q: %w", name, err)
		}
		write(h, attribute, string(text))
		attributes[cedar.String(attribute)] = value
		return nil
	}
	names := slices.Collect(maps.Keys(p.reads.claims))
	if p.reads.allClaims {
		names = append(slices.Collect(maps.Keys(claims)), "sub")
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if err := add(prefixClaim+name, name, false); err != nil {
			return nil, err
		}
	}
	for _, name := range p.multi {
		if _, read := p.reads.claimSets[name]; read || p.reads.allClaims {
			if err := add(prefixClaimSet+name, name, true); err != nil {
				return nil, err
			}
		}
	}
	return attributes, nil
}

// saidAttributes adds what programs say of a principal, as far as policies read it,
// and writes it to the digest. Values are what those of claims are.
func (p *Policies) saidAttributes(h hash.Hash, attributes cedar.RecordMap, said edge.Attributes) error {
	c := newConverter()
	for i := range said {
		one := &said[i]
		if !p.reads.said(one.Name) {
			continue
		}
		value, err := c.text([]byte(one.Value))
		if err != nil {
			return fmt.Errorf("attribute %q: %w", one.Name, err)
		}
		name := prefixAttribute + one.Name
		write(h, name, one.Value)
		attributes[cedar.String(name)] = value
	}
	return nil
}

// setOf takes a claim of several values apart, where it is one text.
func setOf(v any) any {
	if s, ok := v.(string); ok {
		return strings.Fields(s)
	}
	return v
}

// jsonOf writes a claim as JSON, equal claims alike.
func jsonOf(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
