package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/tuf"
	"github.com/theupdateframework/go-tuf/v2/metadata"

	"github.com/weir-edge/weir/edge"
)

// builtIn are the roots of trust of the public Sigstore: its authorities and logs, as its
// repository of The Update Framework has them. Each release has the newest.
//
//go:embed trusted_root.json
var builtIn []byte

// maxRoots bounds a file of roots, in bytes.
const maxRoots = 1 << 20

// roots are the roots of trust: those of the user's file, else the built-in ones.
func (i *Images) roots() (*root.TrustedRoot, error) {
	text, err := readFile(i.RootsFile, maxRoots)
	if errors.Is(err, fs.ErrNotExist) {
		return root.NewTrustedRootFromJSON(builtIn)
	}
	if err != nil {
		return nil, fmt.Errorf("the roots of trust: %w", err)
	}
	r, err := root.NewTrustedRootFromJSON(text)
	if err != nil {
		return nil, fmt.Errorf("the roots of trust in %s cannot be read: %s", i.RootsFile, brief(err))
	}
	return r, nil
}

// rootsName is what the roots are called in a repository of The Update Framework.
const rootsName = "trusted_root.json"

// renewWithin is how long it may take to renew the roots.
const renewWithin = 2 * time.Minute

// policyRoots says where the roots of trust come from, for a Sigstore of the user's own: a
// repository of The Update Framework, and the file of its root, by which it is believed.
type policyRoots struct {
	Mirror string `json:"mirror"`
	Root   string `json:"root"`
}

// check finds what is wrong with it. The error begins with the field.
func (p *policyRoots) check() error {
	u, err := url.Parse(p.Mirror)
	local := err == nil && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback())
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && local):
		return fmt.Errorf("roots.mirror: %q is no https URL of a repository", edge.Brief(p.Mirror))
	case !filepath.IsAbs(p.Root):
		return fmt.Errorf("roots.root: %q is no absolute path: name the root.json of that repository", edge.Brief(p.Root))
	}
	return nil
}

// Renewed is what became of the roots of trust.
type Renewed struct {
	Mirror  string // where they were asked for
	Changed bool   // what is there now is another than before
}

// ErrOwn says that the roots of trust are a file that the user made, and that is left alone.
var ErrOwn = errors.New("the file is your own, and is left as it is: remove it to have those of Sigstore")

// Wanted reports whether the user verifies anything by roots of trust.
func (i *Images) Wanted() bool {
	for _, path := range []string{i.PolicyFile, i.RootsFile} {
		if _, err := os.Lstat(path); err == nil {
			return true
		}
	}
	return false
}

// Renew fetches the roots of trust of their repository, and keeps them in the user's file.
// What The Update Framework needs to know of the repository is kept below a directory: it takes
// nothing that is older than what it has seen.
func (i *Images) Renew(ctx context.Context, keep string) (*Renewed, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, renewWithin, fmt.Errorf("not done within %s", renewWithin))
	defer cancel()
	// 1. Where from; a file of the user's own stays.
	p, err := readPolicy(i.PolicyFile)
	if err != nil {
		return nil, err
	}
	r, first := &Renewed{Mirror: tuf.DefaultMirror}, tuf.DefaultRoot()
	if p.Roots != nil {
		r.Mirror = strings.TrimSuffix(p.Roots.Mirror, "/")
		if first, err = readFile(p.Roots.Root, maxRoots); err != nil {
			return nil, fmt.Errorf("%s: roots.root: %w", i.PolicyFile, err)
		}
	}
	mark := filepath.Join(keep, "written")
	before, err := readFile(i.RootsFile, maxRoots)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		before = nil
	case err != nil:
		return nil, err
	default:
		if was, err := readFile(mark, 1<<10); err != nil || !strings.Contains(string(was), digestOf(before)) {
			return nil, fmt.Errorf("%s: %w", i.RootsFile, ErrOwn)
		}
	}
	// 2. What is there now.
	tlsRoots, err := edge.Roots(nil, i.CAs)
	if err != nil {
		return nil, err
	}
	client := edge.NewHTTP(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: tlsRoots})
	defer client.CloseIdleConnections()
	text, err := fetchRoots(&tuf.Options{Root: first, RepositoryBaseURL: r.Mirror, CachePath: keep, Fetcher: &files{ctx, client}})
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%s: %s", r.Mirror, brief(err))
	}
	// 3. The file.
	if _, err := root.NewTrustedRootFromJSON(text); err != nil {
		return nil, fmt.Errorf("%s: what it has as %s cannot be read: %s", r.Mirror, rootsName, brief(err))
	}
	if r.Changed = !bytes.Equal(text, before) && (before != nil || !bytes.Equal(text, builtIn)); !r.Changed {
		return r, nil
	}
	if err := replace(mark, []byte(digestOf(before)+"\n"+digestOf(text))); err != nil { // whichever of them is there after a crash
		return nil, err
	}
	return r, replace(i.RootsFile, text)
}

// fetchRoots asks a repository for the roots.
func fetchRoots(o *tuf.Options) ([]byte, error) {
	c, err := tuf.New(o)
	if err != nil {
		return nil, err
	}
	return c.GetTarget(rootsName)
}

// files fetches the files of a repository, and ends with a context. It is a fetcher.Fetcher of
// The Update Framework's library, whose own tries for a quarter of an hour.
type files struct {
	ctx    context.Context
	client *http.Client
}

// DownloadFile fetches a file of at most so many bytes.
func (f *files) DownloadFile(url string, most int64, _ time.Duration) ([]byte, error) {
	q, err := http.NewRequestWithContext(f.ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := f.client.Do(q)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, &metadata.ErrDownloadHTTP{StatusCode: answer.StatusCode, URL: url}
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	if err == nil && int64(len(text)) > most {
		err = &metadata.ErrDownloadLengthMismatch{Msg: fmt.Sprintf("%s has more than %d bytes", url, most)}
	}
	return text, err
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// replace writes a file beside, and renames it.
func replace(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
