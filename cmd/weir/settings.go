package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	yamlparser "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/serve"
)

// setting is one setting of the process: a flag, a variable, a key of the
// settings file, all of the same name.
type setting struct {
	name  string // of the flag and of the key
	kind  string // what its value is, for help
	usage string
	field func(*serve.Settings) any // *string, *[]string, *int, *bool or *time.Duration
	size  bool                      // an *int of bytes
	fixed []string                  // the values that there are; nil for any
	file  bool                      // names a file
}

// variable is the name in the environment.
func (s setting) variable() string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// webhooksFlag is the setting that "weir validate" knows, too.
const webhooksFlag = "webhook-config"

// settings is the table of all of them, in the order in which they are shown.
func settings() []setting {
	return []setting{
		{name: "listen", kind: "HOST:PORT", usage: "address of the door", field: func(s *serve.Settings) any { return &s.Listen }},
		{name: "admin-listen", kind: "HOST:PORT", usage: "address of the admin door; empty for none; one that others can reach has /health, /readyz and /metrics alone", field: func(s *serve.Settings) any { return &s.AdminListen }},
		{name: "hand-over", kind: "FILE", file: true, usage: "Unix socket at which a new process takes sockets and sessions over from the one that serves, without a gap", field: func(s *serve.Settings) any { return &s.HandOver }},
		{name: "tls-cert", kind: "FILE", file: true, usage: "certificate in PEM; read again when it changes", field: func(s *serve.Settings) any { return &s.TLSCert }},
		{name: "tls-key", kind: "FILE", file: true, usage: "key of the certificate in PEM", field: func(s *serve.Settings) any { return &s.TLSKey }},
		{name: "tls-client-ca", kind: "FILE", file: true, usage: "authorities in PEM of which a client must have a certificate", field: func(s *serve.Settings) any { return &s.TLSClientCA }},
		{name: "allowed-origins", kind: "LIST", usage: "exact values of Origin; a loopback address allows its own", field: func(s *serve.Settings) any { return &s.AllowedOrigins }},
		{name: "allowed-hosts", kind: "LIST", usage: "exact values of Host; a loopback address allows its own", field: func(s *serve.Settings) any { return &s.AllowedHosts }},
		{name: "trusted-proxies", kind: "LIST", usage: "networks of proxies whose X-Forwarded-For and Forwarded are believed", field: func(s *serve.Settings) any { return &s.TrustedProxies }},
		{name: "external-url", kind: "URL", usage: "where clients see the edge; without it what they asked for", field: func(s *serve.Settings) any { return &s.ExternalURL }},
		{name: "default-server", kind: "NAME", usage: "the server that answers on /mcp when there are several", field: func(s *serve.Settings) any { return &s.DefaultServer }},
		{name: secretsFlag, kind: "DIR", file: true, usage: "directory with a file NAME/KEY for each secret; a file that changes is read again", field: func(s *serve.Settings) any { return &s.SecretsDir }},
		{name: "max-header", kind: "SIZE", size: true, usage: "header of a request", field: func(s *serve.Settings) any { return &s.MaxHeader }},
		{name: "max-body", kind: "SIZE", size: true, usage: "body of a request", field: func(s *serve.Settings) any { return &s.MaxBody }},
		{name: "max-message", kind: "SIZE", size: true, usage: "one message of a backend", field: func(s *serve.Settings) any { return &s.MaxMessage }},
		{name: "max-connections", kind: "NUMBER", usage: "open connections of clients", field: func(s *serve.Settings) any { return &s.MaxConnections }},
		{name: "max-connections-per-address", kind: "NUMBER", usage: "of them from one address; 0 for no limit", field: func(s *serve.Settings) any { return &s.MaxConnectionsPerAddress }},
		{name: "max-backend-connections", kind: "NUMBER", usage: "open connections to one backend", field: func(s *serve.Settings) any { return &s.MaxBackendConnections }},
		{name: "max-inflight", kind: "NUMBER", usage: "exchanges at a time", field: func(s *serve.Settings) any { return &s.MaxInflight }},
		{name: "max-streams", kind: "NUMBER", usage: "open streams of one principal, or of one address on a server that is anonymous", field: func(s *serve.Settings) any { return &s.MaxStreams }},
		{name: "max-sessions", kind: "NUMBER", usage: "sessions of legacy clients", field: func(s *serve.Settings) any { return &s.MaxSessions }},
		{name: "max-sessions-per-principal", kind: "NUMBER", usage: "sessions of one principal, or of one address on a server that is anonymous: beyond it the own one used least ends", field: func(s *serve.Settings) any { return &s.MaxSessionsPerPrincipal }},
		{name: "session-ttl", kind: "DURATION", usage: "a session unused for so long ends", field: func(s *serve.Settings) any { return &s.SessionTTL }},
		{name: "max-parked", kind: "NUMBER", usage: "calls that wait for a modern client to come back with an answer", field: func(s *serve.Settings) any { return &s.MaxParked }},
		{name: "park-ttl", kind: "DURATION", usage: "how long a parked call waits for its client", field: func(s *serve.Settings) any { return &s.ParkTTL }},
		{name: "cache-memory", kind: "SIZE", size: true, usage: "memory for what is remembered and can be had again, such as verified tokens; 1MiB to 1GiB", field: func(s *serve.Settings) any { return &s.CacheMemory }},
		{name: "filter-cache", kind: "DIR", file: true, usage: "directory of this user alone for compiled and fetched filters; none without", field: func(s *serve.Settings) any { return &s.FilterCache }},
		{name: "state-key-file", kind: "FILE", file: true, usage: "keys that seal requestState, one a line; without it the secret weir-state/key, or a random one", field: func(s *serve.Settings) any { return &s.StateKeyFile }},
		{name: "local-rate-limits", kind: "BOOL", usage: "rate limits of servers without a store to share are counted in this process", field: func(s *serve.Settings) any { return &s.LocalRateLimits }},
		{name: "store-failure", kind: "MODE", fixed: []string{"closed", "open"}, usage: "while a shared store is away: closed refuses what needs it, open goes on with what this process knows, and counts it", field: func(s *serve.Settings) any { return &s.StoreFailure }},
		{name: "store-timeout", kind: "DURATION", usage: "a shared store that takes longer to answer is as good as away", field: func(s *serve.Settings) any { return &s.StoreTimeout }},
		{name: "store-ca", kind: "FILE", file: true, usage: "authorities in PEM of shared stores with TLS; without it those of the system", field: func(s *serve.Settings) any { return &s.StoreCA }},
		{name: webhooksFlag, kind: "LIST", file: true, usage: "files of webhooks that every message is shown to", field: func(s *serve.Settings) any { return &s.WebhookConfig }},
		{name: "call-cap", kind: "DURATION", usage: "the longest that any call may take", field: func(s *serve.Settings) any { return &s.CallCap }},
		{name: "drain-timeout", kind: "DURATION", usage: "how long calls in flight may take at the end", field: func(s *serve.Settings) any { return &s.DrainTimeout }},
		{name: "log-format", kind: "FORMAT", fixed: []string{"text", "json"}, usage: "text or json; without it text on a terminal, else json", field: func(s *serve.Settings) any { return &s.LogFormat }},
		{name: "log-level", kind: "LEVEL", fixed: []string{"debug", "info", "warn", "error"}, usage: "debug, info, warn or error", field: func(s *serve.Settings) any { return &s.LogLevel }},
	}
}

