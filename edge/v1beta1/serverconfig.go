package v1beta1

// ServerConfig is the configuration of a virtual server: spec.config of a
// VirtualMCPServer, and the whole of a configuration file without a kind.
type ServerConfig struct {
	// Name of the server that clients see.
	Name string `json:"name,omitempty"`

	// GroupRef is the name of the group.
	GroupRef string `json:"groupRef,omitempty"`

	// Metadata is free.
	Metadata map[string]string `json:"metadata,omitempty"`

	// PassthroughHeaders names the incoming headers that are forwarded unchanged
	// to all backends.
	PassthroughHeaders []string `json:"passthroughHeaders,omitempty"`

	// FilterRefs names the EdgeFilters that messages pass, in their order.
	FilterRefs []NameRef `json:"filterRefs,omitempty"`

	// Backends are static backends, used when outgoingAuth.source is inline.
	Backends []StaticBackend `json:"backends,omitempty"`

	// Aggregation of the backends' tools.
	Aggregation *Aggregation `json:"aggregation,omitempty"`

	// CompositeTools are workflows that clients call as tools.
	CompositeTools []CompositeTool `json:"compositeTools,omitempty"`

	// CompositeToolRefs names VirtualMCPCompositeToolDefinitions.
	CompositeToolRefs []NameRef `json:"compositeToolRefs,omitempty"`

	// IncomingAuth is the authentication of clients. spec.incomingAuth
	// supersedes it.
	IncomingAuth *ConfigIncomingAuth `json:"incomingAuth,omitempty"`

	// OutgoingAuth is the authentication to backends. spec.outgoingAuth
	// supersedes it.
	OutgoingAuth *ConfigOutgoingAuth `json:"outgoingAuth,omitempty"`

	// Audit logging.
	Audit *Audit `json:"audit,omitempty"`

	// Operational settings.
	Operational *Operational `json:"operational,omitempty"`

	// Optimizer shows clients only find_tool and call_tool.
	Optimizer *Optimizer `json:"optimizer,omitempty"`

	// CodeMode offers the tool execute_tool_script.
	CodeMode *CodeMode `json:"codeMode,omitempty"`

	// RateLimiting limits calls. It needs session storage of provider kvstore.
	RateLimiting *RateLimiting `json:"rateLimiting,omitempty"`

	// SessionStorage says where sessions are kept.
	SessionStorage *ConfigSessionStorage `json:"sessionStorage,omitempty"`

	// Telemetry is deprecated in a cluster in favour of spec.telemetryConfigRef.
	Telemetry *Telemetry `json:"telemetry,omitempty"`
}

// StaticBackendType is entry for a remote server entry, or empty.
// +kubebuilder:validation:Enum=entry;""
type StaticBackendType string

// BackendEntry is the type of a backend that is a remote server entry.
const BackendEntry StaticBackendType = "entry"

