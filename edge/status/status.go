// Package status is what an edge says of itself at /status, in the words of the
// VirtualMCPServer's own status, with what goes on in the process beside it.
package status

import "time"

// Server is the status of one server.
type Server struct {
	Name    string `json:"name"`
	Phase   string `json:"phase"`
	Message string `json:"message,omitempty"`
	URL     string `json:"url"`

	Metadata map[string]string `json:"metadata,omitempty"` // that its configuration gives it; nil for none

	BackendCount       int         `json:"backendCount"`
	Conditions         []Condition `json:"conditions"`
	DiscoveredBackends []Backend   `json:"discoveredBackends"`
	Withheld           []string    `json:"withheld,omitempty"` // what clients do not see, and why
	Filters            []Filter    `json:"filters,omitempty"`
	Webhooks           []Webhook   `json:"webhooks,omitempty"` // in the order in which they are asked
	Sessions           int         `json:"sessions"`
	Streams            int         `json:"streams"`
	Inflight           int64       `json:"inflight"`
	Parked             int         `json:"parked"`
	Dropped            int64       `json:"dropped"`          // notifications of parked calls whose client was away
	Calls              int64       `json:"calls"`            // requests since the start
	Audit              *Audit      `json:"audit,omitempty"`  // nil without a log
	Reloads            int64       `json:"reloads"`          // of the configuration
	Reload             string      `json:"reload,omitempty"` // why the last reload changed nothing
	Version            string      `json:"version"`
	Store              *Store      `json:"store,omitempty"`      // that the server shares with other edges
	RateLimits         *Limits     `json:"rateLimits,omitempty"` // calls since the limits began
	AuthServer         *AuthServer `json:"authServer,omitempty"` // its own; nil for none
}

// Condition is an entry of status.conditions.
type Condition struct {
	Type               string     `json:"type"`
	Status             string     `json:"status"`
	LastTransitionTime *time.Time `json:"lastTransitionTime"` // when Status last changed
	Reason             string     `json:"reason"`
	Message            string     `json:"message,omitempty"`
}

// Backend is an entry of status.discoveredBackends, with more that the edge
// knows.
type Backend struct {
	Name   string `json:"name"`
	URL    string `json:"url"`
	Status string `json:"status"`

	Metadata map[string]string `json:"metadata,omitempty"` // that its configuration gives it, and its group; nil for none

	AuthType            string     `json:"authType,omitempty"`
	AuthConfigRef       string     `json:"authConfigRef,omitempty"`
	Message             string     `json:"message,omitempty"`
	LastHealthCheck     *time.Time `json:"lastHealthCheck,omitempty"`
	ConsecutiveFailures int        `json:"consecutiveFailures"`
	CircuitBreakerState string     `json:"circuitBreakerState,omitempty"`
	CircuitLastChanged  *time.Time `json:"circuitLastChanged,omitempty"`
	Era                 string     `json:"era,omitempty"`
	Revision            string     `json:"revision,omitempty"`
	*Offer                         // nil while the edge does not know, as of a backend that is served as it is
	Calls               int64      `json:"calls"`  // since the start
	Failed              int64      `json:"failed"` // of them
	Millis              float64    `json:"latencyMillis"`
	Strays              int64      `json:"strayAnswers,omitempty"` // that came to others than who asked
}

// Offer is how much a backend offers.
type Offer struct {
	Tools     int `json:"tools"`
	Prompts   int `json:"prompts"`
	Resources int `json:"resources"`
	Templates int `json:"resourceTemplates"`
}

// Webhook is what one webhook has counted since its server was opened.
type Webhook struct {
	Name    string  `json:"name"`
	Type    string  `json:"type"`
	Asked   uint64  `json:"asked"`
	Denied  uint64  `json:"denied"`
	Changed uint64  `json:"changed"`
	Failed  uint64  `json:"failed"`
	Ignored uint64  `json:"ignored"` // of the failed
	Millis  float64 `json:"latencyMillis"`
}

// Audit is what an audit log has counted since it was opened.
type Audit struct {
	Recorded uint64 `json:"recorded"`
	Written  uint64 `json:"written"`
	Lost     uint64 `json:"lost"`
	Failures uint64 `json:"failures"` // attempts to write or to open that failed
}

// Store is what /status says of the store that a server shares.
type Store struct {
	Address   string     `json:"address"`
	Connected bool       `json:"connected"`
	Message   string     `json:"message,omitempty"` // what is wrong
	Since     *time.Time `json:"since,omitempty"`   // when it went away
	Calls     uint64     `json:"calls"`
	Failed    uint64     `json:"failed"`
	Dropped   uint64     `json:"droppedMessages,omitempty"` // that no edge with this one's key wrote lately
}

// Limits is what /status says of the rate limits of a server.
type Limits struct {
	Admitted  uint64 `json:"admitted"`
	Limited   uint64 `json:"limited"`
	Uncounted uint64 `json:"uncounted"` // calls that the store could not count
	FailOpen  uint64 `json:"failOpen"`  // of those, the ones that were admitted
}

// Hook is what a program did at one hook.
type Hook struct {
	Hook     string `json:"hook"`
	Calls    uint64 `json:"calls"`
	Changed  uint64 `json:"changed"`            // calls that it answered with operations
	Denied   uint64 `json:"denied,omitempty"`   // messages denied, or under observe that would have been
	Failures uint64 `json:"failures,omitempty"` // calls
	Skipped  uint64 `json:"skipped,omitempty"`  // failures that messages passed
}

// Filter is an open filter.
type Filter struct {
	Name    string `json:"name"`
	SHA256  string `json:"sha256"`
	Mode    string `json:"mode"`
	Resting bool   `json:"resting,omitempty"` // messages of a client are refused for a while, since it failed on them again and again
	Live    int    `json:"instances"`
	Hooks   []Hook `json:"hooks"`
}
