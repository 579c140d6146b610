package door

import (
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
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
	err := c.load()
	if err != nil {
		return ln, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get(), nil },
	}
	if s.ClientCA != "" {
		a := &authorities{file: s.ClientCA, base: config.Clone(), log: log}
		if err := a.load(); err != nil {
			return ln, fmt.Errorf("--tls-client-ca: %w", err)
		}
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return a.get(), nil }
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

// authorities are those of clients' certificates, from a file that is read again when it changes.
type authorities struct {
	file string
	base *tls.Config
	log  *slog.Logger

	mu      sync.Mutex
	loaded  *tls.Config
	changed time.Time
	looked  time.Time
}

func (a *authorities) load() error {
	info, err := os.Stat(a.file)
	if err != nil {
		return err
	}
	if a.loaded != nil && info.ModTime().Equal(a.changed) {
		return nil
	}
	roots, err := edge.Authorities(a.file)
	if err != nil {
		return err
	}
	config := a.base.Clone()
	config.ClientCAs, config.ClientAuth = roots, tls.RequireAndVerifyClientCert
	var key [32]byte
	_, _ = rand.Read(key[:])                     // never fails
	config.SetSessionTicketKeys([][32]byte{key}) // whom an earlier authority let in is looked at anew
	a.loaded, a.changed = config, info.ModTime()
	return nil
}

// get returns the configuration of a handshake. It looks at the file at most once a second, and
// keeps the old authorities when it cannot be read.
func (a *authorities) get() *tls.Config {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); now.Sub(a.looked) > time.Second {
		a.looked = now
		if err := a.load(); err != nil {
			a.log.Error("the authorities of clients' certificates cannot be read again; the old ones stay", "error", err)
		}
	}
	return a.loaded
}

// Look says whether the certificate of the door and its key are there and right
// at a time.
func (t TLS) Look(now time.Time) edge.Finding {
	for _, path := range []string{t.Cert, t.Key} {
		if _, err := edge.ReadKeys(path); err != nil {
			return edge.Problem(edge.ClassFile, "name a certificate and its key in PEM with --tls-cert and --tls-key", "%v", err)
		}
	}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return edge.Problem(edge.ClassFile, "name a certificate and the key that belongs to it, both in PEM", "%s, %s: %v", t.Cert, t.Key, err)
	}
	switch {
	case now.Before(pair.Leaf.NotBefore):
		return edge.Problem(edge.ClassClock, "check the clock of this machine, or wait", "%s is not valid before %s; the clock says %s", t.Cert, edge.Day(pair.Leaf.NotBefore), edge.Day(now))
	case now.After(pair.Leaf.NotAfter):
		return edge.Problem(edge.ClassFile, "get a new certificate", "%s was valid until %s", t.Cert, edge.Day(pair.Leaf.NotAfter))
	case now.Add(edge.ExpiresSoon).After(pair.Leaf.NotAfter):
		return edge.Warning(edge.ClassFile, "get a new certificate before that", "%s is valid until %s only", t.Cert, edge.Day(pair.Leaf.NotAfter))
	}
	if c := edge.OwnersAlone(t.Key); c.Level != edge.LevelOK {
		return c
	}
	return edge.Fine("valid until " + edge.Day(pair.Leaf.NotAfter))
}
