package image

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/weir-edge/weir/edge"
)

// Bounds of what one look at a registry takes.
const (
	maxRequests   = 200
	maxTaken      = 64 << 20 // bytes of all answers
	maxAnswer     = 8 << 20  // bytes of one
	maxParts      = 100_000  // commas of a description or a bundle: one takes a hundred times its length as it is read
	maxSignature  = 4 << 20  // bytes of one bundle
	maxSignatures = 32       // that are looked at, of each kind
	maxPages      = 16       // of the list of what refers to an image
	dialWithin    = 10 * time.Second
	headWithin    = 15 * time.Second // from a request until the head of its answer
	helperWithin  = 15 * time.Second // for a program that keeps credentials
)

// What signatures are kept as.
const (
	bundleType  = "application/vnd.dev.sigstore.bundle" // and a version
	payloadType = "application/vnd.dev.cosign.simplesigning.v1+json"
	emptyType   = "application/vnd.oci.empty.v1+json"
)

// registry is the repository of an image at its registry, as it is asked for one image.
type registry struct {
	repo   name.Repository
	images *Images
	guard  *guard
	asked  *remote.Puller // nil before the first question
	client *http.Client   // for what the library does not ask, with the same login; nil before the first question
}

func (i *Images) registry(repo name.Repository) *registry {
	return &registry{repo: repo, images: i, guard: newGuard(repo.RegistryStr(), i.CAs)}
}

func (r *registry) close() { r.guard.base.CloseIdleConnections() }

// opts are the options of a question.
func (r *registry) opts(ctx context.Context) ([]remote.Option, error) {
	if r.asked == nil {
		who, err := r.images.login(ctx, r.repo)
		if err != nil {
			return nil, err
		}
		again := transport.NewRetry(r.guard, transport.WithRetryPredicate(passes), transport.WithRetryStatusCodes(408, 429, 499, 500, 502, 503, 504, 522),
			transport.WithRetryBackoff(remote.Backoff{Duration: 200 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: 3}))
		carrier, err := transport.NewWithContext(ctx, r.repo.Registry, who, transport.NewUserAgent(again, "weir"), []string{r.repo.Scope(transport.PullScope)})
		if err != nil {
			return nil, r.answer(ctx, err)
		}
		if r.asked, err = remote.NewPuller(remote.WithContext(ctx), remote.WithTransport(carrier), remote.WithJobs(1)); err != nil {
			return nil, err
		}
		r.client = &http.Client{Transport: carrier}
	}
	return []remote.Option{remote.WithContext(ctx), remote.Reuse(r.asked)}, nil
}

// passes reports whether a request that failed so may succeed soon.
func passes(err error) bool {
	var t interface{ Temporary() bool }
	if errors.As(err, &t) && t.Temporary() && !errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed)
}

// resolve asks for the digest of what a name stands for.
func (r *registry) resolve(ctx context.Context, ref *reference) (string, error) {
	opts, err := r.opts(ctx)
	if err != nil {
		return "", err
	}
	// The whole manifest: what a registry says of its digest may be a lie.
	got, err := r.manifest(r.repo.Tag(ref.tag), opts)
	if err != nil {
		return "", r.answer(ctx, err)
	}
	return got.Digest.String(), nil
}

// manifest fetches a manifest, whose Digest is that of its bytes. The library takes the
// registry's word for that of a signed manifest of Docker's oldest form, and the registry says
// itself which manifest is one.
func (r *registry) manifest(ref name.Reference, opts []remote.Option) (*remote.Descriptor, error) {
	got, err := remote.Get(ref, opts...)
	if err != nil {
		return nil, err
	}
	wanted, err := v1.NewHash(ref.Identifier())
	if err != nil { // a tag
		wanted.Algorithm = "sha256"
	}
	sum, err := v1.Hasher(wanted.Algorithm)
	if err != nil {
		return nil, err
	}
	sum.Write(got.Manifest)
	got.Digest = v1.Hash{Algorithm: wanted.Algorithm, Hex: hex.EncodeToString(sum.Sum(nil))}
	if wanted.Hex != "" && got.Digest != wanted {
		return nil, fmt.Errorf("%s sends another manifest for %s", r.repo.RegistryStr(), short(wanted.String()))
	}
	return got, nil
}

