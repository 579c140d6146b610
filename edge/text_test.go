package edge

import (
	"strings"
	"testing"
)

// What strangers write steers no terminal, and is read in the order in which it is written.
func TestStrangersText(t *testing.T) {
	const hostile = "a\x1b[31m\u009b2J\x7f\r\u202egnp.exe\u2066\u200f\u061c"
	for name, say := range map[string]func(string) string{"Clean": Clean, "Brief": Brief, "Printable": Printable} {
		for _, text := range []string{hostile, hostile + strings.Repeat("x", 300)} {
			if got := say(text); strings.ContainsAny(got, "\x1b\u009b\x7f\r\u202e\u2066\u200f\u061c") || !strings.Contains(got, "gnp.exe") {
				t.Errorf("%s: %q", name, got)
			}
		}
		if got := say("é – 漢字"); got != "é – 漢字" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := Clean("a\nb\tc"); got != "a\nb\tc" {
		t.Errorf("Clean: %q", got)
	}
	if got := Brief("a\nb\tc"); got != "a b c" {
		t.Errorf("Brief: %q", got)
	}
	if got := Printable("a\nb"); got != `"a\nb"` {
		t.Errorf("Printable: %q", got)
	}
}
