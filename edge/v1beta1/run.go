package v1beta1

// What `weir run` knows of a workload and the kinds have no field for stands in spec.run,
// an extension of ours. It says something outside of a cluster alone: in one, a pod's
// template and its service say the same.

// ProxyRun is spec.run of an MCPRemoteProxy: the door of the workload, and what Weir does
// on its behalf.
type ProxyRun struct {
	// ProxyHost is the address, or the name, that the door of the workload listens on.
	// +kubebuilder:default="127.0.0.1"
	// +weir:form=host
	ProxyHost string `json:"proxyHost,omitempty"`

	// AllowedOrigins are exact values of Origin that the door accepts besides its own.
	// +weir:form=origin
	AllowedOrigins []string `json:"allowedOrigins,omitempty"`

	// SessionTTL ends a session of a client that was not used for so long. The default is
	// that of the process.
	// +weir:least=1s
	SessionTTL Duration `json:"sessionTTL,omitempty"`

	// Stateless serves POST alone, without session ids and streams of sessions.
	// +kubebuilder:default=false
	Stateless bool `json:"stateless,omitempty"`

	// CABundle is a file of PEM certificates to trust, besides those of the system, in
	// what Weir itself fetches for the workload.
	CABundle string `json:"caBundle,omitempty"`

	// AuditConfig says what is recorded of each exchange, when audit is enabled, here or in
	// spec.audit.
	AuditConfig *Audit `json:"auditConfig,omitempty"`

	// Debug logs each exchange.
	// +kubebuilder:default=false
	Debug bool `json:"debug,omitempty"`

	// TelemetryEnvironment lists variables of Weir's own environment whose values are
	// attributes of spans, where there is telemetry.
	// +weir:form=variable
	TelemetryEnvironment []string `json:"telemetryEnvironment,omitempty"`

	// Labels of the workload. Those of weir.dev/ are ours.
	Labels map[string]string `json:"labels,omitempty"`

	// ExchangeUnverified has an externalAuthConfigRef of type tokenExchange exchange the tokens
	// of clients that nobody has verified, where there is no oidcConfigRef. They go to the token
	// endpoint and nowhere else, and who has one is nobody else to policies and records.
	// +kubebuilder:default=false
	ExchangeUnverified bool `json:"exchangeUnverified,omitempty"`

	// WebhookConfigRef names the MCPWebhookConfig of a server at a URL; an MCPServer has a field
	// of its own for it.
	WebhookConfigRef *NameRef `json:"webhookConfigRef,omitempty"`

	// RemoteAuth has requests to a server at a URL carry a login to it.
	RemoteAuth *RemoteAuth `json:"remoteAuth,omitempty"`
}

// RemoteAuth is a login to a server at a URL (OAuth 2.1), which a user makes in a browser.
// What it gives is kept with the user's credentials. What is empty is found out from the
// server.
type RemoteAuth struct {
	// Issuer is the URL of the authorization server.
	// +weir:form=url
	Issuer string `json:"issuer,omitempty"`

	// AuthorizeURL is where users log in, for an authorization server without metadata. It
	// goes together with tokenUrl.
	// +weir:form=url
	AuthorizeURL string `json:"authorizeUrl,omitempty"`

	// TokenURL is where tokens are given out.
	// +weir:form=url
	TokenURL string `json:"tokenUrl,omitempty"`

	// ClientID is the client that asks. Without it one is registered (RFC 7591).
	ClientID string `json:"clientId,omitempty"`

	// ClientSecretRef is the secret of the client.
	ClientSecretRef *SecretRef `json:"clientSecretRef,omitempty"`

	// ClientSecretPath is a file with the secret of the client, in place of clientSecretRef.
	// It is read when the secret is needed.
	ClientSecretPath string `json:"clientSecretPath,omitempty"`

	// Scopes to ask for.
	// +weir:form=scope
	Scopes []string `json:"scopes,omitempty"`

	// ScopeParamName is the parameter by which they are asked for.
	// +kubebuilder:default=scope
	ScopeParamName string `json:"scopeParamName,omitempty"`

	// Resource is what access is asked for (RFC 8707): an absolute URI without a fragment.
	// +weir:form=uri
	Resource string `json:"resource,omitempty"`

	// CallbackPort of 127.0.0.1 is where the browser comes back to.
	// +kubebuilder:default=8666
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	CallbackPort *int32 `json:"callbackPort,omitempty"`

	// SkipBrowser prints the page to open, and opens no browser.
	// +kubebuilder:default=false
	SkipBrowser bool `json:"skipBrowser,omitempty"`

	// Timeout of a login.
	// +kubebuilder:default="30s"
	// +weir:least=1s
	Timeout Duration `json:"timeout,omitempty"`

	// BearerTokenPath is a file with a bearer token, which is sent in place of what a login
	// gives. It is read for each request.
	BearerTokenPath string `json:"bearerTokenPath,omitempty"`
}