// signatures are what is attached to an image at its registry.
func (r *registry) signatures(ctx context.Context, digest v1.Hash) (all []*signature, err error) {
	opts, err := r.opts(ctx)
	if err != nil {
		return nil, err
	}
	// 1. What refers to it, by the registry's own list, or under a tag where it has none.
	list, whole, err := r.referrers(ctx, digest, opts)
	if err != nil {
		return nil, r.answer(ctx, err)
	}
	if !whole { // it hides none that was found
		all = append(all, &signature{broken: fmt.Errorf("the list of what refers to the image breaks off, leads out of its repository, or has more than %d pages", maxPages)})
	}
	for _, d := range slices.Backward(list) { // the newest first
		s, err := attached(r.bundle(d.Digest, opts))
		if err != nil {
			return nil, r.answer(ctx, err)
		}
		if s != nil {
			all = append(all, s)
		}
	}
	// 2. What cosign keeps under a tag.
	more, err := r.tagged(r.repo.Tag(strings.Replace(digest.String(), ":", "-", 1)+".sig"), opts)
	if err != nil {
		return nil, r.answer(ctx, err)
	}
	return append(all, more...), nil
}

// newest adds to what may be bundles those of a list, and keeps the last ones.
func newest(all, list []v1.Descriptor) []v1.Descriptor {
	for _, d := range list {
		// Lists of clients that know no artifact types, as cosign 2 writes them where the registry
		// has none, have that of an empty configuration.
		if d.ArtifactType == "" || d.ArtifactType == emptyType || strings.HasPrefix(d.ArtifactType, bundleType) {
			all = append(all, d)
		}
	}
	return slices.Clone(all[max(0, len(all)-maxSignatures):]) // what came before takes memory no longer
}

// referrers are the newest that may be bundles of what refers to an image, by the list of its
// registry, or under the tag that takes the place of one (OCI distribution-spec, "Listing
// Referrers"); and whether the list was read to its end. The library reads one page of a list.
func (r *registry) referrers(ctx context.Context, digest v1.Hash, opts []remote.Option) (all []v1.Descriptor, whole bool, err error) {
	base := "/v2/" + r.repo.RepositoryStr() + "/"
	at := &url.URL{Scheme: r.repo.Scheme(), Host: r.repo.RegistryStr(), Path: base + "referrers/" + digest.String()}
	for n := range maxPages {
		index, link, err := r.page(ctx, at)
		switch {
		case err != nil && (n == 0 || ctx.Err() != nil):
			return nil, false, err
		case err != nil, index == nil && n > 0:
			return all, false, nil
		case index == nil:
			got, err := r.manifest(r.repo.Tag(strings.Replace(digest.String(), ":", "-", 1)), opts)
			var not *transport.Error
			if errors.As(err, &not) && not.StatusCode == http.StatusNotFound {
				return nil, true, nil
			}
			if err != nil {
				return nil, false, err
			}
			if index, err = v1.ParseIndexManifest(bytes.NewReader(got.Manifest)); err != nil {
				return nil, false, err
			}
			return newest(nil, index.Manifests), true, nil
		}
		all = newest(all, index.Manifests)
		if link == "" {
			return all, true, nil
		}
		to, err := at.Parse(link)
		if err != nil || to.Host != at.Host || to.User != nil || !strings.HasPrefix(to.Path, base) || strings.Contains(to.Path, "..") {
			return all, false, nil
		}
		to.Scheme = at.Scheme // a registry behind what ends TLS does not know its own
		at = to
	}
	return all, false, nil
}

// page is a page of the registry's list, and where the next one is; nil where there is no such list.
func (r *registry) page(ctx context.Context, at *url.URL) (index *v1.IndexManifest, link string, err error) {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, "", err
	}
	ask.Header.Set("Accept", string(types.OCIImageIndex))
	got, err := r.client.Do(ask)
	if err != nil {
		return nil, "", err
	}
	defer got.Body.Close()
	if err := transport.CheckError(got, http.StatusOK, http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusNotImplemented); err != nil {
		return nil, "", err
	}
	kind, _, _ := mime.ParseMediaType(got.Header.Get("Content-Type"))
	if got.StatusCode != http.StatusOK || kind != string(types.OCIImageIndex) {
		return nil, "", nil
	}
	for _, l := range links.FindAllStringSubmatch(strings.Join(got.Header.Values("Link"), ", "), -1) {
		if slices.Contains(strings.Fields(strings.ToLower(l[2])), "next") {
			link = l[1]
		}
	}
	index, err = v1.ParseIndexManifest(got.Body)
	return index, link, err
}

// links are what a header Link has: a URL, and its relation (RFC 8288).
var links = regexp.MustCompile(`<([^>]*)>[^<]*;\s*(?i:rel)\s*=\s*"?([^"<;,]*)`)

// tooMuchError says that something has more than what it is to be can have.
type tooMuchError string

func (e tooMuchError) Error() string { return string(e) }

