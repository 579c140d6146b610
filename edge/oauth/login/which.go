package login

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Which login a token is of. One server may have several: each workload that asks it for other
// scopes, or as another client, has its own, and none is sent what another was given.

// maxOfOne bounds the logins to one server.
const maxOfOne = 32

// key tells logins to one server apart: it is of the settings that shape what a token is good
// for, and of none that say only how a login goes (callback port, browser, where a secret
// stands). A document that is the client id of the whole installation is not part of it. It is
// "" where nothing in particular is asked for.
func (s Settings) key() string {
	shape := Settings{
		Issuer: s.Issuer, AuthorizeURL: s.AuthorizeURL, TokenURL: s.TokenURL, ClientID: s.ClientID, ScopeParam: s.ScopeParam,
		Resource: s.Resource, IDPTokenURL: s.IDPTokenURL, IDPClientID: s.IDPClientID, IDTokenFile: s.IDTokenFile,
	}
	if s.grant() != Code {
		shape.Grant = s.Grant
	}
	if shape.ScopeParam == "scope" {
		shape.ScopeParam = "" // as RFC 6749 calls it
	}
	shape.Scopes = slices.Clone(s.Scopes)
	slices.Sort(shape.Scopes)
	shape.Scopes = slices.Compact(shape.Scopes)
	text, _ := json.Marshal(shape) // which is texts alone
	if string(text) == "{}" {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// is reports whether a login is the one to a server with some settings.
func (k *Kept) is(url string, s Settings) bool { return k.URL == url && k.Settings.key() == s.key() }

// order puts the logins of one server behind each other, first the one that is used where the
// URL alone is named: the one that `weir auth login` made last, else the one that asks for
// nothing in particular, else the oldest.
func order(a, b Kept) int {
	if a.URL != b.URL {
		return strings.Compare(a.URL, b.URL)
	}
	of, and := a.Settings.key(), b.Settings.key()
	return cmp.Or(first(a.Main, b.Main), first(of == "", and == ""), a.Since.Compare(b.Since), strings.Compare(of, and))
}

// first puts before others what is so.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// over reports whether a login gives nothing any more.
func (k *Kept) over(now time.Time) bool {
	return k.Tokens.Refresh == "" && (k.Tokens.Access == "" || !k.Tokens.Expires.IsZero() && !now.Before(k.Tokens.Expires))
}

// room makes room for a login among those that are kept: where its server has as many as it
// may have, the oldest that give nothing any more are forgotten.
func room(all []Kept, url string, s Settings, now time.Time) ([]Kept, error) {
	others := 0
	for i := range all {
		switch {
		case all[i].is(url, s):
			return all, nil
		case all[i].URL == url:
			others++
		}
	}
	for ; others >= maxOfOne; others-- {
		old := -1
		for i := range all {
			if all[i].URL == url && all[i].over(now) && (old < 0 || all[i].Since.Before(all[old].Since)) {
				old = i
			}
		}
		if old < 0 {
			return nil, fmt.Errorf("credentials: %d logins to %s are kept, each with settings of its own, which is as many as one server may have: forget them with `weir auth logout %s`", others, shown(url), shown(url))
		}
		all = slices.Delete(all, old, old+1)
	}
	return all, nil
}

// Flags are the settings that tell a login from others of its server, as flags of `weir auth
// login`; none for a login that asks for nothing in particular.
func (s Settings) Flags() (flags []string) {
	add := func(name, value string) {
		if value != "" {
			flags = append(flags, "--"+name, value)
		}
	}
	add("client-id", s.ClientID)
	add("client-secret-file", s.ClientSecretFile)
	add("private-key-file", s.PrivateKeyFile)
	add("scopes", strings.Join(s.Scopes, ","))
	add("issuer", s.Issuer)
	add("authorize-url", s.AuthorizeURL)
	add("token-url", s.TokenURL)
	add("resource", s.Resource)
	add("scope-param-name", s.ScopeParam)
	if s.CallbackPort != 0 && s.CallbackPort != DefaultCallbackPort {
		add("callback-port", strconv.Itoa(max(0, s.CallbackPort)))
	}
	if s.grant() == ClientCredentials {
		flags = append(flags, "--client-credentials")
	}
	add("id-token-file", s.IDTokenFile)
	add("idp-token-url", s.IDPTokenURL)
	add("idp-client-id", s.IDPClientID)
	add("idp-client-secret-file", s.IDPClientSecretFile)
	return flags
}

// Command is what to type for a login to a server with these settings.
func (s Settings) Command(url string) string {
	words := []string{"weir auth login", word(shown(url))}
	for _, one := range s.Flags() {
		words = append(words, word(one))
	}
	return strings.Join(words, " ")
}

// word is a text as one word of a shell.
func word(text string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_./:,@%+=-", c)
	}
	if text != "" && !strings.ContainsFunc(text, func(c rune) bool { return !plain(c) }) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
