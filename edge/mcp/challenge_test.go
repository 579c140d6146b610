package mcp_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/mcp"
)

func TestChallenges(t *testing.T) {
	type c = mcp.Challenge
	for _, test := range []struct {
		values []string
		want   []c
	}{
		{nil, nil},
		{[]string{"", ", ,", "Basic realm=\"x\"", "=", "Bear"}, nil},
		{[]string{"Bearer"}, []c{{}}},
		{[]string{"bearer realm=x"}, []c{{}}},
		{[]string{`Bearer resource_metadata="https://a/b", scope="x y", error=insufficient_scope`}, []c{{"https://a/b", []string{"x", "y"}, "insufficient_scope"}}},
		{[]string{`Basic realm="a, Bearer scope=\"no\"", Bearer scope="yes"`}, []c{{Scopes: []string{"yes"}}}},
		{[]string{`Negotiate abc==, Bearer  scope = "yes" ,error="e"`}, []c{{Scopes: []string{"yes"}, Error: "e"}}},
		{[]string{`Negotiate a/b+c, Bearer scope=yes`}, []c{{Scopes: []string{"yes"}}}},
		{[]string{`Negotiate a/b==,Bearer scope=yes`}, []c{{Scopes: []string{"yes"}}}},
		{[]string{`Negotiate Bearer, Bearer scope=yes`}, []c{{Scopes: []string{"yes"}}}}, // the first is no scheme
		{[]string{`Negotiate, Bearer scope=yes`}, []c{{Scopes: []string{"yes"}}}},
		{[]string{`Negotiate abc`, `DPoP algs="ES256"`, `Bearer scope=yes`}, []c{{Scopes: []string{"yes"}}}},
		{[]string{`Bearer SCOPE="a", scope="b"`}, []c{{}}},                                                                       // given twice: neither counts
		{[]string{`Bearer scope="a", scope="b", scope="c"`}, []c{{}}},                                                            // nor one of three
		{[]string{`Bearer scope="a\"b c"`}, []c{{Scopes: []string{"c"}}}},                                                        // no scope has a quote
		{[]string{`Bearer scope="a`}, []c{{}}},                                                                                   // without an end
		{[]string{`Bearer error="x", scope="a`, `Bearer scope=b`}, []c{{Error: "x"}, {Scopes: []string{"b"}}}},                   // and the next value
		{[]string{`Bearer error="x", Basic realm=y, Bearer scope=z`}, []c{{Error: "x"}, {Scopes: []string{"z"}}}},                // their parameters are their own
		{[]string{`Bearer error="x" scope=z`}, []c{{Scopes: []string{"z"}, Error: "x"}}},                                         // a comma is missing
		{[]string{`Basic "x, Bearer scope=no", Bearer scope=no`}, nil},                                                           // no challenge at all
		{[]string{strings.Repeat("x", 16<<10), `Bearer scope="a"`}, nil},                                                         // too much
		{[]string{`Bearer scope="` + strings.Repeat("a ", 101) + `"`}, []c{{Scopes: strings.Fields(strings.Repeat("a ", 100))}}}, // too many
	} {
		var got []c
		for one := range mcp.Challenges(test.values...) {
			got = append(got, one)
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%.80q: %+v, not %+v", test.values, got, test.want)
		}
	}
	for range mcp.Challenges("Bearer, Bearer") {
		break // whoever has enough may leave
	}
}

// FuzzScopes: whatever a server sends, reading it ends, and what comes out are scopes.
func FuzzScopes(f *testing.F) {
	for _, s := range []string{
		`Bearer error="insufficient_scope", scope="a b"`, `Negotiate YWJj==, Bearer error="insufficient_scope"`, `Bearer resource_metadata="https://a/b", scope="x y"`,
		`Basic a=b, Bearer`, `Negotiate abc==, Bearer scope=x`, `Bearer a="`, "a b c d,,,=", `Bearer x = "\\"`,
	} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		n := 0
		for c := range mcp.Challenges(a, b) {
			if n++; len(c.Scopes) > 100 || n > len(a)+len(b) {
				t.Errorf("%d challenges, %d scopes", n, len(c.Scopes))
			}
			for _, s := range c.Scopes {
				if strings.ContainsAny(s, " \"\\\r\n") || !mcp.IsScope(s) {
					t.Errorf("%q is no scope", s)
				}
			}
		}
	})
}
