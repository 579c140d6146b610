// Package auth is what `weir auth` does beside its words: what is said of logins that are
// kept and how they end (logins.go), and the test of the credential of one backend (test.go),
// of which nothing secret is shown (mask.go).
package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge"
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

// Write writes a table of logins, as they are at a time, without tokens.
func Write(w io.Writer, all []login.Kept, now time.Time) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no logins: `weir auth login URL` makes one")
		return err
	}
	rows := [][]string{{"SERVER", "BY", "CLIENT", "SCOPES", "GOOD"}}
	for _, k := range all {
		good := strings.TrimPrefix(Until(k, now), ", ")
		if good == "" {
			good = "until it is refused"
		}
		rows = append(rows, []string{k.URL, orDash(k.Issuer), orDash(k.Client.ID), orDash(strings.Join(k.Tokens.Scopes, " ")), good})
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

// WriteJSON writes logins as a list of objects, without tokens.
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
	}
	rows := []row{}
	for _, k := range all {
		rows = append(rows, row{k.URL, k.Issuer, k.Resource, k.Client.ID, k.Client.How, append([]string{}, k.Tokens.Scopes...), k.Tokens.Expires.UTC(), k.Tokens.Refresh != "", k.Since})
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(rows)
}

// Logout forgets the login to the URL that args has, or all logins where it has none. ended
// are the URLs of those that were forgotten, and known those that were there.
func Logout(ctx context.Context, store *login.Store, args []string) (ended, known []string, err error) {
	all, err := store.List()
	if err != nil {
		return nil, nil, err
	}
	for _, k := range all {
		known = append(known, k.URL)
		if len(args) == 0 || k.URL == login.Canonical(args[0]) {
			ended = append(ended, k.URL)
		}
	}
	switch {
	case len(args) == 0:
		err = store.Remove(ctx, "")
	case len(ended) > 0:
		err = store.Remove(ctx, ended[0])
	}
	return ended, known, err
}
