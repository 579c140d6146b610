package incoming_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/filters/incoming"
)

// FuzzToken holds that no token but those that were signed is taken, and that
// none makes the parser panic.
func FuzzToken(f *testing.F) {
	keys := []signer{theRSA(), newEC("ec"), newEd("ed")}
	var jwks []any
	for _, k := range keys {
		jwks = append(jwks, k.jwk())
	}
	doc, err := json.Marshal(map[string]any{"keys": jwks})
	if err != nil {
		f.Fatal(err)
	}
	set, err := oauth.ParseKeys(doc)
	if err != nil {
		f.Fatal(err)
	}
	made := map[string]bool{}
	for _, k := range keys {
		token := k.mint(`{"iss":"https://i.example","aud":"a","sub":"alice","exp":4102444800}`)
		made[token] = true
		if _, err := incoming.Signed(set, token); err != nil {
			f.Fatal(err)
		}
		f.Add(token)
		f.Add(strings.Replace(token, ".", "=.", 1))
		f.Add(token[:len(token)-1])
	}
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := incoming.Signed(set, token); err == nil && !made[token] {
			t.Errorf("%q was taken", token)
		}
	})
}

// FuzzClaims holds that what is accepted has the meaning it must have.
func FuzzClaims(f *testing.F) {
	for _, text := range []string{
		`{"iss":"https://i.example","aud":"a","sub":"alice","exp":4102444800}`,
		`{"iss":"https://i.example","aud":["b","a"],"sub":"alice","exp":4102444800.5,"nbf":1,"scope":"x"}`,
		`{"active":true,"aud":"a","client_id":"c"}`,
		`{"iss":"https://i.example","aud":"a","sub":"alice","exp":1e9,"exp":2}`,
	} {
		f.Add([]byte(text), false)
		f.Add([]byte(text), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, introspected bool) {
		if incoming.Claims(text, "https://i.example", "a", introspected) != nil {
			return
		}
		var c map[string]any // a second opinion
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatalf("not JSON, and accepted: %q", text)
		}
		if iss, ok := c["iss"]; (ok || !introspected) && iss != "https://i.example" {
			t.Errorf("iss: %q", text)
		}
		if _, ok := c["exp"].(float64); !ok && !introspected {
			t.Errorf("exp: %q", text)
		}
		if sub, _ := c["sub"].(string); sub == "" && !introspected {
			t.Errorf("sub: %q", text)
		}
	})
}
