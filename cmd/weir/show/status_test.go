package show

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/status"
)

func lookWith(at time.Time, backends ...status.Backend) *Look {
	return &Look{At: at, Servers: []status.Server{{Name: "main", Phase: "Ready", DiscoveredBackends: backends}}}
}

func TestPaces(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, test := range []struct {
		name        string
		before, now status.Backend
		after       time.Duration
		want        []string // of CALLS/S and RECENT
	}{
		{"steady", status.Backend{Calls: 100, Millis: 2}, status.Backend{Calls: 150, Millis: 2}, time.Second, []string{"50.0", "2ms"}},
		{"slower of late", status.Backend{Calls: 100, Millis: 1}, status.Backend{Calls: 200, Millis: 6}, 2 * time.Second, []string{"50.0", "11ms"}},
		{"idle", status.Backend{Calls: 100, Millis: 2}, status.Backend{Calls: 100, Millis: 2}, time.Second, []string{"0", ""}},
		{"the first calls", status.Backend{}, status.Backend{Calls: 4, Millis: 2.5}, 2 * time.Second, []string{"2.0", "2.5ms"}},
		{"few of very many", status.Backend{Calls: 1e6, Millis: 1}, status.Backend{Calls: 1e6 + 10, Millis: 1}, time.Second, []string{"10.0", "~1ms"}},
		{"less than the counters can say", status.Backend{Calls: 1000, Millis: 1}, status.Backend{Calls: 1001, Millis: 0.9}, time.Second, []string{"1.0", "~0s"}},
		{"started again", status.Backend{Calls: 100, Millis: 2}, status.Backend{Calls: 10, Millis: 2}, time.Second, []string{"", ""}},
		{"the same moment", status.Backend{Calls: 100, Millis: 2}, status.Backend{Calls: 100, Millis: 2}, 0, []string{"", ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.before.Name, test.now.Name = "b", "b"
			since := paces(lookWith(start, test.before), lookWith(start.Add(test.after), test.now))
			got := recent(since, named{"main", "b"})
			if strings.Join(got, "|") != strings.Join(test.want, "|") {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	since := paces(lookWith(start), lookWith(start.Add(time.Second), status.Backend{Name: "new", Calls: 3}))
	if got := recent(since, named{"main", "new"}); got[0] != "" {
		t.Errorf("a backend that was not there before has a pace: %q", got)
	}
}

func TestReadStatus(t *testing.T) {
	for text, want := range map[string]int{
		`{"name":"a","phase":"Ready"}`:                                             1,
		`{"servers":[{"name":"a","phase":"Ready"},{"name":"b","phase":"Failed"}]}`: 2,
		`{"servers":[]}`:            0,
		`{"servers":[{}]}`:          0,
		`{}`:                        0,
		`[]`:                        0,
		`{"name":1,"phase":2}`:      0,
		`<html>`:                    0,
		`{"name":"a","phase":"R"}x`: 0,
	} {
		now, err := ReadStatus(time.Now(), []byte(text))
		if (err == nil) != (want > 0) || err == nil && len(now.Servers) != want {
			t.Errorf("%s: %+v, %v; want %d servers", text, now, err, want)
		}
	}
}

// A frame covers what was there before, and no more than the terminal.
func TestFrame(t *testing.T) {
	for _, test := range []struct {
		text          string
		width, height int
		want          string
	}{
		{"a\nbc\n", 80, 24, "\x1b[Ha\x1b[K\r\nbc\x1b[K\x1b[J"},
		{"abcdef\n", 5, 24, "\x1b[Habc…\x1b[K\x1b[J"},
		{"äöü\n", 4, 24, "\x1b[Häöü\x1b[K\x1b[J"},
		{"a\nb\nc\n", 80, 2, "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J"},
		{"abc\n", 1, 1, "\x1b[H…\x1b[K\x1b[J"},
	} {
		if got := frame(test.text, test.width, test.height); got != test.want {
			t.Errorf("%q in %dx%d is %q, want %q", test.text, test.width, test.height, got, test.want)
		}
	}
}

// What conditions advise is said to people; what they say of what is well is not.
func TestStatusAdvises(t *testing.T) {
	now := lookWith(time.Now())
	now.Servers[0].Conditions = []status.Condition{
		{Type: "GroupRefValidated", Status: "True", Reason: "GroupRefValid", Message: "well"},
		{Type: "IdentitySynthesized", Status: "True", Message: "hub: users have no name"},
		{Type: "AuthzUpstreamSelectionWarning", Status: "True", Message: "the first of several\x1b[31m"},
		{Type: "AuthzPrimaryUpstreamProviderIgnored", Status: "False", Message: "well"},
	}
	var b strings.Builder
	if err := Status(&b, now, nil); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); !strings.Contains(got, "Advice:\n  IdentitySynthesized: hub: users have no name\n  AuthzUpstreamSelectionWarning: the first of several") || strings.Contains(got, "well") || strings.Contains(got, "\x1b") {
		t.Errorf("got %q", got)
	}
}