// ServerRun is spec.run of an MCPServer: that of an MCPRemoteProxy, and how the server is
// started and kept.
type ServerRun struct {
	ProxyRun `json:",inline"`

	// TargetHost is where a server that speaks HTTP is reached.
	// +kubebuilder:default="127.0.0.1"
	// +weir:form=host
	TargetHost string `json:"targetHost,omitempty"`

	// Publish lists ports of the server that this host listens on, too: HOST:CONTAINER,
	// with an IP and a colon before it for an address other than 127.0.0.1.
	// +weir:form=publish
	Publish []string `json:"publish,omitempty"`

	// Network is the network of the container engine, host, or none.
	Network string `json:"network,omitempty"`

	// IsolateNetwork keeps the server from everything but what its permission profile
	// names.
	// +kubebuilder:default=true
	IsolateNetwork *bool `json:"isolateNetwork,omitempty"`

	// AllowContainerGateway lets an isolated server reach the gateway of the container
	// engine.
	// +kubebuilder:default=false
	AllowContainerGateway bool `json:"allowContainerGateway,omitempty"`

	// EgressPorts are ports that an isolated server reaches beside those that its permission
	// profile names, at the hosts that it names.
	// +weir:unique
	EgressPorts []int32 `json:"egressPorts,omitempty"`

	// EnvFiles are files of environment variables, and directories of such files. A later
	// one wins, and spec.env wins over all.
	// +weir:unique
	EnvFiles []string `json:"envFiles,omitempty"`

	// IgnoreGlobally hides what the user's ignore patterns name in mounted directories.
	// +kubebuilder:default=true
	IgnoreGlobally *bool `json:"ignoreGlobally,omitempty"`

	// RuntimeImage is the base of an image that is built.
	RuntimeImage string `json:"runtimeImage,omitempty"`

	// RuntimeAddPackages are packages to install in an image that is built.
	// +weir:unique
	RuntimeAddPackages []string `json:"runtimeAddPackages,omitempty"`

	// BuildCA is a file of PEM certificates that a build trusts.
	BuildCA string `json:"buildCA,omitempty"`

	// ImageVerification says what becomes of an image whose origin is not certain.
	// +kubebuilder:default=warn
	ImageVerification ImageVerification `json:"imageVerification,omitempty"`

	// Writable are paths of the server at which it may write, in memory.
	// +weir:form=absolute
	Writable []string `json:"writable,omitempty"`

	// AllowUnsafeMounts are paths of this host that may be visible although they show more
	// than a server should see, such as a home directory.
	AllowUnsafeMounts []string `json:"allowUnsafeMounts,omitempty"`

	// AllowPrivileged lets the permission profile of a server in a container ask for the
	// engine's privileged mode, in which it can do what root of this machine can.
	// +kubebuilder:default=false
	AllowPrivileged bool `json:"allowPrivileged,omitempty"`

	// Processes says whether each session of a client has a process of its own.
	// +kubebuilder:default=session
	Processes ProcessMode `json:"processes,omitempty"`

	// MaxProcesses at a time.
	// +kubebuilder:default=16
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	MaxProcesses *int32 `json:"maxProcesses,omitempty"`

	// Restart says when a server that has ended is started again: no for never, always for
	// each time, on-failure for each time but that one which speaks HTTP and ended by itself
	// with exit 0 waits for the next call. One over stdio is started when it is needed.
	// +kubebuilder:default=on-failure
	Restart RestartPolicy `json:"restart,omitempty"`

	// Memory that the server and what it starts may take together, 16Mi at least. A server in
	// WebAssembly has from 1Mi to 256Mi.
	// +kubebuilder:default="1Gi"
	// +weir:low=1048576
	Memory Quantity `json:"memory,omitempty"`

	// CPUs that the server may use, such as 500m or 2. Without it there is no limit.
	CPUs Quantity `json:"cpus,omitempty"`

	// Sandbox of a local process: auto is the best that this system has.
	// +kubebuilder:default=auto
	Sandbox SandboxGrade `json:"sandbox,omitempty"`

	// RunAs is image, or UID or UID:GID, of the server in a container.
	// +kubebuilder:validation:Pattern=`^(image|[0-9]{1,10}(:[0-9]{1,10})?)$`
	RunAs string `json:"runAs,omitempty"`

	// Registry says which entry of a registry the server was made from.
	Registry *RegistryOrigin `json:"registry,omitempty"`
}

