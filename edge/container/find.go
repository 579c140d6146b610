package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/client"
)

// answersWithin is how long an engine may take to say what it is.
const answersWithin = 5 * time.Second

// place is where an engine may listen.
type place struct {
	host  string // unix://PATH
	asked string // what named it, for people; "" for a usual place
}

// DefaultEngine is what lookup is asked for besides variables: the engine of the user's defaults.
const DefaultEngine = "engine in workloads.yaml"

// places are where an engine is looked for, in this order. A variable, or a default, that names
// one is the only place then.
func places(lookup func(string) (string, bool)) []place {
	get := func(name string) string {
		value, _ := lookup(name)
		return value
	}
	for _, name := range []string{"WEIR_ENGINE", DefaultEngine, "DOCKER_HOST"} {
		if host := get(name); host != "" {
			if filepath.IsAbs(host) {
				host = "unix://" + host
			}
			if name != DefaultEngine {
				name = "$" + name
			}
			return []place{{host, name}}
		}
	}
	return usual(get)
}

// usual are the places where engines listen that nothing names.
func usual(get func(string) string) (all []place) {
	home, run := get("HOME"), get("XDG_RUNTIME_DIR")
	for _, one := range []struct{ root, path string }{
		{"/", "var/run/docker.sock"}, {run, "docker.sock"}, {home, ".docker/run/docker.sock"}, // Docker
		{run, "podman/podman.sock"}, {"/", "run/podman/podman.sock"},
		{get("COLIMA_HOME"), "default/docker.sock"}, {home, ".colima/default/docker.sock"},
		{home, ".rd/docker.sock"}, // Rancher Desktop
	} {
		if filepath.IsAbs(one.root) {
			all = append(all, place{host: "unix://" + filepath.Join(one.root, one.path)})
		}
	}
	return all
}

// Sockets are the paths at which an engine is looked for with the same lookup, and the usual ones:
// who reaches one controls this machine.
func Sockets(lookup func(string) (string, bool)) (paths []string) {
	get := func(name string) string {
		value, _ := lookup(name)
		return value
	}
	for _, p := range append(places(lookup), usual(get)...) {
		if path, ok := strings.CutPrefix(p.host, "unix://"); ok && filepath.IsAbs(path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// Find finds a container engine: the one that $WEIR_ENGINE, DefaultEngine or $DOCKER_HOST names, else the
// first that answers of Docker, Podman, Colima and Rancher Desktop at their usual sockets.
// lookup is os.LookupEnv. The error is an *Error of the kind NoEngine, with all that was
// tried.
func Find(ctx context.Context, lookup func(string) (string, bool)) (*Engine, error) {
	var tried []string
	for _, p := range places(lookup) {
		e, err := p.open(ctx)
		if err == nil {
			return e, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		said := p.host + " (" + err.Error() + ")"
		if p.asked != "" {
			said = p.asked + ": " + said
		}
		tried = append(tried, said)
	}
	return nil, &Error{NoEngine, "no container engine answers: tried " + strings.Join(tried, ", "), "start one, or name its socket in WEIR_ENGINE (unix:///PATH)"}
}

// open asks whether an engine is there, and one that is new enough.
func (p place) open(ctx context.Context) (*Engine, error) {
	path, ok := strings.CutPrefix(p.host, "unix://")
	switch {
	case !ok:
		return nil, errors.New("an engine on another machine, or behind another address than unix:///PATH, is not supported yet")
	case !filepath.IsAbs(path):
		return nil, errors.New("no absolute path")
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("not there")
	case err != nil:
		return nil, errors.Unwrap(err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, errors.New("no socket")
	}
	carries := newBounded(path, p.host)
	c, err := carries.client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	// Asking anew for the version also says why one that is too old is none.
	said, err := c.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	if err == nil && said.OSType != "" && said.OSType != "linux" {
		err = fmt.Errorf("its containers are of %s", said.OSType)
	}
	e := &Engine{client: c, carries: carries, host: p.host}
	if err == nil {
		var is client.ServerVersionResult
		is, err = c.ServerVersion(ctx, client.ServerVersionOptions{})
		for _, part := range is.Components {
			e.podman = e.podman || strings.HasPrefix(part.Name, "Podman")
		}
	}
	if err != nil {
		e.Close()
		if denied := "permission denied"; strings.Contains(err.Error(), denied) {
			return nil, errors.New(denied) // the socket's, which who looks for an engine names
		}
		return nil, short(err)
	}
	return e, nil
}

// short is what an engine or its client says, in one line.
func short(err error) error {
	const most = 300
	text := strings.Join(strings.Fields(err.Error()), " ")
	return errors.New(text[:min(len(text), most)])
}
