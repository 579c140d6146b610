package main

import (
	"errors"
	"testing"
)

func TestHeaderFlag(t *testing.T) {
	for _, test := range []struct {
		flag string
		want string // of the header X-Team; "!" for a wrong command line
	}{
		{"X-Team: blue", "blue"},
		{"x-team:blue", "blue"},
		{"X-Team:", ""},
		{"X-Team: a:b", "a:b"},
		{"X-Team", "!"},
		{": blue", "!"},
		{"X Team: blue", "!"},
		{"X-Team: a\nX-Other: b", "!"},
		{"X-Team: a\rb", "!"},
		{"X-Team: a\x00b", "!"},
	} {
		r := &remote{era: "auto", headers: []string{test.flag}}
		o, _, err := r.options("http://127.0.0.1:1/mcp")
		got := o.Header.Get("X-Team")
		if usage := new(usageError); errors.As(err, &usage) {
			got = "!"
		} else if err != nil {
			t.Errorf("%q: %v", test.flag, err)
		}
		if got != test.want {
			t.Errorf("%q is %q, want %q", test.flag, got, test.want)
		}
	}
}

func TestURLOrTool(t *testing.T) {
	for word, want := range map[string]bool{
		"http://127.0.0.1:4483/mcp": true,
		"localhost:4483/mcp":        true,
		"127.0.0.1:4483":            true,
		"[::1]:4483/mcp":            true,
		"echo":                      false,
		"github.search":             false,
		"github/search":             false,
		"ns:tool":                   false,
	} {
		if isURL(word) != want {
			t.Errorf("%q is a URL: %v", word, !want)
		}
	}
}
