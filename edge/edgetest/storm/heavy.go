package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/heavy"
	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// runHeavy is G24 for filters: messages that are as much work as their size
// allows, on several connections, beside plain calls, through an edge with every
// filter on. Webhooks are not asked about what is larger than 1 MiB, and so an
// edge without them meets the largest.
func runHeavy(ctx context.Context, s *storm) {
	hold := s.span(s.length, 60*time.Second, 12*time.Second, "load")
	b := s.newBackend(kit.Modern, nil)
	s.say("building the guest")
	module := s.buildGuest(ctx, 1, "")
	s.heavily(ctx, "with webhooks", hold/2, b.Addr, module, true, 960<<10, 256<<10, 64<<10)
	s.heavily(ctx, "without", hold/2, b.Addr, module, false, 4<<20-64<<10, 960<<10, 256<<10)
}

// heavily puts the load on one edge.
func (s *storm) heavily(ctx context.Context, what string, hold time.Duration, back, module string, webhooks bool, sizes ...int) {
	const (
		goal      = 100 // plain calls a second
		attackers = 4
		perMiB    = 100 * time.Millisecond // of the process, all filters together
		latest    = time.Second
	)
	e := s.everyFilter(ctx, back, module, webhooks)
	defer e.Stop()
	gun, rate := s.gunAt(ctx, e, goal)
	defer gun.Close()
	// 1. The plain calls alone, and what they cost.
	cost := kit.Must(kit.CPU(e.PID()))
	calm := gun.Fire(ctx, rate, hold/3)
	was := kit.Must(kit.CPU(e.PID()))
	idle := float64(was-cost) / float64(max(1, len(calm)))
	// 2. And beside messages that are much work.
	var sent, messages atomic.Int64
	var mu sync.Mutex
	statuses := map[int]int{}
	var fault error
	attack, done := context.WithTimeout(ctx, hold)
	defer done()
	var work sync.WaitGroup
	for i := range attackers {
		work.Go(func() {
			shapes := heavy.Shapes()
			for n := i * 5; attack.Err() == nil; n++ {
				status, bytes, err := assault(attack, e.Addr, i, heavy.Value(shapes[n%len(shapes)], sizes[n%len(sizes)], 60+n%2*900))
				if attack.Err() != nil && err != nil {
					return
				}
				sent.Add(int64(bytes))
				messages.Add(1)
				mu.Lock()
				if statuses[status]++; err != nil {
					fault = err
				}
				mu.Unlock()
			}
		})
	}
	shots := gun.Fire(ctx, rate, hold)
	work.Wait()
	is := kit.Must(kit.CPU(e.PID()))
	if fault != nil {
		kit.Check(fault)
	}
	// 3. What it comes to.
	took := max(0, float64(is-was)-idle*float64(len(shots)))
	each := time.Duration(took / max(1, kit.MiB(sent.Load())))
	_, shed, _, failed := kit.Sort(shots)
	p99 := kit.Percentile(tookOf(shots), 990)
	s.bar(messages.Load() > 0 && each <= perMiB, perMiB.String(), "%s: %d hostile messages, %.0f MiB, on %d connections, answered with %v: %.1f ms of CPU for each MiB, all filters together", what, messages.Load(), kit.MiB(sent.Load()), attackers, statuses, kit.Millis(each))
	s.bar(shed+failed == 0 && len(shots) > 0, "0", "%s: %d of %d plain calls failed at %d rps%s", what, shed+failed, len(shots), rate, suchAs(shots))
	s.bar(p99 <= latest, latest.String(), "%s: plain calls p99 %.1f ms, p50 %.1f ms; alone p99 %.1f ms, p50 %.1f ms, %.2f ms of CPU each", what, kit.Millis(p99), kit.Millis(kit.Percentile(tookOf(shots), 500)), kit.Millis(kit.Percentile(tookOf(calm), 990)), kit.Millis(kit.Percentile(tookOf(calm), 500)), idle/1e6)
}

// assault sends one call with an argument, over a connection of its own, and
// returns the status of the answer and how many bytes the body had.
func assault(ctx context.Context, addr string, from int, value string) (status, bytes int, err error) {
	c, err := kit.Dial(ctx, addr, kit.Modern, kit.DialOptions{From: 100 + from})
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	c.Wait(kit.Patience)
	params := `"name":"work","arguments":{"text":"` + strconv.Itoa(from) + `","a":` + value + `}`
	a, err := c.Do(c.Modern("1", "tools/call", "work", params, ""))
	if err != nil {
		return 0, len(params), fmt.Errorf("a message of %d bytes got no answer: %w", len(params), err)
	}
	return a.Status, len(params), nil
}

// everyFilter is an edge with every filter that looks at messages.
func (s *storm) everyFilter(ctx context.Context, back, module string, webhooks bool) *kit.Edge {
	dir := s.folder("heavy-")
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // it looks at nothing
		text := `{"version":"v0.1.0","uid":"u","allowed":true}`
		if r.URL.Path == "/change" {
			text = `{"version":"v0.1.0","uid":"u","allowed":true,"patch_type":"json_patch","patch":[{"op":"add","path":"/mcp_request/params/arguments/by","value":1},{"op":"remove","path":"/mcp_request/params/arguments/by"}]}`
		}
		_, _ = io.WriteString(w, text)
	}))
	s.later(hook.Close)
	ca, hooks, manifest := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "hooks.yaml"), filepath.Join(dir, "edge.yaml")
	entry := func(name, path string) string {
		return fmt.Sprintf("- {name: %s, url: %q, timeout: 10s, failure_policy: fail, tls_config: {ca_bundle_path: %q}}\n", name, hook.URL+path, ca)
	}
	p := kit.PlanOf(back).Through("wasm", fmt.Sprintf("{path: %q}", module))
	p.Incoming = `{type: anonymous, authzConfig: {type: inline, inline: {policies: [
    'permit(principal, action, resource);',
    'forbid(principal, action, resource) when { context has arg_a && context.arg_a == [1, {"b": "x"}] };',
    'forbid(principal, action, resource) when { resource has arg_a && resource.arg_a == "x" };']}}}`
	p.Config = fmt.Sprintf("    audit: {enabled: true, logFile: %q, includeRequestData: true, includeResponseData: true, maxDataSize: 65536}\n    rateLimiting: {shared: {maxTokens: 1000000, refillPeriod: 1s}}\n", filepath.Join(dir, "audit.log"))
	for file, text := range map[string]string{
		ca:       string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})),
		hooks:    "mutating:\n" + entry("change", "/change") + "validating:\n" + entry("look", "/look"),
		manifest: p.Text(),
	} {
		kit.Check(os.WriteFile(file, []byte(text), 0o600))
	}
	flags := []string{"--local-rate-limits"}
	if webhooks {
		flags = append(flags, "--webhook-config", hooks)
	}
	return s.startOn(ctx, manifest, flags...)
}
