package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EdgeFilter is a program, in Wasm or Starlark, that sees the messages of the servers that refer to it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=edgefilters,scope=Namespaced,shortName=filter
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=='Valid')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EdgeFilter struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	Spec EdgeFilterSpec `json:"spec"`

	// Status is what was seen.
	Status EdgeFilterStatus `json:"status,omitempty"`
}

// EdgeFilterList is a list of EdgeFilter.
//
// +kubebuilder:object:root=true
type EdgeFilterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EdgeFilter `json:"items"`
}

// FilterType is the language of a filter.
// +kubebuilder:validation:Enum=wasm;starlark
type FilterType string

// The languages of filters.
const (
	FilterWasm     FilterType = "wasm"
	FilterStarlark FilterType = "starlark"
)

// EdgeFilterSpec is the program, what it is given, and what it may do.
type EdgeFilterSpec struct {
	// Type is wasm for a WebAssembly module, or starlark for a script.
	Type FilterType `json:"type"`

	// Source of the program.
	Source FilterSource `json:"source"`

	// SHA256 of the program, as 64 lower-case hexadecimal digits. A program of
	// another digest is not loaded.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256,omitempty"`

	// Config is handed to the program when it starts.
	Config JSONObject `json:"config,omitempty"`

	// Mode is enforce to do what the program says, observe to ask it, count and
	// log what it says and change nothing, or off to leave it out.
	// +kubebuilder:default=enforce
	Mode FilterMode `json:"mode,omitempty"`

	// Match narrows what the program is asked about. Without it, the program's
	// own subscriptions decide.
	Match *FilterMatch `json:"match,omitempty"`

	// OnError is what happens to a message when the program fails: deny refuses
	// it, continue lets it pass as if there were no filter. Under deny, messages of
	// a client on which the program fails again and again are refused for a while
	// without asking it, and those of others are not; under continue it is always
	// asked. A refusal by the program itself is not a failure. What decides who somebody is, or which
	// credential is used, is refused in any case.
	// +kubebuilder:default=deny
	OnError FilterFailure `json:"onError,omitempty"`

	// Limits of one instance and of one call.
	Limits *FilterLimits `json:"limits,omitempty"`

	// Grants are what the program may do besides reading its input, logging and
	// telling the time. Nothing is granted by default.
	Grants *FilterGrants `json:"grants,omitempty"`
}

// FilterSource says where a program is. Exactly one field is set.
type FilterSource struct {
	// Inline is the text of a Starlark script of at most 64 KiB, or a module of
	// at most 1 MiB in base64 (RFC 4648 §4).
	// +kubebuilder:validation:MaxLength=1398104
	// +weir:elsewhere
	Inline string `json:"inline,omitempty"`

	// Path of a file, relative to the manifest.
	Path string `json:"path,omitempty"`

	// ConfigMapRef is the config map entry that holds the program.
	ConfigMapRef *FilterConfigMap `json:"configMapRef,omitempty"`

	// URL is where the program is fetched from, over HTTPS. It needs sha256.
	// +weir:form=https
	URL string `json:"url,omitempty"`
}

// FilterConfigMap names the config map entry that holds a program.
type FilterConfigMap struct {
	// Name of the config map.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=dns
	Name string `json:"name"`

	// Key within the config map, in data or binaryData.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=dataKey
	Key string `json:"key"`
}

// FilterMatch narrows what a program is asked about. Each list holds globs, in
// which * stands for any characters; an empty list matches everything.
type FilterMatch struct {
	// Methods of the protocol, such as tools/call or resources/*.
	// +weir:unique
	Methods []string `json:"methods,omitempty"`

	// Tools by the name that clients see.
	// +weir:unique
	Tools []string `json:"tools,omitempty"`

	// Backends by name.
	// +weir:unique
	Backends []string `json:"backends,omitempty"`
}

// FilterFailure is what happens to a message when a program fails.
// +kubebuilder:validation:Enum=deny;continue
type FilterFailure string

// What may happen when a program fails.
const (
	FilterDeny     FilterFailure = "deny"
	FilterContinue FilterFailure = "continue"
)

// FilterMode is what becomes of what a program says.
// +kubebuilder:validation:Enum=enforce;observe;off
type FilterMode string

// What may become of what a program says.
const (
	FilterEnforce FilterMode = "enforce"
	FilterObserve FilterMode = "observe"
	FilterOff     FilterMode = "off"
)

// FilterIsolation is what an instance keeps from one call to the next.
// +kubebuilder:validation:Enum=shared;per_request;per_session
type FilterIsolation string

// What an instance keeps from one call to the next.
const (
	IsolationShared     FilterIsolation = "shared"
	IsolationPerRequest FilterIsolation = "per_request"
	IsolationPerSession FilterIsolation = "per_session"
)

// FilterLimits bound one instance and one call of a program.
type FilterLimits struct {
	// Timeout of one call: the time of a processor that the program itself uses.
	// What it waits for does not count.
	// +kubebuilder:default="5ms"
	Timeout Duration `json:"timeout,omitempty"`

	// Fuel of one call: metered instructions of a module, steps of a script.
	// +kubebuilder:default=50000000
	// +kubebuilder:validation:Minimum=1
	Fuel *int64 `json:"fuel,omitempty"`

	// Memory of one instance. The default is 32Mi for a module of the Go
	// toolchain and 4Mi for another. Only when type is wasm.
	// +weir:low=65536
	// +weir:high=67108864
	Memory Quantity `json:"memory,omitempty"`

	// Output is the size that one call may return.
	// +kubebuilder:default="1Mi"
	// +weir:low=1
	// +weir:high=67108864
	Output Quantity `json:"output,omitempty"`

	// Instances that may exist at once. The default follows the processors. Only
	// when type is wasm.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	Instances *int32 `json:"instances,omitempty"`

	// Isolation is shared to keep an instance's memory between calls,
	// per_request to start each call from the memory after initialization, or
	// per_session to keep the memory of each session apart. The default is
	// shared. Only when type is wasm.
	Isolation FilterIsolation `json:"isolation,omitempty"`
}

// FilterGrants are what a program may do.
type FilterGrants struct {
	// Random allows reading random bytes.
	Random bool `json:"random,omitempty"`

	// KV allows keeping small values under names of the filter's own.
	KV bool `json:"kv,omitempty"`

	// Metrics allows counting.
	Metrics bool `json:"metrics,omitempty"`

	// Events allows emitting events.
	Events bool `json:"events,omitempty"`

	// Identity allows saying who a client is.
	Identity bool `json:"identity,omitempty"`

	// Keys are the secrets that the program may compute HMACs with, by the name
	// it calls them. It never sees their values.
	Keys map[string]SecretRef `json:"keys,omitempty"`

	// Credentials are the MCPExternalAuthConfigs that the program may choose for
	// a backend.
	Credentials []NameRef `json:"credentials,omitempty"`

	// HTTP lists the hosts, with an optional port, that the program may call over
	// HTTPS, or, with http:// before them, without TLS.
	// +weir:unique
	HTTP []string `json:"http,omitempty"`

	// Tools lists globs of the tools that the program may call.
	// +weir:unique
	Tools []string `json:"tools,omitempty"`

	// Claims lists the claims of a client that the program may read, as JSON
	// pointers (RFC 6901) into the claims of its token, with all that is in them.
	// +weir:unique
	Claims []string `json:"claims,omitempty"`
}

// EdgeFilterStatus is what was seen of the resource.
type EdgeFilterStatus struct {
	// Conditions are the latest observations.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ConfigHash changes when the configuration does.
	ConfigHash string `json:"configHash,omitempty"`

	// ObservedGeneration is the generation that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
