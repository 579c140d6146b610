package settings

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestTable holds every row of the table: it has a name, a kind and help, its default is a
// value of its kind that Check takes, and is written as Text writes it; a number has a range.
func TestTable(t *testing.T) {
	d := Defaults()
	if err := d.Check(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range All() {
		if s.Name == "" || s.Kind == "" || s.Help == "" || seen[s.Name] {
			t.Errorf("%+v", s)
		}
		seen[s.Name] = true
		if got := s.Text(&d); got != s.Default {
			t.Errorf("%s: the default is %q, and is written %q", s.Name, s.Default, got)
		}
		if _, is := s.Value(&d).(int); is {
			low, err := number(s.low, true)
			high, err2 := number(s.high, true)
			if err != nil || err2 != nil || low >= high {
				t.Errorf("%s: from %q to %q", s.Name, s.low, s.high)
			}
		}
		if s.List() != (reflect.TypeOf(s.Value(&d)).Kind() == reflect.Slice) {
			t.Errorf("%s is of kind %s", s.Name, s.Kind)
		}
		tag := reflect.TypeFor[Settings]().Field(s.field).Tag
		for _, part := range []string{"name", "kind", "default", "range", "values", "optional", "files", "help"} {
			tag = reflect.StructTag(strings.Replace(string(tag), part+`:"`+tag.Get(part)+`"`, "", 1))
		}
		if strings.TrimSpace(string(tag)) != "" {
			t.Errorf("%s: %q is read by nobody", s.Name, tag)
		}
	}
}

// TestCheck: each value that is out of its range or its words is named, with its flag and
// what it may be.
func TestCheck(t *testing.T) {
	for name, test := range map[string]struct{ value, want string }{
		"listen":                      {"localhost", `--listen: "localhost" is not HOST:PORT, such as 127.0.0.1:4483`},
		"admin-listen":                {"1:", `--admin-listen: "1:" is not HOST:PORT`},
		"max-header":                  {"1KiB", "--max-header: 1024 is not between 4096 and 1048576"},
		"max-connections-per-address": {"2000000", "is not between 0 and 1048576"},
		"cache-memory":                {"2GiB", "is not between 1048576 and 1073741824"},
		"session-ttl":                 {"0s", "--session-ttl: 0s is not a positive duration, such as 30s"},
		"store-failure":               {"maybe", `--store-failure: "maybe" is neither closed nor open`},
		"log-format":                  {"xml", `"xml" is neither text nor json`},
		"log-level":                   {"loud", `--log-level: "loud" is none of debug, info, warn, error`},
		"tls-cert":                    {"a", "--tls-cert and --tls-key go together"},
		"tls-client-ca":               {"a", "--tls-client-ca: needs --tls-cert and --tls-key"},
		"allowed-origins":             {"https://*.example.com", "is not an exact origin"},
		"allowed-hosts":               {"a/b", "is not an exact host"},
		"trusted-proxies":             {"x", "--trusted-proxies: "},
		"external-url":                {"ftp://a", "is not an http or https URL"},
		"sts-endpoint":                {"http://sts.example.com", "it is not an https URL"},
	} {
		d := Defaults()
		for _, s := range All() {
			if s.Name != name {
				continue
			}
			if err := s.Set(&d, test.value); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := d.Check(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	for _, name := range []string{"admin-listen", "log-format"} { // which may be empty
		d := Defaults()
		for _, s := range All() {
			if s.Name == name {
				_ = s.Set(&d, "")
			}
		}
		if err := d.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	d := Defaults()
	for _, s := range All() {
		if s.Name == "store-failure" || s.Name == "log-level" || s.Name == "listen" {
			_ = s.Set(&d, "")
		}
	}
	if err := d.Check(); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("three empty values: %v", err)
	}
}

// TestNames: a setting has the name of its field.
func TestNames(t *testing.T) {
	of := reflect.TypeFor[Settings]()
	for i, s := range All() {
		if want := strings.ToLower(kebab(of.Field(i).Name)); s.Name != want {
			t.Errorf("field %s has the flag %q, want %q", of.Field(i).Name, s.Name, want)
		}
	}
}

// kebab writes MaxBody as Max-Body and TLSClientCA as TLS-Client-CA.
func kebab(name string) string {
	var b strings.Builder
	upper := func(i int) bool { return i >= 0 && i < len(name) && 'A' <= name[i] && name[i] <= 'Z' }
	for i := range len(name) {
		if i > 0 && upper(i) && (!upper(i-1) || i+1 < len(name) && !upper(i+1)) {
			b.WriteByte('-')
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

// TestTextIsRead: what Text writes, Set reads.
func TestTextIsRead(t *testing.T) {
	d := Defaults()
	d.SessionTTL, d.CallCap, d.DrainTimeout = 2*time.Hour, 90*time.Second, 100*time.Minute
	d.MaxHeader, d.AllowedHosts = 16385, []string{"a", "b"}
	for _, s := range All() {
		var again Settings
		if err := s.Set(&again, s.Text(&d)); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if got, want := s.Value(&again), s.Value(&d); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v is written %q and read as %v", s.Name, want, s.Text(&d), got)
		}
	}
}

// TestReach holds what --ca-bundle and --dev-loopback allow, and where they are refused.
func TestReach(t *testing.T) {
	for listen, wrong := range map[string]bool{"127.0.0.1:1": false, "[::1]:1": false, "localhost:1": false, "0.0.0.0:1": true, ":1": true, "192.168.1.2:1": true, "example.com:1": true} {
		s := Defaults()
		s.Listen, s.DevLoopback = listen, true
		if err := s.Check(); (err != nil) != wrong || wrong && !strings.Contains(err.Error(), "--dev-loopback: it is for development") {
			t.Errorf("%s: %v", listen, err)
		}
	}
	s := Defaults()
	if r, err := s.Reach(); r.CAs != nil || r.DevLoopback || err != nil {
		t.Errorf("%+v, %v", r, err)
	}
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	path := filepath.Join(t.TempDir(), "ca.pem")
	pemText := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for text, wrong := range map[string]bool{string(pemText): false, "nonsense": true, "": true} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.CABundle, s.DevLoopback = path, true
		r, err := s.Reach()
		if (err != nil) != wrong || !wrong && (string(r.CAs) != text || !r.DevLoopback) || wrong && !strings.Contains(err.Error(), "--ca-bundle: ") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	s.CABundle = path + ".none"
	if _, err := s.Reach(); err == nil {
		t.Error("no error for a file that is not there")
	}
}
