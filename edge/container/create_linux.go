package container

import (
	"context"
	"strings"

	engine "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// create makes the container. An engine that gives memory to no user (Podman) gives that of HOME
// to whoever is inside, which is the server alone.
func (b *Box) create(ctx context.Context, config *engine.Config, host *engine.HostConfig) (client.ContainerCreateResult, error) {
	ask := func(ctx context.Context) (client.ContainerCreateResult, error) {
		return b.engine.client.ContainerCreate(ctx, client.ContainerCreateOptions{Name: b.name(), Config: config, HostConfig: host})
	}
	made, err := settled(ctx, settlesWithin, ask)
	if home, ok := host.Tmpfs[ownHome]; ok && err != nil && strings.Contains(err.Error(), "unknown mount option") {
		home, _, _ = strings.Cut(home, ",mode=")
		host.Tmpfs[ownHome] = home + ",mode=1777"
		return settled(ctx, settlesWithin, ask)
	}
	return made, err
}
