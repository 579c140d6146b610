package wire

import (
	"slices"
	"testing"
)

func TestScopes(t *testing.T) {
	for text, want := range map[string][]string{
		``:       nil,
		`Bearer`: nil,
		`Bearer error="invalid_token", scope="a"`:                                         nil,
		`Bearer error="insufficient_scope"`:                                               {},
		`Bearer error=insufficient_scope, scope=a`:                                        {"a"},
		`bearer  error = "insufficient_scope" , scope="a b:c  d"`:                         {"a", "b:c", "d"},
		`Bearer scope="a b", error="insufficient_scope", resource_metadata="https://x/y"`: {"a", "b"},
		`Basic realm="x, Bearer error=insufficient_scope"`:                                nil,
		`Basic realm="x", Bearer error="insufficient_scope", scope="a"`:                   {"a"},
		`Bearer error="insufficient_scope", scope="a", Basic realm="y", scope="b"`:        {"a"},
		`Negotiate YWJj==, Bearer error="insufficient_scope", scope="a"`:                  {"a"},
		`DPoP error="insufficient_scope", scope="a"`:                                      nil,
		`Bearer error="insufficient_scope", scope="a \"b c"`:                              {"a", "c"},
		`Bearer error="insufficient_scope", scope="a`:                                     {}, // cut: it may be another
		"Bearer error=\"insufficient_scope\", scope=\"a\xff b\"":                          {"b"},
		`Bearer realm="x" error="insufficient_scope"`:                                     {},
	} {
		if got := Scopes([]byte(text)); !slices.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%s: %q, not %q", text, got, want)
		}
	}
}
