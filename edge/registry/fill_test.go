package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// fillOf fills the first form of an entry that is started.
func fillOf(t *testing.T, e *Entry, given Given, asked map[string]string) (*Start, []Missing, error) {
	t.Helper()
	f, err := e.Choose(rules)
	if err != nil {
		t.Fatal(err)
	}
	return f.Fill(e, given, asked, rules)
}

// Everything that is missing is said at once, and taken when it is there.
func TestFill(t *testing.T) {
	e := entries(t, string(file(t, "server.json")))["io.github.example/files"]
	s, missing, err := fillOf(t, e, Given{}, nil)
	if err != nil || s != nil || len(missing) != 2 {
		t.Fatalf("%+v, %+v, %v", s, missing, err)
	}
	var said []string
	for _, m := range missing {
		said = append(said, fmt.Sprintf("%s (%s) %v: %s", m.Label, m.Description, m.Secret, m.How))
	}
	want := "directory (Directory to show) false: the arguments after --\nFILES_KEY (Key to the files) true: --secret NAME,target=FILES_KEY"
	if got := strings.Join(said, "\n"); got != want {
		t.Errorf("missing\n%s\nwant\n%s", got, want)
	}

	// Asked for.
	s, missing, err = fillOf(t, e, Given{}, map[string]string{missing[0].ID: "/srv/files", missing[1].ID: "k-1"})
	if err != nil || len(missing) > 0 {
		t.Fatal(missing, err)
	}
	if got := strings.Join(s.Command, "|"); got != "npx|-y|@example/server-files@2.1.0|--mode|read|/srv/files" {
		t.Error(got)
	}
	if got := fmt.Sprint(s.Env); got != "[{FILES_KEY k-1 true} {FILES_LEVEL level-3 false}]" {
		t.Error(got)
	}
	if s.Name != e.Name || s.Digest != e.Digest() || s.Transport != "stdio" || s.URL != "" {
		t.Errorf("%+v", s)
	}

	// Given by flags: the entry's own arguments are not used, and its variables neither.
	s, missing, err = fillOf(t, e, Given{Args: true, Environment: func(name string) (string, bool) { return "", name == "FILES_KEY" || name == "FILES_LEVEL" }}, nil)
	if err != nil || len(missing) > 0 || len(s.Env) > 0 || strings.Join(s.Command, "|") != "npx|-y|@example/server-files@2.1.0" || !slices.Equal(s.Secrets, []string{"FILES_KEY"}) {
		t.Errorf("%+v, %+v, %v", s, missing, err)
	}
}

// Headers and the URL of a server elsewhere.
func TestFillRemote(t *testing.T) {
	e := entryOf(t, `"remotes":[{"type":"streamable-http","url":"https://{tenant}.example.com/{path}/mcp",
		"variables":{"tenant":{"description":"Your tenant","isRequired":true},"path":{"default":"v1"}},
		"headers":[
			{"name":"Authorization","value":"Bearer {token}","variables":{"token":{"isRequired":true,"isSecret":true,"description":"Your token"}}},
			{"name":"X-Region","default":"eu"},{"name":"X-Optional","value":"{maybe}","variables":{"maybe":{}}}]}]`)
	_, missing, err := fillOf(t, e, Given{}, nil)
	if err != nil || len(missing) != 2 || missing[0].Label != "token" || !missing[0].Secret || missing[0].How != "--remote-auth-bearer-token-file FILE" || missing[1].Label != "tenant" || missing[1].How != "weir run URL" {
		t.Fatalf("%+v, %v", missing, err)
	}
	s, _, err := fillOf(t, e, Given{}, map[string]string{missing[0].ID: "t-1", missing[1].ID: "acme"})
	if err != nil || s.URL != "https://acme.example.com/v1/mcp" || fmt.Sprint(s.Headers) != "[{Authorization Bearer t-1 true} {X-Region eu false}]" {
		t.Errorf("%+v, %v", s, err)
	}
	// What a variable stands for is judged as part of the URL.
	for tenant, want := range map[string]string{"127.0.0.1/": "not of the public internet", "u:p@": "user information", "evil.example#": "fragment", "10.0.0.1:80/x": "not of the public internet"} {
		if _, _, err := fillOf(t, e, Given{}, map[string]string{missing[0].ID: "t", missing[1].ID: tenant}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", tenant, err)
		}
	}
	// Given by flags.
	if _, missing, _ := fillOf(t, e, Given{Header: func(name string) bool { return name == "Authorization" }}, nil); len(missing) != 1 {
		t.Errorf("%+v", missing)
	}
}

