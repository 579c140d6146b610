package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func mustDecode(t testing.TB, text string) *Message {
	t.Helper()
	m, err := Decode([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", short([]byte(text)), err)
	}
	return m
}

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		text string
		kind Kind
		bad  string // a part of what the EnvelopeError says
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, Request, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"x","params":{}}`, Request, ""},
		{`{"params":{"a":1},"method":"x","id":"a","jsonrpc":"2.0"}`, Request, ""},
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, Notification, ""},
		{`{"jsonrpc":"2.0","method":"x","params":{}}`, Notification, ""},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, Result, ""},
		{`{"jsonrpc":"2.0","id":"","result":null}`, Result, ""},
		{`{"jsonrpc":"2.0","id":1,"result":[1]}`, Result, ""},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}`, Failure, ""},
		{`{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}`, Failure, ""},
		{`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}`, Failure, ""},
		{" {\r\n\t\"jsonrpc\" : \"2.0\" , \"id\" : 1 , \"method\" : \"ping\" }\n ", Request, ""},

		{`{}`, Invalid, "jsonrpc"},
		{`{"id":1,"method":"x"}`, Invalid, "jsonrpc"},
		{`{"jsonrpc":"1.0","id":1,"method":"x"}`, Invalid, "jsonrpc"},
		{`{"jsonrpc":2.0,"id":1,"method":"x"}`, Invalid, "jsonrpc"},
		{`{"jsonrpc":"2\u002e0","id":1,"method":"x"}`, Invalid, "jsonrpc"},
		{`{"jsonrpc":"2.0"}`, Invalid, "either"},
		{`{"jsonrpc":"2.0","id":1}`, Invalid, "either"},
		{`{"jsonrpc":"2.0","params":{}}`, Invalid, "either"},
		{`{"jsonrpc":"2.0","id":1,"method":"x","result":{}}`, Invalid, "either"},
		{`{"jsonrpc":"2.0","id":1,"method":"x","error":{}}`, Invalid, "either"},
		{`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, Invalid, "either"},
		{`{"jsonrpc":"2.0","id":1,"result":{},"error":null}`, Invalid, "either"},
		{`{"jsonrpc":"2.0","id":1,"result":{},"params":{}}`, Invalid, "params"},
		{`{"jsonrpc":"2.0","id":1,"params":{"resultType":"x"},"error":{}}`, Invalid, "params"},
		{`{"jsonrpc":"2.0","result":{}}`, Invalid, "without an id"},
		{`{"jsonrpc":"2.0","id":1,"error":"x"}`, Invalid, "error is not an object"},
		{`{"jsonrpc":"2.0","id":1,"error":null}`, Invalid, "error is not an object"},
		{`{"jsonrpc":"2.0","id":1,"method":""}`, Invalid, "empty"},
		{`{"jsonrpc":"2.0","id":1,"method":7}`, Invalid, "method is not a string"},
		{`{"jsonrpc":"2.0","id":1,"method":null}`, Invalid, "method is not a string"},
		{`{"jsonrpc":"2.0","id":1,"method":["ping"]}`, Invalid, "method is not a string"},
		{`{"jsonrpc":"2.0","id":1,"method":"x","params":[]}`, Invalid, "params is not an object"},
		{`{"jsonrpc":"2.0","id":1,"method":"x","params":null}`, Invalid, "params is not an object"},
		{`{"jsonrpc":"2.0","id":1,"method":"x","params":"{}"}`, Invalid, "params is not an object"},
		{`1`, Invalid, "object"}, {`"x"`, Invalid, "object"}, {`null`, Invalid, "object"}, {`true`, Invalid, "object"},
	} {
		m, err := Decode([]byte(c.text))
		var envelope *EnvelopeError
		switch {
		case c.bad == "" && err != nil:
			t.Errorf("%s: %v", c.text, err)
		case c.bad != "" && (!errors.As(err, &envelope) || !strings.Contains(envelope.What, c.bad)):
			t.Errorf("%s: got %v, want %q", c.text, err, c.bad)
		case m.Kind != c.kind:
			t.Errorf("%s: kind %d, want %d", c.text, m.Kind, c.kind)
		}
	}
}

func TestM09IDs(t *testing.T) {
	long := strings.Repeat("x", MaxID-2)
	for _, c := range []struct {
		id string
		ok bool
	}{
		{`1`, true}, {`0`, true}, {`-1`, true}, {`-0`, true}, {`9007199254740993`, true}, {`-9007199254740993`, true}, {`1152921504606846977`, true},
		{`99999999999999999999999999999999999999`, true}, {strings.Repeat("9", MaxID), true},
		{`""`, true}, {`"a"`, true}, {`"1"`, true}, {`"1.5"`, true}, {`"null"`, true}, {`"\u0061\n\ud83d\ude00é"`, true}, {`"` + long + `"`, true}, {`"\""`, true},

		{`null`, false}, {`1.5`, false}, {`1.0`, false}, {`1e400`, false}, {`1E3`, false}, {`-1e-1`, false}, {`true`, false}, {`false`, false}, {`{}`, false}, {`[]`, false}, {`[1]`, false}, {`{"a":1}`, false},
		{`"` + long + `x"`, false}, {strings.Repeat("9", MaxID+1), false}, {`"` + strings.Repeat("x", 1<<20) + `"`, false},
	} {
		for _, form := range []struct {
			text string
			kind Kind
		}{
			{`{"jsonrpc":"2.0","id":%s,"method":"x"}`, Request},
			{`{"method":"x","jsonrpc":"2.0","id": %s }`, Request},
			{`{"jsonrpc":"2.0","id":%s,"result":{}}`, Result},
			{`{"jsonrpc":"2.0","id":%s,"error":{}}`, Failure},
		} {
			text := []byte(fmt.Sprintf(form.text, c.id))
			m, err := Decode(text)
			if c.ok || c.id == "null" && form.kind == Failure {
				if err != nil || m.Kind != form.kind {
					t.Errorf("id %s: %v", short([]byte(c.id)), err)
				}
				if c.ok && string(m.IDText()) != c.id {
					t.Errorf("id %s became %s", short([]byte(c.id)), short(m.IDText()))
				}
				if c.ok {
					echo := AppendResult(nil, m.IDText(), []byte("{}"))
					if got := mustDecode(t, string(echo)); string(got.IDText()) != c.id {
						t.Errorf("id %s is echoed as %s", short([]byte(c.id)), short(got.IDText()))
					}
				}
				continue
			}
			var envelope *EnvelopeError
			if !errors.As(err, &envelope) || !strings.Contains(envelope.What, "id") {
				t.Errorf("id %s: got %v", short([]byte(c.id)), err)
			}
			if m.ID.OK() {
				t.Errorf("id %s is known in spite of the error", short([]byte(c.id)))
			}
		}
	}
	if m := mustDecode(t, `{"jsonrpc":"2.0","method":"x"}`); m.IDText() != nil {
		t.Errorf("a notification has the id %s", m.IDText())
	}
	for _, text := range []string{`{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}`, `{"jsonrpc":"2.0","id":1,"i\u0064":2,"method":"x"}`, `{"id":1,"jsonrpc":"2.0","method":"x","params":{`} {
		m, err := Decode([]byte(text))
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("%s: %v", text, err)
		}
		if m.ID.OK() || m.Method != "" || m.Get("a").OK() {
			t.Errorf("%s: something of malformed text is believed", text)
		}
	}
}

// With an EnvelopeError the answer can carry the id when the message had one.
func TestIDOfBadEnvelope(t *testing.T) {
	for text, want := range map[string]string{
		`{"jsonrpc":"1.0","id":7,"method":"x"}`:                 "7",
		`{"id":"a","jsonrpc":"2.0","method":"x","params":[]}`:   `"a"`,
		`{"jsonrpc":"2.0","id":7,"Method":"x"}`:                 "7",
		`{"jsonrpc":"2.0","method":"","id":7}`:                  "7",
		`{"jsonrpc":"2.0","method":"x","params":{"Name":1}}`:    "",
		`{"jsonrpc":"2.0","ID":7,"method":"x"}`:                 "",
		`{"jsonrpc":"2.0","id":1.5,"method":"x","params":null}`: "",
	} {
		m, err := Decode([]byte(text))
		var envelope *EnvelopeError
		if !errors.As(err, &envelope) || string(m.IDText()) != want {
			t.Errorf("%s: got id %s, %v", text, m.IDText(), err)
		}
	}
}

// What is null beside what counts is not there; nothing else that Decode refuses is a message.
func TestUnderstand(t *testing.T) {
	for text, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"result":{"a": 1}}`:                                      `{"jsonrpc":"2.0","id":1,"result":{"a": 1}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"a": 1},"error":null}`:                         `{"jsonrpc":"2.0","id":1,"result":{"a": 1}}`,
		`{"error":null,"method":null,"params":null,"result":[],"id":"a","jsonrpc":"2.0"}`: `{"result":[],"id":"a","jsonrpc":"2.0"}`,
		`{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1, "message":"m"}}`:        `{"jsonrpc":"2.0","id":1,"error":{"code":1, "message":"m"}}`,
		`{"jsonrpc":"2.0","id":null,"result":null,"error":{"code":1,"message":"m"}}`:      `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`,
		`{"jsonrpc":"2.0","result":null,"error":{"code":1,"message":"m"}}`:                `{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}`,
		`{"jsonrpc":"2.0","id":1,"result":null,"error":null}`:                             `{"jsonrpc":"2.0","id":1,"result":null}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":null}`:                             `{"jsonrpc":"2.0","id":1,"method":"x"}`,
		`{"jsonrpc":"2.0","method":"x","params":null}`:                                    `{"jsonrpc":"2.0","method":"x"}`,
		`{"jsonrpc":"2.0","id":1,"result":{},"params":null}`:                              `{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":null,"result":{}}`:                              `{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","result":null,"error":null}`:                `{"jsonrpc":"2.0","id":1,"method":"x"}`,
		`{"jsonrpc":"2.0","method":"x","method":null}`:                                    "",
		`{"jsonrpc":"2.0","id":1,"result":{},"params":{}}`:                                "",
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}`:           "",
		`{"jsonrpc":"2.0","id":1.5,"result":{},"error":null}`:                             "",
		`{"jsonrpc":"2.0","id":1.5,"result":null,"error":{"code":1,"message":"m"}}`:       "",
		`{"jsonrpc":"2.0","id":null,"result":{},"error":null}`:                            "",
		`{"jsonrpc":"2.0","result":{},"error":null}`:                                      "",
		`{"jsonrpc":"2.0","id":1,"result":null,"error":7}`:                                "",
		`{"jsonrpc":"2.0","id":1,"error":null}`:                                           "",
		`{"jsonrpc":"1.0","id":1,"result":{},"error":null}`:                               "",
		`{"id":1,"result":null,"error":{"code":1,"message":"m"}}`:                         "",
		`{"jsonrpc":"2.0","id":1,"method":"x","params":[]}`:                               "",
		`{"jsonrpc":"2.0","id":1,"method":"x","params":null,"result":{},"error":null}`:    "",
		`{"jsonrpc":"2.0","id":1,"result":{},"error":null,"error":null}`:                  "",
		`[{"jsonrpc":"2.0","id":1,"result":{},"error":null}]`:                             "",
	} {
		var m Message
		err := Understand(&m, []byte(text))
		if (err == nil) != (want != "") || err == nil && string(m.Raw) != want {
			t.Errorf("%s: %v, %s", text, err, m.Raw)
		}
	}
}

func TestBatches(t *testing.T) {
	for _, text := range []string{`[]`, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, ` [1, {"a":2} , [3] ] `} {
		if m, err := Decode([]byte(text)); !errors.Is(err, ErrBatch) || m.Kind != Invalid {
			t.Errorf("%s: %v", text, err)
		}
	}
	var syntax *SyntaxError
	var envelope *EnvelopeError
	for _, text := range []string{`[`, `[1`, `[1,]`, `[] []`, `[{"a":1,"a":2}]`, `[1]x`} {
		if _, err := Decode([]byte(text)); !errors.As(err, &syntax) {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := Split([]byte(text), 10); !errors.As(err, &syntax) {
			t.Errorf("%s: split: %v", text, err)
		}
	}
	for _, text := range []string{``, ` `, `{}`, `1`, `{"jsonrpc":"2.0","id":1,"method":"ping"}`} {
		if _, err := Split([]byte(text), 10); !errors.As(err, &syntax) {
			t.Errorf("%s: split: %v", text, err)
		}
	}
	if _, err := Split([]byte(`[ ]`), 10); !errors.As(err, &envelope) {
		t.Errorf("an empty batch: %v", err)
	}
	if _, err := Split([]byte(`[1,2,3,4]`), 3); !errors.As(err, &envelope) {
		t.Errorf("a batch above the limit: %v", err)
	}
	text := []byte(` [ {"jsonrpc":"2.0","id":1,"method":"a"} ,{"jsonrpc":"2.0","method":"b"}, 7 ] `)
	spans, err := Split(text, 3)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range spans {
		got = append(got, string(s.Of(text)))
	}
	if want := items(t, text); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if m := mustDecode(t, got[0]); m.Kind != Request || m.Method != "a" {
		t.Errorf("the first is %v", m.Kind)
	}
}

// TestZ02Completion: what is being completed, and by which settled arguments, is
// said in names of one spelling.
func TestZ02Completion(t *testing.T) {
	decode := func(params string) error {
		_, err := Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"},` + params + `}}`))
		return err
	}
	for _, params := range []string{
		`"argument":{"name":"a","value":"b","Value":"evil"}`, `"argument":{"name":"a","Name":"evil","value":"b"}`, `"argument":{"name":"a","VALUE":"b"}`,
		`"argument":{"name":"a","valu\u0065":"b"}`, `"argument":{"n\u0061me":"a","value":"b"}`,
		`"argument":{"name":"a","value":"b"},"context":{"arguments":{},"Arguments":{"a":"evil"}}`,
		`"argument":{"name":"a","value":"b"},"context":{"argument\u017f":{"a":"evil"}}`, `"argument":{"name":"a","value":"b"},"context":{"argumentſ":{"a":"evil"}}`,
		`"argument":{"name":"a","value":"b"},"Context":{"arguments":{"a":"evil"}}`, `"argument":{"name":"a","value":"b"},"Argument":{"name":"evil"}`,
	} {
		var envelope *EnvelopeError
		if err := decode(params); !errors.As(err, &envelope) || !strings.Contains(envelope.What, "misspelt") {
			t.Errorf("%s: %v", params, err)
		}
	}
	for _, params := range []string{
		`"argument":{"name":"a","value":"b","Title":1},"context":{"arguments":{"Name":"x","Value":1},"Vendor":{"Arguments":2}}`,
		`"argument":{"name":"a","value":{"Name":1}}`, `"argument":["Name"],"context":"Arguments"`, `"Value":1`,
	} {
		if err := decode(params); err != nil {
			t.Errorf("%s: %v", params, err)
		}
	}
}

