package doctor

import (
	"context"
	"fmt"
	"os"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/settings"
)

// stores looks at the stores that servers share with other edges: whether each
// answers, takes values, and does so in time; and whether the edges have one key
// for what they hand out.
func (d *Doctor) stores(ctx context.Context, plan *compile.Plan, s settings.Settings, secrets edge.Secrets) []edge.Finding {
	var out []edge.Finding
	seen := map[string]bool{}
	for _, server := range plan.Servers {
		if server.Store == nil {
			continue
		}
		one := *server.Store
		key := fmt.Sprintf("%s %d %q %+v", one.Address, one.DB, one.KeyPrefix, one.Password)
		if seen[key] {
			continue
		}
		seen[key] = true
		out = append(out, d.step(ctx, "store", one.Address, func(ctx context.Context) edge.Finding {
			c := d.store(ctx, one, s, secrets)
			if c.Level != edge.LevelOK || s.StateKeyFile != "" {
				return c
			}
			if secrets != nil {
				if _, err := secrets.Secret(ctx, secret.State, secret.StateKey); err == nil {
					return c
				}
			}
			return edge.Warning(edge.ClassStore, "give every edge the same --state-key-file, or the secret weir-state with the key key",
				"the edges that share this store have no key in common: a call that waits for a client's answer can only be gone on with where it waits")
		}))
	}
	return out
}

// store looks at one.
func (d *Doctor) store(ctx context.Context, p compile.Store, s settings.Settings, secrets edge.Secrets) edge.Finding {
	o := p.Options()
	o.Password, o.Timeout = d.StorePassword, d.Timeout
	if p.Password != nil && secrets != nil {
		var err error
		if o.Password, err = secrets.Secret(ctx, p.Password.Name, p.Password.Key); err != nil {
			return edge.Problem(edge.ClassSecret, "put the value into one of the places, or correct the reference", "%v", err)
		}
		o.Password = o.Password.Trimmed()
	}
	o.SentinelUser, o.SentinelPassword = d.SentinelUser, d.SentinelPassword
	if o.TLS && s.StoreCA != "" {
		var err error
		if o.CA, err = os.ReadFile(s.StoreCA); err != nil {
			return edge.Problem(edge.ClassStore, "name a file that is there", "--store-ca: %v", err)
		}
	}
	reach, _ := s.Reach() // the step files has said what is wrong with it
	o.Beside = reach.CAs
	return kv.LookAt(ctx, o, s.StoreTimeout)
}
