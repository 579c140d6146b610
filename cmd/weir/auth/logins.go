// Package auth is what `weir auth` does beside its words: what is said of logins that are
// kept and how they end (logins.go), and the test of the credential of one backend (test.go),
// of which nothing secret is shown (mask.go).
package auth

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/oauth/login"
)

// Until says for how long a login is good.
func Until(k login.Kept, now time.Time) string {
	switch at := k.Tokens.Expires; {
	case k.Tokens.Refresh != "":
		return ", renewed when it ends"
	case k.Tokens.Access == "":
		return ", over: log in again"
	case at.IsZero():
		return ""
	case !at.After(now):
		return ", over: log in again"
	default:
		return ", until " + at.Local().Format("2006-01-02 15:04")
	}
}

// Write writes a table of logins in the order of the store, as they are at a time, without
// tokens.
func Write(w io.Writer, all []login.Kept, now time.Time) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no logins: `weir auth login URL` makes one")
		return err
	}
	rows := [][]string{{"SERVER", "BY", "CLIENT", "SCOPES", "GOOD", "FLAGS"}}
	for _, k := range all {
		good := strings.TrimPrefix(Until(k, now), ", ")
		if good == "" {
			good = "until it is refused"
		}
		rows = append(rows, []string{k.URL, orDash(k.Issuer), orDash(k.Client.ID), orDash(strings.Join(k.Tokens.Scopes, " ")), good, orDash(strings.Join(k.Settings.Flags(), " "))})
	}
	for _, row := range rows {
		for i := range row {
			row[i] = edge.Brief(row[i])
		}
	}
	return show.Table(w, rows)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// WriteJSON writes logins in the order of the store as a list of objects, without tokens.
func WriteJSON(w io.Writer, all []login.Kept) error {
	type row struct {
		URL       string    `json:"url"`
		Issuer    string    `json:"issuer"`
		Resource  string    `json:"resource"`
		Client    string    `json:"client"`
		How       string    `json:"how"`
		Scopes    []string  `json:"scopes"`
		Expires   time.Time `json:"expires,omitzero"`
		Renewable bool      `json:"renewable"`
		Since     time.Time `json:"since"`
		Flags     []string  `json:"flags"`
		Used      bool      `json:"used"`
	}
	rows := []row{}
	for i, k := range all {
		first := i == 0 || all[i-1].URL != k.URL
		rows = append(rows, row{k.URL, k.Issuer, k.Resource, k.Client.ID, k.Client.How, append([]string{}, k.Tokens.Scopes...), k.Tokens.Expires.UTC(), k.Tokens.Refresh != "", k.Since, append([]string{}, k.Settings.Flags()...), first})
	}
	return cli.PrintJSON(w, rows, "  ")
}

// Logout forgets the logins to the URL that args has, or all logins where it has none; see
// login.Logout. Revoking what was given may take within in all. ended is empty where there is
// no such login; known are the URLs of those that there are.
func Logout(ctx context.Context, store *login.Store, client *oauth.Client, args []string, within time.Duration) (ended []login.Ended, known []string, err error) {
	all, err := store.List()
	if err != nil {
		return nil, nil, err
	}
	until := time.Now().Add(within)
	for i, k := range all {
		if i > 0 && all[i-1].URL == k.URL {
			continue // it ended with the first
		}
		known = append(known, k.URL)
		if len(args) > 0 && k.URL != login.Canonical(args[0]) {
			continue
		}
		some, err := login.Logout(ctx, store, client, k.URL, time.Until(until))
		ended = append(ended, some...)
		if err != nil {
			return ended, known, err
		}
	}
	return ended, known, nil
}

// Forgotten says of logins what became of them: in a line, and for each refresh token that
// could not be revoked in another.
func Forgotten(ended []login.Ended) (line string, left []string) {
	revoked := 0
	for _, one := range ended {
		if one.Revoked {
			revoked++
		}
		if one.Err != nil {
			left = append(left, edge.Clean(one.URL)+": its refresh token could not be revoked, and is good there until it ends: "+edge.Brief(one.Err.Error()))
		}
	}
	switch {
	case len(ended) == 1 && revoked == 1:
		line = "forgot the login to " + edge.Clean(ended[0].URL) + ", whose refresh token is revoked"
	case len(ended) == 1:
		line = "forgot the login to " + edge.Clean(ended[0].URL)
	default:
		line = "forgot " + edge.Count(len(ended), "login")
		if revoked > 0 {
			line += "; " + edge.Count(revoked, "refresh token") + " revoked"
		}
	}
	return line, left
}
