package compile

import "github.com/weir-edge/weir/edge/outgoing"

// Report is what compiling found out about the objects, for whoever asks: a
// terminal, an exit code, the status of an object.
type Report struct {
	Findings []Finding // in the order of the objects
	Statuses []Status  // one per object, in the order of the set
	Needs    []Need    // those of the plan, also where there is none
}

// Failed reports whether a finding is an error.
func (r *Report) Failed() bool {
	for _, f := range r.Findings {
		if f.Severity == Error {
			return true
		}
	}
	return false
}

// Finding is one thing to say about one object.
type Finding struct {
	Severity Severity
	Index    int    // of the object in the set; -1 when it is about the set
	Object   Ref    // empty when it is about the set
	Path     string // of the field, as in spec.config.backends[0].url; empty for the whole object
	Reason   string // one of the reasons below
	Message  string // what is wrong and what to do, in lower case; never a secret
}

// Severity is how much a finding matters.
type Severity int

// The severities. Only an error keeps a set from being served.
const (
	Error   Severity = iota
	Warning          // served, but perhaps not as meant
	Note             // served as meant; good to know
)

// String returns error, warning or note.
func (s Severity) String() string {
	switch s {
	case Error:
		return "error"
	case Warning:
		return "warning"
	}
	return "note"
}

// The reasons of findings and of conditions that are false.
const (
	ReasonUnreadable   = "Unreadable"       // the text is no YAML or JSON document
	ReasonUnknownKind  = "UnknownKind"      // apiVersion and kind name nothing we know
	ReasonUnknownField = "UnknownField"     // a misspelt or foreign field
	ReasonWrongType    = "WrongType"        // a value of another type than the field's
	ReasonInvalid      = "ValidationFailed" // what admission rejects
	ReasonDuplicate    = "Duplicate"        // two objects of one kind and name
	ReasonNotFound     = "NotFound"         // a reference to nothing
	ReasonOutside      = "OutsideThePart"   // a reference to what another part of the set may hold
	ReasonConflict     = "Conflict"         // objects or fields that contradict each other
	ReasonUnsupported  = "NotSupportedYet"  // a feature that does not exist yet
	ReasonEnterprise   = outgoing.EnterpriseRequired
	ReasonClusterOnly  = "OnlyInACluster" // fields that only shape Kubernetes objects
	ReasonNotHere      = "OnlyElsewhere"  // fields that say something in another way of running
	ReasonNotAllowed   = "NotAllowed"     // what the process was not allowed to do
	ReasonSetting      = "NeedsASetting"  // what a setting of the process lets
	ReasonUnused       = "NotUsed"        // an object, or a field, that nothing reads
)

// Status is what an object's status is to say.
type Status struct {
	Object     Ref
	Conditions []Condition
}

// Condition is one observation of a status, without the time, which belongs to
// who writes it.
type Condition struct {
	Type    string
	True    bool
	Reason  string
	Message string
}

// conditionTypes are the conditions of the kinds: each is false while an error
// stands at or below its field, and is given only for objects that have the
// field. Every object besides has the condition Valid.
func conditionTypes() []conditionType {
	return []conditionType{
		{"VirtualMCPServer", "GroupRefValidated", "spec.groupRef", "GroupRefValid"},
		{"VirtualMCPServer", "AuthConfigured", "spec.incomingAuth", "AuthValid"},
		{"VirtualMCPServer", "AuthServerConfigValidated", "spec.authServerConfig", "AuthServerConfigValid"},
		{"VirtualMCPServer", "TelemetryConfigRefValidated", "spec.telemetryConfigRef", "TelemetryConfigRefValid"},
		{"VirtualMCPServer", "OIDCConfigRefValidated", "spec.incomingAuth.oidcConfigRef", "OIDCConfigRefValid"},
		{"VirtualMCPServer", "AuthzConfigRefValidated", "spec.incomingAuth.authzConfigRef", "AuthzConfigRefValid"},
		{"VirtualMCPServer", "CompositeToolRefsValidated", "spec.config.compositeToolRefs", "CompositeToolRefsValid"},
		{"VirtualMCPServer", "PodTemplateSpecValid", "spec.podTemplateSpec", "PodTemplateSpecValid"},
		{"MCPServerEntry", "GroupRefValidated", "spec.groupRef", "GroupRefValid"},
		{"MCPServerEntry", "CABundleRefValidated", "spec.caBundleRef", "CABundleRefValid"},
		{"MCPServerEntry", "ExternalAuthConfigValidated", "spec.externalAuthConfigRef", "ExternalAuthConfigValid"},
		{"MCPServer", "GroupRefValidated", "spec.groupRef", "GroupRefValid"},
		{"MCPServer", "ExternalAuthConfigValidated", "spec.externalAuthConfigRef", "ExternalAuthConfigValid"},
		{"MCPServer", "OIDCConfigRefValidated", "spec.oidcConfigRef", "OIDCConfigRefValid"},
		{"MCPServer", "AuthzConfigRefValidated", "spec.authzConfigRef", "AuthzConfigRefValid"},
		{"MCPServer", "TelemetryConfigRefValidated", "spec.telemetryConfigRef", "TelemetryConfigRefValid"},
		{"MCPServer", "WebhookConfigValidated", "spec.webhookConfigRef", "WebhookConfigValid"},
		{"MCPServer", "AuthServerRefValidated", "spec.authServerRef", "AuthServerRefValid"},
		{"MCPServer", "RateLimitConfigValid", "spec.rateLimiting", "RateLimitConfigValid"},
		{"MCPServer", "PodTemplateValid", "spec.podTemplateSpec", "PodTemplateValid"},
		{"MCPRemoteProxy", "GroupRefValidated", "spec.groupRef", "GroupRefValid"},
		{"MCPRemoteProxy", "ExternalAuthConfigValidated", "spec.externalAuthConfigRef", "ExternalAuthConfigValid"},
		{"MCPRemoteProxy", "OIDCConfigRefValidated", "spec.oidcConfigRef", "OIDCConfigRefValid"},
		{"MCPRemoteProxy", "AuthzConfigRefValidated", "spec.authzConfigRef", "AuthzConfigRefValid"},
		{"MCPRemoteProxy", "TelemetryConfigRefValidated", "spec.telemetryConfigRef", "TelemetryConfigRefValid"},
		{"MCPRemoteProxy", "ToolConfigValidated", "spec.toolConfigRef", "ToolConfigValid"},
		{"MCPRemoteProxy", "AuthServerRefValidated", "spec.authServerRef", "AuthServerRefValid"},
		{"MCPRemoteProxy", "PodTemplateValid", "spec.podTemplateSpec", "PodTemplateValid"},
	}
}

type conditionType struct{ kind, condition, path, reason string }
