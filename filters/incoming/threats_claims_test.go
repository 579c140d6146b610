package incoming_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/filters/incoming"
)

func TestJ15(t *testing.T) {
	p, g := ready(t)
	soon := time.Now().Add(time.Hour).Unix()
	exp := func(text string) string { return theRSA().mint(p.claims(map[string]any{"exp": json.RawMessage(text)})) }
	refused(t, g, "no exp", theRSA().mint(p.claims(map[string]any{"exp": nil})), "exp")
	for _, text := range []string{fmt.Sprintf(`"%d"`, soon), "1e308", "-1", "-0", "9223372036854775807", "9223372036854775808", "253402300800", "null", "true", "[]", "{}", fmt.Sprintf("%de0", soon), "1e10", "0"} {
		refused(t, g, "exp "+text, exp(text), "exp")
	}
	if id := accepted(t, g, "a float", exp(fmt.Sprintf("%d.5", soon))); id.Expires.UnixNano() != soon*1e9+5e8 {
		t.Errorf("a float: %s", id.Expires)
	}
	if id := accepted(t, g, "the last second", exp("253402300799")); id.Expires.Unix() != 253402300799 {
		t.Errorf("the last second: %s", id.Expires)
	}
	accepted(t, g, "within the skew", exp(fmt.Sprint(time.Now().Add(-50*time.Second).Unix())))
	refused(t, g, "past the skew", exp(fmt.Sprint(time.Now().Add(-61*time.Second).Unix())), "over")
}

func TestJ16(t *testing.T) {
	p, g := ready(t)
	for _, name := range []string{"nbf", "iat"} {
		at := func(v any) string { return theRSA().mint(p.claims(map[string]any{name: v})) }
		accepted(t, g, name+" within the skew", at(time.Now().Add(50*time.Second).Unix()))
		refused(t, g, name+" past the skew", at(time.Now().Add(70*time.Second).Unix()), "future")
		refused(t, g, name+" far away", at(int64(253402300799)), "future")
		for _, text := range []string{`"1"`, "null", "-1", "1e3", "99999999999999999999"} {
			refused(t, g, name+" "+text, at(json.RawMessage(text)), name)
		}
		accepted(t, g, "no "+name, at(nil))
	}
}

func TestJ17(t *testing.T) {
	p, g := ready(t)
	aud := func(v any) string { return theRSA().mint(p.claims(map[string]any{"aud": v})) }
	accepted(t, g, "a list with us", aud([]string{"other", audience}))
	for name, v := range map[string]any{
		"missing": nil, "null": json.RawMessage("null"), "a number": 1, "an empty list": []string{}, "a list of others": []string{"a", "b"},
		"a prefix": audience[:len(audience)-1], "a suffix": audience + "x", "the other case": strings.ToUpper(audience), "a slash": audience + "/",
		"a list in a list": [][]string{{audience}}, "a list with null": json.RawMessage(`["` + audience + `",null]`), "an object": map[string]any{audience: true}, "with a blank": audience + " x", "true": true,
	} {
		refused(t, g, "aud "+name, aud(v), "aud")
	}
}

func TestJ18(t *testing.T) {
	p, g := ready(t)
	iss := func(v any) string { return theRSA().mint(p.claims(map[string]any{"iss": v})) }
	for name, v := range map[string]any{
		"a slash": p.URL + "/", "the other case": strings.ToUpper(p.URL), "https": strings.Replace(p.URL, "http", "https", 1),
		"missing": nil, "null": json.RawMessage("null"), "a list": []string{p.URL}, "empty": "", "another": "https://evil.example", "a blank": p.URL + " ",
	} {
		refused(t, g, "iss "+name, iss(v), "iss")
	}
}

