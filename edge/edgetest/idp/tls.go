package idp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TLS is a CA, and a certificate of it for this machine. The zero value is none.
type TLS struct {
	Cert, Key string // files in PEM, by which a provider speaks TLS
	CA        string // file of the CA, which it trusts when it fetches the documents and keys of others

	Authority []byte          // what is in CA
	Pair      tls.Certificate // what is in Cert and Key
}

// NewTLS makes a CA and its files, which end with the test.
func NewTLS(t testing.TB) (made TLS) {
	t.Helper()
	return NewTLSIn(t, t.TempDir())
}

// NewTLSIn is NewTLS with a folder for the files, which outlives the test.
func NewTLSIn(t testing.TB, dir string) (made TLS) {
	t.Helper()
	write := func(name, kind string, der []byte) (path string, text []byte) {
		path, text = filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path, text
	}
	newKey := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	own, its := newKey(), newKey()
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test"}, NotBefore: root.NotBefore, NotAfter: root.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2)}, DNSNames: []string{"localhost"}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, own.Public(), own)
	if err != nil {
		t.Fatal(err)
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, its.Public(), own)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(its)
	if err != nil {
		t.Fatal(err)
	}
	made.CA, made.Authority = write("ca.pem", "CERTIFICATE", rootDER)
	made.Cert, _ = write("cert.pem", "CERTIFICATE", leafDER)
	made.Key, _ = write("key.pem", "PRIVATE KEY", keyDER)
	if made.Pair, err = tls.LoadX509KeyPair(made.Cert, made.Key); err != nil {
		t.Fatal(err)
	}
	return made
}
