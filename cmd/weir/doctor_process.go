package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
)

// clock looks whether the time can be right: it is not before this program was
// made.
func (d *doctor) clock(now time.Time) check {
	return d.step(context.Background(), "clock", "this machine", func(context.Context) check {
		made, err := time.Parse(time.RFC3339, thisBuild().Time)
		if err == nil && now.Before(made) {
			return warning(inClock, "set the clock: certificates and tokens are judged by it",
				"it is %s by the clock, which is before this program was made", now.UTC().Format(time.RFC3339))
		}
		return fine(now.UTC().Format(time.RFC3339))
	})
}

// settings reports what is wrong with the settings.
func (d *doctor) settings(l loaded, err error) []check {
	err = errors.Join(err, l.check())
	if err == nil {
		return []check{d.tell(check{Step: "settings", Subject: "of the process"})}
	}
	var out []check
	for line := range strings.Lines(err.Error()) {
		subject, cause, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			subject, cause = "of the process", subject
		}
		c := problem(inSettings, "correct it where it comes from: `weir settings` shows all of them and where each is from", "%s", cause)
		c.Step, c.Subject = "settings", subject
		out = append(out, d.tell(c))
	}
	return out
}

// maxKeyFile bounds a file of keys or certificates, in bytes.
const maxKeyFile = 4 << 20

// expiresSoon is how long before its end a certificate is spoken of.
const expiresSoon = 14 * 24 * time.Hour

// files looks at the files that the settings name.
func (d *doctor) files(s serve.Settings) []check {
	var out []check
	look := func(flag, path string, f func() check) {
		if path != "" {
			out = append(out, d.step(context.Background(), "files", "--"+flag, func(context.Context) check { return f() }))
		}
	}
	look("filter-cache", s.FilterCache, func() check {
		if info, err := os.Stat(s.FilterCache); err == nil && (!info.IsDir() || info.Mode()&0o022 != 0) {
			return problem(inFile, "name a directory that nobody else may write to, or one to be made", "%s is no directory of this user alone", s.FilterCache)
		}
		return fine("")
	})
	look("state-key-file", s.StateKeyFile, func() check { return stateKeys(s.StateKeyFile) })
	if s.TLSKey != "" {
		look("tls-cert", s.TLSCert, func() check { return certificatePair(s.TLSCert, s.TLSKey, time.Now()) })
	}
	look("tls-client-ca", s.TLSClientCA, func() check {
		if _, err := certificates(s.TLSClientCA); err != nil {
			return problem(inFile, "name a file with the certificates of authorities in PEM", "%v", err)
		}
		return fine("")
	})
	look("store-ca", s.StoreCA, func() check {
		if _, err := certificates(s.StoreCA); err != nil {
			return problem(inFile, "name a file with the certificates of authorities in PEM", "%v", err)
		}
		return fine("")
	})
	look("hand-over", s.HandOver, func() check {
		if info, err := os.Stat(filepath.Dir(s.HandOver)); err != nil || !info.IsDir() {
			return problem(inFile, "make the directory, or name a socket in one that is there", "%s is no directory", filepath.Dir(s.HandOver))
		}
		return fine("")
	})
	return out
}

// stateKeys looks at a file as --state-key-file wants it: a key of 32 bytes in
// base64 on each line.
func stateKeys(path string) check {
	const next = "put a key of 32 bytes in base64 on each line; make one with: openssl rand -base64 32"
	text, err := readBounded(path)
	if err != nil {
		return problem(inFile, next, "%v", err)
	}
	keys := 0
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if key, err := base64.StdEncoding.DecodeString(line); err != nil || len(key) != 32 {
			return problem(inFile, next, "%s:%d: not a key of 32 bytes in base64", path, i+1)
		}
		keys++
	}
	if keys == 0 {
		return problem(inFile, next, "%s: no key in it", path)
	}
	if c := readable4all(path); c.Level != levelOK {
		return c
	}
	return fine(plural(keys, "key"))
}