func TestJ19(t *testing.T) {
	p, g := ready(t)
	typ := func(typ string, change map[string]any) string {
		return theRSA().token(head(`,"typ":`+typ), p.claims(change))
	}
	for _, good := range []string{`"at+jwt"`, `"AT+JWT"`, `"application/at+jwt"`, `"JWT"`, `"jwt"`} {
		accepted(t, g, "typ "+good, typ(good, nil))
	}
	accepted(t, g, "no typ", theRSA().token(head(""), p.claims(nil)))
	for _, bad := range []string{`"logout+jwt"`, `"dpop+jwt"`, `"id+jwt"`, `"secevent+jwt"`, `"oauth-authz-req+jwt"`, `"token-introspection+jwt"`, `"JOSE"`, `"JOSE+JSON"`, `""`, `1`, `null`, `["JWT"]`} {
		refused(t, g, "typ "+bad, typ(bad, nil), "typ")
	}
	for _, mark := range []string{"nonce", "at_hash", "c_hash"} {
		refused(t, g, "an ID token with "+mark, typ(`"JWT"`, map[string]any{mark: "x", "scope": nil}), "ID token")
		accepted(t, g, "an access token with "+mark, typ(`"JWT"`, map[string]any{mark: "x"}))
		accepted(t, g, "at+jwt with "+mark, typ(`"at+jwt"`, map[string]any{mark: "x", "scope": nil}))
	}
	refused(t, g, "a logout token", typ(`"JWT"`, map[string]any{"events": map[string]any{}}), "events")
	for _, claim := range []string{"ID", "Refresh", "Offline", "Logout"} {
		refused(t, g, "typ claim "+claim, typ(`"JWT"`, map[string]any{"typ": claim}), "typ")
	}
	for _, use := range []any{"id", "refresh", "Access", 1, json.RawMessage("null")} {
		refused(t, g, fmt.Sprint("token_use ", use), typ(`"JWT"`, map[string]any{"token_use": use}), "token_use")
	}
	accepted(t, g, "token_use access", typ(`"JWT"`, map[string]any{"token_use": "access"}))
	accepted(t, g, "typ claim Bearer", typ(`"JWT"`, map[string]any{"typ": "Bearer"}))
	refused(t, g, "bound to a key", typ(`"at+jwt"`, map[string]any{"cnf": map[string]any{"jkt": "x"}}), "cnf")
}

func TestJ20(t *testing.T) {
	p, g := ready(t)
	c := p.claims(nil)
	refused(t, g, "two sub", theRSA().mint(c[:len(c)-1]+`,"sub":"admin"}`), "claims")
	refused(t, g, "two of a name inside", theRSA().mint(c[:len(c)-1]+`,"realm_access":{"roles":[],"roles":["admin"]}}`), "claims")
	refused(t, g, "two, one escaped", theRSA().mint(c[:len(c)-1]+`,"s\u0075b":"admin"}`), "claims")
	refused(t, g, "two alg", theRSA().token(`{"alg":"none","alg":"RS256","kid":"rsa-1"}`, c), "header")
	refused(t, g, "two kid", theRSA().token(`{"alg":"RS256","kid":"x","kid":"rsa-1"}`, c), "header")
}

func TestJ21(t *testing.T) {
	p, g := ready(t)
	for _, name := range []string{"SUB", "Sub", "ſub", "sub "} {
		refused(t, g, name+" alone", theRSA().mint(p.claims(map[string]any{"sub": nil, name: "admin"})), "sub")
		if id := accepted(t, g, name+" beside sub", theRSA().mint(p.claims(map[string]any{name: "admin"}))); id.Subject != "alice" {
			t.Errorf("%q made it %q", name, id.Subject)
		}
	}
	refused(t, g, "Aud", theRSA().mint(p.claims(map[string]any{"aud": nil, "Aud": audience})), "aud")
	refused(t, g, "EXP", theRSA().mint(p.claims(map[string]any{"exp": nil, "EXP": 9999999999})), "exp")
	refused(t, g, "Alg", theRSA().token(`{"Alg":"RS256","kid":"rsa-1"}`, p.claims(nil)), "alg")
}

func TestJ22(t *testing.T) {
	p, g := ready(t)
	c := p.claims(nil)
	for _, after := range []string{"x", "{}", `,"sub":"admin"}`, "\x00", "}", "null"} {
		refused(t, g, "claims and "+after, theRSA().mint(c+after), "claims")
		refused(t, g, "header and "+after, theRSA().token(head("")+after, c), "header")
	}
	accepted(t, g, "blanks", theRSA().mint(" "+c+"\n"))
	for _, text := range []string{"", "null", "[]", "1", `"x"`, "{", `{"sub":"\ud800"}`, "{\"sub\":\"\xff\"}"} {
		refused(t, g, "claims "+text, theRSA().mint(text), "")
	}
}

