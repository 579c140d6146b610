package edge

import (
	"crypto/x509"
	"errors"
)

// Reach is what the settings of the process allow to requests of the edge's own, such as
// those to identity providers.
type Reach struct {
	CAs         []byte // PEM certificates to trust beside those of the system or of a manifest; nil for none
	DevLoopback bool   // learned URLs may lead to loopback addresses, and then be of http: for development
}

// Roots are the certificates to trust: those of a bundle in PEM, or of the system without
// one, and more. It is nil for those of the system alone, as crypto/tls takes it.
func Roots(bundle, more []byte) (*x509.CertPool, error) {
	if len(bundle) == 0 && len(more) == 0 {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if len(bundle) == 0 {
		if system, err := x509.SystemCertPool(); err == nil {
			pool = system
		}
	}
	for _, pem := range [][]byte{bundle, more} {
		if len(pem) > 0 && !pool.AppendCertsFromPEM(pem) {
			return nil, errors.New("CA bundle: it holds no PEM certificate")
		}
	}
	return pool, nil
}
