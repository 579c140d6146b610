package local

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/workload"
)

// No server has a directory of Weir's mounted, nor what holds one: of a manager, of a configuration,
// and of the manager beside that, among them the cache, in which the first process of every sandbox is.
// Nor has one the directory of a container engine's socket, wherever that is.
func TestWeirsOwnIsGuarded(t *testing.T) {
	of := func(dir string) (workload.Paths, []string) {
		p := workload.Paths{}
		var all []string
		for name, path := range map[string]*string{"state": &p.State, "run": &p.Run, "config": &p.Config, "data": &p.Data, "cache": &p.Cache} {
			*path = filepath.Join(dir, name, "weir")
			if err := os.MkdirAll(*path, 0o700); err != nil {
				t.Fatal(err)
			}
			all = append(all, *path, filepath.Dir(*path))
		}
		return p, all
	}
	users, own := of(t.TempDir())
	for name, dir := range map[string]string{"STATE_HOME": users.State, "RUNTIME_DIR": users.Run, "CONFIG_HOME": users.Config, "DATA_HOME": users.Data, "CACHE_HOME": users.Cache} {
		t.Setenv("XDG_"+name, filepath.Dir(dir))
	}
	t.Setenv("WEIR_HOME", "")
	engine := filepath.Join(t.TempDir(), "engine")
	t.Setenv("WEIR_ENGINE", "")
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(engine, "d.sock"))
	colima := filepath.Join(t.TempDir(), "colima")
	t.Setenv("COLIMA_HOME", colima)
	for _, dir := range []string{engine, filepath.Join(colima, "default")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	usersAll := []string{engine, colima}
	s := serve.Defaults()
	s.StateDir = filepath.Join(t.TempDir(), "state")
	usersAll = append(usersAll, own...)
	managers, managersAll := of(t.TempDir())
	for name, c := range map[string]struct {
		locals  *Locals
		guarded []string
	}{
		"of a configuration": {New(s), append([]string{s.StateDir, filepath.Join(s.StateDir, "cache")}, usersAll...)},
		"of a manager":       {NewDoors(s, managers, slog.New(slog.DiscardHandler)).locals, append(managersAll, usersAll...)},
	} {
		if err := c.locals.place(); err != nil {
			t.Fatal(err)
		}
		conf := sandbox.Config{Protected: c.locals.guarded(c.locals.state)}
		for _, path := range c.guarded {
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
			var refused *sandbox.MountError
			if root, err := sandbox.OpenDir(conf, sandbox.Mount{Host: path}); !errors.As(err, &refused) {
				if err == nil {
					_ = root.Close()
				}
				t.Errorf("%s: %s: %v", name, path, err)
			}
		}
		root, err := sandbox.OpenDir(conf, sandbox.Mount{Host: t.TempDir()})
		if err != nil {
			t.Fatalf("%s: another directory: %v", name, err)
		}
		_ = root.Close()
	}
}
