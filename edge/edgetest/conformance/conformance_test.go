package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/peers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseRequirements(t *testing.T) {
	r, err := parseRequirements(legacySet, []byte(`
server: [ping, tools-list]
client: [initialize]
not_scored:
  - {scenario: polling, leg: server, reason: pending}
  - {scenario: auth/dpop, leg: client, reason: extension}
`))
	if err != nil {
		t.Fatal(err)
	}
	server := []scenario{{name: "ping", scored: true}, {name: "tools-list", scored: true}, {name: "polling"}}
	client := []scenario{{name: "initialize", scored: true}, {name: "auth/dpop"}}
	if !slices.Equal(r.server, server) || !slices.Equal(r.client, client) {
		t.Errorf("server %v, client %v", r.server, r.client)
	}
	for _, bad := range []string{"", "server: [a]", "server: {", "server: [a]\nclient: [b]\nnot_scored: [{scenario: c, leg: door}]"} {
		if _, err := parseRequirements(legacySet, []byte(bad)); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestReadResults(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{
		"server-tools-list-2026-11-21T09-42-22-187Z/checks.json": `[{"id":"a","status":"SUCCESS"}]`,
		"server-ping-2026-11-21T09-42-22-155Z/checks.json":       `[]`,
		"output.txt": "words",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := readResults(dir, "server-")
	if err != nil {
		t.Fatal(err)
	}
	if len(r) != 2 || len(r["tools-list"]) != 1 || r["tools-list"][0] != (check{ID: "a", Status: "SUCCESS"}) || r["ping"] == nil {
		t.Errorf("read %v", r)
	}
	if _, err := readResults(dir, "client-"); err == nil {
		t.Error("no error for folders of another run")
	}
}

func TestJudge(t *testing.T) {
	ok := func(id string) check { return check{ID: id, Status: "SUCCESS"} }
	const noted = "server-sse-streams-functional"
	for name, c := range map[string]struct {
		checks, direct []check
		want           string // the faults
	}{
		"passes":               {checks: []check{ok("a"), {ID: "b", Status: "WARNING"}}},
		"fails":                {checks: []check{ok("a"), {ID: "b", Status: "FAILURE", ErrorMessage: "it\nbroke"}}, want: "b: it broke"},
		"without a message":    {checks: []check{{ID: "b", Status: "FAILURE", Description: "it works"}}, want: "b: it works"},
		"nothing made":         {checks: []check{{ID: "a", Status: "SKIPPED"}}, want: "no check was made"},
		"no result":            {want: "the suite has no result"},
		"as direct":            {checks: []check{ok("a"), ok("b")}, direct: []check{ok("a"), ok("b")}},
		"one left out":         {checks: []check{ok("a")}, direct: []check{ok("a"), ok("b"), ok("b")}, want: "b: succeeds directly and is not made through the edge"},
		"one skipped":          {checks: []check{ok("a"), {ID: "b", Status: "SKIPPED"}}, direct: []check{ok("b")}, want: "b: succeeds directly and is SKIPPED through the edge"},
		"one in another way":   {checks: []check{ok("a"), {ID: "b", Status: "INFO"}}, direct: []check{ok("b")}, want: "b: succeeds directly and is INFO through the edge"},
		"one that is noted":    {checks: []check{ok("a"), {ID: noted, Status: "INFO"}}, direct: []check{ok(noted)}},
		"noted, and skipped":   {checks: []check{ok("a"), {ID: noted, Status: "SKIPPED"}}, direct: []check{ok(noted)}, want: noted + ": is SKIPPED, and has a reason why it is INFO"},
		"noted for nothing":    {checks: []check{ok(noted)}, direct: []check{ok(noted), ok(noted)}, want: noted + ": is SUCCESS, and has a reason why it is INFO"},
		"one of two runs":      {checks: []check{{ID: "b", Status: "INFO"}, ok("b"), {ID: "b", Status: "WARNING"}}, direct: []check{ok("b")}},
		"one that fails":       {checks: []check{ok("a"), {ID: "b", Status: "FAILURE", ErrorMessage: "no"}}, direct: []check{ok("b")}, want: "b: no"},
		"better than directly": {checks: []check{ok("a")}, direct: []check{{ID: "a", Status: "FAILURE"}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := results{}
			if c.checks != nil {
				r["it"] = c.checks
			}
			v := judge(r, "it", results{"it": c.direct})
			if got := strings.Join(v.faults, "; "); got != c.want || v.pass != (c.want == "") {
				t.Errorf("pass %v, faults %q, not %q", v.pass, got, c.want)
			}
		})
	}
}

// TestFound: where clients find tools, a check about the list comes to nothing and any other is
// as directly.
func TestFound(t *testing.T) {
	const list = "sep-2575-server-sends-tools-list-changed-on-subscription"
	ok, warned := check{ID: "a", Status: "SUCCESS"}, check{ID: list, Status: "WARNING"}
	direct := results{"it": {ok, {ID: list, Status: "SUCCESS"}}}
	for want, edge := range map[string][]check{
		"": {ok, warned},
		"a: succeeds directly and is not made through the edge":                  {warned},
		list + ": succeeds, and reasons.go has a reason why it comes to nothing": {ok, {ID: list, Status: "SUCCESS"}},
	} {
		v := run{leg: "optimizer", direct: direct, edge: results{"it": edge}}.through(scenario{name: "it"})
		if got := strings.Join(v.faults, "; "); got != want || v.pass != (want == "") {
			t.Errorf("%v: %q, want %q", edge, got, want)
		}
	}
}

// TestPassedOn: a call of a tool becomes one of call_tool, with the same arguments and meta, and
// nothing else is changed.
func TestPassedOn(t *testing.T) {
	for text, want := range map[string]string{
		`{"id":1,"method":"tools/call","params":{"name":"add","arguments":{"n":1152921504606846977},"_meta":{"progressToken":7}}}`: `{"id":1,"method":"tools/call","params":{"_meta":{"progressToken":7},"arguments":{"parameters":{"n":1152921504606846977},"tool_name":"add"},"name":"call_tool"}}`,
		`{"id":1,"method":"tools/call","params":{"name":"add"}}`:                                                                   `{"id":1,"method":"tools/call","params":{"arguments":{"parameters":{},"tool_name":"add"},"name":"call_tool"}}`,
		`{"id":1,"method":"tools/call","params":{"name":7}}`:                                                                       `{"id":1,"method":"tools/call","params":{"name":7}}`,
		`{"id":1, "method":"prompts/get","params":{"name":"add"}}`:                                                                 `{"id":1, "method":"prompts/get","params":{"name":"add"}}`,
		`[{"method":"tools/call"}]`:                                                                                                `[{"method":"tools/call"}]`,
	} {
		head := http.Header{"Mcp-Name": {"add"}}
		if got := string(passedOn(head, []byte(text))); got != want || (head.Get("Mcp-Name") == "call_tool") != strings.Contains(want, "tool_name") {
			t.Errorf("%s: %s, %v", text, got, head)
		}
	}
}

// The documents name the version of the suite that is tested.
func TestZ26VersionOfTheSuite(t *testing.T) {
	var peers struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	text, err := os.ReadFile("../peers/package.json")
	if err == nil {
		err = json.Unmarshal(text, &peers)
	}
	version := peers.Dependencies["@modelcontextprotocol/conformance"]
	if err != nil || version == "" {
		t.Fatalf("no version of the suite: %v", err)
	}
	for _, name := range []string{"README.md", "../../../README.md"} {
		if text, err := os.ReadFile(name); err != nil || !strings.Contains(string(text), version) {
			t.Errorf("%s does not name version %s of the conformance suite: %v", name, version, err)
		}
	}
}

func TestReasons(t *testing.T) {
	if _, err := parseReasons(crossera); err != nil {
		t.Error(err)
	}
	row := func(columns ...string) string { return strings.Join(columns, "\t") + "\n" }
	header := reasonsHeader + "\n"
	r, err := parseReasons(header + row("2025-11-25", "modern", "ping", "it is gone"))
	if err != nil || r[cell{legacySet, peers.Modern}]["ping"] != "it is gone" {
		t.Errorf("%v, %v", r, err)
	}
	for text, want := range map[string]string{
		"":                                          "header",
		header + row("2025-11-25", "modern"):        "crossera.tsv:2: not four columns",
		header + row("2024", "m", "s", "r"):         `no set "2024"`,
		header + row(legacySet, "m", "s", ""):       "not four columns",
		header + row(legacySet, "m", "s", "r"):      `no backend "m"`,
		header + row(legacySet, "legacy", "s", "r"): "is of one era",
		header + row(legacySet, "modern", "s", "q") + row(legacySet, "modern", "s", "r"):    "crossera.tsv:3: s is there twice",
		header + row(modernSet, "legacy", "s", "r") + row(legacySet, "modern", "s", "also"): "not in order",
	} {
		if _, err := parseReasons(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %q", text, err, want)
		}
	}
}

var update = flag.Bool("update", false, "rewrite the golden files")

// TestReport holds the report of two cells against testdata/report.golden: what
// passes, what fails with and without a reason, and what has one for nothing.
func TestReport(t *testing.T) {
	ok, bad := []check{{ID: "a", Status: "SUCCESS"}}, []check{{ID: "a", Status: "FAILURE", ErrorMessage: "it broke"}}
	scenarios := []scenario{{name: "fine", scored: true}, {name: "broken", scored: true}, {name: "excused", scored: true}, {name: "extra"}, {name: "never"}, {name: "missing", scored: true}}
	direct := results{"fine": ok, "broken": ok, "excused": ok, "extra": ok, "never": bad, "missing": ok}
	edge := results{"fine": ok, "broken": bad, "excused": bad, "extra": bad, "never": bad}
	var out bytes.Buffer
	for _, c := range []struct {
		run
		faults int
	}{
		{run{cell: cell{legacySet, peers.Legacy}, leg: "server", direct: direct, edge: edge}, 3},
		{run{cell: cell{legacySet, peers.Modern}, leg: "server", direct: direct, edge: edge, reasons: map[string]string{"excused": "it cannot", "fine": "it could not", "gone": "it is no more"}}, 5},
		{run{cell: cell{modernSet, peers.Modern}, leg: "server", direct: direct}, 0},
		{run{cell: cell{modernSet, peers.Modern}, leg: "client", direct: direct, edge: direct}, 0},
	} {
		c.scenarios = scenarios
		if got := c.report(&out); got != c.faults {
			t.Errorf("%s: %d faults, not %d", c.cell, got, c.faults)
		}
	}
	const golden = "testdata/report.golden"
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("the report is not %s (-update rewrites it):\n%s", golden, out.Bytes())
	}
}

func TestOptions(t *testing.T) {
	for line, want := range map[string][]cell{
		"":                                  {{legacySet, peers.Legacy}, {modernSet, peers.Modern}},
		"--direct":                          {{legacySet, peers.Legacy}, {modernSet, peers.Modern}},
		"--set 2026-07-28":                  {{modernSet, peers.Modern}},
		"--set 2026-07-28 --backend legacy": {{modernSet, peers.Legacy}},
		"--backend modern":                  {{legacySet, peers.Modern}, {modernSet, peers.Modern}},
		"--all":                             {{legacySet, peers.Legacy}, {legacySet, peers.Modern}, {modernSet, peers.Modern}, {modernSet, peers.Legacy}},
		"--set 2024-11-05":                  nil,
		"--backend both":                    nil,
		"--all --backend legacy":            nil,
		"--direct --all":                    nil,
		"--client --all":                    nil,
		"--stdio --backend legacy":          {{legacySet, peers.Legacy}, {modernSet, peers.Legacy}},
		"--stdio --client":                  nil,
		"--stdio --direct":                  nil,
		"--optimizer":                       {{legacySet, peers.Legacy}, {modernSet, peers.Modern}},
		"--optimizer --stdio":               nil,
		"--optimizer --client":              nil,
		"--optimizer --direct":              nil,
		"--wasm":                            {{legacySet, peers.Modern}, {legacySet, peers.Legacy}, {modernSet, peers.Modern}},
		"--wasm --set 2026-07-28":           {{modernSet, peers.Modern}},
		"--wasm --stdio":                    nil,
		"--wasm --backend legacy":           nil,
		"--limit 0s":                        nil,
		"--issuer":                          {{legacySet, peers.Legacy}, {modernSet, peers.Modern}},
		"--issuer --client":                 nil,
		"--issuer --direct":                 nil,
		"--issuer --backend legacy":         nil,
		"2026-07-28":                        nil,
		"--direct --set 2025-11-25 --backend new": nil,
	} {
		o, err := parseOptions(strings.Fields(line), io.Discard)
		switch {
		case want == nil:
			if err == nil {
				t.Errorf("%q: no error", line)
			}
		case err != nil:
			t.Errorf("%q: %v", line, err)
		case !slices.Equal(o.cells(), want):
			t.Errorf("%q: %v, not %v", line, o.cells(), want)
		}
	}
}

// A server of both eras is one of the legacy era where it is told so.
func TestBeLegacy(t *testing.T) {
	var out bytes.Buffer
	in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"server/discover"}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"ping"}` + "\n")
	if err := beLegacy(t.Context(), "cat", in, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"id":1,"error":{"code":-32601`, `{"jsonrpc":"2.0","id":2,"method":"ping"}` + "\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it says %s", &out)
		}
	}
	if strings.Contains(out.String(), "discover") {
		t.Errorf("the server was asked: %s", &out)
	}
}

