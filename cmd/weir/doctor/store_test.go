//go:build unix

package doctor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// TestDoctorOfStores has the doctor look at a store that is there, that wants
// another password, and that is not there.
func TestDoctorOfStores(t *testing.T) {
	redis, back := kvtest.Redis(t, "--requirepass", "hush"), edgetest.NewServer(t, edgetest.Modern)
	nowhere := edgetest.FreeAddress(t)
	manifest := func(address string) string {
		return strings.Replace(edgetest.Object("x", back), "  config:\n", fmt.Sprintf(
			"  sessionStorage: {provider: kvstore, address: %q, passwordRef: {name: redis, key: password}}\n  config:\n", address), 1)
	}
	for _, c := range []struct {
		address, environ string
		level            edge.Level
		cause            string
	}{
		{redis.Addr, "WEIR_SECRET_REDIS_PASSWORD=hush", edge.LevelWarning, "have no key in common"},
		{redis.Addr, "WEIR_SECRET_REDIS_PASSWORD=hush2", edge.LevelProblem, "the user or the password is wrong"},
		{"redis://default@" + redis.Addr, "WEIR_SECRET_REDIS_PASSWORD=hush", edge.LevelWarning, "have no key in common"},
		{"redis://nobody@" + redis.Addr, "WEIR_SECRET_REDIS_PASSWORD=hush", edge.LevelProblem, "the user or the password is wrong"},
		{"rediss://" + redis.Addr, "WEIR_SECRET_REDIS_PASSWORD=hush", edge.LevelProblem, ""},
		{nowhere, "WEIR_SECRET_REDIS_PASSWORD=hush", edge.LevelProblem, "connection refused"},
	} {
		var found edge.Finding
		for _, one := range examined(t, manifest(c.address), edgetest.Patience, c.environ) {
			if one.Step == "store" {
				found = one
			}
			if strings.Contains(one.Cause+one.Next+one.Detail, "hush") {
				t.Errorf("%s shows the password", one.Step)
			}
		}
		if found.Level != c.level || found.Class != edge.ClassStore || !strings.Contains(found.Cause, c.cause) || found.Subject != c.address {
			t.Errorf("%s, %s: %+v", c.address, c.environ, found)
		}
	}
	key := "WEIR_SECRET_WEIR_STATE_KEY=" + strings.Repeat("A", 43) + "="
	for _, one := range examined(t, manifest(redis.Addr), edgetest.Patience, "WEIR_SECRET_REDIS_PASSWORD=hush", key) {
		if one.Step == "store" && one.Level != edge.LevelOK {
			t.Errorf("%+v", one)
		}
	}
}

// TestZ44DoctorOfRights has the doctor look at a store whose user lacks one
// right: it says so, and what for.
func TestZ44DoctorOfRights(t *testing.T) {
	redis, back := kvtest.Redis(t), edgetest.NewServer(t, edgetest.Modern)
	redis.Do(append([]string{"acl", "setuser", "weir", "on", ">hush", "resetchannels", "&weir:*", "~weir:*"}, kvtest.Commands(t, "../../../edge/kv/README.md")...)...)
	manifest := strings.Replace(edgetest.Object("x", back), "  config:\n", fmt.Sprintf(
		"  sessionStorage: {provider: kvstore, address: %q, passwordRef: {name: redis, key: password}}\n  config:\n", "redis://weir@"+redis.Addr), 1)
	for command, what := range map[string]string{"hmget": "to take tokens", "getrange": "to read a value", "xrange": "messages", "pexpire": "to take tokens", "subscribe": "to be told", "get": "to change a value", "evalsha": "NOPERM", "publish": "to leave a message"} {
		redis.Do("acl", "setuser", "weir", "-"+command)
		for _, one := range examined(t, manifest, edgetest.Patience, "WEIR_SECRET_REDIS_PASSWORD=hush") {
			if one.Step == "store" && (one.Level != edge.LevelProblem || !strings.Contains(one.Cause, "NOPERM") || !strings.Contains(one.Cause, what)) {
				t.Errorf("%s: %+v", command, one)
			}
		}
		redis.Do("acl", "setuser", "weir", "+"+command)
	}
}
