package stdio

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// maxLines is how many lines of one secret are looked for by themselves.
const maxLines = 256

// spellings are the texts by which a secret is known in what a server prints, each of masked
// bytes at least: as it is and each of its lines, as JSON, URLs, and quotes spell it, in hex,
// and in base64 wherever it begins in what was encoded.
func spellings(secret []byte) (all [][]byte) {
	add := func(text string) {
		if len(text) >= masked && !slices.ContainsFunc(all, func(one []byte) bool { return string(one) == text }) {
			all = append(all, []byte(text))
		}
	}
	text := string(secret)
	if len(text) < masked {
		return nil
	}
	add(text)
	if len(text) > maxLine {
		return append(all, linesOf(text)...) // no other spelling of it fits a line
	}
	for _, escape := range []bool{true, false} {
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(escape)
		_ = e.Encode(text) // a text is always JSON
		add(strings.Trim(strings.TrimSpace(out.String()), `"`))
	}
	for _, quoted := range []string{strconv.Quote(text), strconv.QuoteToASCII(text)} {
		add(quoted[1 : len(quoted)-1])
	}
	query := url.QueryEscape(text)
	add(query)
	add(url.PathEscape(text))
	add(strings.NewReplacer("+", "%20", "%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*").Replace(query)) // as JavaScript does
	inHex := hex.EncodeToString(secret)
	add(inHex)
	add(strings.ToUpper(inHex))
	for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			// Six bits are a character: those that hold bits of others are left out.
			spelled := alphabet.EncodeToString(append(make([]byte, before, before+len(secret)), secret...))
			add(spelled[(8*before+5)/6 : 8*(before+len(secret))/6])
		}
	}
	return append(all, linesOf(text)...)
}

// linesOf are the lines of a secret that has several, since what is printed comes by the line.
// Those that frame a key are no secret.
func linesOf(text string) (all [][]byte) {
	if !strings.Contains(text, "\n") {
		return nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if len(line) >= masked && !strings.HasPrefix(line, "-----") && len(all) < maxLines {
			all = append(all, []byte(line))
		}
	}
	return all
}
