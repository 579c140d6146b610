package container

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	engine "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/weir-edge/weir/edge/sandbox"
)

// unlinkedError says that a container cannot be reached by a socket of this machine: its engine
// may see other files, or another kernel. It may also be that somebody ended it meanwhile.
type unlinkedError struct {
	error
	gone bool // it has ended
}

func (e *unlinkedError) Unwrap() error { return e.error }

// notSeen reports whether an engine says that it does not find what is to be mounted, or cannot
// run the helper from there.
func notSeen(err error) bool {
	text := strings.ToLower(err.Error())
	for _, part := range []string{"bind source path does not exist", "no such file or directory", "mounts denied", "not shared", "statfs", "permission denied"} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// take opens the container, and takes up its link: by a socket, or where that is not possible
// by its standard streams, which the engine carries. What was possible is remembered by engine.
func (b *Box) take(ctx context.Context, m *Machine, mark, helper, user string, mounts []sandbox.Held) error {
	form := m.linkOf(ctx, b.engine)
	var unlinked *unlinkedError // by a socket
	if form != LinkAttach {
		within := greetWithin
		if form == LinkAuto {
			within = socketWithin
		}
		err := b.open(ctx, mark, helper, user, mounts, within)
		if errors.As(err, &unlinked) && unlinked.gone && ctx.Err() == nil { // which once says nothing of the engine
			err = b.open(ctx, mark, helper, user, mounts, within)
		}
		if err == nil || form == LinkSocket || !errors.As(err, &unlinked) || ctx.Err() != nil {
			return err
		}
		b.log.Info("a container is not reached by a socket: its standard streams are its link", "workload", b.config.Name, "error", err)
	}
	if err := b.attach(ctx, m, mark, user, mounts); err != nil {
		if unlinked != nil { // what kept it from that may be why
			err = fmt.Errorf("%w; with its standard streams as its link: %w", unlinked, err)
		}
		return err
	}
	if form == LinkAuto {
		m.attaches(ctx, b.engine)
	}
	return nil
}

// attach makes the container with the attached form of the link.
func (b *Box) attach(ctx context.Context, m *Machine, mark, user string, mounts []sandbox.Held) (err error) {
	// 1. The helper, in a volume of the engine's: its files may be others than those of this
	// machine.
	config, host := b.shape(mark, user, mounts)
	volume, err := m.helperVolume(ctx, b.engine, b.image, config.Labels)
	if err != nil {
		return err
	}
	config.Cmd = append([]string{"attached", config.Cmd[1]}, config.Cmd[3:]...)
	config.OpenStdin, config.StdinOnce, config.AttachStdin, config.AttachStdout, config.AttachStderr = true, true, true, true, true
	host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeVolume, Source: volume, Target: ours, ReadOnly: true, VolumeOptions: &mount.VolumeOptions{NoCopy: true}})
	made, err := b.create(ctx, config, host)
	if err != nil {
		return refusal(err)
	}
	b.id = made.ID
	defer func() {
		if err != nil {
			b.remove()
		}
	}()
	// 2. Its streams, before it has said anything.
	streams, err := b.engine.client.ContainerAttach(ctx, b.id, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return short(err)
	}
	said := &attachedStreams{HijackedResponse: streams.HijackedResponse}
	if _, err := b.engine.client.ContainerStart(ctx, b.id, client.ContainerStartOptions{}); err != nil {
		streams.Close()
		return refusal(err)
	}
	// 3. The link.
	ctx, cancel := context.WithTimeoutCause(ctx, greetWithin, fmt.Errorf("its helper has not greeted within %s", greetWithin))
	defer cancel()
	if b.link, err = sandbox.Attach(ctx, said, b.config.Name, b.config.Outlet); err != nil {
		if text := said.complaint(); text != "" {
			err = errors.New(text)
		}
		return ended(err, mounts)
	}
	b.attached = true
	b.runs()
	return nil
}

// attachedStreams are the standard streams of a container: what it writes to standard output
// comes out of Read, and its standard error is kept for whoever asks why it ended.
type attachedStreams struct {
	client.HijackedResponse
	left int  // of a piece
	bad  bool // it is of standard error

	mu    sync.Mutex
	wrote []byte
}

// maxComplaint bounds what is kept of a helper's standard error, in bytes.
const maxComplaint = 300

// Read reads the pieces of which engines make both streams one: a head of 8 bytes, which has
// the stream (1) and the length (4, big endian), and so many bytes.
func (s *attachedStreams) Read(p []byte) (int, error) {
	for {
		if s.left == 0 {
			var head [8]byte
			if _, err := io.ReadFull(s.Reader, head[:]); err != nil {
				return 0, err
			}
			if head[0] < 1 || head[0] > 2 || head[1]|head[2]|head[3] != 0 {
				return 0, errors.New("malformed output of a container")
			}
			s.bad, s.left = head[0] == 2, int(binary.BigEndian.Uint32(head[4:]))
			continue
		}
		n, err := s.Reader.Read(p[:min(len(p), s.left)])
		s.left -= n
		if !s.bad {
			return n, err
		}
		s.mu.Lock()
		s.wrote = append(s.wrote, p[:min(n, maxComplaint-len(s.wrote))]...)
		s.mu.Unlock()
		if err != nil {
			return 0, err
		}
	}
}

