//go:build unix

package kv_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// ofOtherLayouts are the commands that one server is not asked.
var ofOtherLayouts = []string{"+select"}

// ofHearing are the commands without which messages are only found by looking.
var ofHearing = []string{"+subscribe", "+unsubscribe", "+ping"}

// TestZ44EachCommandTakenAway: a store that does not let the edge do one thing,
// inside a script or outside, is a store that is away. Nothing is admitted that
// was not counted, no value counts as gone, nothing stays for ever, and it is
// told what is wrong.
func TestZ44EachCommandTakenAway(t *testing.T) {
	r := kvtest.Redis(t)
	all := kvtest.Commands(t, "README.md")
	user := []string{"acl", "setuser", "weir", "on", ">secret", "resetchannels", "&weir:*", "~weir:*"}
	r.Do(append(user, all...)...)
	admin := open(t, patient(r.Addr))
	o := kv.Options{Addresses: []string{r.Addr}, User: "weir", Password: "secret"}
	for _, command := range all {
		if slices.Contains(ofOtherLayouts, command) {
			continue
		}
		t.Run(command[1:], func(t *testing.T) {
			r.Do("flushall")
			if err := admin.Put(t.Context(), "k", []byte("v"), time.Hour); err != nil {
				t.Fatal(err)
			}
			s := open(t, o)
			ready(t, s)
			if command == "+eval" {
				r.Do("script", "flush") // else nobody asks for it
			}
			r.Do("acl", "setuser", "weir", "-"+command[1:])
			defer r.Do("acl", "setuser", "weir", command)
			if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "NOPERM") {
				t.Errorf("check says %v", err)
			}
			var mu sync.Mutex
			admitted := 0
			var calls sync.WaitGroup
			for range 30 {
				calls.Go(func() {
					if wait, _, err := s.Take(t.Context(), edge.Bucket{Key: "rl:{a}:b", Capacity: 3, Refill: time.Hour}); err == nil && wait == 0 {
						mu.Lock()
						admitted++
						mu.Unlock()
					}
					use(t, s, "k")
				})
			}
			calls.Wait()
			if admitted > 3 {
				t.Errorf("%d calls of 3 are admitted", admitted)
			}
			if !slices.Contains(ofHearing, command) {
				edgetest.Until(t, "a store that is not ready", func() bool {
					use(t, s, "k")
					return s.Ready() != nil && strings.Contains(s.Ready().Error(), "NOPERM")
				})
			}
			for _, k := range strings.Fields(r.Do("keys", "*")) {
				if ttl := r.Do("pttl", k); ttl == "-1" {
					t.Errorf("%s stays for ever", k)
				}
			}
			r.Do("acl", "setuser", "weir", command)
			given := time.Now()
			ready(t, s)
			if back := time.Since(given); back > 2*time.Second {
				t.Errorf("well again after %s", back)
			}
			if v, err := s.Get(t.Context(), "k"); string(v) != "v" || err != nil {
				t.Errorf("a value that is there: %q, %v", v, err)
			}
			// What was charged to calls that were not served is given back.
			served := admitted
			edgetest.Until(t, "every token", func() bool {
				if wait, _, err := s.Take(t.Context(), edge.Bucket{Key: "rl:{a}:b", Capacity: 3, Refill: time.Hour}); err == nil && wait == 0 {
					served++
				}
				return served >= 3
			})
		})
	}
}
