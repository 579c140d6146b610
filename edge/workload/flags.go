package workload

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/registry"
)

// Options are the flags of `weir run`, one field a flag. The tags are the flag's own:
//
//	flag   its long name; after a comma its short one
//	theme  of the help that it stands under
//	value  what its value is called in the help
//	help   what it does
//	def    its default, where that is not the zero value
//	field  the field of a manifest that it stands for, for messages: KIND FIELD, or a FIELD of
//	       the workload's own object
//	later  why it is not supported yet; it is refused by name where it is given
//	lists  comma: one value holds several
type Options struct {
	Server string          // the word before --; "" for none
	Entry  *registry.Start // what Server names in a registry; nil for none
	Args   []string        // the words after it
	Dir    string          // that relative paths are of; absolute

	// Given are the flags that were given, by their long names.
	Given map[string]bool

	// Look finds a program, as exec.LookPath does.
	Look func(program string) (string, error)
	// HasImage reports whether the container engine has an image. It is asked about words that
	// could be anything.
	HasImage func(image string) (bool, error)
	// Named reports whether there is a workload of a name; nil for none.
	Named func(name string) bool

	Name            string `flag:"name" theme:"General" value:"NAME" field:"metadata.name" help:"call the workload so; without it the server's own name is taken"`
	Group           string `flag:"group" theme:"General" value:"GROUP" def:"default" field:"spec.groupRef" help:"the group that it belongs to"`
	Debug           bool   `flag:"debug" theme:"General" field:"spec.run.debug" help:"log each exchange"`
	Transport       string `flag:"transport" theme:"General" value:"TRANSPORT" field:"spec.transport" help:"what the server speaks: stdio, streamable-http or sse"`
	ReplaceExisting bool   `flag:"replace" theme:"General" help:"remove a workload of that name first"`
	Client          string `flag:"client" theme:"General" value:"APP" help:"write the URL into the configuration of an MCP client: see weir client apps"`

	ProxyMode         string        `flag:"proxy-mode" theme:"Door" value:"MODE" def:"streamable-http" field:"spec.proxyMode" help:"what clients of a stdio server are told: streamable-http, or sse, which they give up"`
	ProxyPort         int           `flag:"proxy-port" theme:"Door" value:"PORT" field:"spec.proxyPort" help:"listen on this port; 0 for one that the name gives"`
	Host              string        `flag:"host" theme:"Door" value:"HOST" def:"127.0.0.1" field:"spec.run.proxyHost" help:"listen on this address or name"`
	AllowedOrigins    []string      `flag:"allowed-origins" theme:"Door" value:"ORIGIN" field:"spec.run.allowedOrigins" help:"an exact value of Origin that is let in; may be repeated"`
	EndpointPrefix    string        `flag:"endpoint-prefix" theme:"Door" value:"PATH" field:"spec.endpointPrefix" help:"put before the path that clients of sse are told"`
	TrustProxyHeaders bool          `flag:"trust-proxy-headers" theme:"Door" field:"spec.trustProxyHeaders" help:"X-Forwarded-Proto, -Host, -Port and -Prefix of whoever connects shape the URLs that clients are told"`
	Stateless         bool          `flag:"stateless" theme:"Door" field:"spec.run.stateless" help:"POST alone, without sessions"`
	SessionTTL        time.Duration `flag:"session-ttl" theme:"Door" value:"DURATION" field:"spec.run.sessionTTL" help:"end a session that was not used for so long; 0 is 2h"`
	CABundle          string        `flag:"weir-ca-bundle" theme:"Door" value:"FILE" field:"spec.run.caBundle" help:"authorities in PEM that Weir's own requests for the workload trust, too"`

	TargetHost         string   `flag:"target-host" theme:"Server" value:"HOST" def:"127.0.0.1" field:"spec.run.targetHost" help:"where a server that speaks HTTP is"`
	TargetPort         int      `flag:"target-port" theme:"Server" value:"PORT" field:"spec.mcpPort" help:"the port of a server that speaks HTTP"`
	Env                []string `flag:"env,e" theme:"Server" value:"NAME=VALUE" field:"spec.env" help:"a variable of the server's environment; may be repeated"`
	EnvFile            string   `flag:"env-file" theme:"Server" value:"FILE" field:"spec.run.envFiles" help:"a file of such variables"`
	EnvFileDir         string   `flag:"env-file-dir" theme:"Server" value:"DIR" field:"spec.run.envFiles" help:"a directory of such files"`
	Secrets            []string `flag:"secret" theme:"Server" value:"NAME,target=VARIABLE" field:"spec.secrets" help:"a secret as a variable of the server's environment; may be repeated"`
	Labels             []string `flag:"label,l" theme:"Server" value:"NAME=VALUE" field:"spec.run.labels" help:"a label of the workload; may be repeated"`
	Processes          string   `flag:"processes" theme:"Server" value:"MODE" def:"session" field:"spec.run.processes" help:"a process for each session, or one that all share: session or shared"`
	MaxProcesses       int      `flag:"max-processes" theme:"Server" value:"N" def:"16" field:"spec.run.maxProcesses" help:"at most so many at a time"`
	Restart            string   `flag:"restart" theme:"Server" value:"WHEN" def:"on-failure" field:"spec.run.restart" help:"start a server that has ended again: on-failure, always or no; with on-failure one that speaks HTTP and ended with exit 0 waits for the next call"`
	Memory             string   `flag:"memory" theme:"Server" value:"SIZE" def:"1GiB" field:"spec.run.memory" help:"memory that the server and what it starts may take together"`
	CPUs               string   `flag:"cpus" theme:"Server" value:"N" field:"spec.run.cpus" help:"processors that it may use, such as 0.5"`
	RuntimeImage       string   `flag:"runtime-image" theme:"Server" value:"IMAGE" field:"spec.run.runtimeImage" help:"the base of an image that is built, in place of the usual one; of go:// that of the toolchain"`
	RuntimeAddPackages []string `flag:"runtime-add-package" theme:"Server" value:"PACKAGE" field:"spec.run.runtimeAddPackages" help:"a package of its system to install in an image that is built; may be repeated"`
	CACert             string   `flag:"ca-cert" theme:"Server" value:"FILE" field:"spec.run.buildCA" help:"authorities in PEM that a build trusts, too"`
	ImageVerification  string   `flag:"image-verification" theme:"Server" value:"MODE" def:"warn" field:"spec.run.imageVerification" help:"what becomes of an image whose origin is not certain: warn, enabled or disabled"`

	PermissionProfile     string   `flag:"permission-profile" theme:"Sandbox" value:"PROFILE" field:"spec.permissionProfile" help:"what the server may reach: none, network, or a file of JSON; without it network"`
	Sandbox               string   `flag:"sandbox" theme:"Sandbox" value:"GRADE" def:"auto" field:"spec.run.sandbox" help:"what a process of this machine runs in: auto, bwrap, landlock or off"`
	Volumes               []string `flag:"volume,v" theme:"Sandbox" value:"HOST:INSIDE[:ro]" field:"spec.volumes" help:"make a path of this machine visible to the server; may be repeated"`
	Writable              []string `flag:"writable" theme:"Sandbox" value:"PATH" field:"spec.run.writable" help:"a path at which the server may write, in memory; may be repeated"`
	AllowUnsafeMount      []string `flag:"allow-unsafe-mount" theme:"Sandbox" value:"PATH" field:"spec.run.allowUnsafeMounts" help:"make this path visible although it shows more than a server should see; may be repeated"`
	IgnoreGlobally        bool     `flag:"ignore-globally" theme:"Sandbox" def:"true" field:"spec.run.ignoreGlobally" help:"hide what your ignore patterns name in mounted directories"`
	PrintResolvedOverlays bool     `flag:"print-resolved-overlays" theme:"Sandbox" help:"show what your ignore patterns, and those in mounted directories, hide"`
	IsolateNetwork        bool     `flag:"isolate-network" theme:"Sandbox" def:"true" field:"spec.run.isolateNetwork" help:"keep the server from what its profile does not name, as far as it can be kept; where the flag is given, one that cannot be kept is not started, and the profile network is held, too"`
	Network               string   `flag:"network" theme:"Sandbox" value:"NETWORK" field:"spec.run.network" help:"host, none, or a network of a container engine"`
	AllowGateway          bool     `flag:"allow-container-gateway" theme:"Sandbox" field:"spec.run.allowContainerGateway" help:"let an isolated server reach this machine as host.docker.internal, at every port, as containers do"`
	Publish               []string `flag:"publish,p" theme:"Sandbox" value:"[IP:]HOST:CONTAINER" field:"spec.run.publish" help:"a port of the server that this machine listens on, too, at 127.0.0.1 where no IP is given; may be repeated"`
	EgressPort            []int    `flag:"egress-port" theme:"Sandbox" value:"PORT" field:"spec.run.egressPorts" help:"one more port that an isolated server reaches, beside those of its profile; may be repeated"`
	RunAs                 string   `flag:"run-as" theme:"Sandbox" value:"USER" field:"spec.run.runAs" help:"whom a server in a container runs as: image, or UID[:GID]; without it the image's user, unless that is root"`
	AllowPrivileged       bool     `flag:"allow-privileged" theme:"Sandbox" field:"spec.run.allowPrivileged" help:"let a profile ask for a privileged container, which can do what root of this machine can"`

	Tools         []string `flag:"tools" theme:"Clients" value:"TOOL" lists:"comma" field:"MCPToolConfig spec.toolsFilter" help:"clients see these tools alone, by the names that they have for clients; may be repeated"`
	ToolsOverride string   `flag:"tools-override" theme:"Clients" value:"FILE" field:"MCPToolConfig spec.toolsOverride" help:"other names and descriptions of tools, in JSON"`
	WebhookConfig []string `flag:"webhook-config" theme:"Clients" value:"FILE" field:"MCPWebhookConfig spec" help:"webhooks that messages are shown to first; may be repeated"`
	EnableAudit   bool     `flag:"enable-audit" theme:"Clients" field:"spec.audit.enabled" help:"write down each exchange"`
	AuditConfig   string   `flag:"audit-config" theme:"Clients" value:"FILE" field:"spec.run.auditConfig" help:"write down what a file says of each exchange"`
	AuthzConfig   string   `flag:"authz-config" theme:"Clients" value:"FILE" field:"MCPAuthzConfig spec" help:"what clients may do"`

	OIDCIssuer           string   `flag:"oidc-issuer" theme:"Login of clients" value:"URL" field:"MCPOIDCConfig spec.inline.issuer" help:"who issues the tokens that clients bring"`
	OIDCAudience         string   `flag:"oidc-audience" theme:"Login of clients" value:"AUDIENCE" field:"spec.oidcConfigRef.audience" help:"whom they must be for"`
	OIDCClientID         string   `flag:"oidc-client-id" theme:"Login of clients" value:"ID" field:"MCPOIDCConfig spec.inline.clientId" help:"as whom tokens are introspected"`
	OIDCClientSecret     string   `flag:"oidc-client-secret" theme:"Login of clients" value:"SECRET" field:"MCPOIDCConfig spec.inline.clientSecretRef" help:"with what; the variable WEIR_OIDC_CLIENT_SECRET keeps it off the command line"`
	OIDCIntrospectionURL string   `flag:"oidc-introspection-url" theme:"Login of clients" value:"URL" field:"MCPOIDCConfig spec.inline.introspectionUrl" help:"where tokens are introspected; without --oidc-issuer all of them"`
	OIDCJWKSURL          string   `flag:"oidc-jwks-url" theme:"Login of clients" value:"URL" field:"MCPOIDCConfig spec.inline.jwksUrl" help:"where the keys of the issuer are"`
	OIDCScopes           []string `flag:"oidc-scopes" theme:"Login of clients" value:"SCOPE" def:"openid" lists:"comma" field:"spec.oidcConfigRef.scopes" help:"scopes that clients are told to ask for"`
	OIDCInsecureHTTP     bool     `flag:"oidc-insecure-allow-http" theme:"Login of clients" field:"MCPOIDCConfig spec.inline.insecureAllowHTTP" help:"for development: the issuer may be reached by plain http"`
	JWKSAllowPrivateIP   bool     `flag:"jwks-allow-private-ip" theme:"Login of clients" field:"MCPOIDCConfig spec.inline.jwksAllowPrivateIP" help:"the issuer may be on a private address"`
	JWKSAuthTokenFile    string   `flag:"jwks-auth-token-file" theme:"Login of clients" value:"FILE" field:"MCPOIDCConfig spec.inline.jwksAuthTokenPath" help:"a file with a bearer token for the keys of the issuer"`
	ResourceURL          string   `flag:"resource-url" theme:"Login of clients" value:"URL" field:"spec.oidcConfigRef.resourceUrl" help:"the URL that clients are told as theirs"`

	RemoteAuth                 bool          `flag:"remote-auth" theme:"Remote server" field:"spec.run.remoteAuth" help:"log in at the remote server (OAuth), in a browser"`
	RemoteAuthIssuer           string        `flag:"remote-auth-issuer" theme:"Remote server" value:"URL" field:"spec.run.remoteAuth.issuer" help:"its authorization server"`
	RemoteAuthAuthorizeURL     string        `flag:"remote-auth-authorize-url" theme:"Remote server" value:"URL" field:"spec.run.remoteAuth.authorizeUrl" help:"where users log in"`
	RemoteAuthTokenURL         string        `flag:"remote-auth-token-url" theme:"Remote server" value:"URL" field:"spec.run.remoteAuth.tokenUrl" help:"where tokens are given out"`
	RemoteAuthClientID         string        `flag:"remote-auth-client-id" theme:"Remote server" value:"ID" field:"spec.run.remoteAuth.clientId" help:"as which client; without it one is registered"`
	RemoteAuthClientSecret     string        `flag:"remote-auth-client-secret" theme:"Remote server" value:"SECRET" field:"spec.run.remoteAuth.clientSecretRef" help:"with what; a file keeps it off the command line"`
	RemoteAuthClientSecretFile string        `flag:"remote-auth-client-secret-file" theme:"Remote server" value:"FILE" field:"spec.run.remoteAuth.clientSecretPath" help:"the same, in a file, which is read again when it changes"`
	RemoteAuthScopes           []string      `flag:"remote-auth-scopes" theme:"Remote server" value:"SCOPE" def:"openid,profile,email" lists:"comma" field:"spec.run.remoteAuth.scopes" help:"scopes to ask for; without it those that the server names, and of an issuer openid,profile,email"`
	RemoteAuthScopeParam       string        `flag:"remote-auth-scope-param-name" theme:"Remote server" value:"NAME" field:"spec.run.remoteAuth.scopeParamName" help:"the parameter that they are asked for by"`
	RemoteAuthResource         string        `flag:"remote-auth-resource" theme:"Remote server" value:"URI" field:"spec.run.remoteAuth.resource" help:"the resource that is asked for (RFC 8707)"`
	RemoteAuthCallbackPort     int           `flag:"remote-auth-callback-port" theme:"Remote server" value:"PORT" def:"8666" field:"spec.run.remoteAuth.callbackPort" help:"where the browser comes back"`
	RemoteAuthSkipBrowser      bool          `flag:"remote-auth-skip-browser" theme:"Remote server" field:"spec.run.remoteAuth.skipBrowser" help:"print the URL and open no browser"`
	RemoteAuthTimeout          time.Duration `flag:"remote-auth-timeout" theme:"Remote server" value:"DURATION" def:"30s" field:"spec.run.remoteAuth.timeout" help:"wait so long for the login"`
	RemoteAuthBearerToken      string        `flag:"remote-auth-bearer-token" theme:"Remote server" value:"TOKEN" field:"MCPExternalAuthConfig spec.bearerToken" help:"send this bearer token; a file keeps it off the command line"`
	RemoteAuthBearerTokenFile  string        `flag:"remote-auth-bearer-token-file" theme:"Remote server" value:"FILE" field:"spec.run.remoteAuth.bearerTokenPath" help:"send the bearer token in a file, which is read again when it changes"`
	RemoteForwardHeaders       []string      `flag:"remote-forward-headers" theme:"Remote server" value:"NAME=VALUE" field:"spec.headerForward.addPlaintextHeaders" help:"send this header; may be repeated"`
	RemoteForwardHeadersSecret []string      `flag:"remote-forward-headers-secret" theme:"Remote server" value:"NAME=SECRET" field:"spec.headerForward.addHeadersFromSecret" help:"send this header, whose value is a secret; may be repeated"`

	TokenExchangeURL              string   `flag:"token-exchange-url" theme:"Token exchange" value:"URL" field:"MCPExternalAuthConfig spec.tokenExchange.tokenUrl" help:"exchange the token of a client here for one that the server takes (RFC 8693); without --oidc-… nobody verifies it first"`
	TokenExchangeAudience         string   `flag:"token-exchange-audience" theme:"Token exchange" value:"AUDIENCE" field:"MCPExternalAuthConfig spec.tokenExchange.audience" help:"whom it is for; needed with --token-exchange-url"`
	TokenExchangeClientID         string   `flag:"token-exchange-client-id" theme:"Token exchange" value:"ID" field:"MCPExternalAuthConfig spec.tokenExchange.clientId" help:"as which client"`
	TokenExchangeClientSecret     string   `flag:"token-exchange-client-secret" theme:"Token exchange" value:"SECRET" field:"MCPExternalAuthConfig spec.tokenExchange.clientSecretRef" help:"with what; a file keeps it off the command line"`
	TokenExchangeClientSecretFile string   `flag:"token-exchange-client-secret-file" theme:"Token exchange" value:"FILE" field:"MCPExternalAuthConfig spec.tokenExchange.clientSecretRef" help:"the same, in a file"`
	TokenExchangeScopes           []string `flag:"token-exchange-scopes" theme:"Token exchange" value:"SCOPE" lists:"comma" field:"MCPExternalAuthConfig spec.tokenExchange.scopes" help:"scopes to ask for"`
	TokenExchangeSubjectTokenType string   `flag:"token-exchange-subject-token-type" theme:"Token exchange" value:"TYPE" def:"access_token" field:"MCPExternalAuthConfig spec.tokenExchange.subjectTokenType" help:"what the client's token is: access_token or id_token"`
	TokenExchangeHeaderName       string   `flag:"token-exchange-header-name" theme:"Token exchange" value:"NAME" field:"MCPExternalAuthConfig spec.tokenExchange.externalTokenHeaderName" help:"the header that carries the new token; without it Authorization"`

	OtelEndpoint         string   `flag:"otel-endpoint" theme:"Telemetry" value:"URL" field:"MCPTelemetryConfig spec.openTelemetry.endpoint" help:"send telemetry to this collector (OTLP)"`
	OtelServiceName      string   `flag:"otel-service-name" theme:"Telemetry" value:"NAME" field:"spec.telemetryConfigRef.serviceName" help:"under this name; without it weir-NAME"`
	OtelHeaders          []string `flag:"otel-headers" theme:"Telemetry" value:"NAME=VALUE" field:"MCPTelemetryConfig spec.openTelemetry.headers" help:"with this header, whose value may be secret://SECRET; may be repeated"`
	OtelInsecure         bool     `flag:"otel-insecure" theme:"Telemetry" field:"MCPTelemetryConfig spec.openTelemetry.insecure" help:"in plain text"`
	OtelTracing          bool     `flag:"otel-tracing-enabled" theme:"Telemetry" def:"true" field:"MCPTelemetryConfig spec.openTelemetry.tracing" help:"send traces"`
	OtelMetrics          bool     `flag:"otel-metrics-enabled" theme:"Telemetry" def:"true" field:"MCPTelemetryConfig spec.openTelemetry.metrics" help:"send metrics"`
	OtelSamplingRate     float64  `flag:"otel-sampling-rate" theme:"Telemetry" value:"RATE" def:"0.1" field:"MCPTelemetryConfig spec.openTelemetry.tracing.samplingRate" help:"this share of traces, from 0 to 1"`
	OtelCustomAttributes string   `flag:"otel-custom-attributes" theme:"Telemetry" value:"NAME=VALUE,…" field:"MCPTelemetryConfig spec.openTelemetry.resourceAttributes" help:"attributes of all that is sent"`
	OtelEnvVars          []string `flag:"otel-env-vars" theme:"Telemetry" value:"VARIABLE" lists:"comma" field:"spec.run.telemetryEnvironment" help:"a variable whose value is an attribute of spans; may be repeated"`
	OtelPrometheus       bool     `flag:"otel-enable-prometheus-metrics-path" theme:"Telemetry" field:"MCPTelemetryConfig spec.prometheus" help:"serve /metrics, at the workload's own address"`
	OtelLegacyAttributes bool     `flag:"otel-use-legacy-attributes" theme:"Telemetry" def:"true" field:"MCPTelemetryConfig spec.openTelemetry.useLegacyAttributes" help:"use the older names of attributes, too"`
}

