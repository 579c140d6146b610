package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
)

// TestZ34Attributes: a record has what programs say of the client, without
// secrets, and no more of it than fits.
func TestZ34Attributes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit.log")
	l, _ := start(t, parse(t, config(file)))
	var said edge.Attributes
	said = said.Set("team", `"admins"`).Set("api_token", `"s3cr3t"`).Set("level", "3")
	x := &edge.Exchange{Identity: &edge.Identity{Subject: "ann", Attributes: said}, Attributes: edge.Attributes{{Name: "team", Value: `"users"`}}}
	l.Write(Event{Type: HTTPRequest, Exchange: x})
	x = &edge.Exchange{Identity: &edge.Identity{Subject: "bob"}}
	l.Write(Event{Type: HTTPRequest, Exchange: x})
	for i := range 16 {
		x.Attributes = x.Attributes.Set("a"+strings.Repeat("b", i), `"`+strings.Repeat("x", 500)+`"`)
	}
	l.Write(Event{Type: HTTPRequest, Exchange: x})
	shut(t, l)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d records", len(lines))
	}
	if !strings.Contains(lines[0], `"attributes":{"api_token":"`) || strings.Contains(lines[0], "s3cr3t") || !strings.Contains(lines[0], `"level":3,"team":"users"}`) {
		t.Errorf("a record: %s", lines[0])
	}
	if strings.Contains(lines[1], "attributes") {
		t.Errorf("of somebody of whom nothing is said: %s", lines[1])
	}
	if len(lines[2]) > 2*maxAttributes || !strings.Contains(lines[2], `"attributes":"{\"a\":\"xxx`) {
		t.Errorf("a record of %d bytes: %.600s", len(lines[2]), lines[2])
	}
}
