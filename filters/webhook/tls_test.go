package webhook_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  edge.Secret
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = edge.Secret(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return a
}

// issue makes a certificate and its key, as PEM.
func (a *authority) issue(t testing.TB, name string) (cert, key edge.Secret) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return edge.Secret(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), edge.Secret(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

// newTLSHook is a webhook with a certificate of a, which wants one of clients.
func newTLSHook(t testing.TB, a, clients *authority) *hook {
	t.Helper()
	cert, key := a.issue(t, "webhook")
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	h := &hook{}
	h.Server = httptest.NewUnstartedServer(h.note(t, says(200, yes)))
	h.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	if clients != nil {
		h.TLS.ClientAuth, h.TLS.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		h.TLS.ClientCAs.AddCert(clients.cert)
	}
	h.EnableHTTP2 = true
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.StartTLS()
	t.Cleanup(h.Close)
	return h
}

func tlsSpec(url string, t *v1beta1.WebhookTLS) v1beta1.MCPWebhookConfigSpec {
	return validating(v1beta1.Webhook{Name: "v", URL: url, TLSConfig: t})
}

const refused = "denied: Request denied by policy"

// The certificate of a webhook is verified: by the system's authorities, by
// those of a secret, or, when the manifest says so, not at all.
func TestServerCertificate(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	h := newTLSHook(t, ours, nil)
	ca := &v1beta1.SecretRef{Name: "tls", Key: "ca"}
	for _, c := range []struct {
		what    string
		tls     *v1beta1.WebhookTLS
		secrets map[string]edge.Secret
		want    string
	}{
		{"of nobody that the system knows", nil, nil, refused},
		{"of our authority", &v1beta1.WebhookTLS{CASecretRef: ca}, map[string]edge.Secret{"tls/ca": ours.pem}, "passed"},
		{"of another", &v1beta1.WebhookTLS{CASecretRef: ca}, map[string]edge.Secret{"tls/ca": others.pem}, refused},
		{"not verified", &v1beta1.WebhookTLS{InsecureSkipVerify: true}, nil, "passed"},
	} {
		s := newStage(t, tlsSpec(h.URL, c.tls), c.secrets)
		if got := s.outcome(t, exchange(t, call)); got != c.want {
			t.Errorf("%s: %s, want %s: %s", c.what, got, c.want, s.log.String())
		}
	}
}

// A webhook may want a certificate of the edge. One that is exchanged for
// another is used by the next request.
func TestClientCertificate(t *testing.T) {
	servers, clients, others := newAuthority(t), newAuthority(t), newAuthority(t)
	h := newTLSHook(t, servers, clients)
	conf := &v1beta1.WebhookTLS{CASecretRef: &v1beta1.SecretRef{Name: "tls", Key: "ca"},
		ClientCertSecretRef: &v1beta1.SecretRef{Name: "tls", Key: "cert"}, ClientKeySecretRef: &v1beta1.SecretRef{Name: "tls", Key: "key"}}
	cert, key := clients.issue(t, "edge")
	s := newStage(t, tlsSpec(h.URL, conf), map[string]edge.Secret{"tls/ca": servers.pem, "tls/cert": cert, "tls/key": key})
	set := func(a *authority) {
		cert, key := a.issue(t, "edge")
		s.vault.Set("tls/cert", cert)
		s.vault.Set("tls/key", key)
	}
	if got := s.outcome(t, exchange(t, call)); got != "passed" {
		t.Errorf("%s: %s", got, s.log.String())
	}
	set(others)
	if got := s.outcome(t, exchange(t, call)); got != refused {
		t.Errorf("a certificate of another authority: %s", got)
	}
	set(clients)
	if got := s.outcome(t, exchange(t, call)); got != "passed" {
		t.Errorf("a new certificate: %s: %s", got, s.log.String())
	}
	s.vault.Set("tls/key", "no key")
	if got := s.outcome(t, exchange(t, call)); got != refused {
		t.Errorf("without its key: %s", got)
	}
	if strings.Contains(s.log.String(), "BEGIN") {
		t.Error("the log shows a key")
	}
	if got := newStage(t, tlsSpec(h.URL, &v1beta1.WebhookTLS{CASecretRef: conf.CASecretRef}), map[string]edge.Secret{"tls/ca": servers.pem}).outcome(t, exchange(t, call)); got != refused {
		t.Errorf("no certificate: %s", got)
	}
}

// What cannot be certificates is found when the plan opens, and not shown.
func TestUnsoundCertificates(t *testing.T) {
	cert, key := newAuthority(t).issue(t, "edge")
	conf := &v1beta1.WebhookTLS{CASecretRef: &v1beta1.SecretRef{Name: "tls", Key: "ca"},
		ClientCertSecretRef: &v1beta1.SecretRef{Name: "tls", Key: "cert"}, ClientKeySecretRef: &v1beta1.SecretRef{Name: "tls", Key: "key"}}
	noClient := &v1beta1.WebhookTLS{CASecretRef: conf.CASecretRef}
	for what, c := range map[string]struct {
		tls     *v1beta1.WebhookTLS
		secrets map[string]edge.Secret
		part    string
	}{
		"no authority":         {noClient, map[string]edge.Secret{"tls/ca": "planted-hmac-key"}, "caSecretRef"},
		"no authority, client": {conf, map[string]edge.Secret{"tls/ca": "planted-hmac-key", "tls/cert": cert, "tls/key": key}, "caSecretRef"},
		"no key":               {conf, map[string]edge.Secret{"tls/ca": cert, "tls/cert": cert, "tls/key": "planted-hmac-key"}, "clientKeySecretRef"},
		"another's key":        {conf, map[string]edge.Secret{"tls/ca": cert, "tls/cert": cert, "tls/key": second(newAuthority(t).issue(t, "x"))}, "clientKeySecretRef"},
		"not there":            {conf, map[string]edge.Secret{"tls/ca": cert, "tls/cert": cert}, "tls/key"},
	} {
		s := &stage{vault: fake.Keep(c.secrets)}
		_, err := parse(t, tlsSpec("https://hooks.example.com", c.tls)).Open(s.env(t))
		if err == nil || !strings.Contains(err.Error(), c.part) || strings.Contains(err.Error(), "planted") || strings.Contains(err.Error(), "BEGIN") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second(_, b edge.Secret) edge.Secret { return b }

// Addresses at which clouds hand out credentials are not dialled, whoever names
// them, with either client (T01).
func TestForbiddenAddresses(t *testing.T) {
	for _, url := range []string{"https://169.254.169.254/latest", "https://[fe80::1]/", "https://[64:ff9b::a9fe:a9fe]/"} {
		for _, insecure := range []bool{false, true} {
			s := newStage(t, tlsSpec(url, &v1beta1.WebhookTLS{InsecureSkipVerify: insecure}), nil)
			if got := s.outcome(t, exchange(t, call)); got != refused {
				t.Errorf("%s: %s", url, got)
			}
			if log := s.log.String(); !strings.Contains(log, "link-local") && !strings.Contains(log, "metadata") && !strings.Contains(log, "zone") {
				t.Errorf("%s, %t: %s", url, insecure, log)
			}
		}
	}
}
