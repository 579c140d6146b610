//go:build unix

package serve_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv/kvtest"
	"github.com/weir-edge/weir/edge/serve"
)

// storeAt is the YAML of a store at an address.
func storeAt(address, more string) string {
	return fmt.Sprintf("sessionStorage: {provider: kvstore, address: %q%s}", address, more)
}

// before starts an edge with that store, and with a limit of some calls.
func before(t *testing.T, back *edgetest.Server, calls int, storage string, options ...edgetest.Option) *front {
	t.Helper()
	key := stateKey(t)
	yaml := strings.Replace(edgetest.Object("edgetest", back), "  config:\n", "  "+storage+"\n  config:\n    rateLimiting: {tools: [{name: echo, shared: "+bucket(calls)+"}]}\n", 1) +
		"---\napiVersion: v1\nkind: Secret\nmetadata: {name: redis}\nstringData: {password: \"s3cret-pass\\n\", wrong: s3cret-wrong}\n" // with the line break of an editor
	options = append([]edgetest.Option{patient, edgetest.Settings(func(s *serve.Settings) { s.StateKeyFile = key })}, options...)
	e := edgetest.Start(t, yaml, options...)
	return &front{Edge: e, back: back, client: e.NewClient()}
}

// goesOnAt has a session, a bucket of seven calls, a parked call and the end of
// the session be one and the same at two edges.
func goesOnAt(t *testing.T, a, b *front) {
	t.Helper()
	a.stored(t)
	b.stored(t)
	here := a.callerOf(t, edgetest.Legacy, "")
	there := here.at(b)
	for i := range 6 {
		if r := []caller{here, there}[i%2].call(t, "1", "{}"); r.Status != 200 || r.Message().Error != nil {
			t.Fatalf("call %d: status %d: %s", i, r.Status, r.Body)
		}
	}
	limitedAt := func(c caller) {
		t.Helper()
		if r := c.call(t, "2", "{}"); r.Status != 429 {
			t.Errorf("the bucket has more than it held: status %d: %s", r.Status, r.Body)
		}
	}
	// The last of the seven is a call that waits at one edge and goes on at the
	// other.
	a.back.Always("tools/call", func(c *edgetest.Call) {
		c.Ask(`"q"`, "roots/list", "")
		c.Result(`{"content":[]}`)
	})
	asking := a.callerOf(t, edgetest.Modern, "")
	first := a.begin(t, asking, `{}`)
	r := retry(asking.at(b), "3", `{}`, `{"`+first.key(t)+`":{"roots":[]}}`, first.RequestState)
	if r.Status != 200 || r.Message().Error != nil {
		t.Errorf("the parked call at the other edge: status %d: %s", r.Status, r.Body)
	}
	limitedAt(here)
	limitedAt(there)
	if r := there.session.Delete(); r.Status != 200 {
		t.Fatalf("DELETE: status %d: %s", r.Status, r.Body)
	}
	edgetest.Until(t, "the end of the session at its first edge", func() bool { return here.call(t, "4", "{}").Status == 404 })
}

