package build

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// A hard link is a file of its own in the layer: what many of them name is bounded as what is
// there once. What makes the layer ends when the build does.
func TestHardLinks(t *testing.T) {
	app := func(links int) io.Reader {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		headers := []*tar.Header{{Name: "app/one", Typeflag: tar.TypeReg, Size: 1 << 20, Mode: 0o644}}
		for i := range links {
			headers = append(headers, &tar.Header{Name: fmt.Sprintf("app/%d", i), Typeflag: tar.TypeLink, Linkname: "app/one"})
		}
		for _, h := range headers {
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(make([]byte, h.Size)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return &b
	}
	if s, err := readApp(app(5000), t.TempDir()); err == nil || !strings.Contains(err.Error(), "more than 4294967296 bytes") {
		if err == nil {
			s.close()
		}
		t.Errorf("5,001 MiB: %v", err)
	}
	s, err := readApp(app(3), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	l, err := s.layer(t.Context())
	if err != nil || l.Size < 4<<20 {
		t.Errorf("a layer of %d bytes, %v", l.Size, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrClosedPipe)
	if _, err := s.layer(ctx); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a build that ended: %v", err)
	}
}
