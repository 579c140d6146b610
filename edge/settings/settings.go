// Package settings is the settings of the process, as against those of a server, which are
// in its manifest. Each stands once, in the Settings struct: its name on the command line,
// in the environment and in a settings file, its default, its range, and its help.
package settings

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
)

// Settings are the settings of a process. Sizes are bytes. Start from Defaults: the zero
// value of a field means "none" only where its help says so.
//
// In the tags, kind is what a value looks like, range the least and the most that it may
// be, values the words that there are, and optional says that it may be empty.
type Settings struct {
	Listen                   string        `name:"listen" kind:"HOST:PORT" default:"127.0.0.1:4483" help:"address of the door"`
	AdminListen              string        `name:"admin-listen" kind:"HOST:PORT" default:"127.0.0.1:4484" optional:"true" help:"admin address; empty for none; an address that is not loopback serves only /health, /readyz and /metrics"`
	HandOver                 string        `name:"hand-over" kind:"FILE" help:"Unix socket at which a new process takes sockets and sessions over from the one that serves, without a gap; sign-ins in memory are not taken over"`
	TLSCert                  string        `name:"tls-cert" kind:"FILE" help:"certificate in PEM; read again when it changes"`
	TLSKey                   string        `name:"tls-key" kind:"FILE" help:"key of the certificate in PEM"`
	TLSClientCA              string        `name:"tls-client-ca" kind:"FILE" help:"authorities in PEM of which a client must have a certificate; read again when it changes"`
	AllowedOrigins           []string      `name:"allowed-origins" kind:"LIST" help:"exact values of Origin; a loopback address allows its own"`
	AllowedHosts             []string      `name:"allowed-hosts" kind:"LIST" help:"exact values of Host; a loopback address allows its own"`
	TrustedProxies           []string      `name:"trusted-proxies" kind:"LIST" help:"networks of proxies whose X-Forwarded-For and Forwarded are believed"`
	ExternalURL              string        `name:"external-url" kind:"URL" help:"where clients see the edge; without it what they asked for"`
	DefaultServer            string        `name:"default-server" kind:"NAME" help:"the server that answers on /mcp when there are several"`
	SecretsDir               string        `name:"secrets-dir" kind:"DIR" help:"directory with a file NAME/KEY for each secret; a file that changes is read again"`
	MaxHeader                int           `name:"max-header" kind:"SIZE" default:"16KiB" range:"4KiB 1MiB" help:"header of a request"`
	MaxBody                  int           `name:"max-body" kind:"SIZE" default:"4MiB" range:"1KiB 256MiB" help:"body of a request"`
	MaxMessage               int           `name:"max-message" kind:"SIZE" default:"16MiB" range:"1KiB 1GiB" help:"one message of a backend"`
	MaxConnections           int           `name:"max-connections" kind:"NUMBER" default:"20000" range:"1 1048576" help:"open connections of clients"`
	MaxConnectionsPerAddress int           `name:"max-connections-per-address" kind:"NUMBER" default:"0" range:"0 1048576" help:"of them from one address; 0 for no limit"`
	MaxBackendConnections    int           `name:"max-backend-connections" kind:"NUMBER" default:"1024" range:"1 1048576" help:"open connections to one backend"`
	MaxInflight              int           `name:"max-inflight" kind:"NUMBER" default:"4096" range:"1 1048576" help:"exchanges at a time"`
	MaxStreams               int           `name:"max-streams" kind:"NUMBER" default:"100" range:"1 1048576" help:"open streams of one principal, or of one address on a server that is anonymous"`
	MaxSessions              int           `name:"max-sessions" kind:"NUMBER" default:"10000" range:"1 1048576" help:"sessions of legacy clients"`
	MaxSessionsPerPrincipal  int           `name:"max-sessions-per-principal" kind:"NUMBER" default:"1000" range:"1 1048576" help:"sessions of one principal, or of one address on a server that is anonymous: beyond it the own one used least ends"`
	SessionTTL               time.Duration `name:"session-ttl" kind:"DURATION" default:"30m" help:"a session unused for so long ends"`
	MaxParked                int           `name:"max-parked" kind:"NUMBER" default:"1000" range:"1 1048576" help:"calls that wait for a modern client to come back with an answer"`
	ParkTTL                  time.Duration `name:"park-ttl" kind:"DURATION" default:"5m" help:"how long a parked call waits for its client"`
	CacheMemory              int           `name:"cache-memory" kind:"SIZE" default:"64MiB" range:"1MiB 1GiB" help:"memory for what is remembered and can be had again, such as verified tokens; 1MiB to 1GiB"`
	ScriptCPU                time.Duration `name:"script-cpu" kind:"DURATION" default:"1s" help:"how long a script may compute"`
	ScriptTimeout            time.Duration `name:"script-timeout" kind:"DURATION" default:"1m" help:"the longest that a script may take, its calls included"`
	ScriptMemory             int           `name:"script-memory" kind:"SIZE" default:"64MiB" range:"16MiB 64MiB" help:"memory of a script; 16MiB to 64MiB"`
	MaxScripts               int           `name:"max-scripts" kind:"NUMBER" default:"32" range:"1 1024" help:"scripts at a time"`
	MaxScriptsPerPrincipal   int           `name:"max-scripts-per-principal" kind:"NUMBER" default:"4" range:"1 1024" help:"of them for one principal, or for one address on a server that is anonymous"`
	FilterCache              string        `name:"filter-cache" kind:"DIR" help:"directory of this user alone for compiled and fetched filters; none without"`
	StateKeyFile             string        `name:"state-key-file" kind:"FILE" help:"keys that seal requestState, one a line; without it the secret weir-state/key, or a random one"`
	CABundle                 string        `name:"ca-bundle" kind:"FILE" help:"authorities in PEM to trust in every connection that the edge makes, beside those of the system, of a manifest and of store-ca"`
	DevLoopback              bool          `name:"dev-loopback" kind:"BOOL" default:"false" help:"for development: URLs that others name may lead to this machine, also by http; needs a loopback listen"`
	STSEndpoint              string        `name:"sts-endpoint" kind:"URL" help:"security token service of the cloud, https or of this machine; without it that of the region of each cloudSts"`
	LocalRateLimits          bool          `name:"local-rate-limits" kind:"BOOL" default:"false" help:"rate limits of servers without a store to share are counted in this process"`
	StoreFailure             string        `name:"store-failure" kind:"MODE" default:"closed" values:"closed open" help:"while a shared store is away: closed refuses what needs it, open goes on with what this process knows, and counts it"`
	StoreTimeout             time.Duration `name:"store-timeout" kind:"DURATION" default:"50ms" help:"a shared store that takes longer to answer is as good as away"`
	StoreCA                  string        `name:"store-ca" kind:"FILE" help:"authorities in PEM of shared stores with TLS; without it those of the system"`
	WebhookConfig            []string      `name:"webhook-config" kind:"LIST" files:"true" help:"files of webhooks that every message is shown to"`
	AllowWorkloads           []string      `name:"allow-workloads" kind:"LIST" help:"forms of MCPServers that this process may start: local, for processes of this machine, container, and wasm, for modules of WebAssembly; none without"`
	StateDir                 string        `name:"state-dir" kind:"DIR" help:"directory of this user alone for what is kept of started MCPServers; without, a temporary one, which a process that is killed leaves behind"`
	CallCap                  time.Duration `name:"call-cap" kind:"DURATION" default:"10m" help:"the longest that any call may take"`
	DrainTimeout             time.Duration `name:"drain-timeout" kind:"DURATION" default:"10s" help:"how long calls in flight may take at the end"`
	LogFormat                string        `name:"log-format" kind:"FORMAT" values:"text json" optional:"true" help:"text or json; without it text on a terminal, else json"`
	LogLevel                 string        `name:"log-level" kind:"LEVEL" default:"info" values:"debug info warn error" help:"debug, info, warn or error"`
}

