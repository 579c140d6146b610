package build

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/container"
	"github.com/weir-edge/weir/edge/runner"
)

// authorities are those of a base and those of the request, as programs read one file of them.
// Where the base has no file of its own, the request's stand alone.
func (j *job) authorities(ctx context.Context, b *container.Builder) []byte {
	var all bytes.Buffer
	for _, path := range []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"} {
		r, err := b.Fetch(ctx, path)
		if err != nil {
			continue
		}
		t := tar.NewReader(r)
		h, err := t.Next()
		if err == nil && h.Typeflag == tar.TypeReg {
			_, err = io.Copy(&all, io.LimitReader(t, 4<<20))
		}
		_ = r.Close()
		if err == nil && all.Len() > 0 {
			break
		}
		all.Reset()
	}
	if all.Len() > 0 {
		all.WriteByte('\n')
	}
	all.Write(j.CA)
	return all.Bytes()
}

// ReadCA reads a file of certificates in PEM for a build. It does not wait for a named pipe.
func ReadCA(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file", path)
	}
	text, err := edge.ReadKeys(path)
	switch {
	case err != nil:
		return nil, err
	case len(text) == 0:
		return nil, fmt.Errorf("%s is empty", path)
	}
	if err := runner.CheckCA(text); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}