// certificatePair looks at the certificate of the door and its key.
func certificatePair(cert, key string, now time.Time) check {
	for _, path := range []string{cert, key} {
		if _, err := readBounded(path); err != nil {
			return problem(inFile, "name a certificate and its key in PEM with --tls-cert and --tls-key", "%v", err)
		}
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return problem(inFile, "name a certificate and the key that belongs to it, both in PEM", "%s, %s: %v", cert, key, err)
	}
	switch {
	case now.Before(pair.Leaf.NotBefore):
		return problem(inClock, "check the clock of this machine, or wait", "%s is not valid before %s; the clock says %s", cert, day(pair.Leaf.NotBefore), day(now))
	case now.After(pair.Leaf.NotAfter):
		return problem(inFile, "get a new certificate", "%s was valid until %s", cert, day(pair.Leaf.NotAfter))
	case now.Add(expiresSoon).After(pair.Leaf.NotAfter):
		return warning(inFile, "get a new certificate before that", "%s is valid until %s only", cert, day(pair.Leaf.NotAfter))
	}
	if c := readable4all(key); c.Level != levelOK {
		return c
	}
	return fine("valid until " + day(pair.Leaf.NotAfter))
}

func day(t time.Time) string { return t.UTC().Format(time.DateTime) + " UTC" }

// readable4all warns of a secret that every user of this machine can read.
func readable4all(path string) check {
	info, err := os.Stat(path)
	if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0 {
		return warning(inFile, "take the right away: chmod o-r "+path, "every user of this machine can read %s", path)
	}
	return fine("")
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err == nil && len(text) > maxKeyFile {
		err = fmt.Errorf("%s: more than %d bytes", path, maxKeyFile)
	}
	return text, errors.Join(err, f.Close())
}

func certificates(path string) (*x509.CertPool, error) {
	text, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate in PEM form in it", path)
	}
	return pool, nil
}

// manifests reports what reading and compiling found.
func (d *doctor) manifests(r *source.Result, s serve.Settings) []check {
	subject := d.config
	if subject == "" {
		subject = "(default)"
	}
	var out []check
	tell := func(c check, at string) {
		c.Step, c.Subject = "manifests", at
		out = append(out, d.tell(c))
	}
	for _, f := range r.Findings {
		at, line := subject, f.String()
		if f.File != "" {
			place := f.File
			if f.Line > 0 {
				place = fmt.Sprintf("%s:%d", place, f.Line)
			}
			// What String escapes in a name of a file is shown in the cause.
			if rest, ok := strings.CutPrefix(line, place+": "); ok {
				at, line = place, rest
			}
		}
		c := problem(inManifests, nextFor(f), "%s", line)
		switch f.Severity {
		case compile.Error:
		case compile.Warning:
			c.Level = levelWarning
		default:
			c.Level, c.Class, c.Next = levelNote, "", ""
		}
		tell(c, at)
	}
	if r.Plan == nil {
		return out
	}
	names := []string{}
	backends := 0
	for _, one := range r.Plan.Servers {
		names = append(names, one.Name)
		backends += len(one.Backends)
	}
	if want := s.DefaultServer; want != "" && !slices.Contains(names, want) {
		c := problem(inSettings, "name one of "+strings.Join(names, ", "), "--default-server: there is no server %q%s", want, didYouMean(want, names, "the manifests describe none"))
		tell(c, "--default-server")
	}
	tell(fine(plural(len(r.Plan.Servers), "server")+", "+plural(backends, "backend")), subject)
	return out
}

// secrets looks for the secrets that the manifests refer to, and returns where it
// looked; nil where there is nowhere.
func (d *doctor) secrets(ctx context.Context, r *source.Result, dir string) (edge.Secrets, []check) {
	if r.Plan == nil || dir == "" && len(r.Plan.Needs) == 0 {
		return nil, nil
	}
	secrets, err := secretsOf(r.Plan, dir, d.environ)
	if err != nil {
		return nil, []check{d.step(ctx, "secrets", "--"+secretsFlag, func(context.Context) check {
			return problem(inSettings, "name a directory that is there with --"+secretsFlag, "%v", err)
		})}
	}
	out := []check{}
	for _, f := range r.Missing(ctx, secrets) {
		out = append(out, d.step(ctx, "secrets", f.Object.String(), func(context.Context) check {
			return problem(inSecret, "put the value into one of the places, or correct the reference", "%s", f)
		}))
	}
	if len(out) == 0 {
		out = append(out, d.step(ctx, "secrets", "of the manifests", func(context.Context) check { return fine(plural(len(r.Plan.Needs), "secret")) }))
	}
	return secrets, out
}

