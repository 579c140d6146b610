package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/edge/serve"
)

// given loads settings from a file (none when empty), variables and flags.
func given(t *testing.T, file string, environ []string, flags ...string) (loaded, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "settings.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "--settings", path)
	}
	cmd := &cobra.Command{}
	addSettingFlags(cmd)
	if err := cmd.ParseFlags(flags); err != nil {
		t.Fatal(err)
	}
	l, err := loadSettings(cmd.Flags(), environ)
	for name, o := range l.origins {
		if o.From == "file" {
			l.origins[name] = origin{"file", filepath.Base(o.Name)}
		}
	}
	return l, err
}

func TestPrecedence(t *testing.T) {
	const file = "max-body: 1MiB\n"
	environ := []string{"WEIR_MAX_BODY=2MiB"}
	for _, test := range []struct {
		name    string
		file    string
		environ []string
		flags   []string
		want    int
		from    string
	}{
		{"nothing", "", nil, nil, 4 << 20, "default"},
		{"file", file, nil, nil, 1 << 20, "file settings.yaml"},
		{"variable", "", environ, nil, 2 << 20, "variable WEIR_MAX_BODY"},
		{"variable over file", file, environ, nil, 2 << 20, "variable WEIR_MAX_BODY"},
		{"flag over file", file, nil, []string{"--max-body", "3MiB"}, 3 << 20, "flag"},
		{"flag over all", file, environ, []string{"--max-body", "3MiB"}, 3 << 20, "flag"},
		{"flag with the default's value", file, environ, []string{"--max-body", "4MiB"}, 4 << 20, "flag"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := given(t, test.file, test.environ, test.flags...)
			if err != nil {
				t.Fatal(err)
			}
			if got := l.origins["max-body"].String(); l.MaxBody != test.want || got != test.from {
				t.Errorf("%d from %s, want %d from %s", l.MaxBody, got, test.want, test.from)
			}
			if got := l.origins["listen"].String(); got != "default" {
				t.Errorf("listen is from %s", got)
			}
		})
	}
}

func TestValues(t *testing.T) {
	l, err := given(t, `
listen: 0.0.0.0:1
admin-listen:
allowed-hosts: [a.example, b.example:8]
max-header: 8192
max-connections: 7
session-ttl: 1h30m
external-url: "https://x.example/"
`, []string{
		"WEIR_ALLOWED_ORIGINS=https://a.example, https://b.example",
		"WEIR_MAX_MESSAGE=1GiB",
		"WEIR_SECRET_A_B=x", "WEIR_REQUIRE_ALL=1", "WEIR_DISABLE_OBO=1", "WEIR_PEERS_X=y", "PATH=/bin",
		"WEIR_SERVICE_HOST=10.0.0.1", "WEIR_SERVICE_PORT=80", "WEIR_SERVICE_PORT_HTTP=80", "WEIR_PORT=tcp://10.0.0.1:80",
		"WEIR_PORT_80_TCP=tcp://10.0.0.1:80", "WEIR_PORT_80_TCP_ADDR=10.0.0.1", "WEIR_OPERATOR_SERVICE_HOST=10.0.0.2",
	}, "--log-level", "debug", "--allowed-hosts", "c.example", "--allowed-hosts", "d.example,e.example")
	if err != nil {
		t.Fatal(err)
	}
	want := serve.Defaults()
	want.Listen, want.AdminListen, want.ExternalURL = "0.0.0.0:1", "", "https://x.example/"
	want.AllowedOrigins = []string{"https://a.example", "https://b.example"}
	want.AllowedHosts = []string{"c.example", "d.example", "e.example"}
	want.MaxHeader, want.MaxConnections, want.MaxMessage = 8192, 7, 1<<30
	want.SessionTTL = 90 * time.Minute
	want.LogLevel = "debug"
	if !reflect.DeepEqual(l.Settings, want) {
		t.Errorf("got  %+v\nwant %+v", l.Settings, want)
	}
}