// Defaults are the settings of a process without flags.
func Defaults() Settings {
	var s Settings
	for _, one := range All() {
		if err := one.Set(&s, one.Default); err != nil {
			panic(fmt.Sprintf("the default of %s: %v", one.Name, err)) // which TestTable holds
		}
	}
	return s
}

// Check returns every fault of the settings, each naming its flag, joined
// with errors.Join; nil when there is none.
func (s Settings) Check() error {
	var wrong []error
	for _, one := range All() {
		if err := one.check(&s); err != nil {
			wrong = append(wrong, fmt.Errorf("--%s: %w", one.Name, err))
		}
	}
	return errors.Join(append(wrong, s.rules()...)...)
}

// rules holds the settings to what a range cannot say.
func (s *Settings) rules() (wrong []error) {
	bad := func(flag, format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
	}
	if (s.TLSCert == "") != (s.TLSKey == "") {
		bad("tls-cert", "--tls-cert and --tls-key go together")
	}
	if s.TLSClientCA != "" && s.TLSCert == "" {
		bad("tls-client-ca", "needs --tls-cert and --tls-key")
	}
	for _, o := range s.AllowedOrigins {
		if u, err := url.Parse(o); err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" || strings.Contains(o, "*") {
			bad("allowed-origins", "%q is not an exact origin, such as https://app.example.com", o)
		}
	}
	for _, h := range s.AllowedHosts {
		if h == "" || strings.ContainsAny(h, "/@*, ") {
			bad("allowed-hosts", "%q is not an exact host or host:port", h)
		}
	}
	if _, err := door.ParseProxies(s.TrustedProxies); err != nil {
		bad("trusted-proxies", "%v", err)
	}
	if s.ExternalURL != "" {
		if u, err := url.Parse(s.ExternalURL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			bad("external-url", "%q is not an http or https URL without query and fragment", s.ExternalURL)
		}
	}
	if s.STSEndpoint != "" {
		u, err := url.Parse(s.STSEndpoint)
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && (u.Scheme != "http" || !thisMachine(u.Hostname())) {
			// It may hold a password, so it is not shown.
			bad("sts-endpoint", "it is not an https URL without user, query and fragment, nor an http URL of a loopback address")
		}
	}
	if err := s.CheckWorkloads(); err != nil {
		wrong = append(wrong, err)
	}
	if s.DevLoopback && isAddress(s.Listen) && !loopback(s.Listen) {
		bad("dev-loopback", "it is for development, and --listen %s can be reached from elsewhere: leave one of them out", s.Listen)
	}
	return wrong
}

