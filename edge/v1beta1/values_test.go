package v1beta1

import (
	"encoding/json"
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1m":        time.Minute,
		"1m30s":     90 * time.Second,
		"1.5h":      90 * time.Minute,
		"100us":     100 * time.Microsecond,
		"100µs":     100 * time.Microsecond, // U+00B5
		"5ns":       5,
		"0s":        0,
		"168h":      168 * time.Hour,
		"1h1m1s1ms": time.Hour + time.Minute + time.Second + time.Millisecond,
		"":          0,
	} {
		if have, err := Duration(text).Parse(); err != nil || have != want {
			t.Errorf("%q is %s, %v; want %s", text, have, err, want)
		}
		if have := Duration(text).Std(); have != want {
			t.Errorf("%q is %s, want %s", text, have, want)
		}
	}
	for _, text := range []string{"-1m", "+1m", "1", "m", "1 m", "1d", "1m ", ".5s", "5.s", "1e3s", "100μs" /* U+03BC */, "99999999999h", "1m\n", "soon"} {
		if have, err := Duration(text).Parse(); err == nil {
			t.Errorf("%q is %s, want an error", text, have)
		}
		if have := Duration(text).Std(); have != 0 {
			t.Errorf("%q is %s, want 0", text, have)
		}
	}
}

func TestDurationInJSON(t *testing.T) {
	for text, want := range map[string]Duration{
		`"1m"`:                  "1m",
		`{"duration": "1m30s"}`: "1m30s",
		` {"duration":"x"} `:    "x", // Validate knows where it stands and says so.
		`""`:                    "",
		`null`:                  "",
	} {
		var v struct{ D Duration }
		if err := json.Unmarshal([]byte(`{"d":`+text+`}`), &v); err != nil || v.D != want {
			t.Errorf("%s is %q, %v; want %q", text, v.D, err, want)
		}
		var s struct{ D SignedDuration }
		if err := json.Unmarshal([]byte(`{"d":`+text+`}`), &s); err != nil || string(s.D) != string(want) {
			t.Errorf("%s is %q, %v; want %q", text, s.D, err, want)
		}
	}
	for _, text := range []string{`60`, `true`, `["1m"]`, `{}`, `{"duration":60}`, `{"duration":null}`, `{"duration":"1m","x":1}`} {
		var v struct{ D Duration }
		if err := json.Unmarshal([]byte(`{"d":`+text+`}`), &v); err == nil {
			t.Errorf("%s is %q, want an error", text, v.D)
		}
	}
	if text, err := json.Marshal(Duration("1m")); err != nil || string(text) != `"1m"` {
		t.Errorf("written as %s, %v", text, err)
	}
}

func TestSignedDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"-30s": -30 * time.Second, "30s": 30 * time.Second, "": 0} {
		if have, err := SignedDuration(text).Parse(); err != nil || have != want || SignedDuration(text).Std() != want {
			t.Errorf("%q is %s, %v; want %s", text, have, err, want)
		}
	}
	for _, text := range []string{"-", "--1s", "-x"} {
		if have, err := SignedDuration(text).Parse(); err == nil {
			t.Errorf("%q is %s, want an error", text, have)
		}
	}
}

func TestQuantity(t *testing.T) {
	for text, want := range map[string]int64{`"64Mi"`: 64 << 20, `"500m"`: 1, `"2"`: 2, `2`: 2, `1048576`: 1 << 20, `"1k"`: 1000, `""`: 0} {
		var q Quantity
		if err := json.Unmarshal([]byte(text), &q); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if have, err := q.Parse(); err != nil || have != want || q.Units() != want {
			t.Errorf("%s is %d, %v; want %d", text, have, err, want)
		}
	}
	for _, text := range []string{`true`, `{}`, `[1]`} {
		if err := json.Unmarshal([]byte(text), new(Quantity)); err == nil {
			t.Errorf("%s is a quantity", text)
		}
	}
	for _, q := range []Quantity{"lots", "1 Mi", "1MiB", "--1"} {
		if have, err := q.Parse(); err == nil {
			t.Errorf("%s is %d, want an error", q, have)
		}
	}
}

func TestFreeJSON(t *testing.T) {
	type free struct {
		O JSONObject `json:"o,omitempty"`
		V JSONValue  `json:"v,omitempty"`
	}
	for text, want := range map[string]string{
		`{"o":{"b":1,"a":12345678901234567890},"v":[1,"x"]}`: "", // order and size stay
		`{"o":null,"v":null}`:                                `{}`,
		`{"v":"text"}`:                                       "",
		`{"v":0}`:                                            "",
		`{"v":false}`:                                        "",
		`{}`:                                                 "",
	} {
		if want == "" {
			want = text
		}
		var f free
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if have, err := json.Marshal(f); err != nil || string(have) != want {
			t.Errorf("%s is written as %s, %v; want %s", text, have, err, want)
		}
	}
	m, err := JSONObject(`{"n":12345678901234567890}`).Map()
	if err != nil || m["n"] != json.Number("12345678901234567890") {
		t.Errorf("%v, %v", m, err)
	}
	v, err := JSONValue(`[1]`).Value()
	if list, ok := v.([]any); err != nil || !ok || list[0] != json.Number("1") {
		t.Errorf("%v, %v", v, err)
	}
	for _, text := range []string{`[]`, `{`, `{} {}`, `1`} {
		if m, err := JSONObject(text).Map(); err == nil {
			t.Errorf("%s is the object %v", text, m)
		}
	}
	if m, err := JSONObject("").Map(); m != nil || err != nil {
		t.Errorf("nothing is %v, %v", m, err)
	}
}

func TestNestedProperties(t *testing.T) {
	nested, err := decodeProperties(`{"a":{"type":"string","value":"x"}}`)
	if err != nil || nested["a"].Type != OutputString || nested["a"].Value != "x" {
		t.Errorf("%v, %v", nested, err)
	}
	for _, text := range []JSONObject{`{"a":{"typ":"string"}}`, `{"a":{"type":1}}`, `{"a":{}} x`, `[]`, `{`} {
		if nested, err := decodeProperties(text); err == nil {
			t.Errorf("%s is %v", text, nested)
		}
	}
}
