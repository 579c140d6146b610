package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	engine "github.com/moby/moby/api/types/container"
	images "github.com/moby/moby/api/types/image"
	"github.com/moby/moby/client"
)

// Engine is a container engine that answered. It is safe for concurrent use.
type Engine struct {
	client  *client.Client
	carries bounded // its requests
	host    string
	podman  bool

	once sync.Mutex
	id   string // what it calls itself; "" before it was asked
}

// Host is where the engine listens, as a URL.
func (e *Engine) Host() string { return e.host }

// Close gives up connections to the engine.
func (e *Engine) Close() { e.carries.CloseIdleConnections() }

// Image is what an engine says of an image that it has. It is written by a stranger.
type Image struct {
	ID         string   // its digest: nothing else is meant by it later
	Digests    []string // NAME@DIGEST, as registries call it; none of one that came from none
	User       string
	Entrypoint []string
	Command    []string
	Env        []string // NAME=VALUE
	Dir        string   // where its server is started; "" for /
	Volumes    []string // paths that it wants to be able to write to
	Port       int      // TCP port that it exposes; 0 for none or several
	Foreign    string   // the system and processor that it is for, where these are not this machine's
}

// Bounds of what an image says.
const (
	maxImageText = 256 << 10 // bytes, of its environment and its command
	maxVolumes   = 16
	maxName      = 512
)

// plainName is the name of a repository without what is meant anyway.
func plainName(name string) string {
	for _, hub := range []string{"docker.io/", "index.docker.io/", "library/"} {
		name = strings.TrimPrefix(name, hub)
	}
	return name
}

// Image returns what the engine has under a name. The error is an *Error of the kind NoImage
// where it has none.
func (e *Engine) Image(ctx context.Context, name string) (*Image, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	r, err := e.client.ImageInspect(ctx, name)
	switch {
	case errdefs.IsNotFound(err):
		return nil, &Error{NoImage, fmt.Sprintf("the container engine has no image %s", name), ""}
	case errdefs.IsInvalidArgument(err):
		return nil, &Error{Refused, fmt.Sprintf("%q is no image: %s", name, short(err)), "write NAME, NAME:TAG or NAME@DIGEST"}
	case err != nil:
		return nil, fmt.Errorf("image %s: %w", name, short(err))
	}
	i := &Image{ID: r.ID, Digests: r.RepoDigests}
	if id := r.Identity; id != nil && len(id.Pull)+len(id.Build) > 0 {
		// An engine with the store of containerd gives what was built here digests, too.
		i.Digests = slices.DeleteFunc(slices.Clone(i.Digests), func(digest string) bool {
			base, _, _ := strings.Cut(digest, "@")
			return !slices.ContainsFunc(id.Pull, func(p images.PullIdentity) bool { return plainName(p.Repository) == plainName(base) })
		})
	}
	if r.Architecture != "" && r.Architecture != runtime.GOARCH {
		i.Foreign = fmt.Sprintf("%.60q", r.Os+"/"+r.Architecture)
	}
	if c := r.Config; c != nil {
		i.User, i.Entrypoint, i.Command, i.Env, i.Dir = c.User, c.Entrypoint, c.Cmd, c.Env, c.WorkingDir
		i.Volumes = slices.Sorted(maps.Keys(c.Volumes))
		var ports []int
		for text := range c.ExposedPorts {
			number, kind, _ := strings.Cut(text, "/")
			if port, err := strconv.Atoi(number); err == nil && port > 0 && port < 1<<16 && (kind == "" || kind == "tcp") {
				ports = append(ports, port)
			}
		}
		if len(ports) == 1 {
			i.Port = ports[0]
		}
	}
	return i, i.check(name)
}

// checkName refuses what is no name of an image. It becomes a part of a path of the engine's
// interface.
func checkName(name string) error {
	ok := len(name) <= maxName && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/:@", r))
	})
	for part := range strings.SplitSeq(name, "/") {
		ok = ok && part != "" && !strings.ContainsAny(part[:1], ".-:@")
	}
	if !ok {
		return &Error{Refused, fmt.Sprintf("%q is no image", name[:min(len(name), 100)]), "write NAME, NAME:TAG or NAME@DIGEST"}
	}
	return nil
}

