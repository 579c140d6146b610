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
		if o.Dir {
			all = append(all, mount.Mount{Type: mount.TypeTmpfs, Target: o.Inside, ReadOnly: true, TmpfsOptions: &mount.TmpfsOptions{SizeBytes: 4096, Mode: 0o555}})
			continue
		}
		empty, err := sandbox.EmptyFile(m.Cache)
		if err != nil {
			return nil, err
		}
		all = append(all, mount.Mount{Type: mount.TypeBind, Source: empty, Target: o.Inside, ReadOnly: true})
	}
	return all, nil
}
