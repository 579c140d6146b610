package v1beta1

import (
	"fmt"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The forms of strings, as the documents give them.
var (
	durationPattern    = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`)
	identifierPattern  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	issuerPattern      = regexp.MustCompile(`^https?://[^\s?#]+[^/\s?#]$`)
	authorityPattern   = regexp.MustCompile(`^https://[^\s?#@]+[^/\s?#@]$`)
	decimalPattern     = regexp.MustCompile(`^([0-9]*[.])?[0-9]+$`)
	headerPattern      = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$") // token of RFC 9110 §5.6.2
	scopePattern       = regexp.MustCompile(`^[\x21\x23-\x5b\x5d-\x7e]+$`)   // scope-token of RFC 6749 §3.3
	toolNamePattern    = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]*$`)
	stepIDPattern      = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	placeholderPattern = regexp.MustCompile(`\{[^{}]*\}`)
)

// faults collects what is wrong with one object.
type faults struct {
	list field.ErrorList
	at   map[string]bool // the fields of the list
}

// add notes a fault. Of a long value only the start is shown.
func (f *faults) add(e *field.Error) {
	const most = 100
	if v := reflect.ValueOf(e.BadValue); v.Kind() == reflect.String && v.Len() > most {
		e.BadValue = strings.ToValidUTF8(v.String()[:most], "") + "…"
	}
	f.list = append(f.list, e)
	if f.at == nil {
		f.at = make(map[string]bool)
	}
	f.at[e.Field] = true
}

// invalid notes a value that may be shown.
func (f *faults) invalid(p *field.Path, value any, detail string) {
	f.add(field.Invalid(p, value, detail))
}

// hidden notes a value that may be, or may have been meant to be, a secret: it
// is not shown.
func (f *faults) hidden(p *field.Path, detail string) {
	f.add(field.Invalid(p, field.OmitValueType{}, detail))
}

func (f *faults) required(p *field.Path, detail string)  { f.add(field.Required(p, detail)) }
func (f *faults) forbidden(p *field.Path, detail string) { f.add(field.Forbidden(p, detail)) }

// given demands that a string is not empty.
func (f *faults) given(p *field.Path, s string) bool {
	if s == "" {
		f.required(p, "")
	}
	return s != ""
}

func join[T ~string](values []T) string {
	s := make([]string, len(values))
	for i, v := range values {
		s[i] = string(v)
	}
	return strings.Join(s, ", ")
}

// matches demands that a string, unless empty, has a form. want says which, as
// in "must be lower-case letters".
func (f *faults) matches(p *field.Path, s string, form *regexp.Regexp, want string) bool {
	if s == "" || form.MatchString(s) {
		return true
	}
	f.invalid(p, s, want)
	return false
}

// atMost demands that a string has at most n characters.
func (f *faults) atMost(p *field.Path, s string, n int) {
	if len(s) > n && len([]rune(s)) > n {
		f.add(field.TooLongCharacters(p, s, n))
	}
}

func (f *faults) tooMany(p *field.Path, have, most int) {
	if have > most {
		f.add(field.TooMany(p, have, most))
	}
}

// within demands low ≤ v ≤ high.
func within[T int | int32 | int64](f *faults, p *field.Path, v, low, high T) {
	if v < low || v > high {
		f.invalid(p, v, fmt.Sprintf("must be from %d to %d", low, high))
	}
}

// duration demands that a duration, unless empty, has the documents' form and
// is at least low.
func (f *faults) duration(p *field.Path, d Duration, low time.Duration) {
	v, err := d.Parse()
	switch {
	case err != nil:
		f.invalid(p, string(d), err.Error())
	case d != "" && v < low && low <= 1:
		f.invalid(p, string(d), "must be more than zero")
	case d != "" && v < low:
		f.invalid(p, string(d), "must be at least "+low.String())
	}
}

// positive is the least duration above zero.
const positive = time.Duration(1)

// quantity demands that a quantity, unless empty, can be read and lies between
// low and high units.
func (f *faults) quantity(p *field.Path, q Quantity, low, high int64) {
	v, err := q.Parse()
	switch {
	case err != nil:
		f.invalid(p, string(q), err.Error())
	case q != "" && (v < low || v > high):
		f.invalid(p, string(q), fmt.Sprintf("must be from %d to %d", low, high))
	}
}

// object demands that free JSON, unless absent, is an object, and returns it.
func (f *faults) object(p *field.Path, j JSONObject) (map[string]any, bool) {
	m, err := j.Map()
	if err != nil || j != "" && m == nil {
		f.hidden(p, "must be an object")
		return nil, false
	}
	return m, true
}

// metadata judges the name of an object.
func (f *faults) metadata(o metav1.Object) {
	p := field.NewPath("metadata", "name")
	switch {
	case o.GetName() != "":
		f.dns(p, o.GetName())
	case o.GetGenerateName() == "":
		f.required(p, "")
	}
}

// dns demands the form of an object's name.
func (f *faults) dns(p *field.Path, name string) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		f.invalid(p, name, dnsForm)
	}
}

// dnsForm says what the name of an object is (RFC 1123).
const dnsForm = "must be lower-case letters, digits, - and ., a letter or digit at both ends, at most 253"

// refs judges a list of references: no name twice.
func (f *faults) refs(p *field.Path, refs []NameRef) {
	seen := map[string]bool{}
	for i, r := range refs {
		f.section(p.Index(i), reflect.ValueOf(r))
		if seen[r.Name] {
			f.add(field.Duplicate(p.Index(i).Child("name"), r.Name))
		}
		seen[r.Name] = r.Name != ""
	}
}

// OriginSecretRef is the Origin of the error that says that a reference to a
// secret has neither a name nor a key.
const OriginSecretRef = "secretRef"

// secret judges a reference to a secret; nil is absence. What stands in it is
// not shown: it may be the secret itself, put in the wrong place.
func (f *faults) secret(p *field.Path, r *SecretRef) {
	switch {
	case r == nil:
	case *r == SecretRef{}:
		f.add(field.Required(p, "").WithOrigin(OriginSecretRef))
	default:
		if f.given(p.Child("name"), r.Name) && len(validation.IsDNS1123Subdomain(r.Name)) > 0 {
			f.hidden(p.Child("name"), "must be the name of a secret, not its value: lower-case letters, digits, - and .")
		}
		if f.given(p.Child("key"), r.Key) {
			f.dataKey(p.Child("key"), r.Key)
		}
	}
}

// dataKey demands the form of a key of a secret or config map.
func (f *faults) dataKey(p *field.Path, key string) {
	if len(validation.IsConfigMapKey(key)) > 0 {
		f.hidden(p, "must be a key: letters, digits, -, _ and .")
	}
}

// caBundle judges a reference to certificates; nil is absence.
func (f *faults) caBundle(p *field.Path, r *CABundleRef) {
	if r == nil {
		return
	}
	p = p.Child("configMapRef")
	if r.ConfigMapRef == nil {
		f.required(p, "")
		return
	}
	f.configMap(p, r.ConfigMapRef.Name, r.ConfigMapRef.Key)
}

// configMap judges the name and the key of a config map entry.
func (f *faults) configMap(p *field.Path, name, key string) {
	if f.given(p.Child("name"), name) {
		f.dns(p.Child("name"), name)
	}
	if f.given(p.Child("key"), key) {
		f.dataKey(p.Child("key"), key)
	}
}

// web demands an absolute URL of one of the schemes, with a host and without
// user info or fragment (RFC 6749 §3.1, §3.2); empty is left to given.
func (f *faults) web(p *field.Path, s string, schemes ...string) bool {
	if s == "" {
		return true
	}
	u, err := url.Parse(s)
	want := "must be an absolute " + strings.Join(schemes, " or ") + " URL"
	switch {
	case err != nil, !slices.Contains(schemes, u.Scheme), u.Hostname() == "", !strings.HasPrefix(s, u.Scheme+"://"):
		f.invalid(p, showURL(s), want+", such as "+schemes[0]+"://example.com/path")
	case u.User != nil:
		f.hidden(p, want+" without user info")
	case strings.Contains(s, "#"):
		f.invalid(p, showURL(s), want+" without a fragment")
	case strings.TrimSpace(s) != s:
		f.invalid(p, showURL(s), want+" without a space at its end")
	case u.Port() != "" && !validPort(u.Port()):
		f.invalid(p, showURL(s), want+" with a port from 1 to 65535")
	case strings.Contains(u.RawPath, "%") && u.EscapedPath() != u.RawPath: // %2F would be sent as /
		f.invalid(p, showURL(s), want+" whose path has all of its characters escaped, or none: write ü as %C3%BC")
	default:
		return true
	}
	return false
}

// validPort reports whether text is a port.
func validPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// uri demands an absolute URI without fragment, unless empty (RFC 8707 §2).
func (f *faults) uri(p *field.Path, s string) {
	if u, err := url.Parse(s); s != "" && (err != nil || u.Scheme == "" || strings.Contains(s, "#")) {
		f.invalid(p, showURL(s), "must be an absolute URI without a fragment (RFC 8707)")
	}
}

// issuer demands a URL that RFC 8414 §2 allows as issuer.
func (f *faults) issuer(p *field.Path, s string) {
	if f.web(p, s, "https", "http") {
		f.matches(p, showURL(s), issuerPattern, "must have no query, fragment or trailing slash (RFC 8414)")
	}
}

// showURL returns what of a URL may be shown: user info and query, where
// people put secrets, are cut.
func showURL(s string) string {
	if at := strings.LastIndex(s, "@"); at >= 0 {
		s = "…" + s[at:]
	}
	if query := strings.IndexByte(s, '?'); query >= 0 {
		s = s[:query+1] + "…"
	}
	return s
}

// hostPort demands host:port.
func (f *faults) hostPort(p *field.Path, s string) {
	if s == "" {
		return
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || strings.ContainsAny(host, "/@ \t\n") || !validPort(port) {
		f.invalid(p, showURL(s), "must be host:port, such as store.example.com:6379")
	}
}

// header demands the name of a header that a configuration may set or pass.
func (f *faults) header(p *field.Path, name string) {
	switch {
	case !f.given(p, name):
	case !headerPattern.MatchString(name):
		f.hidden(p, "must be the name of a header (RFC 9110 §5.1)")
	case RestrictedHeader(name):
		f.forbidden(p, name+" is set by the edge itself")
	}
}

// RestrictedHeader reports whether a header is not for a configuration to set or
// pass: it belongs to one connection, says who sent the message, or is how the
// edge and a server understand each other.
func RestrictedHeader(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "host", "connection", "keep-alive", "te", "trailer", "upgrade", "http2-settings",
		"proxy-authorization", "proxy-authenticate", "proxy-connection",
		"transfer-encoding", "content-length", "forwarded", "x-real-ip",
		"content-type", "content-encoding", "accept", "accept-encoding",
		"mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name", "last-event-id":
		return true
	}
	return strings.HasPrefix(name, "x-forwarded-")
}

// headers judges headers with plain values. A value is never shown.
func (f *faults) headers(p *field.Path, headers map[string]string) {
	for _, name := range sorted(headers) {
		f.header(p.Key(name), name)
		f.headerValue(p.Key(name), headers[name])
	}
}

// headerValue demands a value that cannot end the header (RFC 9110 §5.5).
func (f *faults) headerValue(p *field.Path, v string) {
	if strings.ContainsAny(v, "\r\n\x00") {
		f.hidden(p, "must not hold a line break or a null character")
	}
}

// passthrough judges the incoming headers that are forwarded.
func (f *faults) passthrough(p *field.Path, names []string) {
	seen := map[string]bool{}
	for i, name := range names {
		lower := strings.ToLower(name)
		if lower == "authorization" || lower == "cookie" {
			f.forbidden(p.Index(i), "a client's "+name+" is never forwarded; use outgoing authentication")
		} else {
			f.header(p.Index(i), name)
		}
		if seen[lower] {
			f.add(field.Duplicate(p.Index(i), name))
		}
		seen[lower] = name != ""
	}
}

// strings demands that no string of a list is empty or there twice.
func (f *faults) strings(p *field.Path, list []string) {
	seen := map[string]bool{}
	for i, s := range list {
		f.given(p.Index(i), s)
		if seen[s] {
			f.add(field.Duplicate(p.Index(i), s))
		}
		seen[s] = s != ""
	}
}

// env judges environment variables. A value is never shown.
func (f *faults) env(p *field.Path, env []EnvVar) {
	seen := map[string]bool{}
	for i, e := range env {
		f.envName(p.Index(i).Child("name"), e.Name, seen)
		if strings.Contains(e.Value, "\x00") {
			f.hidden(p.Index(i).Child("value"), "must not hold a null character")
		}
	}
}

func (f *faults) envName(p *field.Path, name string, seen map[string]bool) {
	if !f.given(p, name) {
		return
	}
	for _, m := range validation.IsRelaxedEnvVarName(name) {
		f.invalid(p, name, m)
	}
	if seen[name] {
		f.add(field.Duplicate(p, name))
	}
	seen[name] = true
}

// has reports whether there is a fault of the field already.
func (f *faults) has(p *field.Path) bool { return len(f.at) > 0 && f.at[p.String()] }

// distinct demands that no two of n items have the same name, which is a field of
// each.
func (f *faults) distinct(p *field.Path, name string, n int, of func(int) string) {
	seen := map[string]bool{}
	for i := range n {
		s := of(i)
		if seen[s] {
			f.add(field.Duplicate(p.Index(i).Child(name), s))
		}
		seen[s] = s != ""
	}
}

// exactly demands that of the sections the one named by type is there, and no
// other, unless the type itself is none.
func (f *faults) exactly(p *field.Path, typ string, sections ...variant) {
	if f.has(p.Child("type")) {
		return
	}
	for _, s := range sections {
		switch {
		case s.typ == typ && !s.there:
			f.required(p.Child(s.name), "type is "+typ)
		case s.typ != typ && s.there:
			f.forbidden(p.Child(s.name), "used only when type is "+s.typ)
		}
	}
}

// variant is a section of an object that goes with one type of it.
type variant struct {
	typ, name string
	there     bool
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