// A peer that folds case or sees through escapes must not read another message
// than the one that was judged.
func TestB07Misspelt(t *testing.T) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"Method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"METHOD":"tools/call","method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"me\u0074hod":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"\u004dethod":"tools/call","method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","paramſ":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","param\u017f":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","Params":{"name":"evil"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{},"PARAMS":{}}`,
		`{"jsonrpc":"2.0","id":1,"Id":2,"method":"x"}`,
		`{"jsonrpc":"2.0","\u0069d":2,"method":"x"}`,
		`{"JSONRPC":"2.0","jsonrpc":"2.0","id":1,"method":"x"}`,
		`{"jsonrpc":"2.0","id":1,"Result":{},"result":{}}`,
		`{"jsonrpc":"2.0","id":1,"reſult":{}}`,
		`{"jsonrpc":"2.0","id":1,"result":{},"Error":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","Name":"evil"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","n\u0041me":"evil"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"n\u0061me":"evil"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","Arguments":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","argumentſ":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"a","URI":"b"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_Meta":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_met\u0061":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","taſkId":""}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","tas\u212aId":""}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","RequestState":""}}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolversion":"2026-07-28"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol\/protocolVersion":"2026-07-28"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"IO.modelcontextprotocol/clientCapabilities":{}}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"progresstoken":1}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"progressTo\u212Aen":1}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"safe","Name":"evil"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/resource","ur\u0069":"evil"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"ResourceSubscriptions":["evil"]}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscription\u0073":["evil"]}}}`,
	} {
		m, err := Decode([]byte(text))
		var envelope *EnvelopeError
		if !errors.As(err, &envelope) || !strings.Contains(envelope.What, "misspelt") || m.Kind != Invalid {
			t.Errorf("%s: kind %d, %v", text, m.Kind, err)
		}
	}
	// Names that are no other's are nobody's business, and stay.
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"x","Vendor":1,"para":2,"paramss":3,"meth\u00f6d":4,"":5}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"Vendor":1,"nam":2,"n\u00e4me":3,"METHOD":4,"Jsonrpc":5}}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"Name":1,"URI":2,"io.modelcontextprotocol/x":3,"v\u0065ndor":4}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"Name":1,"METHOD":2,"_Meta":3,"\u0075ri":4}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"ref":"Name","notifications":["ResourceSubscriptions"]}}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"ref":{"Title":1,"x":{"Name":2}},"notifications":{"Vendor":true}}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"Name":1,"_Meta":{},"Tools":[],"r\u0065f":{"Name":1}}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"Code":1,"message":"","data":{"URI":1}}}`,
	} {
		m := mustDecode(t, text)
		if got := Splice(nil, m.Raw); string(got) != text {
			t.Errorf("%s became %s", text, got)
		}
	}
}

// Only what is in params, result or error, or in the _meta there, is found by
// name; every bit of it, above the number that the message has room for too.
func TestGetAndMeta(t *testing.T) {
	for _, count := range []int{0, 1, 12, 13, 14, 15, 16, 40, 3000} {
		for _, place := range []string{"params", "result", "error"} {
			var b strings.Builder
			for i := range count {
				fmt.Fprintf(&b, `"m%d":{"v":%d},`, i, i)
			}
			inner := b.String()
			b.Reset()
			fmt.Fprintf(&b, `{"jsonrpc":"2.0","id":1,"%s":{"_meta":{%s"last":"meta"},%s"last":"outer","deep":{"x":1,"_meta":{"y":2}}}`, place, inner, inner)
			if place == "params" {
				b.WriteString(`,"method":"x"`)
			}
			m := mustDecode(t, b.String()+`,"m0":"not this","_meta":{"z":3}}`)
			for i := range count {
				want := fmt.Sprintf(`{"v":%d}`, i)
				name := fmt.Sprintf("m%d", i)
				if got := string(m.Get(name).Of(m.Raw)); got != want {
					t.Fatalf("%s of %d: %s is %s", place, count, name, got)
				}
				if got := string(m.Meta(name).Of(m.Raw)); got != want {
					t.Fatalf("%s of %d: %s in _meta is %s", place, count, name, got)
				}
			}
			if m.Text("last") != "outer" || m.MetaText("last") != "meta" {
				t.Errorf("%s of %d: last is %q and %q", place, count, m.Text("last"), m.MetaText("last"))
			}
			for _, name := range []string{"x", "y", "z", "v", "id", "jsonrpc", "method", "", "m3000"} {
				if m.Get(name).OK() || m.Meta(name).OK() {
					t.Errorf("%s of %d: %q is found", place, count, name)
				}
			}
			meta := m.Get("_meta").Of(m.Raw)
			if got := len(pairs(t, meta)); got != count+1 {
				t.Errorf("%s of %d: _meta has %d members", place, count, got)
			}
			got := Splice(nil, m.Raw, m.without("last")...)
			outer := pairs(t, Lookup(got, place))
			if _, ok := valueOf(outer, "last"); ok || len(outer) != count+2 {
				t.Errorf("%s of %d: without last it is %s", place, count, short(got))
			}
		}
	}
}

func TestGetSeesThroughEscapes(t *testing.T) {
	m := mustDecode(t, `{"jsonrpc":"2.0","id":1,"result":{"result\u0054ype":"x","_meta":{"io.modelcontextprotocol\/serverInfo":{}},"\u00e9\ud83d\ude00":1,"\n":2,"a\\b":3}}`)
	for name, want := range map[string]string{"resultType": `"x"`, "é😀": "1", "\n": "2", `a\b`: "3", `result\u0054ype`: "", `\n`: "", `a\\b`: ""} {
		if got := string(m.Get(name).Of(m.Raw)); got != want {
			t.Errorf("%q is %s", name, got)
		}
	}
	if !m.Meta(MetaServerInfo).OK() {
		t.Error("serverInfo is not found")
	}
	if m.Meta("x").OK() {
		t.Error("x is found")
	}
}

// What is no object has no members; a member with a name of any length is
// walked over.
func TestMembersThatAreNone(t *testing.T) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":5}}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":[{"a":1}]}}`,
		`{"jsonrpc":"2.0","id":1,"result":[{"a":1}]}`,
		`{"jsonrpc":"2.0","id":1,"result":"a"}`,
	} {
		m := mustDecode(t, text)
		if m.Get("a").OK() || m.Meta("a").OK() || m.Text("a") != "" {
			t.Errorf("%s: a is found", text)
		}
	}
	for _, n := range []int{65_534, 65_535, 65_536, 200_000} {
		name := strings.Repeat("n", n)
		m := mustDecode(t, `{"jsonrpc":"2.0","id":1,"method":"x","params":{"`+name+`":1,"a":2}}`)
		if got := string(m.Get("a").Of(m.Raw)); got != "2" {
			t.Errorf("a name of %d bytes hides the next: %s", n, got)
		}
		if got := string(Splice(nil, m.Raw, m.without("a")...)); got != `{"jsonrpc":"2.0","id":1,"method":"x","params":{"`+name+`":1}}` {
			t.Errorf("a name of %d bytes: %s", n, short([]byte(got)))
		}
	}
}