// StaticBackend is one backend.
type StaticBackend struct {
	// Name of the backend. Authentication is looked up by it.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// URL of the backend.
	// +kubebuilder:validation:Pattern=`^https?://`
	// +weir:form=url
	URL string `json:"url"`

	// Transport of the backend.
	Transport BackendTransport `json:"transport"`

	// Type is entry for a remote server entry, else empty.
	Type StaticBackendType `json:"type,omitempty"`

	// CABundlePath is a file of PEM certificates to trust. Only when type is
	// entry.
	CABundlePath string `json:"caBundlePath,omitempty"`

	// Metadata is free, but for the key group, which the server sets.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// ConflictResolution is what happens to tools of equal name.
// +kubebuilder:validation:Enum=prefix;priority;manual
type ConflictResolution string

// The ways to resolve a conflict of tool names.
const (
	ConflictPrefix   ConflictResolution = "prefix"
	ConflictPriority ConflictResolution = "priority"
	ConflictManual   ConflictResolution = "manual"
)

// Aggregation says how the tools of the backends become the tools of the server.
type Aggregation struct {
	// ConflictResolution is prefix to prefix tool names with the workload,
	// priority to let the first workload in order win, or manual to demand an
	// explicit override for every conflict.
	// +kubebuilder:default=prefix
	ConflictResolution ConflictResolution `json:"conflictResolution,omitempty"`

	// ConflictResolutionConfig holds what the resolution needs.
	ConflictResolutionConfig *ConflictResolutionConfig `json:"conflictResolutionConfig,omitempty"`

	// ExcludeAllTools hides all backend tools from clients. Composite tools may
	// still call them.
	ExcludeAllTools bool `json:"excludeAllTools,omitempty"`

	// Tools are rules for single workloads.
	Tools []WorkloadTools `json:"tools,omitempty"`
}

// ConflictResolutionConfig holds what a conflict resolution needs.
type ConflictResolutionConfig struct {
	// PrefixFormat of tool names; {workload} stands for the workload's name.
	// +kubebuilder:default="{workload}_"
	PrefixFormat string `json:"prefixFormat,omitempty"`

	// PriorityOrder lists workloads, the winner of a conflict first.
	// +weir:unique
	PriorityOrder []string `json:"priorityOrder,omitempty"`
}

// WorkloadTools are the rules for the tools of one workload.
type WorkloadTools struct {
	// Workload is the name of the backend.
	// +kubebuilder:validation:MinLength=1
	Workload string `json:"workload"`

	// ExcludeAll hides the workload's tools from clients.
	ExcludeAll bool `json:"excludeAll,omitempty"`

	// Filter lists the names that clients see, after overrides. Empty means all.
	// Used only without toolConfigRef.
	// +weir:unique
	Filter []string `json:"filter,omitempty"`

	// Overrides by the tool's original name. Used only without toolConfigRef.
	Overrides map[string]ToolOverride `json:"overrides,omitempty"`

	// ToolConfigRef names an MCPToolConfig, which replaces filter and overrides.
	ToolConfigRef *NameRef `json:"toolConfigRef,omitempty"`
}

// Audit says what is recorded of each exchange.
type Audit struct {
	// Enabled turns audit logging on.
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`

	// Component is the name of the component in each record.
	Component string `json:"component,omitempty"`

	// EventTypes to record; empty means all.
	// +weir:unique
	EventTypes []string `json:"eventTypes,omitempty"`

	// ExcludeEventTypes are not recorded, whatever eventTypes says.
	// +weir:unique
	ExcludeEventTypes []string `json:"excludeEventTypes,omitempty"`

	// IncludeRequestData adds the request's data to the record.
	// +kubebuilder:default=false
	IncludeRequestData bool `json:"includeRequestData,omitempty"`

	// IncludeResponseData adds the response's data to the record.
	// +kubebuilder:default=false
	IncludeResponseData bool `json:"includeResponseData,omitempty"`

	// MaxDataSize is the size in bytes to which data is cut.
	// +kubebuilder:default=1024
	// +weir:low=0
	MaxDataSize *int `json:"maxDataSize,omitempty"`

	// LogFile is the path of the audit log; standard output when empty.
	LogFile string `json:"logFile,omitempty"`

	// DetectApplicationErrors looks for JSON-RPC errors in the first bytes of
	// responses whose HTTP status is 2xx.
	// +kubebuilder:default=true
	DetectApplicationErrors *bool `json:"detectApplicationErrors,omitempty"`
}

// Operational are settings of operation.
type Operational struct {
	// LogLevel is debug; empty means info.
	// +kubebuilder:validation:Enum=debug
	LogLevel string `json:"logLevel,omitempty"`

	// Timeouts of calls to backends.
	Timeouts *Timeouts `json:"timeouts,omitempty"`

	// FailureHandling says when a backend counts as failed and what follows.
	FailureHandling *FailureHandling `json:"failureHandling,omitempty"`
}

// Timeouts bound how long a backend may be silent.
type Timeouts struct {
	// Default applies to workloads without an entry of their own.
	// +kubebuilder:default="30s"
	Default Duration `json:"default,omitempty"`

	// PerWorkload holds the timeouts of single workloads.
	PerWorkload map[string]Duration `json:"perWorkload,omitempty"`
}

// PartialFailureMode is what happens to lists when a backend has failed.
// +kubebuilder:validation:Enum=fail;best_effort
type PartialFailureMode string

// The ways to treat the failure of some backends.
const (
	PartialFail       PartialFailureMode = "fail"
	PartialBestEffort PartialFailureMode = "best_effort"
)

// FailureHandling says when a backend counts as failed and what follows.
type FailureHandling struct {
	// HealthCheckInterval is the time between health checks.
	// +kubebuilder:default="30s"
	HealthCheckInterval Duration `json:"healthCheckInterval,omitempty"`

	// HealthCheckTimeout should be less than the interval.
	// +kubebuilder:default="10s"
	HealthCheckTimeout Duration `json:"healthCheckTimeout,omitempty"`

	// UnhealthyThreshold is the number of consecutive failures before a backend
	// is unhealthy.
	// +kubebuilder:default=3
	// +weir:low=1
	UnhealthyThreshold *int `json:"unhealthyThreshold,omitempty"`

	// PartialFailureMode is fail to refuse incomplete lists, or best_effort to
	// list what is there.
	// +kubebuilder:default=fail
	PartialFailureMode PartialFailureMode `json:"partialFailureMode,omitempty"`

	// StatusReportingInterval is how often the status is reported.
	// +kubebuilder:default="30s"
	StatusReportingInterval Duration `json:"statusReportingInterval,omitempty"`

	// CircuitBreaker stops calls to a failing backend for a while.
	CircuitBreaker *CircuitBreaker `json:"circuitBreaker,omitempty"`
}

// CircuitBreaker stops calls to a failing backend for a while.
type CircuitBreaker struct {
	// Enabled turns the circuit breaker on.
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`

	// FailureThreshold is the number of failures that opens it.
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	FailureThreshold *int `json:"failureThreshold,omitempty"`

	// Timeout is how long it stays open before a trial call; at least 1s.
	// +kubebuilder:default="60s"
	// +weir:least=1s
	Timeout Duration `json:"timeout,omitempty"`
}

// EmbeddingProvider is the interface of an embedding service.
// +kubebuilder:validation:Enum=tei;compat
type EmbeddingProvider string

// The interfaces of embedding services.
const (
	EmbeddingTEI    EmbeddingProvider = "tei"
	EmbeddingCompat EmbeddingProvider = "compat"
)

// Optimizer lets clients search for tools instead of listing them.
type Optimizer struct {
	// EmbeddingProvider is tei for a text-embedding inference API, or compat for
	// an OpenAI-compatible embeddings API.
	// +kubebuilder:default=tei
	EmbeddingProvider EmbeddingProvider `json:"embeddingProvider,omitempty"`

	// EmbeddingService is the base URL of the service. An embeddingServerRef
	// takes precedence. Without a service, search is by keyword only.
	// +weir:form=url
	EmbeddingService string `json:"embeddingService,omitempty"`

	// EmbeddingModel is required for compat and ignored for tei.
	EmbeddingModel string `json:"embeddingModel,omitempty"`

	// EmbeddingHeaders are plain text headers for compat. Authorization and
	// Content-Type cannot be set; put no secret here.
	// +kubebuilder:validation:MaxProperties=32
	EmbeddingHeaders map[string]string `json:"embeddingHeaders,omitempty"`

	// EmbeddingServiceTimeout bounds one request to the service.
	// +kubebuilder:default="30s"
	EmbeddingServiceTimeout Duration `json:"embeddingServiceTimeout,omitempty"`

	// HybridSearchSemanticRatio is the share of semantic search: 0.0 is all
	// keyword, 1.0 all semantic.
	// +kubebuilder:default="0.5"
	// +kubebuilder:validation:Pattern=`^([0-9]*[.])?[0-9]+$`
	// +weir:form=ratio
	HybridSearchSemanticRatio string `json:"hybridSearchSemanticRatio,omitempty"`

	// MaxToolsToReturn by one search.
	// +kubebuilder:default=8
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=50
	MaxToolsToReturn *int `json:"maxToolsToReturn,omitempty"`

	// SemanticDistanceThreshold drops results farther away than this: 0 is
	// identical, 2 unrelated.
	// +kubebuilder:default="1.0"
	// +kubebuilder:validation:Pattern=`^([0-9]*[.])?[0-9]+$`
	// +weir:form=distance
	SemanticDistanceThreshold string `json:"semanticDistanceThreshold,omitempty"`
}

// CodeMode lets clients run scripts that call tools.
type CodeMode struct {
	// Enabled offers the tool execute_tool_script.
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`

	// ParallelMaxConcurrency caps the calls of the script's parallel().
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	ParallelMaxConcurrency *int `json:"parallelMaxConcurrency,omitempty"`

	// StepLimit is the number of Starlark steps that a script may take.
	// +kubebuilder:default=100000
	// +kubebuilder:validation:Minimum=1
	StepLimit *int64 `json:"stepLimit,omitempty"`

	// ToolCallTimeout bounds each call of the script.
	// +kubebuilder:default="30s"
	ToolCallTimeout Duration `json:"toolCallTimeout,omitempty"`
}

// ConfigSessionStorage says where sessions are kept. The store's password is
// given to the process, not here.
type ConfigSessionStorage struct {
	// Provider of the storage.
	Provider SessionProvider `json:"provider"`

	// Address of the store. Required when provider is kvstore: host:port, or a URL
	// of redis://, redis-cluster:// or redis-sentinel:// (rediss for TLS).
	Address string `json:"address,omitempty"`

	// DB is the number of the database.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	DB int32 `json:"db,omitempty"`

	// KeyPrefix of all keys.
	KeyPrefix string `json:"keyPrefix,omitempty"`
}

// Telemetry says where traces and metrics go.
type Telemetry struct {
	// Endpoint of the collector.
	Endpoint string `json:"endpoint,omitempty"`

	// Headers sent to the collector.
	// +weir:form=headers
	Headers map[string]string `json:"headers,omitempty"`

	// Insecure allows plain HTTP to the collector.
	// +kubebuilder:default=false
	Insecure bool `json:"insecure,omitempty"`

	// TracingEnabled turns traces on.
	// +kubebuilder:default=false
	TracingEnabled bool `json:"tracingEnabled,omitempty"`

	// MetricsEnabled turns metrics on.
	// +kubebuilder:default=false
	MetricsEnabled bool `json:"metricsEnabled,omitempty"`

	// SamplingRate of traces, from 0 to 1.
	// +kubebuilder:default="0.05"
	// +weir:form=ratio
	SamplingRate string `json:"samplingRate,omitempty"`

	// ServiceName in traces and metrics. The default is the server's name.
	ServiceName string `json:"serviceName,omitempty"`

	// ServiceVersion in traces and metrics.
	ServiceVersion string `json:"serviceVersion,omitempty"`

	// CACertPath is a file of PEM certificates to trust for the collector.
	CACertPath string `json:"caCertPath,omitempty"`

	// CustomAttributes are added to everything that is sent.
	CustomAttributes map[string]string `json:"customAttributes,omitempty"`

	// EnvironmentVariables whose values are added to everything that is sent.
	// +weir:form=variable
	EnvironmentVariables []string `json:"environmentVariables,omitempty"`

	// EnablePrometheusMetricsPath serves /metrics on the main port.
	// +kubebuilder:default=false
	EnablePrometheusMetricsPath bool `json:"enablePrometheusMetricsPath,omitempty"`

	// UseLegacyAttributes also sends the older attribute names.
	// +kubebuilder:default=true
	UseLegacyAttributes *bool `json:"useLegacyAttributes,omitempty"`
}
