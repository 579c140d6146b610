package main

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/edge/oauth"
)

// secretBytes is how many random bytes a new HMAC secret has.
const secretBytes = 48

func (a *app) authKeygenCommand() *cobra.Command {
	name := "weir-auth"
	cmd := &cobra.Command{
		Use:   "keygen [--name NAME]",
		Short: "Make the keys of an authorization server",
		Long: `Make a signing key (P-256) and an HMAC secret for an authorization server, and
print them as a Secret document: what signingKeySecretRefs and hmacSecretRefs
refer to. Nothing is kept: put it where only the edge reads it (umask 077, then > FILE).`,
		Example: `  (umask 077; weir auth keygen > keys.yaml)
  weir auth keygen --name login-2027`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("%q is one word too many: keygen takes none", args[0])
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			if !isName(name) {
				return usagef("--name %q: write small letters, digits and hyphens, 63 at most", name)
			}
			key, err := oauth.NewSigningKey()
			if err != nil {
				return err
			}
			secret := make([]byte, secretBytes)
			_, _ = rand.Read(secret) // it never fails
			_, err = fmt.Fprintf(a.out, `apiVersion: v1
kind: Secret
metadata: {name: %s}
stringData:
  hmac: %s
  key: |
    %s
`, name, base64.RawStdEncoding.EncodeToString(secret), strings.ReplaceAll(strings.TrimSpace(string(key)), "\n", "\n    "))
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", name, "the name of the `SECRET`")
	return cmd
}

// isName reports whether a text is a name of an object (RFC 1123 label).
func isName(text string) bool {
	return text != "" && len(text) <= 63 && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && text[0] != '-' && text[len(text)-1] != '-'
}
