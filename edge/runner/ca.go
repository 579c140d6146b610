package runner

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// maxCA bounds a file of certificates, in bytes.
const maxCA = 1 << 20

// CheckCA refuses what is not certificates in PEM, a private key among them.
func CheckCA(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if len(text) > maxCA {
		return fmt.Errorf("the certificates have more than %d bytes", maxCA)
	}
	some := false
	for rest := text; ; some = true {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("the file of certificates holds something else: %.40q", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return errors.New("one of the certificates cannot be read")
		}
	}
	if !some {
		return errors.New("the file of certificates holds none in PEM")
	}
	return nil
}
