package incoming

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/weir-edge/weir/edge/oauth"
)

// Bounds of a token. The door's limit on headers comes first.
const (
	maxToken   = 16 << 10 // bytes
	maxHeader  = 4 << 10  // bytes of the encoded header
	maxDepth   = 32       // of the claims
	maxSubject = 1 << 10  // bytes
	maxKeyID   = 256      // bytes
	skew       = 60 * time.Second
)

// bearer returns the token of an Authorization header. ok is false when there
// is none of the Bearer scheme (RFC 6750 §2.1, RFC 9110 §11.4).
func bearer(authorization string) (token string, ok bool) {
	const scheme = "bearer "
	if len(authorization) < len(scheme) || !strings.EqualFold(authorization[:len(scheme)], scheme) {
		return "", false
	}
	return strings.Trim(authorization[len(scheme):], " "), true
}

// header is what the header of a JWT says.
type header struct {
	alg    string
	kid    string // "" for none
	access bool   // its typ says that it is an access token (RFC 9068 §2.1)
}

// isJWT reports whether a token has the form of a signed JWT. What has it is
// never taken for an opaque token.
func isJWT(token string) bool { return strings.Count(token, ".") == 2 }

// parseHeader reads the header of a JWT and refuses what a resource server has
// no use for: other types of token, extensions, and keys that come along.
func parseHeader(token string) (header, error) {
	var h header
	first, rest, _ := strings.Cut(token, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	if len(first) > maxHeader {
		return h, errors.New("its header is too large")
	}
	text, ok := oauth.DecodeSegment(first)
	if !ok || payload == "" || signature == "" {
		return h, errors.New("not in compact form")
	}
	for _, s := range []string{payload, signature} {
		if !oauth.Canonical(s) {
			return h, errors.New("not in canonical base64url")
		}
	}
	o, err := oauth.ParseObject(text, 8)
	if err != nil {
		return h, fmt.Errorf("its header: %w", err)
	}
	for _, name := range []string{"crit", "b64", "zip", "enc", "cty", "jwk", "jku", "x5c", "x5u", "p2c", "p2s"} {
		if o.Has(name) {
			return h, fmt.Errorf("its header holds %s", name)
		}
	}
	if h.alg, ok = o.Text("alg"); !ok || !oauth.Allowed(h.alg) {
		return h, errors.New("its alg is not allowed")
	}
	if h.kid, ok = o.Text("kid"); o.Has("kid") && (!ok || h.kid == "" || len(h.kid) > maxKeyID) {
		return h, errors.New("its kid cannot be right")
	}
	if o.Has("typ") {
		typ, ok := o.Text("typ")
		switch strings.TrimPrefix(strings.ToLower(typ), "application/") {
		case "at+jwt":
			h.access = true
		case "jwt":
		default:
			ok = false
		}
		if !ok {
			return h, errors.New("its typ is not that of an access token")
		}
	}
	return h, nil
}

// signed returns the payload of a JWT whose signature holds under the key that
// find has for it, and whether its header calls it an access token.
func signed(token string, find func(kid string) (*oauth.Key, error)) (payload []byte, access bool, err error) {
	h, err := parseHeader(token)
	if err != nil {
		return nil, false, err
	}
	key, err := find(h.kid)
	if err != nil {
		return nil, false, err
	}
	payload, err = key.Verify(h.alg, []byte(token))
	return payload, h.access, err
}

// claims is what a token says that the edge itself reads.
type claims struct {
	issuer  string // of an answer of introspection that names one; "" for none
	subject string
	name    string
	email   string
	scopes  []string
	expires time.Time // zero for none, which only introspection allows
	all     map[string]any
}

// rules are what claims are held against.
type rules struct {
	issuer, audience   string
	namespace, account string
	now                time.Time
	wall               time.Time // what the wall clock says, which now may not believe yet
	access             bool      // the token itself says that it is an access token
	introspected       bool      // the issuer was asked: exp and iss may be absent

	// issuer is "" where whoever is asked vouches for tokens of any issuer.
}

// parseClaims reads the claims of a token and judges them.
func parseClaims(text []byte, r rules) (claims, error) {
	var c claims
	// 1. One meaning only.
	if err := oauth.CheckJSON(text, maxDepth); err != nil {
		return c, fmt.Errorf("its claims: %w", err)
	}
	var o members
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&o); err != nil || o == nil {
		return c, errors.New("its claims: not an object")
	}

	// 2. From whom, for whom, when.
	switch iss, _ := o.text("iss"); {
	case r.introspected && !o.has("iss"):
	case r.introspected && r.issuer == "":
		// Whoever it is, users of theirs are no users of others, nor the local user.
		if _, err := oauth.ParseURL(iss, true); err != nil || len(iss) > maxSubject {
			return c, errors.New("iss: no URL")
		}
		c.issuer = iss
	case iss != r.issuer:
		return c, errors.New("iss: another issuer")
	}
	if !forUs(o, r.audience) {
		return c, errors.New("aud: not for this server")
	}
	if err := c.times(o, r); err != nil {
		return c, err
	}

	// 3. That it is an access token, and one that its bearer may use.
	if err := isAccessToken(o, r); err != nil {
		return c, err
	}

	// 4. Who it is.
	if err := c.who(o, r); err != nil {
		return c, err
	}
	c.scopes, c.all = scopesOf(o), o
	return c, nil
}

