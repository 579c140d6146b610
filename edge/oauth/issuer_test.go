package oauth_test

import (
	"context"
	"crypto/elliptic"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge/oauth"
)

// world stands for the network: it answers without a socket, so that time can
// be made up.
type world struct {
	mu      sync.Mutex
	answer  func(*http.Request) (int, string)
	delay   time.Duration
	fetches []time.Time // of keys
	seen    []*http.Request
}

const issuerName = "https://i.example"

func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	answer, delay := w.answer, w.delay
	if strings.HasSuffix(r.URL.Path, "/keys") {
		w.fetches = append(w.fetches, time.Now())
	}
	w.seen = append(w.seen, r)
	w.mu.Unlock()
	select {
	case <-time.After(delay): // the made-up network
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	status, body := answer(r)
	if status == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func (w *world) set(answer func(*http.Request) (int, string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.fetches)
}

// keys answers discovery and keys.
func keys(doc []byte) func(*http.Request) (int, string) {
	return func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/keys") {
			return 200, string(doc)
		}
		return 200, fmt.Sprintf(`{"issuer":%q,"jwks_uri":"https://i.example/keys"}`, issuerName)
	}
}

func down(*http.Request) (int, string) { return 0, "" }

// running starts an issuer in the bubble of a test.
func running(t *testing.T, w *world, o oauth.IssuerOptions) *oauth.Issuer {
	t.Helper()
	c, err := oauth.New(oauth.Options{Proxy: noProxy})
	if err != nil {
		t.Fatal(err)
	}
	o.Client = c.Through(w)
	if o.Issuer == "" {
		o.Issuer = issuerName
	}
	i := oauth.NewIssuer(o)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); i.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	return i
}

// TestJ25 is a storm of tokens with unknown keys: 10,000 in ten seconds, six
// times over. Times are those of the product.
func TestJ25(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: keys(set(t, ecJWK(t, "a", elliptic.P256()))), delay: 50 * time.Millisecond}
		i := running(t, w, oauth.IssuerOptions{})
		time.Sleep(time.Second) // of made-up time
		if w.count() != 1 {
			t.Fatalf("%d fetches at the start", w.count())
		}
		time.Sleep(40 * time.Second)
		var refused, waited atomic.Int32
		var all sync.WaitGroup
		for n := range 60_000 {
			if n%10 == 0 {
				if _, _, err := i.Key(t.Context(), "a"); err != nil {
					t.Fatalf("a known key was refused: %v", err)
				}
			}
			all.Go(func() {
				start := time.Now()
				if _, _, err := i.Key(t.Context(), fmt.Sprint("random-", n)); err != nil {
					refused.Add(1)
				}
				if time.Since(start) > 0 {
					waited.Add(1)
				}
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		if refused.Load() != 60_000 {
			t.Errorf("%d of 60,000 unknown keys were refused", refused.Load())
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for n := 1; n < len(w.fetches); n++ {
			if d := w.fetches[n].Sub(w.fetches[n-1]); d < 30*time.Second {
				t.Errorf("fetches %d and %d are %s apart", n, n+1, d)
			}
		}
		if n := len(w.fetches); n < 3 || n > 4 {
			t.Errorf("%d fetches in 101 s", n)
		}
		t.Logf("60,000 unknown keys in 60 s: %d fetches, %d tokens waited", len(w.fetches), waited.Load())
	})
}

// TestJ26 is a rotation: the first token of the new key finds it.
func TestJ26(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := ecJWK(t, "a", elliptic.P256()), ecJWK(t, "b", elliptic.P256())
		w := &world{answer: keys(set(t, a)), delay: 50 * time.Millisecond}
		i := running(t, w, oauth.IssuerOptions{})
		if _, _, err := i.Key(t.Context(), "a"); err != nil { // waits for the first fetch
			t.Fatal(err)
		}
		before, err := i.Keys()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.set(keys(set(t, b, a)))
		start := time.Now()
		if _, _, err := i.Key(t.Context(), "b"); err != nil || time.Since(start) > time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		if after, _ := i.Keys(); after.Generation == before.Generation {
			t.Error("the generation did not change")
		}

		// A second one at once has to wait for its turn, and gets it unasked.
		w.set(keys(set(t, ecJWK(t, "c", elliptic.P256()), b)))
		if _, _, err := i.Key(t.Context(), "c"); err == nil {
			t.Error("a second fetch within the interval")
		}
		time.Sleep(31 * time.Second)
		if _, _, err := i.Key(t.Context(), "c"); err != nil || w.count() != 3 {
			t.Errorf("%d fetches, %v", w.count(), err)
		}
		if _, _, err := i.Key(t.Context(), "a"); err == nil {
			t.Error("a key that its issuer took away still serves")
		}
	})
}

