package v1beta1

import (
	"cmp"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The rules of single fields stand as markers in the comments of the types. Those
// that a custom resource definition can say are kubebuilder's; the others are

//	+weir:form=NAME    the text, or each item, has the form of that name (see form)
//	+weir:least=1s     a duration is at least that; without it, more than zero
//	+weir:low, high    bounds of a number, or of a quantity in units
//	+weir:maxLength    as kubebuilder's, where the definition does not say it
//	+weir:unique       no item is empty or there twice
//	+weir:elsewhere    the methods Validate judge the field, and not its markers
//
// go generate writes both the definitions and fieldRules from them. What is left
// to the methods Validate is between fields.

// rule is what a field must keep. The zero value of each member is no rule.
type rule struct {
	required      bool // the text is not empty
	enum          []string
	pattern       string // a regular expression
	form          string
	least         string // a Duration
	low, high     *int64
	maxLength     int // characters
	maxItems      int
	maxProperties int
	unique        bool
	elsewhere     bool

	fallback string // JSON text: the value of a field that is not given; "" for none
}

// complete gives the fields of a section that are not given their defaults, and
// so on inside of it. v can be set.
func complete(v reflect.Value) {
	t := v.Type()
	rules := fieldRules()[t.Name()]
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if r := rules[name]; r.fallback != "" && v.Field(i).IsZero() {
			_ = json.Unmarshal([]byte(r.fallback), v.Field(i).Addr().Interface()) // TestDefaults has all of them
		}
		inside(v.Field(i))
	}
}

// inside completes the sections that a value is made of.
func inside(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			inside(v.Elem())
		}
	case reflect.Struct:
		if v.Type().PkgPath() == reflect.TypeFor[rule]().PkgPath() {
			complete(v)
		}
	case reflect.Slice:
		for i := range v.Len() {
			inside(v.Index(i))
		}
	case reflect.Map:
		if v.Type().Elem().Kind() != reflect.Struct {
			return
		}
		for _, k := range v.MapKeys() {
			e := reflect.New(v.Type().Elem()).Elem()
			e.Set(v.MapIndex(k))
			complete(e)
			v.SetMapIndex(k, e)
		}
	}
}

// judged returns the faults of an object's name and of its fields.
func judged(o Object) *faults {
	f := &faults{}
	f.metadata(o)
	f.section(field.NewPath("spec"), reflect.ValueOf(o).Elem().FieldByName("Spec"))
	return f
}

// section judges the fields of a struct.
func (f *faults) section(p *field.Path, v reflect.Value) {
	t := v.Type()
	rules := fieldRules()[t.Name()]
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "" { // its fields count as ours
			f.section(p, v.Field(i))
			continue
		}
		if r := rules[name]; !r.elsewhere {
			f.field(p.Child(name), v.Field(i), r)
		}
	}
}

// field judges the value of a field; a nil pointer is absence.
func (f *faults) field(p *field.Path, v reflect.Value, r rule) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch x := v.Interface().(type) {
	case SecretRef:
		f.secret(p, &x)
		return
	case CABundleRef:
		f.caBundle(p, &x)
		return
	case []EnvVar:
		f.env(p, x)
		return
	case []NameRef:
		f.refs(p, x)
		return
	case map[string]string:
		f.tooMany(p, len(x), cmp.Or(r.maxProperties, len(x)))
		if r.form == "headers" {
			f.headers(p, x)
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		f.text(p, v, r)
	case reflect.Int, reflect.Int32, reflect.Int64:
		f.number(p, v, r)
	case reflect.Struct:
		f.section(p, v)
	case reflect.Slice:
		f.tooMany(p, v.Len(), cmp.Or(r.maxItems, v.Len()))
		if list, ok := v.Interface().([]string); ok && r.unique {
			f.strings(p, list)
		}
		for i := range v.Len() {
			f.field(p.Index(i), v.Index(i), rule{form: r.form, required: r.form != "" && !r.unique})
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			f.field(p.Key(k.String()), v.MapIndex(k), rule{form: r.form, required: v.Type().Elem().Kind() == reflect.String, low: r.low, high: r.high})
		}
	}
}

// number judges a number.
func (f *faults) number(p *field.Path, v reflect.Value, r rule) {
	n := v.Int()
	switch {
	case r.low != nil && r.high != nil:
		within(f, p, n, *r.low, *r.high)
	case r.low != nil && n < *r.low:
		f.invalid(p, n, "must be at least "+strconv.FormatInt(*r.low, 10))
	}
}

// text judges a string, whatever its type. An empty one is absence.
func (f *faults) text(p *field.Path, v reflect.Value, r rule) {
	s := v.String()
	switch {
	case s == "" && r.required && r.enum != nil:
		f.required(p, "one of "+join(r.enum))
		return
	case s == "" && r.required:
		f.required(p, "")
		return
	case s == "":
		return
	case r.enum != nil && !slices.Contains(r.enum, s):
		f.add(field.NotSupported(p, s, r.enum))
		return
	}
	switch x := v.Interface().(type) {
	case Duration:
		least, _ := Duration(r.least).Parse()
		if r.least == "" {
			least = positive
		}
		f.duration(p, x, least)
	case SignedDuration:
		if _, err := x.Parse(); err != nil {
			f.invalid(p, s, err.Error())
		}
	case JSONObject:
		f.object(p, x)
	case Quantity:
		f.quantity(p, x, *cmp.Or(r.low, new(int64(0))), *cmp.Or(r.high, new(int64(1<<62))))
	default:
		if r.pattern != "" {
			f.matches(p, s, regex(r.pattern), says(r.pattern))
		}
		f.form(p, s, r.form)
	}
	if r.maxLength > 0 {
		f.atMost(p, s, r.maxLength)
	}
}