// members are the members of a JSON object by their exact names, numbers as
// json.Number.
type members map[string]any

func (m members) has(name string) bool { _, ok := m[name]; return ok }

func (m members) text(name string) (string, bool) {
	text, ok := m[name].(string)
	return text, ok
}

// texts returns an array of nothing but strings.
func (m members) texts(name string) (texts []string, ok bool) {
	list, ok := m[name].([]any)
	for _, v := range list {
		text, isText := v.(string)
		if !isText {
			return nil, false
		}
		texts = append(texts, text)
	}
	return texts, ok
}

// forUs reports whether aud names this server, alone or among others (RFC 7519
// §4.1.3).
func forUs(o members, audience string) bool {
	if one, ok := o.text("aud"); ok {
		return one == audience
	}
	many, _ := o.texts("aud")
	for _, one := range many {
		if one == audience {
			return true
		}
	}
	return false
}

// times judges exp, nbf and iat, with skew for clocks that differ.
func (c *claims) times(o members, r rules) error {
	var err error
	if o.has("exp") || !r.introspected {
		if c.expires, err = date(o["exp"]); err != nil {
			return fmt.Errorf("exp: %w", err)
		}
		if !r.now.Before(c.expires.Add(r.late())) {
			return errors.New("exp: it is over")
		}
	}
	// A machine that has slept finds its clock ahead, and does not believe it for a while. Who gets
	// a new token then has one that was issued by the true time: it is not of the future.
	latest := r.now
	if r.wall.After(latest) {
		latest = r.wall
	}
	for _, name := range []string{"nbf", "iat"} {
		if !o.has(name) {
			continue
		}
		t, err := date(o[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if t.After(latest.Add(skew)) {
			return fmt.Errorf("%s: in the future", name)
		}
	}
	return nil
}

// late is for how long a token is accepted after its exp. Who introspects was
// told that the token is active by the clock that counts.
func (r *rules) late() time.Duration {
	if r.introspected {
		return 0
	}
	return skew
}

// lastDate is the end of the year 9999.
const lastDate = 253402300799

// date reads a NumericDate (RFC 7519 §2): a number of seconds, written out.
func date(claim any) (time.Time, error) {
	number, ok := claim.(json.Number)
	if !ok {
		return time.Time{}, errors.New("not a date")
	}
	whole, fraction, _ := strings.Cut(number.String(), ".")
	for _, digits := range []string{whole, fraction} {
		if strings.Trim(digits, "0123456789") != "" {
			return time.Time{}, errors.New("not a date")
		}
	}
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || seconds > lastDate {
		return time.Time{}, errors.New("not a date")
	}
	var nanos int64
	if fraction != "" {
		if nanos, err = strconv.ParseInt((fraction + "000000000")[:9], 10, 64); err != nil {
			return time.Time{}, errors.New("not a date")
		}
	}
	return time.Unix(seconds, nanos), nil
}

// isAccessToken refuses ID tokens, logout tokens, refresh tokens, and tokens
// that are bound to a key which a bearer need not have.
func isAccessToken(o members, r rules) error {
	switch {
	case o.has("cnf"):
		return errors.New("cnf: it is bound to a key (RFC 7800), which is not checked here")
	case o.has("events"):
		return errors.New("events: a security event, no access token")
	}
	if typ, ok := o.text("typ"); ok { // a claim that some providers set
		switch strings.ToLower(typ) {
		case "id", "refresh", "offline", "logout", "dpop":
			return errors.New("typ: no access token")
		}
	}
	if use, ok := o.text("token_use"); o.has("token_use") && (!ok || use != "access") { // likewise
		return errors.New("token_use: no access token")
	}
	if typ, ok := o.text("token_type"); r.introspected && o.has("token_type") && (!ok || !isBearerType(typ)) {
		return errors.New("token_type: not bearer")
	}
	idToken := o.has("nonce") || o.has("at_hash") || o.has("c_hash") || o.has("s_hash")
	if idToken && !r.access && !r.introspected && !o.has("scope") && !o.has("scp") {
		return errors.New("an ID token, no access token")
	}
	return nil
}

func isBearerType(typ string) bool {
	switch strings.ToLower(typ) {
	case "bearer", "access_token", "urn:ietf:params:oauth:token-type:access_token":
		return true
	}
	return false
}

// who reads subject, name and e-mail.
func (c *claims) who(o members, r rules) error {
	var ok bool
	c.subject, ok = o.text("sub")
	if !o.has("sub") && !o.has("username") && r.introspected {
		// A client of its own account (RFC 7662 §2.2 has no sub for it, and username for
		// a user alone). It must not be taken for a user of that name (RFC 9068 §5).
		if id, found := o.text("client_id"); found && id != "" {
			c.subject, ok = "client:"+id, true
		}
	}
	if !ok || c.subject == "" || len(c.subject) > maxSubject {
		return errors.New("sub: missing, or cannot be right")
	}
	if strings.ContainsFunc(c.subject, unicode.IsControl) {
		return errors.New("sub: it holds a control character")
	}
	if r.namespace != "" {
		account := "system:serviceaccount:" + r.namespace + ":"
		if r.account != "" && c.subject != account+r.account || !strings.HasPrefix(c.subject, account) {
			return errors.New("sub: another service account")
		}
	}
	if c.name, _ = o.text("name"); c.name == "" {
		c.name, _ = o.text("preferred_username")
	}
	c.email, _ = o.text("email")
	return nil
}

// scopesOf reads scope (RFC 8693 §4.2, RFC 9068 §2.2.3) or scp, as some
// providers call it, each a string or an array.
func scopesOf(o members) []string {
	for _, name := range []string{"scope", "scp"} {
		if text, ok := o.text(name); ok {
			return oauth.Scopes(text)
		}
		if list, ok := o.texts(name); ok {
			return list
		}
	}
	return nil
}

// rights is a digest of the claims, but for those that are of one token or one answer, so that a
// refreshed token of equal rights has the same. What is not known to be such may be a right.
func (c *claims) rights() (sum [16]byte) {
	all := maps.Clone(c.all)
	for _, name := range [...]string{
		"jti", "iat", "nbf", "exp", "auth_time", "nonce", "at_hash", "c_hash", "s_hash", "sid", "session_state", // OpenID Connect, RFC 7519
		"uti", "aio", "rh", "origin_jti", "event_id", "expires_in", "auditTrackingId", // of Entra, Cognito and ForgeRock
	} {
		delete(all, name)
	}
	if of, ok := all["kubernetes.io"].(map[string]any); ok { // where a token of a service account is held
		of = maps.Clone(of)
		maps.DeleteFunc(of, func(name string, _ any) bool { return name == "pod" || name == "node" || name == "warnafter" })
		all["kubernetes.io"] = of
	}
	for _, name := range [...]string{"scope", "scp", "aud", "groups", "roles"} { // sets, in whatever order
		set, ok := members(all).texts(name)
		if text, isText := all[name].(string); isText && name[0] == 's' {
			set, ok = oauth.Scopes(text), true
		}
		if ok {
			set = slices.Clone(set)
			slices.Sort(set)
			all[name] = set
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // they were JSON before
	}
	whole := sha256.Sum256(text)
	copy(sum[:], whole[:])
	return sum
}
