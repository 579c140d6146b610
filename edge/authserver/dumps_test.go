//go:build unix

package authserver_test

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// onRedis is a scene of two replicas on one Redis, whose DUMPs hold what was written as it was
// written.
func onRedis(t *testing.T) (*scene, *kvtest.Server) {
	server := kvtest.Redis(t, "--rdbcompression", "no")
	all := []*kvtest.Server{server}
	s := newScene(t, &place{name: "redis", all: all, options: kv.Options{Addresses: []string{server.Addr}}})
	s.replica(patience)
	s.replica(patience)
	return s, server
}

// dumpAll prints each key with its DUMP, as the server sends them.
const dumpAll = `local all = {} for _, k in ipairs(redis.call('KEYS', '*')) do all[#all+1] = k all[#all+1] = redis.call('DUMP', k) end return all`

// TestA03Dumps: the DUMPs of a Redis after 100 logins hold nothing of a user.
func TestA03Dumps(t *testing.T) {
	s, server := onRedis(t)
	var planted []string
	for range 100 {
		client := s.client()
		b, back := s.leaves(client) // one that stays on its way
		state, err := url.Parse(back)
		if err != nil {
			t.Fatal(err)
		}
		code := s.code(client)
		got := s.login(client)
		got = s.reps[0].tokens(s.refreshes(client, got.Refresh))
		planted = append(planted, code, state.Query().Get("state"), got.Access, got.Refresh, got.ID, client)
		for name, value := range b.cookies {
			planted = append(planted, name, value)
		}
	}
	planted = append(planted, "PLANTED", "alice", "example.com", verifier, challenge, "127.0.0.1", "client.example", "the state", "the-nonce", "Test program", "mail.read", "openid")
	if n := server.Do("dbsize"); len(n) < 3 { // below 100
		t.Fatalf("%s records after 100 logins", n)
	}
	found := func() (what []string) {
		all := server.Do("eval", dumpAll, "0")
		for _, p := range planted {
			for _, form := range []string{p, base64.StdEncoding.EncodeToString([]byte(p)), base64.RawURLEncoding.EncodeToString([]byte(p)), hex.EncodeToString([]byte(p))} {
				if len(form) > 4 && strings.Contains(all, form) {
					what = append(what, p)
				}
			}
		}
		return what
	}
	if what := found(); len(what) > 0 {
		t.Errorf("the store holds %d of what nobody may read, such as %.40q", len(what), what[0])
	}
	// One that is written in the clear is found.
	server.Do("set", "weir:as:x", "PLANTED-access-alice-1")
	if what := found(); len(what) != 2 {
		t.Errorf("of a value in the clear %q is found", what)
	}
}

// TestA02Dumps: records that somebody moves, copies, cuts, or puts back under another key in the
// Redis itself are not there, and are counted.
func TestA02Dumps(t *testing.T) {
	s, server := onRedis(t)
	client := s.client()
	keys := func(kind string) []string { return strings.Fields(server.Do("keys", "*:"+kind+":*")) }
	// 1. Two of each kind; the first takes the place of the second.
	_, _ = s.leaves(client)
	s.login(client)
	first := map[string]string{}
	for _, kind := range []string{"req", "code", "grant", "up"} {
		if got := keys(kind); len(got) != 1 {
			t.Fatalf("%s: %q", kind, got)
		} else {
			first[kind] = got[0]
		}
	}
	for name, harm := range map[string]func(key, kind string){
		"moved": func(key, kind string) { restore(server, first[kind], key) },
		"of another kind": func(key, kind string) {
			restore(server, first[map[string]string{"req": "code", "code": "grant", "grant": "up", "up": "req"}[kind]], key)
		},
		"cut": func(key, _ string) {
			server.Do("eval", "redis.call('SET', KEYS[1], string.sub(redis.call('GET', KEYS[1]), 1, -2), 'KEEPTTL')", "1", key)
		},
		"a byte changed": func(key, _ string) {
			server.Do("eval", "local v = redis.call('GET', KEYS[1]) redis.call('SETRANGE', KEYS[1], #v - 20, string.char((string.byte(v, #v - 19) + 1) % 256))", "1", key)
		},
		"text of a user": func(key, _ string) { server.Do("set", key, `{"Subject":"hub:admin","Generation":1}`) },
		"no text at all": func(key, _ string) {
			server.Do("eval", "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 'x')", "1", key)
		},
		"empty":             func(key, _ string) { server.Do("set", key, "") },
		"of another issuer": func(key, kind string) { restore(server, foreign(t, s, server, kind), key) },
	} {
		t.Run(name, func(t *testing.T) {
			before := map[string]bool{}
			for _, k := range strings.Fields(server.Do("keys", "*")) {
				before[k] = true
			}
			got := s.login(client)
			b, back := s.leaves(client)
			code := s.code(client)
			n := 0
			for _, kind := range []string{"req", "code", "grant", "up"} {
				for _, key := range keys(kind) {
					if !before[key] {
						harm(key, kind)
						n++
					}
				}
			}
			if n < 7 {
				t.Fatalf("%d records", n)
			}
			b.rig = s.next()
			if w := word(t, b.get(back)); w != "page 400" {
				t.Errorf("back: %s", w)
			}
			refused(t, "code", s.redeems(client, code), 400, "invalid_grant")
			refused(t, "refresh", s.refreshes(client, got.Refresh), 400, "invalid_grant")
			s.clock.moves(10 * time.Second)
			for _, r := range s.reps {
				if r.alive(got.Access) {
					t.Error("a grant lives")
				}
			}
			s.seen = nil
			s.upstreams(got.Access)
			if all := strings.Join(s.seen, " "); all != "none none" {
				t.Errorf("upstream tokens: %s", all)
			}
		})
	}
	if n := s.reps[0].Corrupt() + s.reps[1].Corrupt(); n < 20 {
		t.Errorf("%d records are counted as spoilt", n)
	}
	s.login(client)
}

// restore puts a copy of one record in the place of another, by DUMP and RESTORE.
func restore(server *kvtest.Server, from, to string) {
	server.Do("eval", "redis.call('RESTORE', KEYS[2], 3600000, redis.call('DUMP', KEYS[1]), 'REPLACE')", "2", from, to)
}

// foreign is the key of a record of that kind, of another issuer with the same secrets.
func foreign(t *testing.T, s *scene, server *kvtest.Server, kind string) string {
	o := &scene{t: t, place: s.place, hub: s.hub, clock: s.clock, kept: s.kept, issuer: "https://other.example"}
	o.replica(patience)
	client := o.client()
	_, _ = o.leaves(client)
	o.login(client)
	of := o.taps[0].of(kind)
	if len(of) == 0 {
		t.Fatalf("no %s", kind)
	}
	for _, key := range of { // that of a code or a request may have been taken
		if in := "weir:" + key; server.Do("exists", in) == "1" {
			return in
		}
	}
	t.Fatalf("no %s is left", kind)
	return ""
}
