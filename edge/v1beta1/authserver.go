package v1beta1

// EmbeddedAuthServer is an OAuth 2.0 and OIDC authorization server that runs in
// the edge and leaves logins to upstream providers: spec.embeddedAuthServer of
// an MCPExternalAuthConfig and spec.authServerConfig of a VirtualMCPServer.
type EmbeddedAuthServer struct {
	// Issuer is the value of the claim iss: an https URL, or http for localhost,
	// or http for trusted hosts of the cluster when insecureAllowHTTP is true. It
	// has no query, fragment or trailing slash (RFC 8414).
	// +kubebuilder:validation:Pattern=`^https?://[^\s?#]+[^/\s?#]$`
	// +weir:form=issuer
	Issuer string `json:"issuer"`

	// UpstreamProviders are the identity providers that log users in. MCPServer
	// and MCPRemoteProxy support one, VirtualMCPServer several.
	// +kubebuilder:validation:MinItems=1
	// +listType=map
	// +listMapKey=name
	UpstreamProviders []UpstreamProvider `json:"upstreamProviders"`

	// AuthorizationEndpointBaseURL is the base of the advertised authorization
	// endpoint. The default is the issuer; the same rules hold.
	// +kubebuilder:validation:Pattern=`^https?://[^\s?#]+[^/\s?#]$`
	// +weir:elsewhere
	AuthorizationEndpointBaseURL string `json:"authorizationEndpointBaseUrl,omitempty"`

	// BaselineClientScopes are added to every client's registration, so that a
	// client that registered for less can still ask for them. Each must be in
	// the scopes that the upstreams support. Keep it narrow.
	// +kubebuilder:validation:MaxItems=10
	// +weir:form=scope
	BaselineClientScopes []string `json:"baselineClientScopes,omitempty"`

	// CIMD is the support of client ID metadata documents.
	CIMD *CIMD `json:"cimd,omitempty"`

	// DisableUpstreamTokenInjection sends the backend neither the upstream's
	// token nor the client's credentials. It cannot be combined with token
	// exchange or cloud STS.
	// +kubebuilder:default=false
	DisableUpstreamTokenInjection bool `json:"disableUpstreamTokenInjection,omitempty"`

	// HMACSecretRefs are the secrets, of at least 32 random bytes, that sign
	// authorization codes and refresh tokens. The first is current, the others
	// only verify. Without one a secret is made at start; for development only.
	HMACSecretRefs []SecretRef `json:"hmacSecretRefs,omitempty"`

	// SigningKeySecretRefs are the keys that sign tokens. The first is current,
	// the others only verify. Without one a key is made at start; for
	// development only.
	// +kubebuilder:validation:MaxItems=5
	SigningKeySecretRefs []SecretRef `json:"signingKeySecretRefs,omitempty"`

	// InsecureAllowHTTP permits an http issuer on other hosts than localhost,
	// for trusted networks inside a cluster.
	// +kubebuilder:default=false
	InsecureAllowHTTP bool `json:"insecureAllowHTTP,omitempty"`

	// PrimaryUpstreamProvider is the upstream whose access token's claims
	// policies read: one of upstreamProviders, the first by default. Only on a
	// VirtualMCPServer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	PrimaryUpstreamProvider string `json:"primaryUpstreamProvider,omitempty"`

	// Storage of the server's state.
	Storage *AuthServerStorage `json:"storage,omitempty"`

	// TokenLifespans are how long tokens are valid.
	TokenLifespans *TokenLifespans `json:"tokenLifespans,omitempty"`
}

// CIMD is the support of client ID metadata documents.
type CIMD struct {
	// Enabled accepts the URL of a document as client id. When false only
	// registered clients are accepted.
	// +kubebuilder:default=false
	Enabled bool `json:"enabled"`

	// CacheFallbackTTL is how long a document is cached.
	// +kubebuilder:default="5m"
	CacheFallbackTTL Duration `json:"cacheFallbackTtl,omitempty"`

	// CacheMaxSize is the number of documents that are cached.
	// +kubebuilder:default=256
	// +kubebuilder:validation:Minimum=1
	CacheMaxSize *int `json:"cacheMaxSize,omitempty"`
}

