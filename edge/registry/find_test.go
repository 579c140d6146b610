package registry

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func registryOf(t *testing.T, entries ...string) *Registry {
	t.Helper()
	var servers []json.RawMessage
	for _, e := range entries {
		name, more, _ := strings.Cut(e, " ")
		servers = append(servers, json.RawMessage(fmt.Sprintf(`{"name":%q,"description":%q,"version":"1","title":"T"}`, name, more)))
	}
	r, err := Source{At: "/r.json"}.build(&kept{Pages: []page{{Format: "x", Servers: servers}}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFind(t *testing.T) {
	r := registryOf(t, "io.a/files", "io.b/files", "io.a/weather", "io.c/tickets", "io.c/tickers", "io.c/tocket", "io.c/tickety")
	for word, want := range map[string]string{"io.a/files": "io.a/files", "weather": "io.a/weather", "io.c/tickets": "io.c/tickets"} {
		if e, err := r.Find(word); err != nil || e.Name != want {
			t.Errorf("%s: %+v, %v", word, e, err)
		}
	}
	for word, want := range map[string]string{
		"files":       `1 "files" is the name of 2 entries of the registry: io.a/files, io.b/files`,
		"Weather":     `2 there is no entry "Weather" in the registry /r.json`,
		"a/weather":   `2 there is no entry "a/weather"`,
		"":            `2 there is no entry ""`,
		"\x1b[31mred": `2 there is no entry "[31mred"`,
	} {
		if _, err := r.Find(word); err == nil || !strings.HasPrefix(said(err), want) {
			t.Errorf("%q: %s", word, said(err))
		}
	}
	// The three nearest names.
	_, err := r.Find("ticket")
	e, ok := err.(*Error)
	if !ok || !e.Near || !strings.HasPrefix(e.Next, "did you mean ") || strings.Count(e.Next, "io.c/tick") != 3 && strings.Count(e.Next, "io.c/t") != 3 {
		t.Errorf("%+v", e)
	}
	if _, err := r.Find("nothing-like-it"); err.(*Error).Near || err.(*Error).Next != "weir search nothing-like-it" {
		t.Errorf("%+v", err)
	}
	if _, err := r.Find("a;b"); err.(*Error).Next != "weir search WORD" {
		t.Errorf("%+v", err)
	}
}

func TestSearch(t *testing.T) {
	r := registryOf(t, "io.a/files Reads documents", "io.b/myfiles x", "io.c/x Works on FILES of all kinds", "io.d/tickets Answers")
	for words, want := range map[string]string{
		"files": "io.a/files io.b/myfiles io.c/x", "FILES kinds": "io.c/x", "io.": "io.a/files io.b/myfiles io.c/x io.d/tickets", "nothing": "",
	} {
		var got []string
		for _, e := range r.Search(strings.Fields(words)...) {
			got = append(got, e.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s", words, got)
		}
	}
	if got := strings.Join(r.Complete("io.", 2), " "); got != "io.a/files io.b/myfiles" {
		t.Error(got)
	}
	if got := strings.Join(r.Complete("ti", 10), " "); got != "tickets" {
		t.Error(got)
	}
}
