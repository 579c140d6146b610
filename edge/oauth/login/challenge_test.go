package login_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/oauth/login"
)

func TestParseChallenge(t *testing.T) {
	type want = login.Challenge
	for _, test := range []struct {
		values []string
		want   want
		none   bool
	}{
		{values: nil, none: true},
		{values: []string{"", ", ,", "Basic realm=\"x\"", "=", "Bear"}, none: true},
		{values: []string{"Bearer"}},
		{values: []string{"bearer realm=x"}},
		{values: []string{`Bearer resource_metadata="https://a/b", scope="x y", error=insufficient_scope`}, want: want{"https://a/b", []string{"x", "y"}, "insufficient_scope"}},
		{values: []string{`Basic realm="a, Bearer scope=\"no\"", Bearer scope="yes"`}, want: want{Scopes: []string{"yes"}}},
		{values: []string{`Negotiate abc==, Bearer  scope = "yes" ,error="e"`}, want: want{Scopes: []string{"yes"}, Error: "e"}},
		{values: []string{`Negotiate abc`, `DPoP algs="ES256"`, `Bearer scope=yes`}, want: want{Scopes: []string{"yes"}}},
		{values: []string{`Bearer SCOPE="a", scope="b"`}},                                             // given twice: neither counts
		{values: []string{`Bearer scope="a\"b c"`}, want: want{Scopes: []string{"c"}}},                // no scope has a quote
		{values: []string{`Bearer scope="a`}},                                                         // without an end
		{values: []string{`Bearer error="x", Basic realm=y, Bearer scope=z`}, want: want{Error: "x"}}, // the first
		{values: []string{strings.Repeat("x", 16<<10), `Bearer scope="a"`}, none: true},
	} {
		got, found := login.ParseChallenge(test.values)
		if found == test.none || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%.80q: %+v, %v; want %+v", test.values, got, found, test.want)
		}
	}
}

func FuzzChallenge(f *testing.F) {
	for _, s := range []string{`Bearer resource_metadata="https://a/b", scope="x y"`, `Basic a=b, Bearer`, `Negotiate abc==, Bearer scope=x`, `Bearer a="`, "a b c d,,,=", `Bearer x = "\\"`} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		c, found := login.ParseChallenge([]string{a, b})
		if !found && !reflect.DeepEqual(c, login.Challenge{}) {
			t.Errorf("nothing was found, and it is %+v", c)
		}
		if len(c.Scopes) > 100 {
			t.Errorf("%d scopes", len(c.Scopes))
		}
		for _, s := range c.Scopes {
			if strings.ContainsAny(s, " \"\\\r\n") || s == "" {
				t.Errorf("%q is no scope", s)
			}
		}
	})
}