// TokenLifespans are how long tokens are valid.
type TokenLifespans struct {
	// AccessTokenLifespan of access tokens.
	// +kubebuilder:default="1h"
	AccessTokenLifespan Duration `json:"accessTokenLifespan,omitempty"`

	// AuthCodeLifespan of authorization codes.
	// +kubebuilder:default="10m"
	AuthCodeLifespan Duration `json:"authCodeLifespan,omitempty"`

	// RefreshTokenLifespan of refresh tokens.
	// +kubebuilder:default="168h"
	RefreshTokenLifespan Duration `json:"refreshTokenLifespan,omitempty"`
}

// StorageType is where an authorization server keeps its state.
// +kubebuilder:validation:Enum=memory;kvstore
type StorageType string

// The places that an authorization server keeps its state in.
const (
	StorageMemory  StorageType = "memory"
	StorageKVStore StorageType = "kvstore"
)

// AuthServerStorage says where an authorization server keeps its state.
type AuthServerStorage struct {
	// Type of the storage.
	// +kubebuilder:default=memory
	Type StorageType `json:"type,omitempty"`

	// KVStore is required when type is kvstore.
	KVStore *KVStore `json:"kvstore,omitempty"`
}

// KVStore is how to reach a key-value store.
type KVStore struct {
	// ACLUserConfig holds the credentials.
	// +required
	ACLUserConfig *ACLUserConfig `json:"aclUserConfig"`

	// Addr is host:port. Exclusive with sentinelConfig.
	// +weir:form=hostPort
	Addr string `json:"addr,omitempty"`

	// ClusterMode speaks the cluster protocol. It needs addr.
	ClusterMode bool `json:"clusterMode,omitempty"`

	// SentinelConfig finds the master through sentinels. Exclusive with addr.
	SentinelConfig *SentinelConfig `json:"sentinelConfig,omitempty"`

	// DialTimeout bounds a connect.
	// +kubebuilder:default="5s"
	DialTimeout Duration `json:"dialTimeout,omitempty"`

	// ReadTimeout bounds a read.
	// +kubebuilder:default="3s"
	ReadTimeout Duration `json:"readTimeout,omitempty"`

	// WriteTimeout bounds a write.
	// +kubebuilder:default="3s"
	WriteTimeout Duration `json:"writeTimeout,omitempty"`

	// TLS to the master or the cluster's nodes; plain text without it.
	TLS *StoreTLS `json:"tls,omitempty"`

	// SentinelTLS to the sentinels. Only with sentinelConfig.
	SentinelTLS *StoreTLS `json:"sentinelTls,omitempty"`
}

// ACLUserConfig holds the credentials of a store.
type ACLUserConfig struct {
	// PasswordSecretRef is the secret with the password.
	PasswordSecretRef SecretRef `json:"passwordSecretRef"`

	// UsernameSecretRef is the secret with the user name. Without it only the
	// password is sent.
	UsernameSecretRef *SecretRef `json:"usernameSecretRef,omitempty"`
}

// SentinelConfig finds the master of a store through its sentinels.
type SentinelConfig struct {
	// MasterName is the name of the master.
	// +kubebuilder:validation:MinLength=1
	MasterName string `json:"masterName"`

	// DB is the number of the database.
	// +kubebuilder:default=0
	// +weir:low=0
	DB int32 `json:"db,omitempty"`

	// SentinelAddrs are the sentinels, host:port. Exclusive with
	// sentinelService.
	// +weir:form=hostPort
	SentinelAddrs []string `json:"sentinelAddrs,omitempty"`

	// SentinelService is the service of the sentinels. Exclusive with
	// sentinelAddrs.
	SentinelService *SentinelService `json:"sentinelService,omitempty"`
}

// SentinelService is the Kubernetes service of the sentinels.
type SentinelService struct {
	// Name of the service.
	// +kubebuilder:validation:MinLength=1
	// +weir:form=dns
	Name string `json:"name"`

	// Namespace of the service. The default is the resource's own.
	Namespace string `json:"namespace,omitempty"`

	// Port of the service.
	// +kubebuilder:default=26379
	// +weir:low=1
	// +weir:high=65535
	Port *int32 `json:"port,omitempty"`
}