// TestJ27 is an issuer that is away at the start, and later.
func TestJ27(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: down}
		i := running(t, w, oauth.IssuerOptions{})
		var none *oauth.NoKeysError
		if _, _, err := i.Key(t.Context(), "a"); !errors.As(err, &none) || none.Stale || i.Ready() == nil {
			t.Errorf("away at the start: %v, ready %v", err, i.Ready())
		}
		w.set(func(r *http.Request) (int, string) { return 200, "<html>maintenance</html>" })
		time.Sleep(10 * time.Second)
		w.set(func(r *http.Request) (int, string) { return 500, "" })
		time.Sleep(time.Minute)
		if i.Ready() == nil {
			t.Error("ready without keys")
		}
		w.set(keys(set(t, ecJWK(t, "a", elliptic.P256()))))
		time.Sleep(2 * time.Second)
		if err := i.Ready(); err != nil {
			t.Errorf("not back within 2 s: %v", err)
		}

		// Later: the last good keys serve for an hour after they were last seen.
		w.set(down)
		last := time.Now()
		for time.Since(last) < 59*time.Minute {
			if _, _, err := i.Key(t.Context(), "a"); err != nil {
				t.Fatalf("after %s: %v", time.Since(last), err)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Minute)
		if _, _, err := i.Key(t.Context(), "a"); !errors.As(err, &none) || !none.Stale {
			t.Errorf("after an hour: %v", err)
		}
		if i.Ready() == nil {
			t.Error("ready with keys of long ago")
		}
		w.set(keys(set(t, ecJWK(t, "a", elliptic.P256()))))
		time.Sleep(30 * time.Second)
		if _, _, err := i.Key(t.Context(), "a"); err != nil {
			t.Errorf("back again: %v", err)
		}
	})
}

// TestIssuerHangs bounds how long a token waits for an issuer that says nothing.
func TestIssuerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: down, delay: time.Hour}
		i := running(t, w, oauth.IssuerOptions{})
		start := time.Now()
		var all sync.WaitGroup
		var atOnce atomic.Int32
		for range 1000 {
			all.Go(func() {
				if _, _, err := i.Key(t.Context(), "a"); err == nil {
					t.Error("a key was found")
				}
				if time.Since(start) == 0 {
					atOnce.Add(1)
				}
			})
		}
		all.Wait()
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("they waited %s", d)
		}
		if n := atOnce.Load(); n != 1000-256 {
			t.Errorf("%d did not wait: more than 256 waited", n)
		}
	})
}

