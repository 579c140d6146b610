package sandbox

import "testing"

func TestRun(t *testing.T) {
	e := engine(t)
	s := tools{"tool": echo}
	for text, want := range map[string]string{
		"return 1": "1",
		"":         "null",
		`return {"a": [1.5, None, True, "x"], "b": 1 << 70}`: `{"a":[1.5,null,true,"x"],"b":1180591620717411303424}`,
		`return tool(a = 1)`: `{"a":1}`,
		`return parallel([lambda: tool(a = 1), lambda: tool(a = 2)])`: `[{"a":1},{"a":2}]`,
		`fail("no")`:    "error: fail: no",
		`return 1 // 0`: "error: floored division by zero",
	} {
		if got := said(run1(t, e, text, s)); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}
