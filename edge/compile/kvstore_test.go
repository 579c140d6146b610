package compile_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// A service of sentinels is found by its name, and where nobody knows that it is said that it
// is one of a cluster.
func TestServiceOfSentinels(t *testing.T) {
	port := int32(26380)
	store := func(s *v1beta1.SentinelService) *v1beta1.KVStore {
		return &v1beta1.KVStore{SentinelConfig: &v1beta1.SentinelConfig{MasterName: "main", DB: 2, SentinelService: s}}
	}
	for want, s := range map[string]*v1beta1.SentinelService{"localhost:26379": {Name: "localhost"}, "localhost:26380": {Name: "localhost", Port: &port}} {
		address, o, err := compile.KVStore(t.Context(), store(s), nil)
		if err != nil || address != "main" || o.Mode != kv.Sentinel || o.Master != "main" || o.DB != 2 || !slices.Equal(o.Addresses, []string{want}) {
			t.Errorf("%s: %s, %+v, %v", want, address, o, err)
		}
	}
	_, _, err := compile.KVStore(t.Context(), store(&v1beta1.SentinelService{Name: "nobody", Namespace: "invalid"}), nil)
	if err == nil || !strings.Contains(err.Error(), "sentinelConfig.sentinelService: only in a cluster: nobody knows the name nobody.invalid.svc") {
		t.Error(err)
	}
}

// TestStorePasswordsOfFiles: one line break at the end of a password, which editors leave in files,
// is not part of it.
func TestStorePasswordsOfFiles(t *testing.T) {
	for kept, want := range map[edge.Secret]edge.Secret{"pass": "pass", "pass\n": "pass", "pass\r\n": "pass", "pass\n\n": "pass\n", " pass ": " pass "} {
		s := &v1beta1.KVStore{Addr: "localhost:1", ACLUserConfig: &v1beta1.ACLUserConfig{PasswordSecretRef: v1beta1.SecretRef{Name: "as", Key: "password"}}}
		if _, o, err := compile.KVStore(t.Context(), s, fake.Keep(map[string]edge.Secret{"as/password": kept})); err != nil || o.Password != want {
			t.Errorf("%q: %q, %v", string(kept), string(o.Password), err)
		}
	}
}