// TestIssuerTokenFile holds to whom the bearer token goes.
func TestIssuerTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	doc := set(t, ecJWK(t, "a", elliptic.P256()))
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: func(r *http.Request) (int, string) {
			if strings.HasSuffix(r.URL.Path, "/keys") {
				return 200, string(doc)
			}
			return 200, fmt.Sprintf(`{"issuer":%q,"jwks_uri":"https://elsewhere.example/keys"}`, issuerName)
		}}
		i := running(t, w, oauth.IssuerOptions{TokenFile: path})
		time.Sleep(time.Second)
		if err := i.Ready(); err != nil {
			t.Fatal(err)
		}
		for _, r := range w.seen {
			if got, here := r.Header.Get("Authorization"), r.URL.Host == "i.example"; (got == "Bearer first") != here || !here && got != "" {
				t.Errorf("%s was sent %q", r.URL, got)
			}
		}
	})
	write("sec ond")
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: keys(doc)}
		i := running(t, w, oauth.IssuerOptions{JWKSURL: "https://i.example/keys", TokenFile: path})
		time.Sleep(time.Second)
		if err := i.Ready(); err == nil || len(w.seen) != 0 || strings.Contains(err.Error(), "ond") {
			t.Errorf("a file without a token: %v, %d requests", err, len(w.seen))
		}
		write("third")
		time.Sleep(3 * time.Second)
		if err := i.Ready(); err != nil || w.seen[0].Header.Get("Authorization") != "Bearer third" {
			t.Errorf("%v", err)
		}
	})
}

// TestIssuersShare holds that servers of one issuer cost it one fetch.
func TestIssuersShare(t *testing.T) {
	var hits atomic.Int32
	doc := set(t, ecJWK(t, "a", elliptic.P256()))
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { hits.Add(1); _, _ = w.Write(doc) })
	var all oauth.Issuers
	how := oauth.Options{AllowHTTP: true, AllowPrivate: true, Proxy: noProxy}
	one, doneOne, err := all.Open(oauth.IssuerOptions{Issuer: "https://i.example", JWKSURL: s.URL}, how)
	if err != nil {
		t.Fatal(err)
	}
	two, doneTwo, err := all.Open(oauth.IssuerOptions{Issuer: "https://i.example", JWKSURL: s.URL}, how)
	if err != nil {
		t.Fatal(err)
	}
	other, doneOther, err := all.Open(oauth.IssuerOptions{Issuer: "https://j.example", JWKSURL: s.URL}, how)
	if err != nil {
		t.Fatal(err)
	}
	if one != two || one == other {
		t.Error("issuers are not told apart as they should be")
	}
	for _, i := range []*oauth.Issuer{one, two, other} {
		if _, _, err := i.Key(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	}
	if n := hits.Load(); n != 2 {
		t.Errorf("%d fetches", n)
	}
	doneOne()
	doneOne()
	if _, _, err := two.Key(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	doneTwo()
	doneOther()
	if _, _, err := all.Open(oauth.IssuerOptions{}, oauth.Options{CABundle: []byte("x")}); err == nil {
		t.Error("a CA bundle without a certificate was accepted")
	}
}

// TestIssuerTellsEach holds that each who shares an issuer is told of it in a log of theirs, also
// who asks later, and nobody who has gone.
func TestIssuerTellsEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all oauth.Issuers
		open := func() (*strings.Builder, func()) {
			said := &strings.Builder{}
			_, done, err := all.Open(oauth.IssuerOptions{Issuer: "http://127.0.0.1:1", JWKSURL: "http://127.0.0.1:1", Log: slog.New(slog.NewTextHandler(said, nil))}, oauth.Options{AllowHTTP: true})
			if err != nil {
				t.Fatal(err)
			}
			return said, done
		}
		first, goes := open()
		second, doneSecond := open()
		synctest.Wait()
		third, doneThird := open()
		goes()
		before := first.String()
		time.Sleep(time.Second)
		synctest.Wait()
		for name, said := range map[string]*strings.Builder{"first": first, "second": second, "third": third} {
			if !strings.Contains(said.String(), `msg="keys of issuer not fetched" issuer=http://127.0.0.1:1 error=`) {
				t.Errorf("%s: %q", name, said)
			}
		}
		if first.String() != before {
			t.Errorf("who has gone is told %q", first)
		}
		doneSecond()
		doneThird()
	})
}
