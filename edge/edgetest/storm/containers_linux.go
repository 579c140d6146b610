package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/engine"
	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// runContainers is G32 of containers: what runProcesses does to processes is done to those in
// containers of an engine of the row's own, and then to the containers, and to the engine.
func runContainers(ctx context.Context, s *storm) {
	if why := engine.Missing(); why != "" {
		kit.Fail("%s", why)
	}
	times := s.size(s.count, 50, 3, "times each")
	e := kit.Must(engine.Open())
	s.later(e.Close)
	program := kit.Must(engine.Build(s.folder("image"), "edge/edgetest/storm"))
	kit.Check(e.TryLoad("storm:1", engine.Config{Entrypoint: []string{"/storm"}}, map[string]string{"/storm": program}, nil))
	before := things(e)

	marker := fmt.Sprintf("storm-%d", os.Getpid())
	manifest := filepath.Join(s.folder("local"), "weir.yaml")
	text := ""
	for name, memory := range map[string]string{"plain": "1Gi", "small": "64Mi"} {
		text += fmt.Sprintf("---\napiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: %s}\nspec:\n  image: storm:1\n  args: [%s, %s]\n  permissionProfile: {type: builtin, name: none}\n  run: {memory: %s, imageVerification: disabled}\n", name, asServer, marker, memory)
	}
	kit.Check(os.WriteFile(manifest, []byte(text), 0o600))
	s.environment = append(s.environment, "WEIR_ENGINE=unix://"+e.Socket)
	state := s.folder("state")
	seat := kit.Must(kit.FreeSeat())
	start := func() *local {
		at := s.startAt(ctx, manifest, seat, "--allow-workloads", "container", "--state-dir", state)
		return &local{at, &http.Client{Timeout: 2 * time.Minute}, marker}
	}
	l := start()
	s.later(func() { l.http.CloseIdleConnections() })
	serves := func() bool { _, err := l.session("plain"); return err == nil }
	if !kit.WaitFor(ctx, time.Minute, serves) {
		kit.Must(l.session("plain"))
	}

	// 1. What is in a container.
	s.killed(l, times)
	s.hungry(ctx, l, times)
	s.stopped(ctx, l)
	s.atWork(l)

	// 2. The containers, which somebody else removes, and the engine.
	again := func(what string, times int, fault func()) {
		var back []time.Duration
		silent := 0
		for range times {
			one := kit.Must(l.session("plain"))
			fault()
			began := time.Now()
			if status, answer := l.call("plain", one, "pid", 0); status == 0 || answer == "" {
				silent++
				s.note("after %s a session reads %d %s", what, status, answer)
			}
			if !kit.WaitFor(ctx, 30*time.Second, serves) {
				silent++
			}
			back = append(back, time.Since(began))
		}
		s.bar(silent == 0 && kit.Percentile(back, 1000) <= 10*time.Second, "10 s", "%d times %s: the next session serves after %.1f s at most, %d answers that say nothing", times, what, kit.Percentile(back, 1000).Seconds(), silent)
	}
	again("the containers were removed", times, func() {
		for _, id := range things(e)["containers"] {
			_, _ = e.Try("DELETE", "/containers/"+id+"?force=1") // it may be on its way already
		}
	})
	again("the engine was killed, and came back", times, func() {
		e.Kill()
		kit.Check(e.Run())
	})

	// 3. The edge itself, and the end.
	l = s.edgeKilled(ctx, l, start, times)
	l.Stop()
	var after map[string][]string
	left := kit.WaitFor(ctx, 10*time.Second, func() bool {
		after = things(e)
		return same(before, after) && len(l.processes()) == 0
	})
	sockets := kit.Must(filepath.Glob(filepath.Join(state, "workloads", "*", "*.sock")))
	s.bar(left && len(sockets) == 0, "as before", "left over: %d processes, %d sockets; of the engine %s", len(l.processes()), len(sockets), summary(after))
}

// things are the names of what an engine keeps, by kind.
func things(e *engine.Engine) map[string][]string {
	all := map[string][]string{}
	var containers, networks []struct{ ID string }
	var volumes struct{ Volumes []struct{ Name string } }
	for path, into := range map[string]any{"/containers/json?all=1": &containers, "/networks": &networks, "/volumes": &volumes} {
		text, err := e.Try("GET", path)
		if err != nil {
			return nil // it does not answer
		}
		kit.Check(json.Unmarshal(text, into))
	}
	for _, one := range containers {
		all["containers"] = append(all["containers"], one.ID)
	}
	for _, one := range networks {
		all["networks"] = append(all["networks"], one.ID)
	}
	for _, one := range volumes.Volumes {
		all["volumes"] = append(all["volumes"], one.Name)
	}
	return all
}

// same reports whether an engine has as much of each kind as before; networks that are its own
// have other names after it has started anew.
func same(before, after map[string][]string) bool {
	return after != nil && summary(before) == summary(after)
}

// summary is how many there are of each kind.
func summary(all map[string][]string) string {
	var parts []string
	for _, kind := range slices.Sorted(slices.Values([]string{"containers", "networks", "volumes"})) {
		parts = append(parts, fmt.Sprint(len(all[kind]), " ", kind))
	}
	return strings.Join(parts, ", ")
}
