package edge

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// maxKeyFile bounds a file of keys or certificates, in bytes.
const maxKeyFile = 4 << 20

// OpenFile opens a file that somebody named, to read it. To open a named pipe would wait for its
// other end, and no signal ends that: one that nobody writes to is empty here.
func OpenFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// ReadFile reads a file that somebody named, which has at most so many bytes.
func ReadFile(path string, most int) ([]byte, error) {
	f, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	text, err := ReadAll(f, path, most)
	return text, errors.Join(err, f.Close())
}

// ReadAll reads what has at most so many bytes, such as standard input; name is that in errors.
func ReadAll(from io.Reader, name string, most int) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, int64(most)+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s: more than %d bytes", name, most)
	}
	return text, err
}

// ErrHeld says that another process holds a lock.
var ErrHeld = errors.New("another process holds it")

// lockAgain is how often who waits for a lock looks again.
const lockAgain = 20 * time.Millisecond

// AwaitLock is LockFile that waits for another process until ctx ends; the error is ErrHeld then.
func AwaitLock(ctx context.Context, path string) (*os.File, error) {
	tick := time.NewTicker(lockAgain)
	defer tick.Stop()
	for {
		f, err := LockFile(path)
		if !errors.Is(err, ErrHeld) {
			return f, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

// ReadKeys reads a file of keys or certificates, which has at most 4 MiB.
func ReadKeys(path string) ([]byte, error) { return ReadFile(path, maxKeyFile) }

// MoreRoots reads a file of certificates, in PEM, to trust besides others; nil for no path.
func MoreRoots(path string) (pem []byte, err error) {
	if path == "" {
		return nil, nil
	}
	if pem, err = ReadKeys(path); err == nil {
		if _, err = Roots(nil, pem); len(pem) == 0 {
			err = fmt.Errorf("%s: it is empty", path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("CA bundle: %w", err)
	}
	return pem, nil
}

// Authorities reads the certificates, in PEM, of a file.
func Authorities(path string) (*x509.CertPool, error) {
	text, err := ReadKeys(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate in PEM form in it", path)
	}
	return pool, nil
}

// OwnersAlone warns of a file with a secret that every user of this machine can read.
func OwnersAlone(path string) Finding {
	info, err := os.Stat(path)
	if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0 {
		return Warning(ClassFile, "take the right away: chmod o-r "+path, "every user of this machine can read %s", path)
	}
	return Fine("")
}

// HasCertificate reports whether there is a certificate among blocks of PEM.
func HasCertificate(data []byte) bool {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if _, err := x509.ParseCertificate(block.Bytes); block.Type == "CERTIFICATE" && err == nil {
			return true
		}
	}
	return false
}

// PathInside reports whether a text can be a path inside of a sandbox.
func PathInside(text string) bool {
	return strings.HasPrefix(text, "/") && text != "/" && filepath.ToSlash(filepath.Clean(text)) == strings.TrimSuffix(text, "/")
}
