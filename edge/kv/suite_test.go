//go:build unix

package kv_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// patient are options whose calls survive 1,000 others at the same time on a
// busy machine.
func patient(addresses ...string) kv.Options {
	return kv.Options{Addresses: addresses, Timeout: 20 * time.Second, Dial: 20 * time.Second}
}

// open opens a store that the end of the test closes.
func open(t testing.TB, o kv.Options) *kv.RedisStore {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	s, err := kv.Redis(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// ready waits until a store has answered.
func ready(t testing.TB, s *kv.RedisStore) {
	t.Helper()
	edgetest.Until(t, "a store that is ready", func() bool { return s.Ready() == nil })
}

func TestMemoryIsAStore(t *testing.T) {
	s := kv.Memory(kv.Limits{})
	t.Cleanup(func() { s.Close() })
	kvtest.Run(t, s, s)
}

func TestRedisIsAStore(t *testing.T) {
	r := kvtest.Redis(t)
	kvtest.Run(t, open(t, patient(r.Addr)), open(t, patient(r.Addr)))
}

// A store of another database and with a prefix is another store.
func TestRedisWithADatabaseAndAPrefixIsAStore(t *testing.T) {
	r := kvtest.Redis(t)
	o := patient(r.Addr)
	o.DB, o.KeyPrefix = 3, "prod:"
	kvtest.Run(t, open(t, o), open(t, o))
	t.Cleanup(func() {
		if n := r.Do("-n", "0", "dbsize"); n != "0" {
			t.Errorf("database 0 has %s keys", n)
		}
		for _, k := range strings.Fields(r.Do("-n", "3", "keys", "*")) {
			if !strings.HasPrefix(k, "prod:weir:") && strings.Contains(k, "weir") {
				t.Errorf("key %q", k)
			}
		}
	})
}

func TestClusterIsAStore(t *testing.T) {
	var seeds []string
	for _, s := range kvtest.Cluster(t) {
		seeds = append(seeds, s.Addr)
	}
	o := patient(seeds[0])
	o.Mode = kv.Cluster
	other := patient(seeds[2], seeds[1])
	other.Mode = kv.Cluster
	kvtest.Run(t, open(t, o), open(t, other))
}

// A store behind sentinels survives that its master dies: the replica is found.
func TestSentinelsAreAStore(t *testing.T) {
	master, replica, sentinels := kvtest.Sentinels(t, "", "")
	o := patient(sentinels...)
	o.Mode, o.Master = kv.Sentinel, "main"
	t.Run("suite", func(t *testing.T) {
		s := open(t, o)
		kvtest.Run(t, s, s)
	})
	o.Timeout, o.Dial = 2*time.Second, 2*time.Second // who dies is not to be waited for
	s := open(t, o)

	if err := s.Put(t.Context(), "before", []byte("v"), time.Hour); err != nil {
		t.Fatal(err)
	}
	edgetest.Until(t, "the replica's copy", func() bool { return replica.Do("exists", "weir:before") == "1" })
	master.Kill()
	edgetest.Until(t, "the replica as the master", func() bool {
		return s.Put(t.Context(), "after", []byte("w"), time.Hour) == nil
	})
	v, err := s.Get(t.Context(), "before")
	if err != nil || string(v) != "v" {
		t.Errorf("after the master died: %q, %v", v, err)
	}
	if replica.Do("exists", "weir:after") != "1" {
		t.Error("the value is not at the replica")
	}
}
