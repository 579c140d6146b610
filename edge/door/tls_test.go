package door_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/door"
)

// issued is an authority and a certificate of it, for servers and clients.
type issued struct {
	ca        []byte // in PEM
	cert, key []byte
}

func issue(t *testing.T, name string) issued {
	t.Helper()
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	sign := func(c, by *x509.Certificate, key, signs *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, c, by, key.Public(), signs)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	own, its := newKey(), newKey()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name + "'s"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.MarshalECPrivateKey(its)
	if err != nil {
		t.Fatal(err)
	}
	return issued{sign(ca, ca, own, own), sign(leaf, ca, its, own), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})}
}

// The authorities of clients' certificates are read again when their file changes. Whom the old
// one let in is not let in any more, by a session that TLS resumes neither; a file that cannot be
// read changes nothing and is told of.
func TestClientAuthoritiesChange(t *testing.T) {
	t.Parallel()
	first, second := issue(t, "first"), issue(t, "second")
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	written := time.Now().Add(-time.Hour)
	put := func(name string, text []byte) {
		t.Helper()
		written = written.Add(time.Minute) // no two within what the file system tells apart
		if err := os.WriteFile(at(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(at(name), written, written); err != nil {
			t.Fatal(err)
		}
	}
	put("cert", first.cert)
	put("key", first.key)
	put("ca", first.ca)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	ln, err := door.WithTLS(plain, door.TLS{Cert: at("cert"), Key: at("key"), ClientCA: at("ca")}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "in")
			_ = c.Close()
		}
	}()
	end := sync.OnceFunc(func() {
		_ = ln.Close()
		<-served
	})
	t.Cleanup(end)
	client := func(of issued) *tls.Config {
		pair, err := tls.X509KeyPair(of.cert, of.key)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(first.ca)
		// It sends its certificate whatever authorities the server names.
		return &tls.Config{RootCAs: roots, ClientSessionCache: tls.NewLRUClientSessionCache(4), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
	}
	enters := func(with *tls.Config) (in, resumed bool) {
		c, err := tls.Dial("tcp", plain.Addr().String(), with)
		if err != nil {
			return false, false
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		text, _ := io.ReadAll(c)
		return string(text) == "in", c.ConnectionState().DidResume
	}
	old, young := client(first), client(second)
	expect := func(when string, oldIn, youngIn bool) {
		t.Helper()
		if in, _ := enters(old); in != oldIn {
			t.Errorf("%s: the first authority's client: %t", when, in)
		}
		if in, _ := enters(young); in != youngIn {
			t.Errorf("%s: the second authority's client: %t", when, in)
		}
	}
	expect("at first", true, false)
	if in, resumed := enters(old); !in || !resumed {
		t.Errorf("a session is not resumed: %t, %t", in, resumed)
	}
	const looks = time.Second + 100*time.Millisecond
	put("ca", []byte("none"))
	time.Sleep(looks)
	expect("a broken file", true, false)
	put("ca", second.ca)
	time.Sleep(looks)
	expect("the second authority", false, true)
	end()
	if !bytes.Contains(log.Bytes(), []byte("the old ones stay")) || bytes.Count(log.Bytes(), []byte("\n")) != 1 {
		t.Errorf("log: %s", log.Bytes())
	}
}
