package build

import (
	"archive/tar"
	"bytes"
	"context"
	"io"

	"github.com/weir-edge/weir/edge/container"
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
