package compile

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/ratelimit"
)

// store plans where a server's sessions are kept; nil for the memory of the
// process. Of the two places that can say so, the one in spec counts.
func (c *compiler) store(o *object, s *v1beta1.VirtualMCPServer, config *v1beta1.ServerConfig) *Store {
	var provider v1beta1.SessionProvider
	var out Store
	at := "spec.sessionStorage"
	switch in, twin := s.Spec.SessionStorage, config.SessionStorage; {
	case in != nil:
		provider = in.Provider
		out = Store{Address: in.Address, DB: int(in.DB), KeyPrefix: in.KeyPrefix}
		if in.PasswordRef != nil {
			out.Password = &SecretKey{Name: in.PasswordRef.Name, Key: in.PasswordRef.Key}
		}
	case twin != nil:
		provider, at = twin.Provider, "spec.config.sessionStorage"
		out = Store{Address: twin.Address, DB: int(twin.DB), KeyPrefix: twin.KeyPrefix}
	}
	return c.kept(o, at, provider, out)
}

// stored plans where the sessions of a server of one backend are kept.
func (c *compiler) stored(o *object, in *v1beta1.SessionStorage) *Store {
	if in == nil {
		return nil
	}
	out := Store{Address: in.Address, DB: int(in.DB), KeyPrefix: in.KeyPrefix}
	if in.PasswordRef != nil {
		out.Password = &SecretKey{Name: in.PasswordRef.Name, Key: in.PasswordRef.Key}
	}
	return c.kept(o, "spec.sessionStorage", in.Provider, out)
}

// kept judges a store, which stands at a path of an object; nil for the memory of the process.
func (c *compiler) kept(o *object, at string, provider v1beta1.SessionProvider, out Store) *Store {
	if provider != v1beta1.SessionsInKVStore {
		for _, name := range []string{".address", ".db", ".keyPrefix", ".passwordRef.name"} {
			if provider == v1beta1.SessionsInMemory && o.byPath[at+name] != nil {
				c.find(Warning, o, at+name, ReasonUnused, "not used: provider is %s, and sessions stay in the process; set it to %s", provider, v1beta1.SessionsInKVStore)
			}
		}
		return nil
	}
	out.At, _ = v1beta1.ParseStoreAddress(out.Address) // the object was judged before
	if err := kv.CheckKeyPrefix(out.KeyPrefix); err != nil {
		c.fail(o, at+".keyPrefix", ReasonInvalid, "%v", err)
	}
	return &out
}

// limits plans how often a server's tools may be called; nil for any number of
// times.
func (c *compiler) limits(o *object, s *v1beta1.VirtualMCPServer, config *v1beta1.ServerConfig) *ratelimit.Spec {
	if config.RateLimiting == nil {
		return nil
	}
	known := s.Spec.IncomingAuth != nil && s.Spec.IncomingAuth.Type != v1beta1.IncomingAnonymous
	return c.limited(o, field.NewPath("spec", "config", "rateLimiting"), config.RateLimiting, known)
}

// limited judges rate limits, which stand at a path of an object; known says that clients
// have an identity.
func (c *compiler) limited(o *object, path *field.Path, limits *v1beta1.RateLimiting, known bool) *ratelimit.Spec {
	if limits == nil {
		return nil
	}
	spec := &ratelimit.Spec{Namespace: o.Value.GetNamespace(), Server: o.ref.Name, Limits: *limits, Authenticated: known}
	judged := *spec
	judged.Path = path
	_, wrong := ratelimit.Parse(judged)
	c.faults(o, wrong)
	return spec
}
