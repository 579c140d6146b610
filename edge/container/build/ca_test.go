package build

import (
	"bytes"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file of certificates is read when it is one, of bounded size.
func TestReadCA(t *testing.T) {
	dir := t.TempDir()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	good := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"good":    {good, ""},
		"empty":   {nil, "is empty"},
		"text":    {[]byte("certificates"), "none in PEM"},
		"key":     {[]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), "something else"},
		"large":   {bytes.Repeat([]byte("x"), 1<<20+1), "more than 1048576 bytes"},
		"missing": {nil, "no such file"},
	} {
		path := filepath.Join(dir, name)
		if name != "missing" {
			if err := os.WriteFile(path, c.text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := ReadCA(path)
		switch {
		case c.want == "" && (err != nil || !bytes.Equal(got, c.text)):
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path)):
			t.Errorf("%s: %v, and should say %q", name, err, c.want)
		}
	}
	if _, err := ReadCA(dir); err == nil || !strings.Contains(err.Error(), "is no file") {
		t.Errorf("a directory: %v", err)
	}
}