// The words of a command, as they stand in the entry: nothing is expanded, and none goes
// through a shell (V41, K03).
func TestV41Arguments(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"type":"positional","value":"$(id) ${HOME} ` + "`id`" + `; rm -rf /"}`:                       "$(id) ${HOME} `id`; rm -rf /",
		`{"type":"positional","value":"-v"},{"type":"positional","value":"/:/host"}`:                   "-v|/:/host",
		`{"type":"named","name":"--port","value":"80"}`:                                                "--port|80",
		`{"type":"named","name":"--verbose"},{"type":"named","name":"--on","isRequired":true}`:         "--on",
		`{"type":"named","name":"--x","value":""}`:                                                     "--x",
		`{"type":"positional","value":"{a}-{b}","variables":{"a":{"default":"1"}}}`:                    "1-{b}",
		`{"type":"positional","value":"{a}","variables":{"a":{}}},{"type":"positional","value":"end"}`: "end",
		`{"value":"no type"}`: "no type",
	} {
		s, missing, err := fillOf(t, entryOf(t, npm(`,"packageArguments":[`+arguments+`]`)), Given{}, nil)
		if err != nil || len(missing) > 0 || strings.Join(s.Command[3:], "|") != want {
			t.Errorf("%s: %+v, %+v, %v", arguments, s, missing, err)
		}
	}
	for arguments, want := range map[string]string{
		`{"type":"named","value":"x"}`:                                      "packages[0].packageArguments[0].name",
		`{"type":"other","value":"x"}`:                                      "packages[0].packageArguments[0].type: \"other\"",
		`{"type":"named","name":"--key","isSecret":true,"isRequired":true}`: "packages[0].packageArguments[0]: --key: everybody on this machine sees the arguments",
	} {
		if _, _, err := fillOf(t, entryOf(t, npm(`,"packageArguments":[`+arguments+`]`)), Given{}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", arguments, err)
		}
	}
	if _, _, err := fillOf(t, entryOf(t, npm(`,"environmentVariables":[{"name":"A","value":"b\nC=d"}]`)), Given{}, nil); err == nil || !strings.Contains(err.Error(), "not one line of text") {
		t.Error(err)
	}
}

// A program that speaks HTTP is reached at the port that its entry names, of its own machine.
func TestFillPorts(t *testing.T) {
	of := func(url string) *Entry {
		return entryOf(t, `"packages":[{"registryType":"npm","identifier":"x","transport":{"type":"streamable-http","url":"`+url+`"},
			"packageArguments":[{"type":"named","name":"--port","default":"9001"}],"environmentVariables":[{"name":"PORT","value":"9002"}]}]`)
	}
	for url, port := range map[string]int{
		"http://localhost:9000/mcp": 9000, "http://127.0.0.1:9000": 9000, "http://0.0.0.0:9000/": 9000,
		"http://localhost:{--port}/mcp": 0, "http://localhost:{port}/mcp": 9001, "http://localhost:{PORT}/mcp": 9002,
		"https://localhost:9000/mcp": 0, "http://mcp.example.com:80/mcp": 0, "http://localhost/mcp": 0, "http://localhost:70000/mcp": 0, "http://localhost:9000/other": 0, "http://localhost:{none}/mcp": 0,
	} {
		s, _, err := fillOf(t, of(url), Given{}, nil)
		if (err == nil) != (port > 0) || err == nil && (s.Port != port || s.URL != "") {
			t.Errorf("%s: %+v, %v", url, s, err)
		}
	}
}

// The variables of that URL are inputs of the program: what the user gives for one counts before
// what the entry says, and what is needed is asked for. A port that is given counts before all.
func TestFillPortsGiven(t *testing.T) {
	of := func(url, port string) *Entry {
		return entryOf(t, `"packages":[{"registryType":"npm","identifier":"x","transport":{"type":"streamable-http","url":"`+url+`"},
			"packageArguments":[{"type":"positional","valueHint":"at","default":"9001"}],"environmentVariables":[{"name":"PORT"`+port+`}]}]`)
	}
	port := func(value string) Given {
		return Given{Environment: func(name string) (string, bool) { return value, name == "PORT" }}
	}
	const url, required = "http://localhost:{PORT}/mcp", `,"isRequired":true`
	for _, c := range []struct {
		url, port string // of the entry
		given     Given
		want      int
		next      string // of the error; "" for none
	}{
		{url, `,"value":"9002"`, port("4000"), 4000, ""},
		{url, `,"default":"9002"`, port("4000"), 4000, ""},
		{url, ``, port("4000"), 4000, ""},
		{url, required, port("4000"), 4000, ""},
		{url, `,"default":"9002"`, Given{}, 9002, ""},
		{url, `,"value":"{n}1","variables":{"n":{"default":"900"}}`, Given{}, 9001, ""},
		{url, ``, Given{}, 0, "--target-port PORT"},
		{url, `,"value":"9002"`, port(""), 0, "--target-port PORT"}, // a secret, which is read later
		{url, ``, Given{Port: 4001}, 4001, ""},
		{url, `,"value":"9002"`, Given{Port: 4001}, 4001, ""},
		{"http://localhost/mcp", ``, Given{Port: 4001}, 4001, ""},
		{"http://mcp.example.com:{PORT}/mcp", ``, Given{Port: 4001}, 0, "--target-port PORT -- COMMAND"},
		{"http://localhost:{PORT}/other", ``, Given{Port: 4001}, 0, "--target-port PORT -- COMMAND"},
		{"http://localhost:{at}/mcp", ``, Given{}, 9001, ""},
		{"http://localhost:{at}/mcp", ``, Given{Args: true}, 0, "--target-port PORT"}, // what the user's arguments say is not known
		{"http://localhost:{at}/mcp", ``, Given{Args: true, Port: 4001}, 4001, ""},
	} {
		s, missing, err := fillOf(t, of(c.url, c.port), c.given, nil)
		known := new(Error)
		switch {
		case len(missing) > 0 || (err == nil) != (c.next == ""):
			t.Errorf("%+v: %+v, %+v, %v", c, s, missing, err)
		case err == nil && s.Port != c.want:
			t.Errorf("%+v: %d", c, s.Port)
		case err != nil && (!errors.As(err, &known) || known.Field != "packages[0].transport.url" || !strings.HasSuffix(known.Next, c.next)):
			t.Errorf("%+v: %+v", c, known)
		}
	}
	// What is needed is asked for, and used.
	_, missing, err := fillOf(t, of(url, required), Given{}, nil)
	if err != nil || len(missing) != 1 || missing[0].Label != "PORT" || missing[0].How != "-e PORT=VALUE" {
		t.Fatalf("%+v, %v", missing, err)
	}
	if s, _, err := fillOf(t, of(url, required), Given{}, map[string]string{missing[0].ID: "4002"}); err != nil || s.Port != 4002 {
		t.Errorf("%+v, %v", s, err)
	}
	// Errors show nothing of what the user gave.
	if _, _, err := fillOf(t, of(url, ``), port("very-secret"), nil); err == nil || strings.Contains(err.Error(), "very-secret") {
		t.Error(err)
	}
}

func TestMissingCheck(t *testing.T) {
	for _, c := range []struct {
		m    Missing
		text string
		ok   bool
	}{
		{Missing{}, "x", true}, {Missing{}, "", false}, {Missing{}, "a\nb", false}, {Missing{}, strings.Repeat("x", 5000), false},
		{Missing{Choices: []string{"a", "b"}}, "b", true}, {Missing{Choices: []string{"a", "b"}}, "c", false},
		{Missing{Format: "number"}, "-1.5", true}, {Missing{Format: "number"}, "1x", false},
		{Missing{Format: "boolean"}, "true", true}, {Missing{Format: "boolean"}, "yes", false},
	} {
		if err := c.m.Check(c.text); (err == nil) != c.ok {
			t.Errorf("%+v %.20q: %v", c.m, c.text, err)
		}
	}
}

// A default that the entry's own choices or format do not allow is none: the value is asked for,
// also where the entry does not require it.
func TestDefaultThatIsNone(t *testing.T) {
	for _, in := range []string{
		`"default":"c","choices":["a","b"]`, `"default":"many","format":"number"`, `"default":"yes","format":"boolean"`,
		`"value":"{v}","variables":{"v":{"default":"c","choices":["a","b"]}}`,
	} {
		e := entryOf(t, npm(`,"environmentVariables":[{"name":"MODE",`+in+`}]`))
		if s, missing, err := fillOf(t, e, Given{}, nil); s != nil || err != nil || len(missing) != 1 || !strings.HasSuffix(missing[0].How, "MODE=VALUE") {
			t.Errorf("%s: %+v, %+v, %v", in, s, missing, err)
		}
		if s, missing, err := fillOf(t, e, Given{Environment: func(string) (string, bool) { return "a", true }}, nil); s == nil || err != nil || len(missing) > 0 {
			t.Errorf("%s, given: %+v, %+v, %v", in, s, missing, err)
		}
	}
	e := entryOf(t, npm(`,"environmentVariables":[{"name":"MODE","default":"b","choices":["a","b"]},{"name":"N","default":"7","format":"number"}]`))
	if s, missing, err := fillOf(t, e, Given{}, nil); err != nil || len(missing) > 0 || fmt.Sprint(s.Env) != "[{MODE b false} {N 7 false}]" {
		t.Errorf("%+v, %+v, %v", s, missing, err)
	}
}