// patterns are the regular expressions that have been asked for, by their text.
var patterns sync.Map

// regex returns a pattern of a marker, compiled when it is first asked for.
func regex(pattern string) *regexp.Regexp {
	if re, ok := patterns.Load(pattern); ok {
		return re.(*regexp.Regexp)
	}
	re := regexp.MustCompile(pattern)
	patterns.Store(pattern, re)
	return re
}

// says is what a pattern demands, in words.
func says(pattern string) string {
	switch pattern {
	case providerForm:
		return "must be lower-case letters, digits and -, a letter or digit at both ends"
	case identifierForm, "^([a-zA-Z_][a-zA-Z0-9_]*)?$":
		return "must be a letter or _, then letters, digits and _"
	case regionForm:
		return "must be a region such as eu-west-1"
	case roleForm:
		return "must be the ARN of a role, such as arn:aws:iam::123456789012:role/name"
	case "^[0-9a-f]{64}$":
		return "must be 64 lower-case hexadecimal digits"
	case `^(0(\.\d+)?|1(\.0+)?)$`:
		return "must be a decimal number from 0 to 1"
	case "^sha256:[0-9a-f]{64}$":
		return "must be sha256: and 64 lower-case hexadecimal digits"
	case "^(image|[0-9]{1,10}(:[0-9]{1,10})?)$":
		return "must be image, UID or UID:GID"
	case tokenTypeForm:
		return "must be access_token, id_token or jwt, or the URN of one (RFC 8693 §3)"
	case tenantForm:
		return "must be the GUID or a verified domain name of one directory; common, organizations and consumers are none"
	}
	return "must match " + pattern
}

// Patterns that fields have whose definition does not say them, too.
const (
	providerForm   = `^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	identifierForm = `^[A-Za-z_][A-Za-z0-9_]*$`
	regionForm     = `^[a-z]{2}(-[a-z]+)+-\d+$`
	roleForm       = `^arn:(aws|aws-cn|aws-us-gov):iam::\d{12}:role/[\w+=,.@\-_/]+$`
	tokenTypeForm  = `^(access_token|id_token|jwt|urn:ietf:params:oauth:token-type:(access_token|id_token|jwt))?$`
	tenantForm     = `^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)+[a-zA-Z]{2,})$`
)

// form demands that a text, which is not empty, has the form of a name.
func (f *faults) form(p *field.Path, s, name string) {
	switch name {
	case "absolute": // a path
		f.absolute(p, s)
	case "authority": // of a login host
		if f.web(p, s, "https") {
			f.matches(p, showURL(s), authorityPattern, "must have no user info, query, fragment or trailing slash")
		}
	case "dataKey": // of a secret or config map
		f.dataKey(p, s)
	case "dns": // the name of an object
		f.dns(p, s)
	case "entities":
		f.entities(p, s)
	case "env": // the name of a variable with a secret, or by mistake the secret itself
		f.secretEnv(p, s)
	case "header": // one that a configuration may set
		f.header(p, s)
	case "host": // a name or an address
		f.hostOrIP(p, s)
	case "hostPort":
		f.hostPort(p, s)
	case "https":
		f.web(p, s, "https")
	case "identifier":
		f.matches(p, s, regex(identifierForm), says(identifierForm))
	case "issuer":
		f.issuer(p, s)
	case "origin": // of a page
		f.origin(p, s)
	case "publish": // [IP:]HOST:CONTAINER
		f.publish(p, s)
	case "ratio": // from 0 to 1
		f.ratio(p, s, 1)
	case "distance": // from 0 to 2
		f.ratio(p, s, 2)
	case "region":
		f.matches(p, s, regex(regionForm), says(regionForm))
	case "registration": // a document or endpoint of a provider
		if f.web(p, s, "https") {
			f.matches(p, showURL(s), issuerPattern, "must have no query, fragment or trailing slash")
		}
	case "role":
		f.matches(p, s, regex(roleForm), says(roleForm))
	case "scope":
		f.matches(p, s, scopePattern, "must be a scope without spaces (RFC 6749 §3.3)")
	case "secretName":
		if len(validation.IsDNS1123Subdomain(s)) > 0 {
			f.hidden(p, dnsForm)
		}
	case "size":
		f.quantity(p, Quantity(s), 1, 1<<62)
	case "tokenType":
		f.matches(p, s, regex(tokenTypeForm), says(tokenTypeForm))
	case "uri":
		f.uri(p, s)
	case "url":
		f.web(p, s, "https", "http")
	case "variable":
		f.envName(p, s, map[string]bool{})
	}
}