func TestFaultsAreAllSaid(t *testing.T) {
	l, err := given(t, `
max-bdy: 1
maxBody: 2
max: {body: 3}
max-body: [1, 2]
session-ttl: 30
log-level: {a: b}
log-format: yaml
`, []string{"WEIR_LISTN=x", "WEIR_MAX_MESSAGE=4MB", "WEIR_CALL_CAP=", "WEIR_WHATEVER_ELSE=1", "WEIR_MAX_STREAMS=0"},
		"--max-inflight", "-1", "--max-sessions", "99999999999999999999", "--max-header", "9223372036854775807KiB")
	got := err.Error() + "\n" + l.check().Error()
	for _, want := range []string{
		`settings.yaml: unknown setting "max-bdy": did you mean max-body?`,
		`settings.yaml: unknown setting "maxBody": did you mean max-body?`,
		`settings.yaml: unknown setting "max"`,
		"WEIR_LISTN: no such setting: did you mean WEIR_LISTEN?",
		"WEIR_WHATEVER_ELSE: no such setting: `weir settings` lists them all",
		"--max-body: a list, where one SIZE is wanted (from file",
		`--session-ttl: "30" is not a duration, such as 30s or 10m (from file`,
		"--log-level: map is not a LEVEL (from file",
		`--max-message: "4MB" is not a size, such as 16KiB, 4MiB or a number of bytes (from variable WEIR_MAX_MESSAGE)`,
		`--call-cap: "" is not a duration, such as 30s or 10m (from variable WEIR_CALL_CAP)`,
		`--max-inflight: "-1" is not a whole number`,
		`--max-sessions: "99999999999999999999" is not a whole number`,
		`--max-header: "9223372036854775807KiB" is too large`,
		`--log-format: "yaml" is neither text nor json (from file`,
		"--max-streams: 0 is not between 1 and 1048576 (from variable WEIR_MAX_STREAMS)",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("nobody says %s in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "\n") + 1; n != 15 {
		t.Errorf("%d faults, want 15:\n%s", n, got)
	}
}

func TestSettingsFile(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("listen: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	twice := filepath.Join(dir, "twice.yaml")
	if err := os.WriteFile(twice, []byte("max-body: 1MiB\nmax-body: 2MiB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(dir, "good.yaml")
	if err := os.WriteFile(good, []byte("max-body: 1MiB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		environ []string
		flags   []string
		want    string
	}{
		{[]string{"WEIR_SETTINGS=" + good}, nil, ""},
		{[]string{"WEIR_SETTINGS=/nowhere"}, []string{"--settings", good}, ""},
		{[]string{"WEIR_SETTINGS=/nowhere"}, nil, "/nowhere: no such file or directory: name a file that is there"},
		{nil, []string{"--settings", dir}, "is a directory"},
		{nil, []string{"--settings", bad}, "not YAML of the form NAME: VALUE"},
		{nil, []string{"--settings", twice}, "already defined"},
	} {
		l, err := given(t, "", test.environ, test.flags...)
		if test.want == "" {
			if err != nil || l.MaxBody != 1<<20 {
				t.Errorf("%v %v: %d, %v", test.environ, test.flags, l.MaxBody, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v %v: %v, want %s", test.environ, test.flags, err, test.want)
		}
	}
}

// A variable of `weir run` is no misspelt setting to the other commands.
func TestVariableOfRun(t *testing.T) {
	if _, err := given(t, "", []string{"WEIR_OIDC_CLIENT_SECRET=x"}); err != nil {
		t.Error(err)
	}
}

// TestSecretsOfVariables: one line break at the end of a secret in a variable is not part of it.
func TestSecretsOfVariables(t *testing.T) {
	a := &app{environ: []string{storePasswordVariable + "=one\n", sentinelPasswordVariable + "=two\r\n", embeddingKeyVariable + "=three\n"}}
	d := a.doctor(&cobra.Command{}, nil, time.Second)
	for _, c := range []struct{ variable, want string }{{storePasswordVariable, "one"}, {sentinelPasswordVariable, "two"}, {embeddingKeyVariable, "three"}} {
		if got := a.secret(c.variable); string(got) != c.want {
			t.Errorf("%s: %q", c.variable, string(got))
		}
	}
	if d.StorePassword != "one" || d.SentinelPassword != "two" || d.EmbeddingKey != "three" {
		t.Errorf("the doctor has %q, %q and %q", string(d.StorePassword), string(d.SentinelPassword), string(d.EmbeddingKey))
	}
}
