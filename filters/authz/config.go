package authz

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// FromConfig is the policy set of spec.config.incomingAuth.authz.
func FromConfig(c *v1beta1.ConfigAuthz) Spec {
	return Spec{
		Policies: c.Policies, EntitiesJSON: c.EntitiesJSON, GroupClaimName: c.GroupClaimName, RoleClaimName: c.RoleClaimName,
		GroupEntityType: c.GroupEntityType, PrimaryUpstreamProvider: c.PrimaryUpstreamProvider,
	}
}

// FromInline is the policy set of spec.incomingAuth.authzConfig with type
// inline.
func FromInline(c *v1beta1.AuthzConfig) Spec {
	s := Spec{GroupClaimName: c.GroupClaimName, RoleClaimName: c.RoleClaimName, GroupEntityType: c.GroupEntityType}
	if i := c.Inline; i != nil {
		s.Policies, s.EntitiesJSON, s.PrimaryUpstreamProvider = i.Policies, i.EntitiesJSON, i.PrimaryUpstreamProvider
	}
	return s
}

// Document is a configuration of authorization as config maps, files and
// MCPAuthzConfig objects hold it: one of the two.
type Document struct {
	Set   *Spec      // type policyv1
	Point *PointSpec // type httpv1
}

// maxDocument is how large a document may be, in bytes.
const maxDocument = maxPolicyText + maxEntityText + 64<<10

// The types of configuration. A file of the reference calls the first cedarv1.
const (
	typePolicies    = v1beta1.AuthzTypePolicy
	typePoliciesToo = "cedarv1"
	typePoint       = "httpv1"
)

// body is a policy set in a document.
type body struct {
	Policies                []string `json:"policies"`
	EntitiesJSON            string   `json:"entities_json"`
	PrimaryUpstreamProvider string   `json:"primary_upstream_provider"`
	GroupClaimName          string   `json:"group_claim_name"`
	RoleClaimName           string   `json:"role_claim_name"`
	GroupEntityType         string   `json:"group_entity_type"`
	MultiValuedClaims       []string `json:"multi_valued_claims"`
}

func (b *body) spec() *Spec {
	return &Spec{
		Policies: b.Policies, EntitiesJSON: b.EntitiesJSON, GroupClaimName: b.GroupClaimName, RoleClaimName: b.RoleClaimName,
		GroupEntityType: b.GroupEntityType, PrimaryUpstreamProvider: b.PrimaryUpstreamProvider, MultiValuedClaims: b.MultiValuedClaims,
	}
}

// FromDocument reads a document, JSON or YAML: {"version": "1.0", "type":
// "policyv1", "policy": {…}} or {"version": "1.0", "type": "httpv1", "pdp":
// {…}}. at is the field that names it. Of a document that is faulty the policy
// set is returned all the same, where there is one.
func FromDocument(text []byte, at *field.Path) (Document, field.ErrorList) {
	var d struct {
		Version string     `json:"version"`
		Type    string     `json:"type"`
		Policy  *body      `json:"policy"`
		Cedar   *body      `json:"cedar"`
		Point   *PointSpec `json:"pdp"`
	}
	if err := strict(text, &d); err != nil {
		return Document{}, field.ErrorList{field.Invalid(at, "", err.Error())}
	}
	var errs field.ErrorList
	if d.Version != "" && d.Version != "1.0" {
		errs = append(errs, field.NotSupported(at.Child("version"), d.Version, []string{"1.0"}))
	}
	set, name := d.Policy, "policy"
	if set == nil && d.Cedar != nil {
		set, name = d.Cedar, "cedar"
	} else if d.Cedar != nil {
		errs = append(errs, field.Forbidden(at.Child("cedar"), "exclusive with policy"))
	}
	switch d.Type {
	case typePolicies, typePoliciesToo:
		if set == nil {
			errs = append(errs, field.Required(at.Child("policy"), "the policy set of type "+d.Type))
		}
		if d.Point != nil {
			errs = append(errs, field.Forbidden(at.Child("pdp"), "only with type "+typePoint))
		}
	case typePoint:
		if d.Point == nil {
			errs = append(errs, field.Required(at.Child("pdp"), "the decision point of type "+d.Type))
		}
		if set != nil {
			errs = append(errs, field.Forbidden(at.Child(name), "only with type "+typePolicies))
		}
	case "":
		errs = append(errs, field.Required(at.Child("type"), typePolicies+" or "+typePoint))
	default:
		errs = append(errs, field.NotSupported(at.Child("type"), d.Type, []string{typePolicies, typePoint}))
	}
	switch {
	case set != nil && (d.Type == typePolicies || d.Type == typePoliciesToo):
		return Document{Set: set.spec()}, errs
	case len(errs) > 0:
		return Document{}, errs
	}
	return Document{Point: d.Point}, nil
}

