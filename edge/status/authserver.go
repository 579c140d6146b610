package status

import "time"

// AuthServer is what /status says of the authorization server of a server.
type AuthServer struct {
	Issuer    string         `json:"issuer"`
	Kids      []string       `json:"kids"`                // of the signing keys, the one that signs first
	Ephemeral bool           `json:"ephemeral,omitempty"` // a secret or a key ends with the process
	Secrets   []AuthSecret   `json:"secrets"`             // hmacSecretRefs, in their order
	Upstreams []AuthUpstream `json:"upstreams"`
	Replicas  *AuthReplicas  `json:"replicas,omitempty"` // nil where it shares no store
	Store     *Store         `json:"store,omitempty"`    // nil for memory
	Waiting   int            `json:"waiting"`            // logins whose users are at an upstream
}

// AuthSecret is how a secret is used. To take it off the list ends the sign-ins.
type AuthSecret struct {
	Name     string     `json:"name"`     // 8 hex that follow from it
	Grants   int64      `json:"grants"`   // about how many sign-ins live of clients that are registered under it
	LastUsed *time.Time `json:"lastUsed"` // when such a client last had tokens; nil for never
}

// AuthUpstream is an identity provider.
type AuthUpstream struct {
	Name        string `json:"name"`
	RedirectURI string `json:"redirectUri"`       // to enter there
	Message     string `json:"message,omitempty"` // why the last that was asked of it failed
}

// AuthReplicas is whether replicas with one store can read what the others make.
type AuthReplicas struct {
	Seen    int    `json:"seen"` // in the last minute; 0 before the first look
	Agree   bool   `json:"agree"`
	Message string `json:"message,omitempty"` // why they do not
}
