package edge

import (
	"crypto/x509"
	"errors"
	"net/http"
	"time"
)

// Reach is what the settings of the process allow to requests of the edge's own, such as
// those to identity providers.
type Reach struct {
	CAs         []byte // PEM certificates to trust beside those of the system or of a manifest, by whatever connects; nil for none
	DevLoopback bool   // learned URLs may lead to loopback addresses, and then be of http: for development
	STS         string // URL of the security token service of the cloud, in place of that of its region; "" for that

	// Saw is told of each request that was made of another party, from several goroutines;
	// nil for nobody. It has secrets in it.
	Saw func(Fetched)
}

// Fetched is a request of the edge's own, and what came back.
type Fetched struct {
	Method, URL string
	Header      http.Header
	Body        []byte
	Status      int // 0 for no answer
	Answer      http.Header
	Said        []byte // body of the answer
	Took        time.Duration
	Err         error // why there is no answer, or none that counts; nil for one
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
