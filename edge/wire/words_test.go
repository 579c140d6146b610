package wire

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
	"unicode/utf8"
)

// What a backend says when it refuses is told in one line of text that can be
// seen, and never with anything of what it was sent to be let in.
func TestZ15Words(t *testing.T) {
	const key = "sk-live-0123456789abcdef"
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("weir:open sesame"))
	for _, c := range []struct{ name, body, want string }{
		{"nothing", "", ""},
		{"blank lines first", "\r\n \t\n  not from here \nand more", "not from here"},
		{"control characters", "a\x1b[31mb\x00c\x7f\u0085d\u202ee\u200bf\ufeffg", "a[31mbcdefg"},
		{"bytes that are no text", "a\xff\xfeb", "ab"},
		{"one line of JSON", `{"error":"forbidden"}`, `{"error":"forbidden"}`},
		{"an error of JSON-RPC", `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Invalid Host: x\nsecond"}}`, "Invalid Host: x"},
		{"a page", "<!DOCTYPE html>\n<html><head><TITLE>403 &amp; gone</TITLE></head></html>", "403 & gone"},
		{"a page with letters that grow", "<html><head><title>İİİ no</title></head></html>", "İİİ no"},
		{"a page without a title", "<html><body>x</body></html>", ""},
		{"long", strings.Repeat("é", 5000), strings.Repeat("é", 199) + "…"},
		{"the credential", "no such key: " + key + ".", "no such key: REDACTED."},
		{"the credential in another case", "NO SUCH KEY: " + strings.ToUpper(key), "NO SUCH KEY: REDACTED"},
		{"the credential in a mix of cases", "No such key: sK-LiVe-0123456789aBcDeF", "No such key: REDACTED"},
		{"after a character whose lower case is shorter", "300 \u212a, no such key: SK-Live-0123456789ABCDEF", "300 \u212a, no such key: REDACTED"},
		{"after one whose lower case is longer", "\u023a: SK-Live-0123456789ABCDEF", "\u023a: REDACTED"},
		{"with such characters in it", "no such key: S\u212a-l\u0130ve-0123456789ABCDEF.", "no such key: REDACTED."},
		{"with a long s in place of its own", "no such key: \u017fk-live", "no such key: REDACTED"},
		{"a part of it", "keys like sk-live-0123… are old", "keys like REDACTED… are old"},
		{"its end", "the key that ends in 89abcdef", "the key that ends in REDACTED"},
		{"with characters in between that nobody sees", "key sk-live-\x0001234\u200b56789abcdef", "key REDACTED"},
		{"a password in base64", "bad " + basic, "bad Basic REDACTED"},
		{"a password", "bad password open sesame", "bad password REDACTED"},
		{"a password, escaped", "bad password open+sesame", "bad password REDACTED"},
		{"the credential in hex", "bad " + hex.EncodeToString([]byte(key)), "bad REDACTED"},
		{"the credential in base64", "bad " + base64.StdEncoding.EncodeToString([]byte(key)), "bad REDACTED"},
		{"its header in base64", "bad " + base64.RawURLEncoding.EncodeToString([]byte("Bearer "+key+" ")), "bad QmVhcmVyIHREDACTEDiA"},
		{"a short one", "pin 4711 is wrong", "pin REDACTED is wrong"},
	} {
		secrets := append(append(SecretsOf("Bearer "+key), SecretsOf(basic)...), SecretsOf("4711")...)
		if got := Words([]byte(c.body), secrets...); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func FuzzWords(f *testing.F) {
	f.Add([]byte("no: s3cr3t-token\n"), "s3cr3t-token")
	f.Add([]byte("\u0130s3cr3t-token"), "s3cr3t-token")
	f.Add([]byte("\u212aS3cR3t-T\u00f6kEN"), "s3cr3t-t\u00d6ken")
	f.Add([]byte("\u023as3cr3t-to\u212aen"), "S3CR3T-TOKEN")
	f.Fuzz(func(t *testing.T, body []byte, secret string) {
		got := Words(body, SecretsOf(secret)...)
		if strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r == 0x7f }) || !utf8.ValidString(got) || utf8.RuneCountInString(got) > maxWords {
			t.Errorf("%q", got)
		}
		if len(secret) > 8 && !strings.ContainsAny(secret, " \t") && strings.Contains(strings.Map(fold, strings.ReplaceAll(got, mask, "\n")), strings.Map(fold, secret)) {
			t.Errorf("%q holds %q", got, secret)
		}
	})
}