// TestDirect runs one scenario of each set against its server, without an edge.
func TestDirect(t *testing.T) {
	kit, err := peers.Find()
	if err != nil {
		t.Fatal(err)
	}
	edgetest.Need(t, kit.Lacks() == "", kit.Lacks())
	var out, said bytes.Buffer
	if err := measure(t.Context(), options{direct: true, scenario: "tools-list", limit: 20 * time.Second}, &out, &said); err != nil {
		t.Fatalf("%v: %s%s", err, &out, &said)
	}
	for _, line := range []string{
		"2025-11-25 legacy backend: 1 of 1 scored; 0 of 0 unscored, directly",
		"2026-07-28 modern backend: 1 of 1 scored; 0 of 0 unscored, directly",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no line %q in %s", line, &out)
		}
	}
}

// TestStrict: what is skipped, warned of or noted has failed.
func TestStrict(t *testing.T) {
	r := results{}
	for _, status := range []string{"SUCCESS", "FAILURE", "WARNING", "SKIPPED", "INFO"} {
		r[status] = []check{{ID: "made", Status: "SUCCESS"}, {ID: "x", Status: status}}
	}
	strict(r)
	for name := range r {
		if v := judge(r, name, nil); v.pass != (name == "SUCCESS") {
			t.Errorf("%s: %+v", name, v)
		}
	}
}
