package authserver

import "slices"

// document is what clients find out about the server (RFC 8414 §2, OpenID Connect Discovery
// §3).
func (c *Spec) document(m *material, openid bool) []byte {
	doc := map[string]any{
		"issuer":                                         c.Issuer,
		"authorization_endpoint":                         c.Base + "/oauth/authorize",
		"token_endpoint":                                 c.Issuer + "/oauth/token",
		"registration_endpoint":                          c.Issuer + "/oauth/register",
		"revocation_endpoint":                            c.Issuer + "/oauth/revoke",
		"jwks_uri":                                       c.Issuer + "/.well-known/jwks.json",
		"scopes_supported":                               c.Scopes,
		"response_types_supported":                       []string{"code"},
		"response_modes_supported":                       []string{"query"},
		"grant_types_supported":                          []string{"authorization_code", "refresh_token"},
		"token_endpoint_auth_methods_supported":          []string{authNone, authBasic, authPost},
		"revocation_endpoint_auth_methods_supported":     []string{authNone, authBasic, authPost},
		"code_challenge_methods_supported":               []string{"S256"},
		"authorization_response_iss_parameter_supported": true,
		"client_id_metadata_document_supported":          c.CIMD != nil,
	}
	if openid {
		var algs []string
		for _, s := range m.signers {
			algs = append(algs, s.Algorithm())
		}
		slices.Sort(algs)
		doc["subject_types_supported"], doc["id_token_signing_alg_values_supported"] = []string{"public"}, slices.Compact(algs)
	}
	return encode(doc)
}
