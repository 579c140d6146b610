package container

import (
	"github.com/moby/moby/api/types/mount"

	"github.com/weir-edge/weir/edge/sandbox"
)

// hidden are the mounts that lie over what ignore patterns name. The engine mounts parents
// before what is in them.
func (m *Machine) hidden(c *Config) (all []mount.Mount, err error) {
	overlays, err := sandbox.Overlays(c.Mounts, c.Ignore)
	if err != nil {
		return nil, err
	}
	for _, o := range overlays {
		empty, err := sandbox.EmptyFile(m.Cache)
		if o.Dir {
			// And no memory: Podman copies there what lies below.
			empty, err = sandbox.EmptyDir(m.Cache)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, mount.Mount{Type: mount.TypeBind, Source: empty, Target: o.Inside, ReadOnly: true})
	}
	return all, nil
}