// settingsFile is the flag that names the settings file, and its variable. It
// cannot stand in the file itself.
const (
	settingsFlag     = "settings"
	settingsVariable = "WEIR_SETTINGS"
)

// storePasswordVariable holds the password of stores whose sessionStorage names
// no secret. It is no setting: nothing shows it. The others hold what sentinels
// want, who know where a store is.
const (
	storePasswordVariable    = "WEIR_SESSION_KVSTORE_PASSWORD"
	sentinelUserVariable     = "WEIR_SENTINEL_KVSTORE_USER"
	sentinelPasswordVariable = "WEIR_SENTINEL_KVSTORE_PASSWORD"
)

// secretsFlag names the directory of secrets.
const secretsFlag = "secrets-dir"

// addSettingFlags gives a command a flag for every setting. The flags are text:
// what is wrong with a value is found for all sources in one place.
func addSettingFlags(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	cmd.Flags().Var(&textFlag{kind: "FILE"}, settingsFlag, "YAML file of the settings below (variable "+settingsVariable+")")
	defaults := serve.Defaults()
	for _, s := range settings() {
		value := &textFlag{kind: s.kind, list: s.kind == "LIST", text: show(s, s.field(&defaults))}
		cmd.Flags().Var(value, s.name, s.usage)
		if s.kind == "BOOL" {
			cmd.Flags().Lookup(s.name).NoOptDefVal = "true"
		}
		switch {
		case s.fixed != nil:
			mustRegister(cmd, s.name, s.fixed)
		case !s.file:
			mustRegister(cmd, s.name, nil)
		}
	}
}

