package v1beta1

import (
	"reflect"
	"strings"
	"testing"
)

func TestStoreAddresses(t *testing.T) {
	for _, c := range []struct {
		text string
		want StoreAddress
	}{
		{"redis.example.com:6379", StoreAddress{Hosts: []string{"redis.example.com:6379"}}},
		{"[::1]:7000", StoreAddress{Hosts: []string{"[::1]:7000"}}},
		{"redis://redis.example.com", StoreAddress{Hosts: []string{"redis.example.com:6379"}}},
		{"redis://redis.example.com/", StoreAddress{Hosts: []string{"redis.example.com:6379"}}},
		{"REDISS://weir@redis.example.com:7000", StoreAddress{Hosts: []string{"redis.example.com:7000"}, User: "weir", TLS: true}},
		{"rediss://we%40ir%3A@[::1]", StoreAddress{Hosts: []string{"[::1]:6379"}, User: "we@ir:", TLS: true}},
		{"redis-cluster://a,b:7000,[::1]:7001", StoreAddress{Layout: StoreCluster, Hosts: []string{"a:6379", "b:7000", "[::1]:7001"}}},
		{"rediss-cluster://weir@a", StoreAddress{Layout: StoreCluster, Hosts: []string{"a:6379"}, User: "weir", TLS: true}},
		{"redis-sentinel://a,b:7000/main", StoreAddress{Layout: StoreSentinel, Hosts: []string{"a:26379", "b:7000"}, Master: "main"}},
		{"rediss-sentinel://weir@a/my%20master", StoreAddress{Layout: StoreSentinel, Hosts: []string{"a:26379"}, Master: "my master", User: "weir", TLS: true}},
	} {
		got, err := ParseStoreAddress(c.text)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v", c.text, got, err)
		}
	}
}

// What is wrong with an address is said, and nothing of it that may be a
// password.
func TestStoreAddressesThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "host:port",
		"redis.example.com":              "host:port",
		"redis.example.com:0":            "1 to 65535",
		"redis.example.com:99999":        "1 to 65535",
		":6379":                          "host:port",
		"a:1,b:2":                        "host:port",
		"a b:6379":                       "host:port",
		"a:6379\n":                       "host:port",
		strings.Repeat("a", 5000) + ":1": "host:port",
		"https://redis.example.com":      "redis-sentinel://",
		"unix:///run/redis.sock":         "redis-sentinel://",
		"redis://":                       "host:port",
		"redis://:6379":                  "host:port",
		"redis://a:":                     "1 to 65535",
		"redis://a:x":                    "1 to 65535",
		"redis://a:1:2":                  "host:port",
		"redis://a,,b":                   "host:port",
		"redis://[::1":                   "host:port",
		"redis://a,b":                    "redis-cluster://",
		"redis://a/3":                    "goes into db",
		"redis-cluster://a/3":            "goes into db",
		"redis://a?db=3":                 "query",
		"redis://a#x":                    "query",
		"redis-sentinel://a":             "the master",
		"redis-sentinel://a/":            "the master",
		"redis-sentinel://a/b/3":         "the master",
		"redis-sentinel://a/b?x":         "query",
		"redis-sentinel://a/%zz":         "the master",
		"redis-cluster://" + strings.Repeat("a,", 64) + "a": "at most 64",
		"weir:s3cret@redis.example.com:6379":                "passwordRef",
		"redis://weir:s3cret@redis.example.com":             "passwordRef",
		"redis://:s3cret@redis.example.com":                 "passwordRef",
		"redis://weir:s3/cr?et#@x@redis.example.com":        "passwordRef",
		"redis-sentinel://weir:s3cret@a,b/main":             "passwordRef",
		"redis://@a":                                        "the user",
		"redis://s3cret%zz@a":                               "the user",
		"redis://s3/cret@a":                                 "the user",
	} {
		a, err := ParseStoreAddress(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3") || !strings.HasPrefix(err.Error(), "must ") {
			t.Errorf("%.60q: %+v, %v", text, a, err)
		}
	}
}

// FuzzStoreAddress: what is taken is taken again when it is written out, and no
// error repeats what stands before an @.
func FuzzStoreAddress(f *testing.F) {
	for _, s := range []string{"a:1", "redis://u@a:1", "rediss-sentinel://u@a,b/m", "redis-cluster://[::1],b:2", "redis://u:p@h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseStoreAddress(text)
		if err != nil {
			if before, _, ok := strings.Cut(text, "@"); ok && len(before) > 40 && strings.Contains(err.Error(), before) {
				t.Errorf("%q is told: %v", before, err)
			}
			return
		}
		if len(a.Hosts) == 0 || (a.Layout == StoreSentinel) != (a.Master != "") || a.Layout == "" && len(a.Hosts) != 1 {
			t.Errorf("%q: %+v", text, a)
		}
		for _, h := range a.Hosts {
			if again, err := ParseStoreAddress(h); err != nil || again.Hosts[0] != h {
				t.Errorf("%q: %q: %v", text, h, err)
			}
		}
	})
}
