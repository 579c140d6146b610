package workload

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// give gives a flag a value, as a command line does.
func give(t *testing.T, o *Options, name, value string) {
	t.Helper()
	for _, f := range Flags() {
		if f.Name != name {
			continue
		}
		var err error
		switch to := f.Of(o).(type) {
		case *string:
			*to = value
		case *[]string:
			if !o.Given[name] {
				*to = nil
			}
			*to = append(*to, value)
		case *bool:
			*to, err = strconv.ParseBool(value)
		case *int:
			*to, err = strconv.Atoi(value)
		case *[]int:
			n, wrong := strconv.Atoi(value)
			*to, err = append(*to, n), wrong
		case *float64:
			*to, err = strconv.ParseFloat(value, 64)
		case *time.Duration:
			*to, err = time.ParseDuration(value)
		}
		if err != nil {
			t.Fatal(err)
		}
		o.Given[name] = true
		return
	}
	t.Fatalf("no flag %s", name)
}

// Every flag says what it does, under a theme, and is either not there yet, or stands for a
// field, or is about the run.
func TestFlagsAreDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Flags() {
		about := map[string]bool{"replace": true, "client": true, "print-resolved-overlays": true}[f.Name]
		if seen[f.Name] || f.Theme == "" || f.Help == "" || (f.Field == "") == (f.Later == "" && !about) {
			t.Errorf("%+v", f)
		}
		if f.Field != "" && flagOf(strings.Fields(f.Field + " ")[0], f.Field) == "" && !strings.Contains(f.Field, " ") && flagOf("MCPServer", f.Field) == "" {
			t.Errorf("--%s: its field leads to no flag", f.Name)
		}
		seen[f.Name] = true
	}
}