// mustRegister makes a flag complete to fixed values, or to nothing.
func mustRegister(cmd *cobra.Command, flag string, values []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was added in the line before
	}
}

// textFlag is a flag that keeps what was written. A list may be given several
// times, and its items be separated by commas.
type textFlag struct {
	kind string
	list bool
	text string
	set  bool
}

func (f *textFlag) String() string { return f.text }
func (f *textFlag) Type() string   { return f.kind }
func (f *textFlag) Set(text string) error {
	if f.list && f.set {
		text = f.text + "," + text
	}
	f.text, f.set = text, true
	return nil
}

// origin is where the value of a setting came from.
type origin struct {
	From string `json:"from"`         // default, file, variable or flag
	Name string `json:"in,omitempty"` // of the file or variable
}

func (o origin) String() string {
	if o.Name == "" {
		return o.From
	}
	return o.From + " " + o.Name
}

// loaded is what the settings of a process are and where each came from.
type loaded struct {
	serve.Settings
	origins map[string]origin
}

// loadSettings reads the settings: flags over variables over the settings file
// over defaults. The error joins everything that is wrong.
func loadSettings(flags *pflag.FlagSet, environ []string) (loaded, error) {
	l := loaded{Settings: serve.Defaults(), origins: map[string]origin{}}
	merged := koanf.New(".")
	var wrong []error
	merge := func(layer *koanf.Koanf, o origin) {
		for key := range layer.Raw() {
			l.origins[key] = o
			if o.From == "variable" {
				l.origins[key] = origin{o.From, setting{name: key}.variable()}
			}
		}
		if err := merged.Merge(layer); err != nil {
			wrong = append(wrong, err)
		}
	}

	// 1. Defaults.
	defaults := koanf.New(".")
	for _, s := range settings() {
		if err := defaults.Set(s.name, show(s, s.field(&l.Settings))); err != nil {
			wrong = append(wrong, err)
		}
	}
	merge(defaults, origin{From: "default"})

	// 2. The settings file.
	path, _ := lookup(environ, settingsVariable)
	if f := flags.Lookup(settingsFlag); f.Changed {
		path = f.Value.String()
	}
	if path != "" {
		layer, errs := settingsOf(path)
		wrong = append(wrong, errs...)
		merge(layer, origin{"file", path})
	}

	// 3. Variables.
	layer, errs := variables(environ)
	wrong = append(wrong, errs...)
	merge(layer, origin{From: "variable"})

	// 4. Flags.
	layer = koanf.New(".")
	given := posflag.ProviderWithFlag(flags, ".", nil, func(f *pflag.Flag) (string, any) {
		if !f.Changed || !slices.Contains(names(), f.Name) {
			return "", nil
		}
		return f.Name, f.Value.String()
	})
	if err := layer.Load(given, nil); err != nil {
		wrong = append(wrong, err)
	}
	merge(layer, origin{From: "flag"})

	// 5. Values of the right type.
	for _, s := range settings() {
		if err := assign(s, merged.Get(s.name), s.field(&l.Settings)); err != nil {
			wrong = append(wrong, l.located(fmt.Errorf("--%s: %w", s.name, err)))
		}
	}
	return l, errors.Join(wrong...)
}

// check returns every fault of the settings, each with where it came from.
func (l loaded) check() error {
	err := l.Check()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var wrong []error
	for _, e := range joined.Unwrap() {
		wrong = append(wrong, l.located(e))
	}
	return errors.Join(wrong...)
}

