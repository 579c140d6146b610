package mcp

import "testing"

func TestSame(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`1`, `1.0`, true}, {`100`, `1e2`, true}, {`-0`, `0.0e5`, true}, {`0.10`, `1E-1`, true}, {`12345678901234567890`, `12345678901234567891`, false},
		{`1`, `-1`, false}, {`1`, `"1"`, false}, {`1e99999999999999999999`, `1e99999999999999999999`, true}, {`1e99999999999999999999`, `2e99999999999999999999`, false},
		{`"a"`, `"\u0061"`, true}, {`"a"`, `"b"`, false}, {`null`, `false`, false}, {`true`, `true`, true},
		{`[1,2]`, `[ 1.0 , 2 ]`, true}, {`[1,2]`, `[2,1]`, false}, {`[[],[1]]`, `[[1],[]]`, false}, {`[]`, `{}`, false},
		{`{"a":1,"b":[2]}`, `{"b":[2.0],"\u0061":1}`, true}, {`{"a":1}`, `{"b":1}`, false}, {`{"a":1}`, `{"a":1,"b":2}`, false}, {`{"a":{},"b":1}`, `{"a":{"b":1}}`, false},
	} {
		if Same([]byte(c.a), []byte(c.b)) != c.same || Same([]byte(c.b), []byte(c.a)) != c.same {
			t.Errorf("%s and %s: not %v", c.a, c.b, c.same)
		}
	}
}