func TestWithMeta(t *testing.T) {
	const head = `{"jsonrpc":"2.0","id":1,"method":"x"`
	set := []Member{With("k", "1"), With("l", "2")}
	for _, c := range []struct {
		text string
		drop []string
		set  []Member
		want string
	}{
		{head + `}`, nil, set, head + `,"params":{"_meta":{"k":1,"l":2}}}`},
		{head + "}\n ", nil, set, head + `,"params":{"_meta":{"k":1,"l":2}}}` + "\n "},
		{head + `}`, []string{"a"}, nil, head + `}`},
		{head + `,"params":{}}`, nil, set, head + `,"params":{"_meta":{"k":1,"l":2}}}`},
		{head + `,"params":{ }}`, nil, set, head + `,"params":{"_meta":{"k":1,"l":2} }}`},
		{head + `,"params":{}}`, []string{"a"}, nil, head + `,"params":{}}`},
		{head + `,"params":{"a":1}}`, []string{"a"}, nil, head + `,"params":{"a":1}}`},
		{head + `,"params":{"a":1}}`, nil, set, head + `,"params":{"_meta":{"k":1,"l":2},"a":1}}`},
		{head + `,"params": { "a" : 1 } }`, nil, set, head + `,"params": {"_meta":{"k":1,"l":2}, "a" : 1 } }`},
		{head + `,"params":{"a":1,"_meta":{},"b":2}}`, nil, set, head + `,"params":{"a":1,"_meta":{"k":1,"l":2},"b":2}}`},
		{head + `,"params":{"_meta":{"z":9,"k":0,"y":8}}}`, []string{"y"}, set, head + `,"params":{"_meta":{"l":2,"z":9,"k":1}}}`},
		{head + `,"params":{"_meta":{"k":0}}}`, []string{"k"}, set, head + `,"params":{"_meta":{"l":2,"k":1}}}`},
		{head + `,"params":{"_meta":{"k":0}}}`, []string{"k"}, nil, head + `,"params":{"_meta":{}}}`},
		{head + `,"params":{"_meta":null,"a":1}}`, nil, set, head + `,"params":{"_meta":{"k":1,"l":2},"a":1}}`},
		{head + `,"params":{"_meta":[7]}}`, []string{"k"}, nil, head + `,"params":{"_meta":{}}}`},
		{`{"params":{"a":1},"method":"x","jsonrpc":"2.0"}`, nil, set, `{"params":{"_meta":{"k":1,"l":2},"a":1},"method":"x","jsonrpc":"2.0"}`},
	} {
		m := mustDecode(t, c.text)
		if got := string(Splice(nil, m.Raw, m.WithMeta(c.drop, c.set...))); got != c.want {
			t.Errorf("%s without %q with %v:\n got %s\nwant %s", c.text, c.drop, c.set, got, c.want)
		}
	}
}