// nextFor is what to do about a finding of a manifest. What is said there may
// name the very word to write.
func nextFor(f source.Finding) string {
	schema := "`weir schema` has the fields of every kind"
	if f.Object.Kind != "" {
		schema = "`weir schema " + f.Object.Kind + "` has every field"
	}
	switch f.Reason {
	case compile.ReasonUnreadable:
		if f.Line == 0 {
			return "name a file or directory that is there and can be read with -c"
		}
		return "correct the text at that line: it has to be YAML or JSON"
	case compile.ReasonUnknownKind:
		return "correct apiVersion or kind: `weir schema` has every kind"
	case compile.ReasonUnknownField:
		return "correct the name of the field, or take it out: " + schema
	case compile.ReasonDuplicate:
		return "rename one of the two, or take it out"
	case compile.ReasonNotFound:
		return "correct the name that is referred to, or add the object"
	case compile.ReasonConflict:
		return "keep one of the two"
	case compile.ReasonUnsupported:
		return "take the field out until it is supported"
	case compile.ReasonUnused:
		return "take it out, or refer to it"
	}
	return "correct the value: " + schema
}

// addresses looks whether the edge could listen where it is to listen.
func (d *doctor) addresses(ctx context.Context, s serve.Settings) []check {
	var out []check
	for _, one := range []struct{ flag, address string }{{"listen", s.Listen}, {"admin-listen", s.AdminListen}} {
		if _, _, err := net.SplitHostPort(one.address); err != nil {
			continue // there is none, or the settings have said what is wrong with it
		}
		out = append(out, d.step(ctx, "addresses", "--"+one.flag+" "+one.address, func(ctx context.Context) check {
			return d.address(ctx, one.flag, one.address, s.HandOver != "")
		}))
	}
	return out
}

func (d *doctor) address(ctx context.Context, flag, address string, handOver bool) check {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err == nil {
		err = ln.Close()
	}
	choose := "choose another address with --" + flag
	var dns *net.DNSError
	switch {
	case err == nil:
		return fine("free")
	case inUse(err) && edgeAt(ctx, address) && handOver:
		return check{Level: levelNote, Cause: "an edge listens there, which a new one takes over from at --hand-over"}
	case inUse(err) && edgeAt(ctx, address):
		return warning(inAddress, "`weir status` shows it; stop it before another is started, or "+choose, "an edge listens there already")
	case inUse(err):
		return problem(inAddress, "stop it, or choose another port with --"+flag+" (0 lets the system choose)", "another process listens there")
	case errors.Is(err, syscall.EACCES):
		return problem(inAddress, "choose a port of 1024 or above with --"+flag+", or give the process the right", "this user may not listen there")
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return problem(inAddress, choose, "this machine does not have the address")
	case errors.As(err, &dns):
		return problem(inAddress, choose, "no address for host %q", dns.Name)
	}
	return problem(inAddress, choose, "%v", err)
}

// edgeAt reports whether an edge serves at an address, by what it says of its
// health.
func edgeAt(ctx context.Context, address string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/health", nil)
	if err != nil {
		return false
	}
	transport := &http.Transport{DisableKeepAlives: true, ResponseHeaderTimeout: 2 * time.Second}
	answer, err := (&http.Client{Transport: transport, Timeout: 2 * time.Second}).Do(r)
	if err != nil {
		return false
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, 16))
	return errors.Join(err, answer.Body.Close()) == nil && answer.StatusCode == http.StatusOK && string(body) == "ok\n"
}

// inUse reports whether an address is taken. Windows has numbers of its own
// (WSAEADDRINUSE, WSAECONNREFUSED).
func inUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.Errno(10048))
}

// nobody reports whether nobody listens at an address.
func nobody(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.Errno(10061))
}