// attached is what was fetched of what is attached to an image. Anybody may have attached it:
// what is too much to be read is a signature that does not count, and what is not there is none,
// so that they hide none that does.
func attached(s *signature, err error) (*signature, error) {
	var much tooMuchError
	var not *transport.Error
	switch {
	case errors.As(err, &much):
		return &signature{broken: much}, nil
	case errors.As(err, &not) && not.StatusCode == http.StatusNotFound:
		return nil, nil
	}
	return s, err
}

// bundle fetches a bundle that refers to an image; nil for what is none.
func (r *registry) bundle(digest v1.Hash, opts []remote.Option) (*signature, error) {
	got, err := r.manifest(r.repo.Digest(digest.String()), opts)
	if err != nil {
		return nil, err
	}
	m, err := v1.ParseManifest(strings.NewReader(string(got.Manifest)))
	if err != nil || len(m.Layers) != 1 || !strings.HasPrefix(string(m.Layers[0].MediaType), bundleType) {
		return nil, nil
	}
	text, err := r.blob(m.Layers[0], opts)
	if err != nil {
		return nil, err
	}
	return ofBundle(text), nil
}

// tagged fetches the signatures under a tag of cosign's; none where there is no such tag.
func (r *registry) tagged(tag name.Tag, opts []remote.Option) (all []*signature, err error) {
	got, err := r.manifest(tag, opts)
	if err != nil {
		s, err := attached(nil, err)
		if s != nil {
			all = append(all, s)
		}
		return all, err
	}
	m, err := v1.ParseManifest(strings.NewReader(string(got.Manifest)))
	if err != nil {
		return nil, nil
	}
	looked := 0
	for n := len(m.Layers) - 1; n >= 0 && looked < maxSignatures; n-- {
		if l := m.Layers[n]; string(l.MediaType) == payloadType {
			looked++
			text, err := r.blob(l, opts)
			s, err := attached(ofTag(text, l.Annotations), err)
			if err != nil {
				return nil, err
			}
			if s != nil {
				all = append(all, s)
			}
		}
	}
	return all, nil
}

// blob fetches what a descriptor describes. What it reads is compared with its digest.
func (r *registry) blob(d v1.Descriptor, opts []remote.Option) ([]byte, error) {
	if d.Size < 0 || d.Size > maxSignature {
		return nil, tooMuchError(fmt.Sprintf("it has %d bytes, and the limit is %d", d.Size, maxSignature))
	}
	layer, err := remote.Layer(r.repo.Digest(d.Digest.String()), opts...)
	if err != nil {
		return nil, err
	}
	body, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxSignature+1))
	switch {
	case err != nil:
	case len(text) > maxSignature:
		err = tooMuchError(fmt.Sprintf("it has more than %d bytes", maxSignature))
	case bytes.Count(text, comma) > maxParts:
		err = tooMuchError(fmt.Sprintf("it has more than %d parts", maxParts))
	}
	return text, err
}

// answered is what a registry answered that was no yes.
type answered struct {
	host   string
	status int
}

func (a *answered) Error() string {
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return a.host + " does not let you have it, or has none"
	case http.StatusNotFound:
		return a.host + " has none"
	}
	return fmt.Sprintf("%s answers %d %s", a.host, a.status, http.StatusText(a.status))
}

// busy reports whether the registry may say something else soon.
func (a *answered) busy() bool { return a.status >= 500 || a.status == http.StatusTooManyRequests }

func (a *answered) next() string {
	switch a.status {
	case http.StatusNotFound:
		return "correct its name"
	case http.StatusUnauthorized, http.StatusForbidden:
		return "correct its name, or log in to its registry: docker login " + a.host
	}
	return "correct its name, or ask whoever runs its registry why it answers with HTTP " + strconv.Itoa(a.status)
}

// answer makes of an error of the library one that says what the registry did.
func (r *registry) answer(ctx context.Context, err error) error {
	var not *transport.Error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &not):
		return &answered{host: r.repo.RegistryStr(), status: not.StatusCode}
	}
	return err
}

// unreachable is the error about a registry that says nothing of an image.
func (r *registry) unreachable(image string, err error) *Error {
	return &Error{Refused, about(image) + "its registry cannot be asked: " + brief(err), "try again when " + r.repo.RegistryStr() + " answers; a registry that wants a login has one of `docker login`"}
}

// login finds the user's credential for a repository, where the clients of container engines
// keep it.
func (i *Images) login(ctx context.Context, repo name.Repository) (authn.Authenticator, error) {
	keys := i.keychain
	if keys == nil {
		keys = authn.DefaultKeychain
	}
	type found struct {
		who authn.Authenticator
		err error
	}
	answer := make(chan found, 1)
	go func() { // ends with the program that keeps credentials, which is not ended for it
		who, err := authn.Resolve(ctx, keys, repo)
		answer <- found{who, err}
	}()
	select {
	case f := <-answer:
		if f.err != nil {
			return nil, fmt.Errorf("the credential for %s cannot be read: %s", repo.RegistryStr(), brief(f.err))
		}
		return f.who, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(helperWithin):
		return nil, fmt.Errorf("the credential for %s was not there within %s", repo.RegistryStr(), helperWithin)
	}
}