// Flag is a flag of Options.
type Flag struct {
	Name, Short        string
	Theme, Value, Help string
	Default            string // "" for the zero value
	Field              string // KIND FIELD, or FIELD of the workload's own object; "" for none
	Later              string // why it is not supported yet; "" for a flag that is
	Commas             bool   // one value holds several
	index              int
	Kind               reflect.Type // of its value
}

// Flags are the flags of Options, in their order.
func Flags() (all []Flag) {
	t := reflect.TypeFor[Options]()
	for i := range t.NumField() {
		f := t.Field(i)
		name, short, _ := strings.Cut(f.Tag.Get("flag"), ",")
		if name == "" {
			continue
		}
		all = append(all, Flag{
			Name: name, Short: short, Theme: f.Tag.Get("theme"), Value: f.Tag.Get("value"), Help: f.Tag.Get("help"), Default: f.Tag.Get("def"),
			Field: f.Tag.Get("field"), Later: f.Tag.Get("later"), Commas: f.Tag.Get("lists") == "comma", index: i, Kind: f.Type,
		})
	}
	return all
}

// Of is the address of the flag's field in options, for whoever reads flags.
func (f Flag) Of(o *Options) any {
	return reflect.ValueOf(o).Elem().Field(f.index).Addr().Interface()
}

// DefaultOptions are the options of a command line without flags.
func DefaultOptions() Options {
	var o Options
	for _, f := range Flags() {
		if f.Default == "" {
			continue
		}
		var err error
		switch to := f.Of(&o).(type) {
		case *string:
			*to = f.Default
		case *[]string:
			*to = strings.Split(f.Default, ",")
		case *bool:
			*to = f.Default == "true"
		case *int:
			*to, err = strconv.Atoi(f.Default)
		case *float64:
			*to, err = strconv.ParseFloat(f.Default, 64)
		case *time.Duration:
			*to, err = time.ParseDuration(f.Default)
		}
		if err != nil {
			panic(err) // the defaults are those above
		}
	}
	return o
}

// given reports whether one of some flags was given.
func (o *Options) given(flags ...string) bool {
	return slices.ContainsFunc(flags, func(name string) bool { return o.Given[name] })
}

// firstGiven is the first flag that was given of those with a prefix, but for some; "" for
// none.
func (o *Options) firstGiven(prefix string, but ...string) string {
	for _, f := range Flags() {
		if strings.HasPrefix(f.Name, prefix) && o.Given[f.Name] && !slices.Contains(but, f.Name) {
			return f.Name
		}
	}
	return ""
}