func TestWithID(t *testing.T) {
	m := mustDecode(t, `{"jsonrpc":"2.0", "id" : 9007199254740993 ,"method":"x"}`)
	if got := string(Splice(nil, m.Raw, m.WithID([]byte(`"a"`)))); got != `{"jsonrpc":"2.0", "id" : "a" ,"method":"x"}` {
		t.Error(got)
	}
	for _, text := range []string{`{"jsonrpc":"2.0","method":"x"}`, `{"jsonrpc":"2.0","id":null,"error":{}}`} {
		m := mustDecode(t, text)
		if got := string(Splice(nil, m.Raw, m.WithID([]byte(`7`)))); got != text {
			t.Errorf("%s became %s", text, got)
		}
	}
}

func TestClone(t *testing.T) {
	text := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"k":"v"}}}`)
	m := mustDecode(t, string(text))
	m.Raw = text
	c := m.Clone()
	clear(text)
	if c.Text("name") != "x" || c.MetaText("k") != "v" || string(c.IDText()) != "1" || c.Method != "tools/call" {
		t.Errorf("the clone shares memory: %s", c.Raw)
	}
}

// A message can be decoded into again and again, whatever it was before.
func TestDecodeAgain(t *testing.T) {
	var m Message
	var b strings.Builder
	b.WriteString(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"k":1}`)
	for i := range 50 {
		fmt.Fprintf(&b, `,"p%d":0`, i)
	}
	large := []byte(b.String() + "}}")
	small := []byte(`{"jsonrpc":"2.0","id":2,"result":{"a":1}}`)
	for range 3 {
		if err := m.Decode(large); err != nil || !m.Get("p49").OK() || !m.Meta("k").OK() {
			t.Fatal(err)
		}
		if err := m.Decode(small); err != nil || m.Get("p49").OK() || m.Get("p0").OK() || m.Meta("k").OK() || m.Method != "" || m.Kind != Result {
			t.Fatalf("%v: %+v", err, m)
		}
		if err := m.Decode([]byte(`{"a"`)); err == nil || m.ID.OK() || m.Get("a").OK() || m.Kind != Invalid || !bytes.Equal(m.Raw, []byte(`{"a"`)) {
			t.Fatalf("%v: %+v", err, m)
		}
	}
}

