package main

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// Asking for the counts is not counted among the connections.
func TestCountsLeaveThemselvesOut(t *testing.T) {
	b := newBackend(kit.Modern, 2)
	addr := serveBackend(t, b)
	f, err := openFleet(t.Context(), addr, kit.Modern, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer f.hangUp()
	if _, err := f.drive(t.Context(), "echo", 30); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := kit.CountsAt(t.Context(), addr)
		if err != nil || got.Connections != 3 || got.Methods["tools/call"] != 30 {
			t.Fatalf("%+v, %v", got, err)
		}
	}
}

func TestCheckCounts(t *testing.T) {
	for _, c := range []struct {
		name     string
		counts   kit.Counts
		elapsed  time.Duration
		wrong    string
		backends int
	}{
		{"as it must be", kit.Counts{Methods: map[string]int64{"tools/call": 100}}, time.Second, "", 1},
		{"a probe", kit.Counts{Connections: 1, Methods: map[string]int64{"tools/call": 100, "ping": 1}}, time.Millisecond, "", 1},
		{"probes over a long time", kit.Counts{Methods: map[string]int64{"tools/call": 100, "ping": 2, "server/discover": 2}}, 3 * time.Second, "", 1},
		{"a call twice", kit.Counts{Methods: map[string]int64{"tools/call": 101}}, time.Second, "101 tools/call", 1},
		{"a call lost", kit.Counts{Methods: map[string]int64{"tools/call": 99}}, time.Second, "99 tools/call", 1},
		{"a listing", kit.Counts{Methods: map[string]int64{"tools/call": 100, "tools/list": 1}}, time.Second, "1 × tools/list", 1},
		{"a handshake", kit.Counts{Methods: map[string]int64{"tools/call": 100, "initialize": 1, "notifications/initialized": 1}}, time.Second, "1 × initialize, 1 × notifications/initialized", 1},
		{"a probe a call", kit.Counts{Methods: map[string]int64{"tools/call": 100, "ping": 100}}, time.Second, "100 probes", 1},
		{"connections", kit.Counts{Connections: 3, Methods: map[string]int64{"tools/call": 100}}, time.Second, "3 new connections", 1},
		{"refusals", kit.Counts{Methods: map[string]int64{"tools/call": 100}, Refused: map[string]int64{"Header mismatch": 2}}, time.Second, "2 refused: Header mismatch", 1},
		{"the same of several backends", kit.Counts{Methods: map[string]int64{"tools/call": 100, "ping": 3, "GET": 1}}, time.Millisecond, "", 4},
		{"listening to one backend", kit.Counts{Methods: map[string]int64{"tools/call": 100, "GET": 1}}, time.Millisecond, "1 × GET", 1},
		{"listening a call", kit.Counts{Methods: map[string]int64{"tools/call": 100, "GET": 100}}, time.Millisecond, "100 probes", 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := checkCounts(c.counts, 100, c.backends, c.elapsed)
			if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
				t.Errorf("%v, want an error about %q", err, c.wrong)
			}
		})
	}
}

func TestCheckExchanges(t *testing.T) {
	for _, c := range []struct {
		first, during int64
		wrong         string
	}{{1, 0, ""}, {0, 0, "0 for the first calls"}, {8, 0, "8 for the first calls"}, {1, 1, "and 1 for 100 calls"}, {1, 100, "and 100 for 100 calls"}} {
		err := checkExchanges(c.first, c.during, 100)
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
