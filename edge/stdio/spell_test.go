//go:build unix

package stdio

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// A secret is masked in whatever spelling a server prints it, also in the midst of something
// else that is spelled so; what stands around it stays.
func TestMaskedSpellings(t *testing.T) {
	const secret = "p\"ä<+/&? \\hunter2"
	const key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nshort\n9w0BAQEFAASCBKcwggSj\n-----END KEY-----\n"
	b := newLogbook(&Config{Secrets: func() [][]byte { return [][]byte{[]byte(secret), []byte(key), []byte("7 bytes")} }})
	asJSON, _ := json.Marshal(map[string]string{"a": "x" + secret + "y"})
	for name, text := range map[string]string{
		"as it is":    "x" + secret + "y",
		"JSON":        string(asJSON),
		"a quote":     strconv.Quote("x" + secret + "y"),
		"ASCII":       strconv.QuoteToASCII("x" + secret + "y"),
		"a query":     "x=" + url.QueryEscape(secret) + "&y=1",
		"a path":      "/x/" + url.PathEscape(secret) + "/y",
		"JavaScript":  "x=p%22%C3%A4%3C%2B%2F%26%3F%20%5Chunter2",
		"hex":         hex.EncodeToString([]byte("x" + secret + "y")),
		"HEX":         strings.ToUpper(hex.EncodeToString([]byte("x" + secret + "y"))),
		"base64":      base64.StdEncoding.EncodeToString([]byte(secret)),
		"base64, 1":   base64.StdEncoding.EncodeToString([]byte("x" + secret + "yz")),
		"base64, 2":   base64.URLEncoding.EncodeToString([]byte("xx" + secret + "y")),
		"base64, 3":   base64.RawStdEncoding.EncodeToString([]byte("user:name:x" + secret)),
		"a key, a":    "key: MIIEvQIBADANBgkqhkiG",
		"a key, b":    "9w0BAQEFAASCBKcwggSj.",
		"a whole key": strconv.Quote(key),
	} {
		got := string(b.mask([]byte(text)))
		if !strings.Contains(got, "REDACTED") {
			t.Errorf("%s: %s", name, got)
		}
		if name == "as it is" && got != "xREDACTEDy" {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, text := range []string{"short", "-----BEGIN KEY-----", "7 bytes", "hunter2", "nothing of it"} {
		if got := string(b.mask([]byte(text))); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// No character of base64 is left that is made of bits of the secret alone.
func TestMaskedBase64(t *testing.T) {
	const secret = "0123456789abcdef"
	b := newLogbook(&Config{Secrets: func() [][]byte { return [][]byte{[]byte(secret)} }})
	for before := range 6 {
		for after := range 4 {
			text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("<", before) + secret + strings.Repeat(">", after)))
			got := string(b.mask([]byte(text)))
			if left := len(got) - len("REDACTED"); !strings.Contains(got, "REDACTED") || left > len(text)-8*len(secret)/6+1 {
				t.Errorf("%d before, %d after: %s became %s", before, after, text, got)
			}
		}
	}
}

// Secrets without an end cost no more than they are: one that no line holds is known by its
// lines, of which there are so many.
func TestSpellingsAreBounded(t *testing.T) {
	long := strings.Repeat("a line of a secret, 0123456789\n", 30_000)
	if n := len(spellings([]byte(long))); n > 1+maxLines {
		t.Errorf("%d spellings", n)
	}
}