// A message that was let go of is empty, and holds nothing of what it was.
func TestForget(t *testing.T) {
	m := mustDecode(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"k":1},"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1,"l":1,"m":1,"n":1}}`)
	m.Forget()
	if m.Raw != nil || m.Kind != Invalid || m.Method != "" || m.more != nil || m.IDText() != nil || m.Get("name").OK() || m.Meta("k").OK() || m.Text("n") != "" || m.Code() != 0 {
		t.Errorf("%+v", m)
	}
	if err := m.Decode([]byte(`{"jsonrpc":"2.0","method":"x","params":{"y":1}}`)); err != nil || m.Kind != Notification || m.Get("name").OK() || m.IDText() != nil {
		t.Errorf("%v: %+v", err, m)
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	var m Message
	for _, text := range [][]byte{aCall, aResult(1 << 16), aStructure(1 << 16), []byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2}}`)} {
		if n := testing.AllocsPerRun(200, func() {
			if err := m.Decode(text); err != nil {
				t.Fatal(err)
			}
		}); n > 0 && !raceEnabled {
			t.Errorf("%s: %v allocations", short(text), n)
		}
	}
}

// The memory for a message is a small multiple of its size, whatever it is
// made of (threats B04).
func TestB04Memory(t *testing.T) {
	const size = 3 << 20
	for _, c := range []struct{ name, open, unit, close string }{
		{"empty objects", `{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[`, "{},", "0]}}"},
		{"empty arrays", `{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[`, "[],", "0]}}"},
		{"a batch of nothing", `[`, "{},", "0]"},
	} {
		text := []byte(c.open + strings.Repeat(c.unit, size/len(c.unit)) + c.close)
		if grown := allocated(func() { _, _ = Decode(text) }); grown > 1<<16 {
			t.Errorf("%s: %d bytes for %d", c.name, grown, len(text))
		}
	}
	var b bytes.Buffer
	b.WriteString(`{"jsonrpc":"2.0","id":1,"method":"x","params":{`)
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `"%x":0,`, i)
	}
	b.WriteString(`"_meta":{}}}`)
	m := new(Message)
	if grown := allocated(func() {
		// No message has so many members beside each other: it is refused, once it has been read.
		var envelope *EnvelopeError
		if err := m.Decode(b.Bytes()); !errors.As(err, &envelope) {
			t.Error(err)
		}
	}); grown > 25*uint64(b.Len()) {
		t.Errorf("a member of every few bytes: %d bytes for %d", grown, b.Len())
	}
}
