package authserver

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// Bounds of metadata documents.
const (
	maxDocument  = 10 << 10
	failureAge   = 30 * time.Second
	fetchTimeout = 5 * time.Second
	documents    = 5  // fetches a second
	burst        = 20 // fetches at once
	maxDepth     = 16 // of a document
	maxFlights   = 32 // and requests that wait for one: they take the places of all others
)

// fetchBudget is how many documents are fetched, by the whole process.
var fetchBudget = edge.Bucket{Key: "cimd", Capacity: burst, Refill: burst / documents * time.Second}

// errBusy says that too many documents are being asked for.
var errBusy = errors.New("too many metadata documents are asked for")

// documentsCache keeps the metadata documents of clients (draft-ietf-oauth-client-id-metadata-
// document), the ones that were used last. It is safe for concurrent use.
type documentsCache struct {
	config *CIMD
	client *oauth.Client
	local  edge.Store
	log    *slog.Logger
	now    func() time.Time

	mu      sync.Mutex
	byID    map[string]*list.Element
	used    *list.List // of *document, the last used first
	flights map[string]*flight
	asking  int // requests that wait for one
}

// document is what is known of one URL.
type document struct {
	id     string
	client *client // nil for one that cannot be used
	until  time.Time
}

// flight is a fetch under way.
type flight struct {
	done   chan struct{}
	client *client
	err    error
}

func newDocuments(c *CIMD, client *oauth.Client, local edge.Store, log *slog.Logger, now func() time.Time) *documentsCache {
	return &documentsCache{config: c, client: client, local: local, log: log, now: now, byID: map[string]*list.Element{}, used: list.New(), flights: map[string]*flight{}}
}

// isDocument reports whether a client id is the URL of a document.
func isDocument(id string) bool { return strings.HasPrefix(id, "https://") }

// parseDocumentURL judges a URL that is a client id; it returns its host.
func parseDocumentURL(id string) (host string, ok bool) {
	u, err := oauth.ParseURL(id, false)
	if err != nil || len(id) > maxClientID || u.Path == "" || u.Path == "/" || strings.Contains(id, "\\") {
		return "", false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return "", false
		}
	}
	// The host is shown to users: none of its letters stands for one that looks like another.
	authority, _, _ := strings.Cut(id[len("https://"):], "/")
	if strings.ContainsAny(authority, "@%") || dotted(u.EscapedPath()) {
		return "", false
	}
	return u.Hostname(), true
}

// known returns the client of a document that is in the cache. ok is false where it has to be
// fetched.
func (d *documentsCache) known(id string) (c *client, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.byID[id]
	if e == nil {
		return nil, false
	}
	doc := e.Value.(*document)
	if !d.now().Before(doc.until) {
		d.used.Remove(e)
		delete(d.byID, id)
		return nil, false
	}
	d.used.MoveToFront(e)
	return doc.client, true
}

// find returns the client of a document, fetched where it is not known. Errors are errNoClient
// and errBusy.
func (d *documentsCache) find(ctx context.Context, id string) (*client, error) {
	if c, ok := d.known(id); ok {
		if c == nil {
			return nil, errNoClient
		}
		return c, nil
	}
	d.mu.Lock()
	f := d.flights[id]
	if d.asking >= maxFlights || f == nil && len(d.flights) >= maxFlights {
		d.mu.Unlock()
		return nil, errBusy
	}
	if f == nil {
		f = &flight{done: make(chan struct{})}
		d.flights[id] = f
		go d.fly(context.WithoutCancel(ctx), id, f)
	}
	d.asking++
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.asking--
		d.mu.Unlock()
	}()
	select {
	case <-f.done:
		return f.client, f.err
	case <-ctx.Done():
		return nil, errBusy
	}
}

// fly fetches a document for all who wait.
func (d *documentsCache) fly(ctx context.Context, id string, f *flight) {
	f.err = errNoClient // unless it comes to something
	defer d.landed(id, f)
	defer edge.Contain(d.log, "metadata document")
	f.client, f.err = d.fetch(ctx, id)
	if f.err != nil && !errors.Is(f.err, errBusy) {
		d.log.Info("the metadata document of a client is not used", "url", id, "error", f.err)
		f.err = errNoClient
	}
}

// landed keeps what a fetch came to, and tells all who wait.
func (d *documentsCache) landed(id string, f *flight) {
	d.mu.Lock()
	delete(d.flights, id)
	if !errors.Is(f.err, errBusy) {
		until := d.now().Add(failureAge)
		if f.client != nil {
			until = d.now().Add(d.config.Life)
		}
		d.byID[id] = d.used.PushFront(&document{id, f.client, until})
		for d.used.Len() > max(1, d.config.Size) {
			last := d.used.Back()
			delete(d.byID, d.used.Remove(last).(*document).id)
		}
	}
	d.mu.Unlock()
	close(f.done)
}

// fetch fetches and judges a document.
func (d *documentsCache) fetch(ctx context.Context, id string) (*client, error) {
	if wait, _, err := d.local.Take(ctx, fetchBudget); err != nil || wait > 0 {
		return nil, errBusy
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	answer, err := d.client.Do(ctx, oauth.Request{URL: id, Trust: oauth.Learned, Header: http.Header{"Accept": {"application/json"}}, MaxBody: maxDocument})
	if err != nil {
		return nil, err
	}
	kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if answer.Status != http.StatusOK || err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return nil, fmt.Errorf("it is answered with status %d, and application/json is wanted with 200", answer.Status)
	}
	return parseDocument(id, answer.Body)
}

// parseDocument judges a document that was fetched from a URL.
func parseDocument(id string, text []byte) (*client, error) {
	o, err := oauth.ParseObject(text, maxDepth)
	if err != nil {
		return nil, err
	}
	if own, _ := o.Text("client_id"); own != id {
		return nil, errors.New("client_id: it is another than the URL")
	}
	for _, secret := range []string{"client_secret", "client_secret_expires_at", "registration_access_token"} {
		if o.Has(secret) {
			return nil, fmt.Errorf("%s: a document that anybody can read has none", secret)
		}
	}
	// A name may be as long as the document lets it, and is kept as far as it is shown, so that
	// the request fits into the form; what only registrations have to bound is left out.
	name, _ := o.Text("client_name")
	delete(o, "client_name")
	delete(o, "client_uri")
	c, err := parseClient(o, true)
	if err != nil {
		return nil, err
	}
	c.ID, c.Name = id, visible(name)
	c.host, _ = parseDocumentURL(id)
	return c, nil
}
