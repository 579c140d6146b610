package container

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	engine "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
)

// Volume is a directory that the engine keeps for one workload: another start of it finds it
// again, and no other workload does.
type Volume struct {
	Name     string // letters, digits, _, . and -
	Target   string // path inside
	Writable bool
}

// volumeName is what the engine calls a volume. No name of a workload has a dot.
func volumeName(workload, name string) string { return "weir-" + workload + "." + name }

// keep makes the volumes of a container that are not there yet, for its server to write to
// whoever it is, with what its image has at their paths; and says how they are mounted. One
// that is somebody else's is refused.
func (e *Engine) keep(ctx context.Context, mark string, image *Image, c *Config) (mounts []mount.Mount, err error) {
	var made []string
	defer func() {
		if err != nil {
			for _, name := range made {
				_, _ = e.client.VolumeRemove(context.WithoutCancel(ctx), name, client.VolumeRemoveOptions{})
			}
		}
	}()
	labels := map[string]string{labelName: c.Name, labelOwner: strconv.Itoa(os.Getuid()), labelManager: mark}
	var fresh []mount.Mount
	for _, v := range c.Volumes {
		name := volumeName(c.Name, v.Name)
		m := mount.Mount{Type: mount.TypeVolume, Source: name, Target: v.Target, ReadOnly: !v.Writable, VolumeOptions: &mount.VolumeOptions{NoCopy: true}}
		mounts = append(mounts, m)
		is, err := e.client.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
		switch {
		case errdefs.IsNotFound(err):
			// To its end: one that nobody has noted is taken by the next start for one that its
			// server can write to.
			if _, err := settled(ctx, settlesWithin, func(ctx context.Context) (client.VolumeCreateResult, error) {
				return e.client.VolumeCreate(ctx, client.VolumeCreateOptions{Name: name, Labels: labels})
			}); err != nil {
				return nil, fmt.Errorf("volume %s: %w", v.Name, short(err))
			}
			made = append(made, name)
			m.ReadOnly, m.VolumeOptions = false, nil
			fresh = append(fresh, m)
		case err != nil:
			return nil, fmt.Errorf("volume %s: %w", v.Name, short(err))
		case is.Volume.Labels[labelManager] != mark || is.Volume.Labels[labelName] != c.Name:
			return nil, &Error{Refused, fmt.Sprintf("the container engine has a volume %s, which is not that of this workload", name), "remove it, or give the volume another name in the profile"}
		}
	}
	if len(fresh) == 0 {
		return mounts, nil
	}
	return mounts, e.open(ctx, labels, image, fresh)
}

// open makes fresh volumes ones that anybody in their container may write to. A container that
// is never started is what they are seen in.
func (e *Engine) open(ctx context.Context, labels map[string]string, image *Image, fresh []mount.Mount) error {
	made, err := settled(ctx, settlesWithin, func(ctx context.Context) (client.ContainerCreateResult, error) {
		return e.client.ContainerCreate(ctx, client.ContainerCreateOptions{
			Config:     &engine.Config{Image: image.ID, Labels: labels, Entrypoint: []string{"/"}},
			HostConfig: &engine.HostConfig{NetworkMode: "none", Mounts: fresh},
		})
	})
	if err != nil {
		return fmt.Errorf("volumes: %w", short(err))
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, m := range fresh {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(m.Target, "/") + "/", Mode: 0o1777}))
	}
	if err = errors.Join(err, w.Close()); err == nil {
		_, err = e.client.CopyToContainer(ctx, made.ID, client.CopyToContainerOptions{DestinationPath: "/", Content: &archive})
	}
	if failed := e.try(made.ID); err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("volumes: %w", short(err))
	}
	return nil
}

// RemoveVolumes removes the volumes of a workload, or with "" those of all that this process, or
// an earlier one with the same state, has kept. It asks no engine where there never was a
// container.
func (m *Machine) RemoveVolumes(ctx context.Context, workload string) error {
	m.mu.Lock()
	k, err := m.read()
	m.mu.Unlock()
	if err != nil || k.Manager == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sweepWithin)
	defer cancel()
	var failed []error
	for _, host := range k.Hosts {
		e, err := place{host: host}.open(ctx)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", host, err))
			continue
		}
		if err := e.removeVolumes(ctx, k.Manager, workload); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", host, err))
		}
		e.Close()
	}
	return errors.Join(failed...)
}

func (e *Engine) removeVolumes(ctx context.Context, mark, workload string) error {
	all, err := e.client.VolumeList(ctx, client.VolumeListOptions{})
	if err != nil {
		return fmt.Errorf("list volumes: %w", short(err))
	}
	var failed []error
	for _, v := range all.Items {
		if v.Labels[labelManager] != mark || workload != "" && v.Labels[labelName] != workload {
			continue
		}
		if err := e.removeVolume(ctx, v.Name); err != nil {
			failed = append(failed, fmt.Errorf("remove the volume %s: %w", v.Name, short(err)))
		}
	}
	return errors.Join(failed...)
}

// freeWithin is how long a container that has ended may hold its volumes.
const freeWithin = 5 * time.Second

// removeVolume removes a volume. Some engines say that a container is removed before it has let
// go of its volumes.
func (e *Engine) removeVolume(ctx context.Context, name string) error {
	for until := time.Now().Add(freeWithin); ; {
		_, err := e.client.VolumeRemove(ctx, name, client.VolumeRemoveOptions{})
		if err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