// Login is the user's credential for the registry of an image, as container engines take it in
// the header X-Registry-Auth; no value where the user has none.
func (i *Images) Login(ctx context.Context, image string) (edge.Secret, error) {
	ref, err := parse(image)
	if err != nil {
		return "", err
	}
	who, err := i.login(ctx, ref.repo)
	if err != nil || who == authn.Anonymous {
		return "", err
	}
	is, err := authn.Authorization(ctx, who)
	if err != nil {
		return "", fmt.Errorf("the credential for %s cannot be read: %s", ref.repo.RegistryStr(), brief(err))
	}
	host := ref.repo.RegistryStr()
	if host == name.DefaultRegistry {
		host = authn.DefaultAuthKey
	}
	text, err := json.Marshal(map[string]string{
		"username": is.Username, "password": is.Password, "auth": is.Auth, "identitytoken": is.IdentityToken, "registrytoken": is.RegistryToken, "serveraddress": host,
	})
	return edge.Secret(base64.URLEncoding.EncodeToString(text)), err
}

// guard carries requests to a registry, and bounds them. What the registry leads to, by a
// redirect or a challenge, is on the public internet; only itself may be elsewhere. Without
// TLS only this machine is spoken with.
type guard struct {
	home  string // host of the registry, without a port
	base  *http.Transport
	most  int64 // bytes of one answer
	calls atomic.Int64
	taken atomic.Int64
}

func newGuard(registry string, cas []byte) *guard {
	g := &guard{home: hostOf(registry), most: maxAnswer}
	roots, err := edge.Roots(nil, cas)
	g.base = &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, ForceAttemptHTTP2: true, DisableCompression: true,
		DisableKeepAlives: false, IdleConnTimeout: 5 * time.Second, ResponseHeaderTimeout: headWithin, TLSHandshakeTimeout: dialWithin, MaxResponseHeaderBytes: 64 << 10,
	}
	if err != nil {
		g.base.TLSClientConfig.VerifyConnection = func(tls.ConnectionState) error { return err }
	}
	var mu sync.Mutex
	proxies := map[string]bool{} // HOST:PORT, since what else listens there is none
	g.base.Proxy = func(r *http.Request) (*url.URL, error) {
		u, err := http.ProxyFromEnvironment(r)
		if u != nil {
			port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme])
			mu.Lock()
			proxies[net.JoinHostPort(u.Hostname(), port)] = true
			mu.Unlock()
		}
		return u, err
	}
	g.base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		named := hostOf(addr) == g.home || proxies[addr]
		mu.Unlock()
		d := net.Dialer{Timeout: dialWithin, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			return edge.MayDial(at.Addr(), named)
		}}
		return d.DialContext(ctx, network, addr)
	}
	return g
}

func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return strings.Trim(addr, "[]")
}

// RoundTrip is http.RoundTripper.RoundTrip.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	host := r.URL.Hostname()
	at, err := netip.ParseAddr(host)
	switch {
	case g.calls.Add(1) > maxRequests:
		return nil, tooMuchError(fmt.Sprintf("more than %d requests for one image", maxRequests))
	case r.URL.Scheme != "https" && r.URL.Scheme != "http" || host == "":
		return nil, errors.New("a redirect or a challenge leads to what is no https URL")
	case r.URL.Scheme != "https" && host != "localhost" && !(err == nil && at.IsLoopback()):
		return nil, fmt.Errorf("%s is not asked without TLS", r.URL.Host)
	case err == nil:
		if err := edge.MayDial(at, host == g.home); err != nil {
			return nil, err
		}
	}
	answer, err := g.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body := &bounded{answer.Body, g, g.most, math.MaxInt}
	if r.Header.Get("Accept") != "" { // what is asked for is a description, and not the bytes of something
		body.left, body.parts = maxAnswer, maxParts
	}
	answer.Body = body
	return answer, nil
}

var comma = []byte(",")

// bounded is the body of an answer.
type bounded struct {
	io.ReadCloser
	guard *guard
	left  int64 // bytes
	parts int   // commas
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.parts -= bytes.Count(p[:n], comma)
	if b.left -= int64(n); b.left < 0 || b.parts < 0 || b.guard.taken.Add(int64(n)) > maxTaken {
		return 0, tooMuchError("the registry answers with more than an image's description and signatures can be")
	}
	return n, err
}