// TestStoreBehindTLSWithAUser: edges share a Redis over TLS, as a user that may
// do what the README says and nothing else.
func TestStoreBehindTLSWithAUser(t *testing.T) {
	t.Parallel()
	ca, back := kvtest.NewAuthority(t), edgetest.NewServer(t, edgetest.Legacy)
	user := append([]string{"--user", "weir", "on", ">s3cret-pass", "resetchannels", "&weir:*", "~weir:*"}, kvtest.Commands(t, "../kv/README.md")...)
	redis := kvtest.Redis(t, append(append(ca.TLS(), "--requirepass", "s3cret-other"), user...)...)
	trust := func(file string) edgetest.Option {
		return edgetest.Settings(func(s *serve.Settings) { s.StoreCA = file })
	}
	const ref = ", passwordRef: {name: redis, key: password}"
	storage := storeAt("rediss://weir@"+redis.Addr, ref)
	byAll := edgetest.Settings(func(s *serve.Settings) { s.CABundle = ca.File }) // which is of every connection
	goesOnAt(t, before(t, back, 7, storage, trust(ca.File)), before(t, back, 7, storage, byAll))

	for _, c := range []struct {
		name, storage, ca, want string
	}{
		{"another authority", storage, kvtest.NewAuthority(t).File, "certificate"},
		{"the authorities of the system", storage, "", "certificate"},
		{"another password", storeAt("rediss://weir@"+redis.Addr, ", passwordRef: {name: redis, key: wrong}"), ca.File, "the user or the password is wrong"},
		{"another user", storeAt("rediss://nobody@"+redis.Addr, ref), ca.File, "the user or the password is wrong"},
		{"without TLS", storeAt("redis://weir@"+redis.Addr, ref), ca.File, "connection"},
		{"a prefix that the user may not use", storeAt("rediss://weir@"+redis.Addr, ref+", keyPrefix: other"), ca.File, "may not do"},
	} {
		f := before(t, back, 7, c.storage, trust(c.ca))
		var status string
		edgetest.Until(t, "what is wrong with "+c.name, func() bool {
			status = string(f.client.Do("GET", "/status", "").Body)
			return strings.Contains(status, c.want) && strings.Contains(status, `"connected": false`)
		})
		if r := f.client.Do("GET", "/readyz", ""); r.Status != 503 {
			t.Errorf("%s: readyz: status %d", c.name, r.Status)
		}
		if strings.Contains(status+f.Log(), "s3cret") {
			t.Errorf("%s: the password is told", c.name)
		}
	}
	if err := startWith(t, back, storage, "/nowhere/ca.pem"); err == nil || !strings.Contains(err.Error(), "--store-ca") {
		t.Errorf("authorities that are not there: %v", err)
	}
}

// startWith is why an edge does not start with these authorities of its store.
func startWith(t *testing.T, back *edgetest.Server, storage, ca string) error {
	t.Helper()
	f := before(t, back, 1, storeAt("127.0.0.1:1", ""), edgetest.Settings(func(s *serve.Settings) { s.StoreCA = ca }))
	yaml := strings.Replace(edgetest.Object("edgetest", back), "  config:\n", "  "+storage+"\n  config:\n", 1) +
		"---\napiVersion: v1\nkind: Secret\nmetadata: {name: redis}\nstringData: {password: x}\n"
	return f.Serve.Reload(edgetest.Plan(t, yaml))
}

// TestStoreThatIsACluster: edges share a cluster, each knowing another of its
// servers.
func TestStoreThatIsACluster(t *testing.T) {
	t.Parallel()
	servers, back := kvtest.Cluster(t), edgetest.NewServer(t, edgetest.Legacy)
	a := before(t, back, 7, storeAt("redis-cluster://"+servers[0].Addr, ""))
	b := before(t, back, 7, storeAt("redis-cluster://"+servers[1].Addr+","+servers[2].Addr, ""))
	goesOnAt(t, a, b)
	full := 0
	for _, s := range servers {
		if s.Do("dbsize") != "0" {
			full++
		}
	}
	if full < 2 {
		t.Errorf("%d of 3 servers of the cluster hold anything", full)
	}
}

