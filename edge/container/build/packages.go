package build

import (
	"context"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge/container"
	"github.com/weir-edge/weir/edge/runner"
)

// manager installs packages of a system.
type manager struct {
	program string
	before  []string // what is to be run first; nil for nothing
	install []string // before the packages
}

// managers are those that are known, in the order in which they are looked for.
var managers = []manager{
	{"/sbin/apk", nil, []string{"add", "--no-cache", "--"}},
	{"/usr/bin/apt-get", []string{"update", "-q"}, []string{"install", "-q", "-y", "--no-install-recommends", "--"}},
	{"/usr/bin/microdnf", nil, []string{"install", "-y", "--"}},
	{"/usr/bin/dnf", nil, []string{"install", "-y", "-q", "--"}},
}

// prepared is a base with the packages of the system that were asked for, by its own package
// manager, as an image without a name.
func (j *job) prepared(ctx context.Context, name string, base *container.Base, helper []byte) (id string, err error) {
	in, err := j.Machine.Builder(ctx, j.engine, container.BuilderConfig{Name: runner.PlainName(j.Source.Name()), Image: base.ID, Root: true}, helper)
	if err != nil {
		return "", err
	}
	defer in.Close()
	var with *manager
	for i := range managers {
		there, err := in.Has(ctx, managers[i].program)
		if err != nil {
			return "", err
		}
		if there {
			with = &managers[i]
			break
		}
	}
	text := "install " + strings.Join(j.AddPackages, " ") + " in " + name
	if with == nil {
		return "", &Error{Step: text, Why: "the base has no package manager that is known: apk, apt-get, microdnf or dnf", Next: "name another base with --runtime-image, or one that has the packages"}
	}
	if len(j.CA) > 0 {
		if err := in.Put(ctx, container.File{Path: caFile, Mode: 0o644, Data: j.authorities(ctx, in)}); err != nil {
			return "", err
		}
	}
	env := j.environment("DEBIAN_FRONTEND=noninteractive")
	env[0] = "HOME=/root"
	if with.before != nil {
		args := append([]string{with.program}, with.before...)
		if err := j.runIn(ctx, in, "look for packages in "+name, container.Command{Args: args, Env: env, Root: true}); err != nil {
			return "", err
		}
	}
	args := slices.Concat([]string{with.program}, with.install, j.AddPackages)
	if err := j.runIn(ctx, in, text, container.Command{Args: args, Env: env, Root: true}); err != nil {
		return "", err
	}
	if id, err = in.Commit(ctx); err == nil {
		j.made = append(j.made, id)
	}
	return id, err
}