// located adds to an error that begins with a flag where its value came from,
// unless that is the flag.
func (l loaded) located(err error) error {
	name, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "--"), ":")
	if o := l.origins[name]; o.From == "file" || o.From == "variable" {
		return fmt.Errorf("%w (from %s)", err, o)
	}
	return err
}

func names() []string {
	var out []string
	for _, s := range settings() {
		out = append(out, s.name)
	}
	return out
}

// settingsOf reads a settings file: one YAML object, its keys the names of
// settings.
func settingsOf(path string) (*koanf.Koanf, []error) {
	layer := koanf.New(".")
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return layer, []error{fmt.Errorf("--%s: %s is a directory: name a YAML file of settings in it", settingsFlag, path)}
	}
	if err := layer.Load(file.Provider(path), yamlparser.Parser()); err != nil {
		if pathError := (*os.PathError)(nil); errors.As(err, &pathError) {
			return koanf.New("."), []error{fmt.Errorf("--%s: %w: name a file that is there, or leave it away", settingsFlag, err)}
		}
		return koanf.New("."), []error{fmt.Errorf("--%s: %s: not YAML of the form NAME: VALUE: %w", settingsFlag, path, err)}
	}
	var wrong []error
	for key := range layer.Raw() {
		if slices.Contains(names(), key) {
			continue
		}
		layer.Delete(key)
		wrong = append(wrong, fmt.Errorf("--%s: %s: unknown setting %q%s", settingsFlag, path, key, didYouMean(key, names(), "`weir settings` lists them all")))
	}
	slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return layer, wrong
}

// variables reads the settings in the environment.
func variables(environ []string) (*koanf.Koanf, []error) {
	known := map[string]string{} // by variable
	for _, s := range settings() {
		known[s.variable()] = s.name
	}
	var wrong []error
	layer := koanf.New(".")
	err := layer.Load(env.Provider(".", env.Opt{
		Prefix:      "WEIR_",
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(variable, value string) (string, any) {
			if name, ok := known[variable]; ok {
				return name, value
			}
			if !another(variable) {
				var all []string
				for _, s := range settings() {
					all = append(all, s.variable())
				}
				wrong = append(wrong, fmt.Errorf("%s: no such setting%s", variable, didYouMean(variable, all, "`weir settings` lists them all")))
			}
			return "", nil
		},
	}), nil)
	if err != nil {
		wrong = append(wrong, err)
	}
	slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return layer, wrong
}

// another reports whether a variable is not a setting and yet may be there:
// secrets, switches of other parts, and what Kubernetes gives to every pod
// about a Service whose name begins with "weir" (environment variables of
// services).
func another(variable string) bool {
	switch variable {
	case settingsVariable, storePasswordVariable, sentinelUserVariable, sentinelPasswordVariable, "WEIR_REQUIRE_ALL", "WEIR_DISABLE_OBO":
		return true
	}
	return strings.HasPrefix(variable, "WEIR_SECRET_") || strings.HasPrefix(variable, "WEIR_PEERS_") || serviceLink().MatchString(variable)
}

