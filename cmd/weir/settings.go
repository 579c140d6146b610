package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	yamlparser "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/cmd/weir/secrets"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/settings"
)

// Flags that other commands have too.
const (
	webhooksFlag  = "webhook-config"
	workloadsFlag = "allow-workloads"
	secretsFlag   = secrets.DirFlag
)

// settingsFile is the flag that names the settings file, and its variable. It
// cannot stand in the file itself.
const (
	settingsFlag     = "settings"
	settingsVariable = "WEIR_SETTINGS"
)

// storePasswordVariable holds the password of stores whose sessionStorage names
// no secret. It is not a setting, so that nothing shows it. The others are the
// credentials for Redis Sentinels.
const (
	storePasswordVariable    = "WEIR_SESSION_KVSTORE_PASSWORD"
	sentinelUserVariable     = "WEIR_SENTINEL_KVSTORE_USER"
	sentinelPasswordVariable = "WEIR_SENTINEL_KVSTORE_PASSWORD"
)

// embeddingKeyVariable holds the key of embedding services (spec.config.optimizer).
const embeddingKeyVariable = "WEIR_EMBEDDING_API_KEY"

// addSettingFlags gives a command a flag for every setting. The flags are text,
// since values of all sources are checked in one place.
func addSettingFlags(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	cmd.Flags().Var(&textFlag{kind: "FILE"}, settingsFlag, "YAML file of the settings below (variable "+settingsVariable+")")
	for _, s := range settings.All() {
		cmd.Flags().Var(&textFlag{kind: s.Kind, list: s.List(), text: s.Default}, s.Name, s.Help)
		if s.Kind == "BOOL" {
			cmd.Flags().Lookup(s.Name).NoOptDefVal = "true"
		}
		switch {
		case s.Values != nil:
			mustRegister(cmd, s.Name, s.Values)
		case !s.Files():
			mustRegister(cmd, s.Name, nil)
		}
	}
}

// textFlag is a flag that keeps its text unparsed. A list flag may be repeated,
// and its items may be separated by commas.
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

// loaded holds the settings of a process and where each came from.
type loaded struct {
	settings.Settings
	origins map[string]origin
}

// loadSettings reads the settings: flags over variables over the settings file
// over defaults. The error joins every fault.
func loadSettings(flags *pflag.FlagSet, environ []string) (loaded, error) {
	l := loaded{Settings: settings.Defaults(), origins: map[string]origin{}}
	merged := koanf.New(".")
	var wrong []error
	merge := func(layer *koanf.Koanf, o origin) {
		for key := range layer.Raw() {
			l.origins[key] = o
			if o.From == "variable" {
				l.origins[key] = origin{o.From, settings.Setting{Name: key}.Variable()}
			}
		}
		if err := merged.Merge(layer); err != nil {
			wrong = append(wrong, err)
		}
	}

	// 1. Defaults.
	defaults := koanf.New(".")
	for _, s := range settings.All() {
		if err := defaults.Set(s.Name, s.Default); err != nil {
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
	for _, s := range settings.All() {
		if err := s.Set(&l.Settings, merged.Get(s.Name)); err != nil {
			wrong = append(wrong, l.located(fmt.Errorf("--%s: %w", s.Name, err)))
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

// located names the source of the value in an error that begins with a flag,
// unless the source is that flag.
func (l loaded) located(err error) error {
	name, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "--"), ":")
	if o := l.origins[name]; o.From == "file" || o.From == "variable" {
		return fmt.Errorf("%w (from %s)", err, o)
	}
	return err
}

func names() []string {
	var out []string
	for _, s := range settings.All() {
		out = append(out, s.Name)
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
			return koanf.New("."), []error{fmt.Errorf("--%s: %w: name a file that is there, or leave the flag out", settingsFlag, err)}
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
	for _, s := range settings.All() {
		known[s.Variable()] = s.Name
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
				for _, s := range settings.All() {
					all = append(all, s.Variable())
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

// another reports whether a variable that is not a setting is expected all the
// same: a secret, a switch of another part, or one that Kubernetes sets in every
// pod for a Service whose name begins with "weir".
func another(variable string) bool {
	switch variable {
	case settingsVariable, storePasswordVariable, sentinelUserVariable, sentinelPasswordVariable, embeddingKeyVariable, authKeyVariable, clientMetadataVariable, "WEIR_REQUIRE_ALL", "WEIR_DISABLE_OBO",
		secret.ProviderVariable, secret.FallbackVariable, secret.PasswordVariable, "WEIR_HOME", "WEIR_ENGINE", "WEIR_OIDC_CLIENT_SECRET":
		return true
	}
	return strings.HasPrefix(variable, "WEIR_SECRET_") || strings.HasPrefix(variable, "WEIR_PEERS_") || serviceLink().MatchString(variable)
}

func serviceLink() *regexp.Regexp {
	return regexp.MustCompile(`^WEIR_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)
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
	for _, s := range settings.All() {
		value := s.Text(&l.Settings)
		if value == "" {
			value = "-"
		}
		rows = append(rows, []string{s.Name, value, l.origins[s.Name].String()})
	}
	return show.Table(w, rows)
}

func writeSettingsJSON(w io.Writer, l loaded) error {
	type row struct {
		Name  string `json:"name"`
		Value any    `json:"value"`
		origin
	}
	var rows []row
	for _, s := range settings.All() {
		value := s.Value(&l.Settings)
		switch v := value.(type) {
		case time.Duration:
			value = s.Text(&l.Settings)
		case []string:
			if v == nil {
				value = []string{}
			}
		}
		rows = append(rows, row{s.Name, value, l.origins[s.Name]})
	}
	return printJSON(w, rows, "  ")
}