func TestJ23(t *testing.T) {
	p, g := ready(t)
	c := p.claims(nil)
	var many strings.Builder
	many.WriteString(c[:len(c)-1])
	for i := range 100_000 {
		fmt.Fprintf(&many, `,"c%d":1`, i)
	}
	for name, token := range map[string]string{
		"100,000 claims":    theRSA().mint(many.String() + "}"),
		"20,000 arrays":     theRSA().mint(c[:len(c)-1] + `,"x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + "}"),
		"5,000 arrays":      theRSA().mint(c[:len(c)-1] + `,"x":` + strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000) + "}"),
		"33 arrays":         theRSA().mint(c[:len(c)-1] + `,"x":` + strings.Repeat("[", 33) + strings.Repeat("]", 33) + "}"),
		"deep header":       theRSA().token(head(`,"x":`+strings.Repeat("[", 1000)+strings.Repeat("]", 1000)), c),
		"1 MiB of dots":     strings.Repeat(".", 1<<20),
		"a signature 1 MiB": strings.Repeat("A", 1<<20),
	} {
		refused(t, g, name, token, "")
		sent := edge.Secret("Bearer " + token)
		start := time.Now()
		const times = 20
		for range times {
			if _, err := g.Identify(t.Context(), sent, ""); err == nil {
				t.Fatal("accepted")
			}
		}
		t.Logf("%s: %s each; the row allows 1 ms of CPU", name, time.Since(start)/times)
	}
	// The largest token that is read, with as many claims as it can hold.
	var full strings.Builder
	full.WriteString(c[:len(c)-1])
	for i := 0; full.Len() < incoming.MaxToken*3/4-500; i++ {
		fmt.Fprintf(&full, `,"c%d":1`, i)
	}
	token := theRSA().mint(full.String() + "}")
	start := time.Now()
	accepted(t, g, "the largest", token)
	t.Logf("the largest token, %d bytes: %s", len(token), time.Since(start))
}

func TestJ32(t *testing.T) {
	p, g := ready(t)
	for _, sub := range []string{"a\x00b", "\x00", "a\n", "\x7f", "a\u0085b", "\u009b", "", strings.Repeat("s", 1025)} {
		refused(t, g, fmt.Sprintf("%.20q", sub), theRSA().mint(p.claims(map[string]any{"sub": sub})), "sub")
	}
	for _, sub := range []any{1, nil, json.RawMessage("null"), []string{"alice"}, true} {
		refused(t, g, fmt.Sprint(sub), theRSA().mint(p.claims(map[string]any{"sub": sub})), "sub")
	}
	// An issuer holds no NUL either, so that issuer and subject cannot be moved
	// into each other.
	for _, issuer := range []string{"https://a.example\x00b", "https://a.example/\x00"} {
		s := p.spec()
		s.Issuer = issuer
		if _, err := incoming.Parse(s); err == nil {
			t.Errorf("%q was accepted", issuer)
		}
	}
	a := accepted(t, g, "alice", theRSA().mint(p.claims(nil)))
	b := accepted(t, g, "bob", theRSA().mint(p.claims(map[string]any{"sub": "bob"})))
	if a.Principal() == b.Principal() {
		t.Error("two users are one principal")
	}
}

// TestJ33 is names with quotes: they stay what they are, and reach no text that
// the edge writes.
func TestJ33(t *testing.T) {
	p, g := ready(t)
	evil := `x":0,"admin`
	id := accepted(t, g, "a claim with quotes", theRSA().mint(p.claims(map[string]any{evil: true, "scope": `a", error="x`})))
	text, err := json.Marshal(id.Claims)
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(text, &back); err != nil || back["admin"] != nil || back[evil] != true {
		t.Errorf("%s", text)
	}
	s := p.spec()
	s.Scopes = []string{evil}
	if _, err := incoming.Parse(s); err == nil {
		t.Error("a scope with quotes was accepted")
	}
	var doc map[string]any
	if err := json.Unmarshal(incoming.Metadata(`https://a.example/"`, []string{evil}, []string{evil}), &doc); err != nil || len(doc) != 4 {
		t.Errorf("%v, %v", doc, err)
	}
}