func serviceLink() *regexp.Regexp {
	return regexp.MustCompile(`^WEIR_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)
}

// lookup finds a variable; the last one of a name counts.
func lookup(environ []string, name string) (value string, ok bool) {
	for _, pair := range environ {
		if n, v, _ := strings.Cut(pair, "="); n == name {
			value, ok = v, true
		}
	}
	return value, ok
}

// didYouMean ends an error about a name that is not known.
func didYouMean(name string, known []string, otherwise string) string {
	if near, ok := compile.Nearest(name, known); ok {
		return fmt.Sprintf(": did you mean %s?", near)
	}
	return ": " + otherwise
}

// assign gives a field the value of a setting. value is text, a number, a
// list, or nil for a key without a value.
func assign(s setting, value any, field any) error {
	if items, ok := value.([]any); ok {
		if s.kind != "LIST" {
			return fmt.Errorf("a list, where one %s is wanted", s.kind)
		}
		list := []string{}
		for _, item := range items {
			list = append(list, fmt.Sprint(item))
		}
		*field.(*[]string) = list
		return nil
	}
	text := ""
	switch v := value.(type) {
	case nil:
	case string:
		text = v
	case int, int64, uint64, float64, bool:
		text = fmt.Sprint(v)
	default:
		return fmt.Errorf("%v is not a %s", reflect.ValueOf(value).Kind(), s.kind)
	}
	switch f := field.(type) {
	case *string:
		*f = text
	case *[]string:
		*f = nil
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				*f = append(*f, item)
			}
		}
	case *int:
		n, err := number(text, s.size)
		if err != nil {
			return err
		}
		*f = n
	case *bool:
		yes, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		*f = yes
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration, such as 30s or 10m", text)
		}
		*f = d
	}
	return nil
}

// number reads a whole number; a size may have a unit of 1024.
func number(text string, size bool) (int, error) {
	digits, unit := text, 1
	if size {
		for _, u := range []struct {
			name  string
			bytes int
		}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}} {
			if cut, ok := strings.CutSuffix(text, u.name); ok {
				digits, unit = cut, u.bytes
			}
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	switch {
	case err != nil && size:
		return 0, fmt.Errorf("%q is not a size, such as 16KiB, 4MiB or a number of bytes", text)
	case err != nil:
		return 0, fmt.Errorf("%q is not a whole number", text)
	case n > uint64(math.MaxInt/unit):
		return 0, fmt.Errorf("%q is too large", text)
	}
	return int(n) * unit, nil
}

// show writes the value of a field as a setting takes it.
func show(s setting, field any) string {
	switch f := field.(type) {
	case *string:
		return *f
	case *[]string:
		return strings.Join(*f, ",")
	case *int:
		for _, u := range []struct {
			name  string
			bytes int
		}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
			if s.size && *f > 0 && *f%u.bytes == 0 {
				return strconv.Itoa(*f/u.bytes) + u.name
			}
		}
		return strconv.Itoa(*f)
	case *bool:
		return strconv.FormatBool(*f)
	case *time.Duration:
		text := f.String()
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
		return text
	}
	return ""
}

func (a *app) settingsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "settings",
		Short: "Show the settings of the process and where each comes from",
		Long: `Show what the settings of "weir serve" would be, and where each of them comes
from: a flag, a variable WEIR_..., the settings file, or the default, in this
order of precedence.

The settings are about the process: addresses, limits, the log. What is served
is in the manifests that "weir serve -c" reads.

Every setting has one name. max-body is the flag --max-body, the variable
WEIR_MAX_BODY and the key max-body of the settings file. Sizes are numbers of
bytes or have a unit (16KiB, 4MiB, 1GiB), durations are written as 30s or 10m,
lists are separated by commas.

A name that does not exist and a value that cannot be right are errors.`,
		Example: `  weir settings
  weir settings --json
  weir settings --max-body 8MiB --log-level debug
  WEIR_LISTEN=127.0.0.1:8080 weir settings`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := loadSettings(cmd.Flags(), a.environ)
			if err != nil {
				return err
			}
			if asJSON {
				err = writeSettingsJSON(a.out, l)
			} else {
				err = writeSettings(a.out, l)
			}
			return errors.Join(err, l.check())
		},
	}
	addSettingFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: a list of objects with name, value, from, in")
	return cmd
}

func writeSettings(w io.Writer, l loaded) error {
	rows := [][]string{{"SETTING", "VALUE", "FROM"}}
	for _, s := range settings() {
		value := show(s, s.field(&l.Settings))
		if value == "" {
			value = "-"
		}
		rows = append(rows, []string{s.name, value, l.origins[s.name].String()})
	}
	return writeTable(w, rows)
}

func writeSettingsJSON(w io.Writer, l loaded) error {
	type row struct {
		Name  string `json:"name"`
		Value any    `json:"value"`
		origin
	}
	var rows []row
	for _, s := range settings() {
		value := reflect.ValueOf(s.field(&l.Settings)).Elem().Interface()
		switch v := value.(type) {
		case time.Duration:
			value = show(s, &v)
		case []string:
			if v == nil {
				value = []string{}
			}
		}
		rows = append(rows, row{s.name, value, l.origins[s.name]})
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(rows)
}
