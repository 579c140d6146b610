package serve

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/kv"
)

// Settings are the settings of the process. Those of a server are in its manifest. Sizes are bytes. The zero value of a field means
// "none" only where its comment says so; start from Defaults.
type Settings struct {
	Listen      string // address of the door, host:port; port 0 lets the system choose
	AdminListen string // address of the admin door; empty for none
	HandOver    string // path of a Unix socket at which one process takes over from another; empty for never

	TLSCert     string // PEM file; empty for plain HTTP; read again when it changes
	TLSKey      string // PEM file, with TLSCert
	TLSClientCA string // PEM file; when set a client must present a certificate of it

	AllowedOrigins []string // exact values of Origin; a loopback bind adds its own
	AllowedHosts   []string // exact values of Host; a loopback bind adds its own
	TrustedProxies []string // networks of proxies whose X-Forwarded-For and Forwarded are believed
	ExternalURL    string   // base URL that clients see; empty to use the request's own

	MaxHeader                int // bytes of a request's header block
	MaxBody                  int // bytes of a request's body
	MaxMessage               int // bytes of one message of a backend
	MaxConnections           int // open client connections
	MaxConnectionsPerAddress int // of them from one address; 0 for no limit
	MaxBackendConnections    int // open connections to one backend
	MaxInflight              int // exchanges at a time
	MaxStreams               int // open GET and listen streams per principal, or per client address where nobody is asked who they are
	MaxSessions              int // legacy sessions
	MaxSessionsPerPrincipal  int // of them of one principal, or of one client address where nobody is asked who they are
	MaxParked                int // calls that wait for a modern client to come back with an answer
	CacheMemory              int // bytes of what the process remembers and can do without

	SessionTTL   time.Duration // a session unused for so long ends
	ParkTTL      time.Duration // how long a parked call waits for its client
	CallCap      time.Duration // the longest that any call may take
	DrainTimeout time.Duration // how long calls in flight may take at the end

	DefaultServer string // the server that answers on /mcp when there are several; empty for none

	LocalRateLimits bool          // rate limits of servers without a store to share are counted in this process
	StoreFailure    string        // closed or open: what happens while a shared store is away
	StoreTimeout    time.Duration // a shared store that takes longer to answer is as good as away
	StoreCA         string        // PEM file of the authorities of shared stores with TLS, read when one is opened; empty for those of the system
	SecretsDir      string        // files NAME/KEY with the secrets that manifests refer to; empty for none

	FilterCache string // directory for compiled and fetched filters, of this user alone; empty for none

	StateKeyFile string // keys that seal requestState, one a line; empty for a random one

	WebhookConfig []string // files of webhooks that every server asks; who makes the plan reads them

	LogFormat string // text, json, or empty: text on a terminal, else json
	LogLevel  string // debug, info, warn or error
}

// Defaults are the settings of a process without flags.
func Defaults() Settings {
	return Settings{
		Listen:                  "127.0.0.1:4483",
		AdminListen:             "127.0.0.1:4484",
		MaxHeader:               16 << 10,
		MaxBody:                 4 << 20,
		MaxMessage:              16 << 20,
		MaxConnections:          20000,
		MaxBackendConnections:   1024,
		MaxInflight:             4096,
		MaxStreams:              100,
		MaxSessions:             10000,
		MaxSessionsPerPrincipal: 1000,
		MaxParked:               1000,
		CacheMemory:             64 << 20,
		SessionTTL:              30 * time.Minute,
		ParkTTL:                 5 * time.Minute,
		CallCap:                 10 * time.Minute,
		DrainTimeout:            10 * time.Second,
		StoreFailure:            "closed",
		StoreTimeout:            50 * time.Millisecond,
		LogLevel:                "info",
	}
}

// Check returns every fault of the settings, each naming its flag, joined
// with errors.Join; nil when there is none.
func (s Settings) Check() error {
	var errs []error
	bad := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
	}
	address := func(flag, v string) {
		if _, port, err := net.SplitHostPort(v); err != nil || port == "" {
			bad(flag, "%q is not HOST:PORT, such as 127.0.0.1:4483", v)
		}
	}
	address("listen", s.Listen)
	if s.AdminListen != "" {
		address("admin-listen", s.AdminListen)
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
	within := func(flag string, v, low, high int) {
		if v < low || v > high {
			bad(flag, "%d is not between %d and %d", v, low, high)
		}
	}
	within("max-header", s.MaxHeader, 4<<10, 1<<20)
	within("max-body", s.MaxBody, 1<<10, 256<<20)
	within("max-message", s.MaxMessage, 1<<10, 1<<30)
	within("max-connections", s.MaxConnections, 1, 1<<20)
	within("max-connections-per-address", s.MaxConnectionsPerAddress, 0, 1<<20)
	within("max-backend-connections", s.MaxBackendConnections, 1, 1<<20)
	within("max-inflight", s.MaxInflight, 1, 1<<20)
	within("max-streams", s.MaxStreams, 1, 1<<20)
	within("max-sessions", s.MaxSessions, 1, 1<<20)
	within("max-sessions-per-principal", s.MaxSessionsPerPrincipal, 1, 1<<20)
	within("max-parked", s.MaxParked, 1, 1<<20)
	within("cache-memory", s.CacheMemory, kv.MinCache, 1<<30)
	positive := func(flag string, d time.Duration) {
		if d <= 0 {
			bad(flag, "%s is not a positive duration, such as 30s", d)
		}
	}
	positive("session-ttl", s.SessionTTL)
	positive("park-ttl", s.ParkTTL)
	positive("store-timeout", s.StoreTimeout)
	positive("call-cap", s.CallCap)
	positive("drain-timeout", s.DrainTimeout)
	switch s.LogFormat {
	case "", "text", "json":
	default:
		bad("log-format", "%q is neither text nor json", s.LogFormat)
	}
	switch s.StoreFailure {
	case "closed", "open":
	default:
		bad("store-failure", "%q is neither closed nor open", s.StoreFailure)
	}
	switch s.LogLevel {
	case "debug", "info", "warn", "error":
	default:
		bad("log-level", "%q is none of debug, info, warn, error", s.LogLevel)
	}
	return errors.Join(errs...)
}