// TestStoreBehindSentinels: the master of a store dies. Until the sentinels have
// made its replica the master, what needs the store fails as --store-failure
// says; then sessions and buckets go on at both edges, with what they held.
func TestStoreBehindSentinels(t *testing.T) {
	for _, mode := range []string{"closed", "open"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			master, replica, sentinels := kvtest.Sentinels(t, "s3cret-pass", "s3cret-sentinel")
			back := edgetest.NewServer(t, edgetest.Legacy)
			storage := storeAt("redis-sentinel://"+strings.Join(sentinels, ",")+"/main", ", passwordRef: {name: redis, key: password}")
			secret := edgetest.With(serve.WithSentinelUser("", "s3cret-sentinel"))
			set := edgetest.Settings(func(s *serve.Settings) { s.StoreFailure, s.StoreTimeout = mode, 500*time.Millisecond })
			a, b := before(t, back, 1000, storage, set, secret), before(t, back, 1000, storage, set, secret)
			a.stored(t)
			b.stored(t)
			here := a.callerOf(t, edgetest.Legacy, "")
			there := here.at(b)
			early := 0
			for _, c := range []caller{here, there} {
				edgetest.Until(t, "a call", func() bool { early++; return c.call(t, "1", "{}").Status == 200 })
			}
			if n := master.Do("wait", "1", "5000"); n != "1" {
				t.Fatalf("%s replicas have what was written", n)
			}
			spent := uncounted(t, a, b) // none so far

			// 1. Its master dies under calls. They are answered with what the mode
			// says, one after the other, until the store is there again.
			master.Kill()
			died := time.Now()
			answers := map[int]int{}
			edgetest.Until(t, "a store with another master", func() bool {
				for _, c := range []caller{here, there} {
					r := c.call(t, "2", "{}")
					answers[r.Status]++
					if r.Status == 503 && r.Header.Get("Retry-After") == "" {
						t.Error("503 without Retry-After")
					}
				}
				role, _ := replica.Try("info", "replication")
				return strings.Contains(role, "role:master") && connected(a) && connected(b)
			})
			took := time.Since(died)
			t.Logf("well again after %s: %v", took.Round(10*time.Millisecond), answers)
			if took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			for status := range answers {
				if status != 200 && (status != 503 || mode == "open") {
					t.Errorf("calls were answered with %v", answers)
				}
			}
			if mode == "closed" && answers[503] == 0 {
				t.Error("no call was refused: the store was never away")
			}
			if n := uncounted(t, a, b); mode == "open" && n == spent {
				t.Error("no call was admitted uncounted: the store was never away")
			}

			// 2. The session is the same, and the bucket has what it had, less what
			// was counted. A busy machine may make a call miss its time.
			for _, c := range []caller{here, there} {
				edgetest.Until(t, "a call after the failover", func() bool {
					r := c.call(t, "3", "{}")
					answers[r.Status]++
					return r.Status == 200
				})
			}
			// What was answered is counted, but for what was admitted uncounted;
			// what was refused may be, when only the answer was late. A token comes
			// every 86 s.
			key := strings.Fields(replica.Do("--raw", "keys", "weir:rl:*:tool:echo"))
			if len(key) != 1 {
				t.Fatalf("buckets: %q", key)
			}
			left, err := strconv.ParseFloat(replica.Do("--raw", "hget", key[0], "tokens"), 64)
			most := 1000 - 2 - answers[200] + uncounted(t, a, b)
			if err != nil || left > float64(most+1) || left < float64(999-early-answers[200]-answers[503]) {
				t.Errorf("the bucket holds %v of 1000, %d at most, after %v, %v", left, most, answers, err)
			}
			edgetest.Until(t, "DELETE", func() bool { return there.session.Delete().Status != 503 })
			edgetest.Until(t, "the end of the session at its first edge", func() bool { return here.call(t, "4", "{}").Status == 404 })
			if strings.Contains(a.Log()+b.Log(), "s3cret") {
				t.Error("a password is told")
			}
		})
	}
}

// uncounted is how many calls were admitted that the store could not count.
func uncounted(t *testing.T, fronts ...*front) (n int) {
	t.Helper()
	for _, f := range fronts {
		var said struct {
			RateLimits struct {
				FailOpen int `json:"failOpen"`
			} `json:"rateLimits"`
		}
		if err := json.Unmarshal(f.client.Do("GET", "/status", "").Body, &said); err != nil {
			t.Fatal(err)
		}
		n += said.RateLimits.FailOpen
	}
	return n
}

func connected(f *front) bool {
	return strings.Contains(string(f.client.Do("GET", "/status", "").Body), `"connected": true`)
}