func (s *attachedStreams) Write(p []byte) (int, error) { return s.Conn.Write(p) }

func (s *attachedStreams) Close() error { return s.Conn.Close() }

// complaint is what the helper said before it ended.
func (s *attachedStreams) complaint() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Map(func(r rune) rune { // a stranger's text
		if r < ' ' || r >= 0x7f {
			return '?'
		}
		return r
	}, strings.TrimSpace(string(s.wrote)))
}

// helperVolume is the volume with the helper, by its digest. It is filled anew by each process
// of ours that needs it: one before may have ended halfway. labels are of the container in which
// it is filled, so that the next Sweep finds that one where this process ends halfway; the volume
// is of no workload, and stays.
func (m *Machine) helperVolume(ctx context.Context, e *Engine, image *Image, labels map[string]string) (name string, err error) {
	m.filling.Lock()
	defer m.filling.Unlock()
	file, err := sandbox.ContainerHelper(m.Cache)
	if err != nil {
		return "", err
	}
	name = "weir-helper." + strings.TrimPrefix(strings.TrimSuffix(path.Base(file), "-container"), "weir-inside-")
	if m.filled == e.host+" "+name {
		if _, err := e.client.VolumeInspect(ctx, name, client.VolumeInspectOptions{}); err == nil {
			return name, nil
		}
	}
	text, err := sandbox.HelperText()
	if err != nil {
		return "", err
	}
	if _, err := e.client.VolumeCreate(ctx, client.VolumeCreateOptions{Name: name, Labels: map[string]string{"weir.dev/helper": "1"}}); err != nil {
		return "", fmt.Errorf("volume of the helper: %w", short(err))
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path.Base(helperPath), Mode: 0o111, Size: int64(len(text)), ModTime: time.Unix(0, 0)})
	if err == nil {
		_, err = w.Write(text)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return "", err
	}
	made, err := settled(ctx, settlesWithin, func(ctx context.Context) (client.ContainerCreateResult, error) {
		return e.client.ContainerCreate(ctx, client.ContainerCreateOptions{
			Config:     &engine.Config{Image: image.ID, Labels: labels, Entrypoint: []string{"/"}},
			HostConfig: &engine.HostConfig{NetworkMode: "none", Mounts: []mount.Mount{{Type: mount.TypeVolume, Source: name, Target: ours, VolumeOptions: &mount.VolumeOptions{NoCopy: true}}}},
		})
	})
	if err != nil {
		return "", fmt.Errorf("volume of the helper: %w", short(err))
	}
	_, err = e.client.CopyToContainer(ctx, made.ID, client.CopyToContainerOptions{DestinationPath: ours, Content: &archive})
	m.remove(e, made.ID, image.ID)
	if err != nil {
		return "", fmt.Errorf("volume of the helper: %w", short(err))
	}
	m.filled = e.host + " " + name
	return name, nil
}

// socketWithin is how long a helper may take to come to a socket before another form is tried.
const socketWithin = 2 * time.Second

// linkOf is how containers of an engine are linked, as was set or is remembered.
func (m *Machine) linkOf(ctx context.Context, e *Engine) Link {
	if m.Link != "" && m.Link != LinkAuto {
		return m.Link
	}
	m.mu.Lock()
	k, err := m.read()
	m.mu.Unlock()
	if err != nil || len(k.Attach) == 0 { // some engines take seconds to say who they are
		return LinkAuto
	}
	if id := e.identity(ctx); id != "" && slices.Contains(k.Attach, id) {
		return LinkAttach
	}
	return LinkAuto
}

// attaches remembers that containers of an engine are not reached by a socket.
func (m *Machine) attaches(ctx context.Context, e *Engine) {
	id := e.identity(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	k, err := m.read()
	if err != nil || id == "" {
		return
	}
	next := *k
	next.Attach = append([]string{id}, k.Attach...)
	next.Attach = next.Attach[:min(len(next.Attach), maxHosts)]
	if err := m.write(&next); err != nil {
		m.Log.Warn("how an engine is reached is not remembered", "error", err)
	}
}

// identity is what the engine calls itself; "" where it does not say.
func (e *Engine) identity(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	e.once.Lock()
	defer e.once.Unlock()
	if e.id == "" {
		if info, err := e.client.Info(ctx, client.InfoOptions{}); err == nil {
			e.id = info.Info.ID
		}
	}
	return e.id
}
