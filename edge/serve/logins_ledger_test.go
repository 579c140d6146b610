package serve_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryFieldOfSignIn holds the fields of an authorization server, as the ledger of all fields
// has them, against what tests set: each in a golden pair of the room that parses them, and in a
// test that signs in through a door.
func TestEveryFieldOfSignIn(t *testing.T) {
	read := func(patterns ...string) string {
		all := ""
		for _, pattern := range patterns {
			files, err := filepath.Glob(pattern)
			if err != nil || len(files) == 0 {
				t.Fatalf("%s: %v, no files", pattern, err)
			}
			for _, file := range files {
				if file == "logins_ledger_test.go" { // which names fields, and sets none
					continue
				}
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				all += string(text)
			}
		}
		return all
	}
	golden := read("../authserver/testdata/spec/*.yaml", "../compile/testdata/*.yaml")
	front := read("logins*_test.go", "../edgetest/visit.go", "../edgetest/idp/*.go", "../edgetest/storm/signin*.go")
	sets := func(text, field string) bool {
		return regexp.MustCompile(`\b` + regexp.QuoteMeta(field) + `"?: ?`).MatchString(text)
	}
	rows := 0
	for line := range strings.Lines(read("../v1beta1/testdata/ledger.tsv")) {
		cells := strings.Split(line, "\t")
		if len(cells) < 2 || !strings.HasPrefix(cells[1], "spec.authServerConfig.") && !strings.HasPrefix(cells[1], "spec.embeddedAuthServer.") {
			continue
		}
		rows++
		field := cells[1][strings.LastIndex(cells[1], ".")+1:]
		field = strings.TrimSuffix(field, "[]")
		if !sets(golden, field) {
			t.Errorf("%s %s: no golden pair sets it", cells[0], cells[1])
		}
		if !sets(front, field) && elsewhere[field] == "" {
			t.Errorf("%s %s: no test through a door sets it", cells[0], cells[1])
		}
	}
	if rows < 150 {
		t.Errorf("only %d rows", rows)
	}
	if sets(golden, "neverHeardOf") || sets(front, "neverHeardOf") || !sets("{neverHeardOf: 1}", "neverHeardOf") {
		t.Error("a field that nobody sets passes")
	}
}

// elsewhere are fields that no test through a door can set, and why.
var elsewhere = map[string]string{
	"sentinelService": "the system has no name of a service outside of a cluster; kvstore_test.go of compile resolves one",
	"namespace":       "of a sentinelService",
	"port":            "of a sentinelService",
}