// RegistryOrigin names an entry of a registry, as it was.
type RegistryOrigin struct {
	// Name of the entry.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// Digest of the entry: sha256: and 64 hexadecimal digits.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Digest string `json:"digest,omitempty"`

	// Signer is who has to have signed the image, where the entry says so.
	Signer *ImageSigner `json:"signer,omitempty"`
}

// ImageSigner is who has to have signed an image, as the entry of a registry says.
type ImageSigner struct {
	// Issuer vouches for the signer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Issuer string `json:"issuer"`

	// Identity of the signer: a path of a workflow in the repository, or all of its name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Identity string `json:"identity"`

	// Repository that the image was built from.
	// +kubebuilder:validation:MaxLength=512
	Repository string `json:"repository,omitempty"`

	// Ref is the revision of the repository, such as refs/tags/v1.
	// +kubebuilder:validation:MaxLength=512
	Ref string `json:"ref,omitempty"`

	// Runner is what it was built on, such as github-hosted.
	// +kubebuilder:validation:MaxLength=512
	Runner string `json:"runner,omitempty"`
}

// ImageVerification says what becomes of an image whose origin is not certain.
// +kubebuilder:validation:Enum=warn;enabled;disabled
type ImageVerification string

// What becomes of an image whose origin is not certain.
const (
	VerifyWarn     ImageVerification = "warn"
	VerifyEnabled  ImageVerification = "enabled"
	VerifyDisabled ImageVerification = "disabled"
)

// ProcessMode says who shares a process of a server that speaks over stdio.
// +kubebuilder:validation:Enum=session;shared
type ProcessMode string

// Who shares a process.
const (
	ProcessPerSession ProcessMode = "session" // one for each session; never two principals in one
	ProcessShared     ProcessMode = "shared"  // one for all
)

// RestartPolicy says when a server that has ended is started again.
// +kubebuilder:validation:Enum=on-failure;always;no
type RestartPolicy string

// When a server is started again.
const (
	RestartOnFailure RestartPolicy = "on-failure"
	RestartAlways    RestartPolicy = "always"
	RestartNever     RestartPolicy = "no"
)

// SandboxGrade is how a local process is kept from the rest of the machine.
// +kubebuilder:validation:Enum=auto;bwrap;landlock;off
type SandboxGrade string

// The grades of a sandbox.
const (
	SandboxAuto     SandboxGrade = "auto" // the best that there is
	SandboxBwrap    SandboxGrade = "bwrap"
	SandboxLandlock SandboxGrade = "landlock"
	SandboxOff      SandboxGrade = "off"
)

// OAuthParameters are those of a login's own requests, none of which carries scopes (RFC 6749
// §4.1.1, RFC 7636 §4.3, RFC 8707 §2, OpenID Connect Core §3.1.2.1).
var OAuthParameters = []string{"response_type", "client_id", "redirect_uri", "state", "code_challenge", "code_challenge_method", "resource", "prompt", "nonce"}