// StoreTLS is TLS to a store.
type StoreTLS struct {
	// CACertSecretRef is the secret with a PEM certificate to trust. Without it
	// the system's are trusted.
	CACertSecretRef *SecretRef `json:"caCertSecretRef,omitempty"`

	// InsecureSkipVerify accepts any certificate. Development only.
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// UpstreamType is the protocol of an upstream provider.
// +kubebuilder:validation:Enum=oidc;oauth2
type UpstreamType string

// The protocols of upstream providers.
const (
	UpstreamOIDC   UpstreamType = "oidc"
	UpstreamOAuth2 UpstreamType = "oauth2"
)

// UpstreamProvider is an identity provider that logs users in.
type UpstreamProvider struct {
	// Name of the provider, unique within the server.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	Name string `json:"name"`

	// Type of the provider.
	Type UpstreamType `json:"type"`

	// OIDCConfig is set when type is oidc, and not otherwise.
	OIDCConfig *OIDCUpstream `json:"oidcConfig,omitempty"`

	// OAuth2Config is set when type is oauth2, and not otherwise.
	OAuth2Config *OAuth2Upstream `json:"oauth2Config,omitempty"`
}

// OIDCUpstream is an OpenID Connect provider.
type OIDCUpstream struct {
	// IssuerURL of the provider, from which its endpoints are discovered.
	// +kubebuilder:validation:Pattern=`^https://.*$`
	// +weir:form=https
	IssuerURL string `json:"issuerUrl"`

	// ClientID at the provider.
	// +kubebuilder:validation:MinLength=1
	ClientID string `json:"clientId"`

	// ClientSecretRef is the secret with the client secret; none for a public
	// client with PKCE.
	ClientSecretRef *SecretRef `json:"clientSecretRef,omitempty"`

	// RedirectURI of the login. The default is {resourceUrl}/oauth/callback.
	// +weir:form=url
	RedirectURI string `json:"redirectUri,omitempty"`

	// Scopes to request.
	// +kubebuilder:default={openid,offline_access}
	// +weir:form=scope
	Scopes []string `json:"scopes,omitempty"`

	// AdditionalAuthorizationParams are added to authorization requests. The
	// parameters of the protocol itself are not allowed.
	// +kubebuilder:validation:MaxProperties=16
	AdditionalAuthorizationParams map[string]string `json:"additionalAuthorizationParams,omitempty"`

	// SubjectClaim is the top-level claim of the ID token that identifies the
	// user. Changing it later gives every user a new identity.
	// +kubebuilder:default=sub
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^([a-zA-Z_][a-zA-Z0-9_]*)?$`
	SubjectClaim string `json:"subjectClaim,omitempty"`

	// UserInfoOverride changes how user info is fetched and read.
	UserInfoOverride *UserInfo `json:"userInfoOverride,omitempty"`
}

// OAuth2Upstream is an OAuth 2.0 provider without OpenID Connect.
type OAuth2Upstream struct {
	// AuthorizationEndpoint of the provider.
	// +kubebuilder:validation:Pattern=`^https?://.*$`
	// +weir:form=url
	AuthorizationEndpoint string `json:"authorizationEndpoint"`

	// TokenEndpoint of the provider.
	// +kubebuilder:validation:Pattern=`^https?://.*$`
	// +weir:form=url
	TokenEndpoint string `json:"tokenEndpoint"`

	// ClientID at the provider. Exclusive with dcrConfig.
	ClientID string `json:"clientId,omitempty"`

	// ClientSecretRef is the secret with the client secret; none for a public
	// client with PKCE.
	ClientSecretRef *SecretRef `json:"clientSecretRef,omitempty"`

	// DCRConfig registers this server at the provider (RFC 7591). Exclusive with
	// clientId.
	DCRConfig *DCR `json:"dcrConfig,omitempty"`

	// RedirectURI of the login. The default is {resourceUrl}/oauth/callback.
	// +weir:form=url
	RedirectURI string `json:"redirectUri,omitempty"`

	// Scopes to request.
	// +weir:form=scope
	Scopes []string `json:"scopes,omitempty"`

	// AdditionalAuthorizationParams are added to authorization requests. The
	// parameters of the protocol itself are not allowed.
	// +kubebuilder:validation:MaxProperties=16
	AdditionalAuthorizationParams map[string]string `json:"additionalAuthorizationParams,omitempty"`

	// TokenResponseMapping reads a token response of another form.
	TokenResponseMapping *TokenResponseMapping `json:"tokenResponseMapping,omitempty"`

	// IdentityFromToken reads the user from the token response instead of
	// fetching user info.
	IdentityFromToken *IdentityFromToken `json:"identityFromToken,omitempty"`

	// UserInfo says how user info is fetched. Without it and without
	// identityFromToken the user has an opaque subject and no name.
	UserInfo *UserInfo `json:"userInfo,omitempty"`

	// InsecureAllowHTTP permits http endpoints on other hosts than localhost.
	InsecureAllowHTTP bool `json:"insecureAllowHTTP,omitempty"`
}

// DCR registers this server at an upstream provider (RFC 7591).
type DCR struct {
	// DiscoveryURL of the provider's metadata document. Exclusive with
	// registrationEndpoint.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https://[^\s?#]+[^/\s?#]$`
	// +weir:form=registration
	DiscoveryURL string `json:"discoveryUrl,omitempty"`

	// RegistrationEndpoint of the provider. Exclusive with discoveryUrl. The
	// upstream must then list its scopes.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https://[^\s?#]+[^/\s?#]$`
	// +weir:form=registration
	RegistrationEndpoint string `json:"registrationEndpoint,omitempty"`

	// InitialAccessTokenRef is the secret with the token sent on registration.
	InitialAccessTokenRef *SecretRef `json:"initialAccessTokenRef,omitempty"`

	// SoftwareID is the software_id of the registration.
	// +kubebuilder:validation:MaxLength=255
	SoftwareID string `json:"softwareId,omitempty"`

	// SoftwareStatement is the signed software_statement of the registration. It
	// is not confidential.
	// +kubebuilder:validation:MaxLength=16384
	SoftwareStatement string `json:"softwareStatement,omitempty"`
}

// TokenResponseMapping reads a token response of another form. Paths use dots.
type TokenResponseMapping struct {
	// AccessTokenPath to the access token.
	// +kubebuilder:validation:MinLength=1
	AccessTokenPath string `json:"accessTokenPath"`

	// ExpiresInPath to the lifetime in seconds.
	// +kubebuilder:default=expires_in
	ExpiresInPath string `json:"expiresInPath,omitempty"`

	// RefreshTokenPath to the refresh token.
	// +kubebuilder:default=refresh_token
	RefreshTokenPath string `json:"refreshTokenPath,omitempty"`

	// ScopePath to the scopes.
	// +kubebuilder:default=scope
	ScopePath string `json:"scopePath,omitempty"`
}

// IdentityFromToken reads the user from a token response. A path step
// @upstreamjwt decodes a JWT without verifying it, as in
// access_token|@upstreamjwt|sub.
type IdentityFromToken struct {
	// SubjectPath to the subject.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	SubjectPath string `json:"subjectPath"`

	// NamePath to the name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	NamePath string `json:"namePath,omitempty"`

	// EmailPath to the e-mail address.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	EmailPath string `json:"emailPath,omitempty"`
}

// UserInfo says how user info is fetched and read.
type UserInfo struct {
	// EndpointURL of the user info.
	// +kubebuilder:validation:Pattern=`^https?://.*$`
	// +weir:form=url
	EndpointURL string `json:"endpointUrl"`

	// HTTPMethod of the request.
	// +kubebuilder:default=GET
	// +kubebuilder:validation:Enum=GET;POST
	HTTPMethod string `json:"httpMethod,omitempty"`

	// AdditionalHeaders of the request.
	AdditionalHeaders map[string]string `json:"additionalHeaders,omitempty"`

	// FieldMapping says which fields of the answer hold what.
	FieldMapping *UserInfoFields `json:"fieldMapping,omitempty"`
}

// UserInfoFields says which fields of user info hold what. Of each list the
// first field with a value wins.
type UserInfoFields struct {
	// SubjectFields hold the subject.
	// +kubebuilder:default={sub}
	// +weir:unique
	SubjectFields []string `json:"subjectFields,omitempty"`

	// NameFields hold the name.
	// +kubebuilder:default={name}
	// +weir:unique
	NameFields []string `json:"nameFields,omitempty"`

	// EmailFields hold the e-mail address.
	// +kubebuilder:default={email}
	// +weir:unique
	EmailFields []string `json:"emailFields,omitempty"`
}