// Workloads are the forms of workloads that a process may be allowed to start.
var Workloads = []string{"local", "container", "wasm"}

// CheckWorkloads returns what is wrong with AllowWorkloads; nil for nothing.
func (s Settings) CheckWorkloads() error {
	for _, form := range s.AllowWorkloads {
		if !slices.Contains(Workloads, form) {
			return fmt.Errorf("--allow-workloads: %q is none of the forms: %s", form, strings.Join(Workloads, ", "))
		}
	}
	return nil
}

// loopback reports whether an address HOST:PORT is of this machine alone.
func loopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	return thisMachine(host)
}

// thisMachine reports whether a host is the machine itself.
func thisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Reach reads what requests of the edge's own may do, and the file that says so.
func (s *Settings) Reach() (edge.Reach, error) {
	r := edge.Reach{DevLoopback: s.DevLoopback, STS: s.STSEndpoint}
	if s.CABundle == "" {
		return r, nil
	}
	var err error
	if r.CAs, err = edge.ReadKeys(s.CABundle); err != nil {
		return r, fmt.Errorf("--ca-bundle: %w: name a file with certificates in PEM", err)
	}
	if _, err = edge.Authorities(s.CABundle); err != nil {
		return r, fmt.Errorf("--ca-bundle: %w: name a file with certificates in PEM", err)
	}
	return r, nil
}

// isAddress reports whether a text is HOST:PORT.
func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	return err == nil && port != ""
}
