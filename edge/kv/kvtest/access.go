package kvtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Authority is a certificate authority of a test, with the files of a
// certificate for 127.0.0.1.
type Authority struct {
	PEM             []byte
	File, Cert, Key string // of PEM, and of the certificate
}

// NewAuthority makes one that nobody else trusts.
func NewAuthority(t testing.TB) Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return Authority{
		PEM:  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		File: write("ca.crt", "CERTIFICATE", der),
		Cert: write("server.crt", "CERTIFICATE", leafDER), Key: write("server.key", "PRIVATE KEY", keyDER),
	}
}

// TLS are the arguments of a redis-server that speaks nothing but TLS.
func (a Authority) TLS() []string {
	return []string{"--tls-port", "%p", "--port", "0", "--tls-cert-file", a.Cert, "--tls-key-file", a.Key, "--tls-auth-clients", "no"}
}

// Commands are the commands that the README of the room, at path, says a user
// needs.
func Commands(t testing.TB, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`ACL SETUSER weir .*`).Find(text)
	var all []string
	for _, f := range strings.Fields(string(line)) {
		if strings.HasPrefix(f, "+") {
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		t.Fatal("the README names no commands")
	}
	return all
}
