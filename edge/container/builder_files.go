package container

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"strings"
	"time"

	"github.com/moby/moby/client"
)

// File is one that a builder is given.
type File struct {
	Path string // absolute
	Mode int64
	Mine bool // it is of the user that commands run as, and else of root
	Dir  bool
	Data []byte
}

// Put writes files into the container.
func (b *Builder) Put(ctx context.Context, files ...File) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(f.Path, "/"), Mode: f.Mode, Size: int64(len(f.Data)), ModTime: time.Unix(0, 0)}
		if f.Dir {
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		}
		if f.Mine {
			h.Uid, h.Gid = nobodyElse, nobodyElse
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(f.Data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return b.PutArchive(ctx, "/", &archive)
}

// PutArchive unpacks a tar archive in a directory of the container.
func (b *Builder) PutArchive(ctx context.Context, dir string, archive io.Reader) error {
	if _, err := b.engine.client.CopyToContainer(ctx, b.id, client.CopyToContainerOptions{DestinationPath: dir, Content: archive}); err != nil {
		return short(err)
	}
	return nil
}
