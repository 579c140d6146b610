package workload

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// runConfigVersion is the one schema_version that is read and written.
const runConfigVersion = "v0.1.0"

// RunConfig is a workload as the reference exports it, by its list of keys. Sections whose
// keys it has spelt in several ways, and those that Weir knows nothing of, are kept as they
// are.
type RunConfig struct {
	SchemaVersion string `json:"schema_version"`

	Image              string             `json:"image"`
	RemoteURL          string             `json:"remote_url,omitempty"`
	RegistryAPIURL     string             `json:"registry_api_url,omitempty"`
	RegistryURL        string             `json:"registry_url,omitempty"`
	RegistryServerName string             `json:"registry_server_name,omitempty"`
	RemoteAuth         v1beta1.JSONObject `json:"remote_auth_config,omitempty"`
	CmdArgs            []string           `json:"cmd_args,omitempty"`
	Name               string             `json:"name"`
	ContainerName      string             `json:"container_name,omitempty"`
	BaseName           string             `json:"base_name,omitempty"`

	Transport      string   `json:"transport"`
	Host           string   `json:"host"`
	Port           int      `json:"port"`
	TargetPort     int      `json:"target_port,omitempty"`
	TargetHost     string   `json:"target_host,omitempty"`
	AllowedOrigins []string `json:"allowed_origins,omitempty"`
	Publish        []string `json:"publish,omitempty"`

	ProfileName string             `json:"permission_profile_name_or_path,omitempty"`
	Profile     v1beta1.JSONObject `json:"permission_profile,omitempty"`
	EnvVars     map[string]string  `json:"env_vars,omitempty"`
	EnvFileDir  string             `json:"env_file_dir,omitempty"`
	Debug       bool               `json:"debug,omitempty"`
	Volumes     []string           `json:"volumes,omitempty"`
	Labels      map[string]string  `json:"container_labels,omitempty"`

	OIDC          v1beta1.JSONObject         `json:"oidc_config,omitempty"`
	TokenExchange *runTokenExchange          `json:"token_exchange_config,omitempty"`
	UpstreamSwap  v1beta1.JSONObject         `json:"upstream_swap_config,omitempty"`
	AWSSTS        v1beta1.JSONObject         `json:"aws_sts_config,omitempty"`
	Authz         *authzFile                 `json:"authz_config,omitempty"`
	AuthzPath     string                     `json:"authz_config_path,omitempty"`
	Audit         *auditFile                 `json:"audit_config,omitempty"`
	AuditPath     string                     `json:"audit_config_path,omitempty"`
	Telemetry     *v1beta1.Telemetry         `json:"telemetry_config,omitempty"`
	RateLimit     v1beta1.JSONObject         `json:"rate_limit_config,omitempty"`
	RateNamespace string                     `json:"rate_limit_namespace,omitempty"`
	Secrets       []string                   `json:"secrets,omitempty"`
	PodTemplate   string                     `json:"k8s_pod_template_patch,omitempty"`
	Isolate       bool                       `json:"isolate_network,omitempty"`
	Gateway       bool                       `json:"allow_docker_gateway,omitempty"`
	TrustHeaders  bool                       `json:"trust_proxy_headers,omitempty"`
	Strict        bool                       `json:"strict_protocol_validation,omitempty"`
	Stateless     bool                       `json:"stateless,omitempty"`
	SessionTTL    time.Duration              `json:"session_ttl,omitempty"` // in nanoseconds
	ProxyMode     string                     `json:"proxy_mode,omitempty"`
	CABundle      string                     `json:"thv_ca_bundle,omitempty"`
	JWKSTokenFile string                     `json:"jwks_auth_token_file,omitempty"`
	Group         string                     `json:"group,omitempty"`
	ToolsFilter   []string                   `json:"tools_filter,omitempty"`
	ToolsOverride map[string]runToolOverride `json:"tools_override,omitempty"`
	Ignore        *runIgnore                 `json:"ignore_config,omitempty"`

	Middleware     []runMiddleware `json:"middleware_configs,omitempty"`
	MoreMiddleware []runMiddleware `json:"additional_middleware_configs,omitempty"`
	Validating     []runWebhook    `json:"validating_webhooks,omitempty"`
	Mutating       []runWebhook    `json:"mutating_webhooks,omitempty"`

	EndpointPrefix string             `json:"endpoint_prefix,omitempty"`
	Runtime        *runRuntime        `json:"runtime_config,omitempty"`
	HeaderForward  *runHeaders        `json:"header_forward,omitempty"`
	AuthServer     v1beta1.JSONObject `json:"embedded_auth_server_config,omitempty"`
	Scaling        v1beta1.JSONObject `json:"scaling_config,omitempty"`
}

type runTokenExchange struct {
	TokenURL         string   `json:"token_url"`
	ClientID         string   `json:"client_id"`
	ClientSecret     string   `json:"client_secret"`
	Audience         string   `json:"audience"`
	Scopes           []string `json:"scopes,omitempty"`
	SubjectTokenType string   `json:"subject_token_type,omitempty"`
	HeaderStrategy   string   `json:"header_strategy,omitempty"` // replace or custom
	HeaderName       string   `json:"external_token_header_name,omitempty"`
}

type runToolOverride struct {
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"`
}

type runIgnore struct {
	LoadGlobal    bool `json:"loadGlobal"`
	PrintOverlays bool `json:"printOverlays,omitempty"`
}

type runMiddleware struct {
	Type       string             `json:"type"`
	Parameters v1beta1.JSONObject `json:"parameters,omitempty"`
}

