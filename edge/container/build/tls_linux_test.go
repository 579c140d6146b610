package build

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/need"
)

// private is an index of npm and of Go that speaks TLS alone, by an authority that nobody knows.
type private struct {
	URL    string
	CA     []byte // PEM
	served atomic.Int64
}

// newPrivate starts one at an address of this machine. It has one package: tiny 1.0.0.
func newPrivate(t *testing.T, host string) *private {
	t.Helper()
	fail := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	// 1. An authority, and what it vouches for.
	issued := func(c, by *x509.Certificate, signs *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		fail(err)
		if signs == nil {
			signs = key
		}
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, signs)
		fail(err)
		return der, key
	}
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "private authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, key := issued(authority, authority, nil)
	server := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host}, IPAddresses: []net.IP{net.ParseIP(host)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	leaf, own := issued(server, authority, key)
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	fail(err)
	p := &private{URL: "https://" + l.Addr().String(), CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}

	// 2. The package, as each index has it.
	var packed, module bytes.Buffer
	z := gzip.NewWriter(&packed)
	w := tar.NewWriter(z)
	for name, text := range map[string]string{"package/package.json": `{"name":"tiny","version":"1.0.0","bin":"server.js"}`, "package/server.js": tinyScript} {
		fail(w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))}))
		_, err := io.WriteString(w, text)
		fail(err)
	}
	fail(errors.Join(w.Close(), z.Close()))
	sum := sha512.Sum512(packed.Bytes())
	const mod = "module example.test/tiny\n\ngo 1.26\n"
	m := zip.NewWriter(&module)
	for name, text := range map[string]string{"go.mod": mod, "main.go": tinyServer} {
		f, err := m.Create("example.test/tiny@v1.0.0/" + name)
		fail(err)
		_, err = io.WriteString(f, text)
		fail(err)
	}
	fail(m.Close())
	answers := map[string]string{
		"/npm/tiny":                            fmt.Sprintf(`{"name":"tiny","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"tiny","version":"1.0.0","bin":{"tiny":"server.js"},"dist":{"tarball":"%s/npm/tiny/-/tiny-1.0.0.tgz","integrity":"sha512-%s"}}}}`, p.URL, base64.StdEncoding.EncodeToString(sum[:])),
		"/npm/tiny/-/tiny-1.0.0.tgz":           packed.String(),
		"/go/example.test/tiny/@v/list":        "v1.0.0\n",
		"/go/example.test/tiny/@v/v1.0.0.info": `{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}`,
		"/go/example.test/tiny/@v/v1.0.0.mod":  mod,
		"/go/example.test/tiny/@v/v1.0.0.zip":  module.String(),
	}

	// 3. It serves.
	s := &http.Server{
		ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leaf}, PrivateKey: own}}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, ok := answers[r.URL.Path]
			if !ok {
				http.NotFound(w, r)
				return
			}
			p.served.Add(1)
			_, _ = io.WriteString(w, text)
		}),
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return p
}

const tinyScript = `#!/usr/bin/env node
process.stdin.once('data', () => console.log('{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"tiny","version":"1"}}}'))
`

// A package comes from an index that a private authority vouches for where the build is given
// that authority, by real npm and real Go; without it nothing comes, and the error says what is
// to be named. The image does not have it.
func TestBuildFromPrivateTLS(t *testing.T) {
	e := running(t)
	for _, program := range []string{"npm", "node", "nsenter", "ip"} {
		_, err := exec.LookPath(program)
		need.Of(t, err == nil, program+" is not installed")
	}
	index := newPrivate(t, e.Connect(t))
	b := builds(t, e, map[string]string{"NPM_CONFIG_REGISTRY": index.URL + "/npm/", "GOPROXY": index.URL + "/go", "GOSUMDB": "off"})
	e.NodeBase(t, "node-tls:1")
	e.GoBase(t, "go-tls:1", "syscall")
	alpine(t, e)
	for _, c := range []struct {
		word, base string
		unknown    []byte // that does not do
	}{{"npx://tiny@1.0.0", "node-tls:1", nil}, {"go://example.test/tiny@v1.0.0", "go-tls:1", authority(t)}} {
		// 1. Without the authority, or with one that vouches for something else.
		r := Request{Source: source(t, c.word), RuntimeImage: c.base, CA: c.unknown}
		_, err := b.Build(t.Context(), r)
		failed := new(Error)
		if !errors.As(err, &failed) || !strings.Contains(failed.Next, "--ca-cert FILE") || index.served.Load() > 0 {
			t.Errorf("%s: %v, %d answers: %q", r.Source, err, index.served.Load(), failed.Said)
		}
		// 2. With it.
		r.CA = index.CA
		one := built(t, b, r)
		if index.served.Swap(0) == 0 {
			t.Errorf("%s does not come from the index", r.Source)
		}
		if said := started(t, b.Machine, one.Tag); !strings.Contains(said, `"name":"tiny"`) {
			t.Errorf("%s says %s", one.Tag, said)
		}
		if inside := string(e.Saved(t, one.Tag)); strings.Contains(inside, string(index.CA)) {
			t.Errorf("%s has the authority of its build", one.Tag)
		}
	}
	nothingLeft(t, e, b)
}