// FromObject reads the spec of an MCPAuthzConfig; at is the field of the
// object, spec.
func FromObject(o *v1beta1.MCPAuthzConfigSpec, at *field.Path) (Document, field.ErrorList) {
	var err error
	switch o.Type {
	case typePolicies, typePoliciesToo:
		var set body
		if err = strict([]byte(o.Config), &set); err == nil {
			return Document{Set: set.spec()}, nil
		}
	case typePoint:
		var point PointSpec
		if err = strict([]byte(o.Config), &point); err == nil {
			return Document{Point: &point}, nil
		}
	default:
		return Document{}, field.ErrorList{field.NotSupported(at.Child("type"), o.Type, []string{typePolicies, typePoint})}
	}
	return Document{}, field.ErrorList{field.Invalid(at.Child("config"), "", err.Error())}
}

// strict reads JSON or YAML, refusing repeated names and names that are unknown
// or in another case.
func strict(text []byte, into any) error {
	if len(text) > maxDocument {
		return field.TooLong(nil, "", maxDocument)
	}
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	err = json.Unmarshal(raw, into, json.RejectUnknownMembers(true))
	var wrong *json.SemanticError
	if !errors.As(err, &wrong) {
		return err
	}
	// Without the names of Go types.
	at := strings.ReplaceAll(strings.TrimPrefix(string(wrong.JSONPointer), "/"), "/", ".")
	if errors.Is(err, json.ErrUnknownName) {
		return fmt.Errorf("%s: unknown field", at)
	}
	return fmt.Errorf("%s: a value of another type belongs here", at)
}

// ForVirtualServer refuses what a VirtualMCPServer does not support: every type
// but policyv1 (VirtualMCPServer, spec.incomingAuth.authzConfigRef).
func (d Document) ForVirtualServer(at *field.Path) field.ErrorList {
	if d.Point != nil {
		return field.ErrorList{field.NotSupported(at.Child("type"), typePoint, []string{typePolicies})}
	}
	return nil
}

// Override puts the claim names and the entity type of an authzConfig in the
// place of the document's.
func (d Document) Override(c *v1beta1.AuthzConfig) Document {
	if d.Set == nil {
		return d
	}
	s := *d.Set
	for _, o := range []struct {
		to   *string
		from string
	}{{&s.GroupClaimName, c.GroupClaimName}, {&s.RoleClaimName, c.RoleClaimName}, {&s.GroupEntityType, c.GroupEntityType}} {
		if o.from != "" {
			*o.to = o.from
		}
	}
	return Document{Set: &s}
}

// Parse compiles the document; at is the field that holds the body.
func (d Document) Parse(at *field.Path) (Engine, field.ErrorList) {
	if d.Point != nil {
		p, errs := ParsePoint(*d.Point, at)
		if len(errs) > 0 {
			return nil, errs
		}
		return p, nil
	}
	p, errs := Parse(*d.Set, at)
	if len(errs) > 0 {
		return nil, inDocument(errs)
	}
	return p, nil
}

// Judge is the function Judge for the policy set of a document that has one.
func (d Document) Judge(at *field.Path) ([]Doubt, field.ErrorList) {
	doubts, errs := Judge(*d.Set, at)
	return doubts, inDocument(errs)
}

// inDocument names fields as documents do.
func inDocument(errs field.ErrorList) field.ErrorList {
	for _, e := range errs {
		e.Field = strings.NewReplacer("entitiesJson", "entities_json", "groupEntityType", "group_entity_type").Replace(e.Field)
	}
	return errs
}