// check refuses what no image in good faith says.
func (i *Image) check(name string) error {
	size := 0
	for _, text := range slices.Concat(i.Entrypoint, i.Command, i.Env) {
		size += len(text)
	}
	refuse := func(format string, args ...any) error {
		return &Error{Refused, fmt.Sprintf("image %s: ", name) + fmt.Sprintf(format, args...), "use another image"}
	}
	switch {
	case size > maxImageText:
		return refuse("its environment and its command have more than %d bytes", maxImageText)
	case len(i.Volumes) > maxVolumes:
		return refuse("it declares more than %d volumes", maxVolumes)
	}
	for _, path := range i.Volumes {
		if err := inside(path); err != nil {
			return refuse("its volume %v", err)
		}
	}
	return nil
}

// Pull has the engine get an image from its registry. login is a credential for that, as
// engines take it; "" for none. told is called with what it does, a line at a time; nil for
// nobody. The error is an *Error of the kind NoPull.
func (e *Engine) Pull(ctx context.Context, name, login string, told func(string)) error {
	if err := checkName(name); err != nil {
		return err
	}
	fail := func(why error) error {
		return &Error{NoPull, fmt.Sprintf("image %s cannot be had: %s", name, short(why)), "correct its name, log in to its registry, or load it: docker load"}
	}
	r, err := e.client.ImagePull(ctx, name, client.ImagePullOptions{RegistryAuth: login})
	if err != nil {
		return fail(err)
	}
	defer r.Close()
	// What the registry says comes through here: it is bounded line by line.
	lines := json.NewDecoder(io.LimitReader(r, 64<<20))
	for {
		var one struct {
			Status string
			ID     string
			Error  string
		}
		if err := lines.Decode(&one); err == io.EOF {
			return nil
		} else if err != nil {
			return fail(err)
		}
		if one.Error != "" {
			return fail(fmt.Errorf("%s", one.Error))
		}
		if told != nil && (one.ID == "" || one.Status == "Pull complete") {
			told(strings.TrimSpace(one.ID + " " + one.Status))
		}
	}
}

// The labels of containers that are ours.
const (
	labelName    = "weir.dev/name"    // the workload
	labelOwner   = "weir.dev/owner"   // the user's number
	labelManager = "weir.dev/manager" // who made it; known to nobody else
)

// sweep removes the containers of a manager whose workloads are unwanted.
func (e *Engine) sweep(ctx context.Context, manager string, unwanted func(name string) bool) (removed []string, err error) {
	if manager == "" {
		return nil, nil
	}
	all, err := e.client.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelManager+"="+manager)})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", short(err))
	}
	var failed []error
	for _, one := range all.Items {
		if one.Labels[labelManager] != manager || !unwanted(one.Labels[labelName]) {
			continue
		}
		if err := e.remove(ctx, one.ID); err != nil {
			failed = append(failed, err) // which keeps none of the others
			continue
		}
		removed = append(removed, one.ID)
	}
	return removed, errors.Join(failed...)
}

// goneWithin is how long is waited for a container that the engine is removing by itself.
const goneWithin = 5 * time.Second

// remove ends a container and removes it. One that is gone is as good.
func (e *Engine) remove(ctx context.Context, id string) error {
	_, err := e.client.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	switch {
	case err == nil || errdefs.IsNotFound(err):
		return nil
	case errdefs.IsConflict(err) && strings.Contains(err.Error(), "already in progress"):
		// Its first process has ended, and the engine removes it.
		going, cancel := context.WithTimeout(ctx, goneWithin)
		defer cancel()
		wait := e.client.ContainerWait(going, id, client.ContainerWaitOptions{Condition: engine.WaitConditionRemoved})
		select {
		case <-wait.Result:
		case <-wait.Error: // it is gone already, or the engine does not manage
		}
		if e.still(ctx, id) {
			return errStill
		}
		return nil
	}
	return fmt.Errorf("remove a container: %w", short(err))
}

// answers asks whether the engine still answers.
func (e *Engine) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	_, err := e.client.Ping(ctx, client.PingOptions{})
	return err
}
