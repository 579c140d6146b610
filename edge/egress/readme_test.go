package egress

import (
	"os"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// TestReadme holds the README to what there is: its profile is one, each host of it leads
// where the text says, and its lists of reasons and numbers are those of the code.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```json\n")
	block, _, ok := strings.Cut(block, "```")
	p, err := v1beta1.ParseProfile([]byte(block))
	if !ok || err != nil {
		t.Fatal(err)
	}
	r, err := NewRules(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]Reason{
		"api.example.com:443": Allowed, "a.example.org:443": Allowed, "10.1.2.9:443": Allowed, "evil.example:443": UnlistedHost, "api.example.com:80": UnlistedPort,
	} {
		h, port, err := ParseTarget(target, 0)
		if err != nil || r.Decide(h, port).Reason != want {
			t.Errorf("%s: %+v %v", target, r.Decide(h, port), err)
		}
	}
	for reason := Allowed + 1; reason < reasons; reason++ {
		if !strings.Contains(string(text), "`"+reason.String()+"`") {
			t.Errorf("the README has no reason %s", reason)
		}
	}
	for what, n := range map[string]int{"connections of a workload | ": maxTunnels, "dials and look-ups under way | ": maxDials, "; of one sandbox or peer ": maxDialsEach, "ports of a profile | ": maxPorts} {
		if !strings.Contains(string(text), what+itoa(n)) {
			t.Errorf("the README does not say %s%d", what, n)
		}
	}
}
