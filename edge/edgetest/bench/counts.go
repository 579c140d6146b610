package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// checkCounts holds what reached a backend during a number of calls against P4:
// each call once, nothing else, over connections that were open already. Health
// probes (ping, server/discover) are not per call: one a second of each backend
// is let pass, and each may open one connection. So is the GET by which an edge
// listens to each of several legacy backends.
func checkCounts(c kit.Counts, calls, backends int, elapsed time.Duration) error {
	var wrong []string
	if n := c.Methods["tools/call"]; n != int64(calls) {
		wrong = append(wrong, fmt.Sprintf("%d tools/call for %d calls", n, calls))
	}
	var probes int64
	for _, m := range slices.Sorted(maps.Keys(c.Methods)) {
		switch m {
		case "tools/call":
		case "ping", "server/discover":
			probes += c.Methods[m]
		case "GET":
			if backends > 1 {
				probes += c.Methods[m]
				continue
			}
			fallthrough
		default:
			wrong = append(wrong, fmt.Sprintf("%d × %s", c.Methods[m], m))
		}
	}
	if most := (1 + int64(elapsed/time.Second)) * int64(backends); probes > most {
		wrong = append(wrong, fmt.Sprintf("%d probes within %s", probes, elapsed.Round(time.Millisecond)))
	}
	if c.Connections > probes {
		wrong = append(wrong, fmt.Sprintf("%d new connections", c.Connections))
	}
	for _, reason := range slices.Sorted(maps.Keys(c.Refused)) {
		wrong = append(wrong, fmt.Sprintf("%d refused: %s", c.Refused[reason], reason))
	}
	if wrong != nil {
		return fmt.Errorf("counts: %s", strings.Join(wrong, ", "))
	}
	return nil
}