type runWebhook struct {
	Name          string         `json:"name"`
	URL           string         `json:"url"`
	Timeout       time.Duration  `json:"timeout"` // in nanoseconds
	FailurePolicy string         `json:"failure_policy"`
	TLS           *runWebhookTLS `json:"tls_config,omitempty"`
	HMAC          string         `json:"hmac_secret_ref,omitempty"`
}

type runWebhookTLS struct {
	CA       string `json:"ca_bundle_path,omitempty"`
	Cert     string `json:"client_cert_path,omitempty"`
	Key      string `json:"client_key_path,omitempty"`
	Insecure bool   `json:"insecure_skip_verify,omitempty"`
}

type runRuntime struct {
	BuilderImage string   `json:"builder_image"`
	Packages     []string `json:"additional_packages,omitempty"`
}

type runHeaders struct {
	Plain   map[string]string `json:"add_plaintext_headers,omitempty"`
	Secrets map[string]string `json:"add_headers_from_secret,omitempty"`
}

// runOIDC is oidc_config. The reference reads its names in any case.
type runOIDC struct {
	Issuer            string
	Audience          string
	JWKSURL           string
	ClientID          string
	ClientSecret      string `json:",omitempty"`
	CACertPath        string `json:",omitempty"`
	AuthTokenFile     string `json:",omitempty"`
	AllowPrivateIP    bool   `json:",omitempty"`
	InsecureAllowHTTP bool   `json:",omitempty"`
	IntrospectionURL  string `json:",omitempty"`
	ResourceURL       string `json:",omitempty"`
	Scopes            []string

	// ProtectedResourceAllowPrivateIP is of no use where nobody looks for one.
	ProtectedResourceAllowPrivateIP bool `json:",omitempty"`
}

// runRemoteAuth is remote_auth_config. What only says how a login is to go is of no use
// without one.
type runRemoteAuth struct {
	ClientID, ClientSecret, ClientSecretFile string             `json:",omitempty"`
	Scopes                                   []string           `json:",omitempty"`
	SkipBrowser, UsePKCE                     bool               `json:",omitempty"`
	Timeout                                  v1beta1.JSONValue  `json:",omitempty"`
	CallbackPort                             int                `json:",omitempty"`
	Resource, Issuer, AuthorizeURL, TokenURL string             `json:",omitempty"`
	Headers, EnvVars                         v1beta1.JSONValue  `json:",omitempty"`
	OAuthParams                              v1beta1.JSONObject `json:",omitempty"`
	ScopeParamName                           string             `json:",omitempty"`
	BearerToken, BearerTokenFile             string             `json:",omitempty"`

	CachedRefreshTokenRef, CachedTokenExpiry, CachedClientID, CachedClientSecretRef string `json:",omitempty"`
	CachedSecretExpiry, CachedRegTokenRef, CachedCIMDClientID                       string `json:",omitempty"`
}

// ReadRunConfig reads a RunConfig, in JSON or YAML, strictly: an unknown key, a value of
// another type and another schema_version are errors with their path. The bounds are those of
// manifests: 4 MiB, 100 levels, 200,000 values with aliases written out. file stands for it in
// messages.
func ReadRunConfig(file string, data []byte) (*RunConfig, error) {
	c := &RunConfig{}
	d := source.Decode(file, data, c)
	if err := d.Err(); err != nil {
		return nil, &Error{Code: CodeInvalid, Message: err.Error()}
	}
	switch c.SchemaVersion {
	case runConfigVersion:
	case "":
		d.Fault("schema_version", "required: write %s", runConfigVersion)
	default:
		d.Fault("schema_version", "%q is not known: %s is", edge.Brief(c.SchemaVersion), runConfigVersion)
	}
	if err := d.Err(); err != nil {
		return nil, &Error{Code: CodeInvalid, Field: "schema_version", Message: err.Error()}
	}
	return c, nil
}

// write is the RunConfig as the reference writes it.
func (c *RunConfig) write() ([]byte, error) {
	text, err := json.MarshalIndent(c, "", "  ")
	return append(text, '\n'), err
}

// loosely decodes a section whose keys are spelt in several ways: ClientID, clientId and
// client_id are one. path is that of the section.
func loosely(path string, section v1beta1.JSONObject, into any) error {
	if section == "" {
		return nil
	}
	given, err := section.Map()
	if err != nil {
		return &Error{Code: CodeInvalid, Field: path, Message: path + ": want a mapping"}
	}
	known := map[string]string{}
	for _, f := range compile.Fields(reflect.TypeOf(into).Elem()) {
		known[plain(f.Name)] = f.Name
	}
	named := make(map[string]any, len(given))
	for key, value := range given {
		name, ok := known[plain(key)]
		if !ok {
			return &Error{Code: CodeInvalid, Field: path, Message: fmt.Sprintf("%s.%s: unknown field: take it out", path, edge.Brief(key))}
		}
		if named[name] != nil {
			return &Error{Code: CodeInvalid, Field: path, Message: fmt.Sprintf("%s.%s: given twice", path, edge.Brief(key))}
		}
		named[name] = value
	}
	text, err := json.Marshal(named)
	if err != nil {
		return err
	}
	if err := source.Decode(path+".json", text, into).Err(); err != nil {
		return &Error{Code: CodeInvalid, Field: path, Message: strings.ReplaceAll(err.Error(), path+".json:1: ", path+".")}
	}
	return nil
}

// plain is a key without what differs between its spellings.
func plain(key string) string { return strings.ToLower(strings.ReplaceAll(key, "_", "")) }
