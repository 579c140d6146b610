package door

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// certificate is a pair of files that is read again when it changes.
type certificate struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex
	loaded  *tls.Certificate
	changed time.Time // of the newer file
	looked  time.Time
}

// TLS names the files of a listener's certificate.
type TLS struct {
	Cert, Key string
	ClientCA  string // of the certificates that clients have to have; "" for none
}

// WithTLS puts TLS before a listener.
func WithTLS(ln net.Listener, s TLS, log *slog.Logger) (net.Listener, error) {
	c := &certificate{cert: s.Cert, key: s.Key, log: log}
	if err := c.load(); err != nil {
		return ln, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get(), nil },
	}
	if s.ClientCA != "" {
		pem, err := os.ReadFile(s.ClientCA)
		if err != nil {
			return ln, fmt.Errorf("--tls-client-ca: %w", err)
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(pem) {
			return ln, fmt.Errorf("--tls-client-ca: no certificate in PEM form in %s", s.ClientCA)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return tls.NewListener(ln, config), nil
}

func (c *certificate) load() error {
	newest := time.Time{}
	for _, name := range []string{c.cert, c.key} {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	if c.loaded != nil && newest.Equal(c.changed) {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.loaded, c.changed = &pair, newest
	return nil
}

// get returns the pair. It looks at the files at most once a second, and keeps
// the old pair when the new one cannot be read.
func (c *certificate) get() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) > time.Second {
		c.looked = now
		if err := c.load(); err != nil {
			c.log.Error("the TLS certificate cannot be read again; the old one stays", "error", err)
		}
	}
	return c.loaded
}
