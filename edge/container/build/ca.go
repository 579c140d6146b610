package build

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"

	"github.com/weir-edge/weir/edge/container"
)

// CheckCA refuses what is not certificates in PEM, a private key among them.
func CheckCA(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if len(text) > maxCA {
		return fmt.Errorf("the certificates have more than %d bytes", maxCA)
	}
	some := false
	for rest := text; ; some = true {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("the file of certificates holds something else: %.40q", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return errors.New("one of the certificates cannot be read")
		}
	}
	if !some {
		return errors.New("the file of certificates holds none in PEM")
	}
	return nil
}

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
