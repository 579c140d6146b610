package login

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// Bounds of the callback server.
const (
	callbackPath     = "/callback"
	maxCallbacks     = 100      // requests of whatever kind; then the login fails
	maxCallbackLine  = 16 << 10 // bytes of a request's header
	callbackPatience = 5 * time.Second
)

// callback waits on the loopback interface for the user's browser to come back. It answers
// one request that has the right path and state, once, and is gone at the end of the login.
type callback struct {
	redirect string // where the browser is to come back to
	state    string
	listener net.Listener
	server   *http.Server
	judge    func(url.Values) (code string, err error) // of what comes back with the right state
	ended    chan struct{}                             // closed when nothing is served any more; nil before begin

	once   sync.Once
	result chan returned
	mu     sync.Mutex
	seen   int // requests
}

// returned is what the browser brought.
type returned struct {
	code string
	err  error
}

// listen opens the server on a port of 127.0.0.1.
func listen(port int, state string) (*callback, error) {
	if port == AnyPort {
		port = 0
	}
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("the address for the browser to come back to: %w: name another port with callback-port", err)
	}
	c := &callback{redirect: "http://" + l.Addr().String() + callbackPath, state: state, listener: l, result: make(chan returned, 1)}
	c.server = &http.Server{
		Handler:           http.HandlerFunc(c.serve),
		ReadHeaderTimeout: callbackPatience, ReadTimeout: callbackPatience, WriteTimeout: callbackPatience,
		MaxHeaderBytes: maxCallbackLine,
	}
	c.server.SetKeepAlivesEnabled(false)
	return c, nil
}

// begin serves, until close. judge says what is worth what comes back.
func (c *callback) begin(judge func(url.Values) (code string, err error)) {
	c.judge, c.ended = judge, make(chan struct{})
	go func() { // ends with the server
		defer close(c.ended)
		_ = c.server.Serve(c.listener)
	}()
}

// wait waits until the browser has come back, or ctx ends.
func (c *callback) wait(ctx context.Context) (string, error) {
	select {
	case r := <-c.result:
		// The browser gets its page before the server goes.
		last, cancel := context.WithTimeout(context.Background(), callbackPatience)
		defer cancel()
		_ = c.server.Shutdown(last)
		return r.code, r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// close ends what listen and begin began.
func (c *callback) close() {
	_ = c.server.Close()
	_ = c.listener.Close()
	if c.ended != nil {
		<-c.ended
	}
}

func (c *callback) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.seen++
	tooMany := c.seen > maxCallbacks
	c.mu.Unlock()
	if tooMany {
		c.end(returned{err: errors.New("somebody on this machine keeps asking where only the browser should")})
	}
	host, port, _ := net.SplitHostPort(r.Host)
	_, own, _ := net.SplitHostPort(c.listener.Addr().String())
	query, err := url.ParseQuery(r.URL.RawQuery)
	switch {
	case tooMany:
		page(w, http.StatusTooManyRequests, "Too many requests.")
		return
	case (host != "127.0.0.1" && host != "localhost") || port != own, r.URL.Path != callbackPath:
		page(w, http.StatusNotFound, "Nothing is here.")
		return
	case r.Method != http.MethodGet:
		page(w, http.StatusMethodNotAllowed, "This is for a browser to come back to.")
		return
	case err != nil || twice(query) || subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(c.state)) != 1:
		page(w, http.StatusBadRequest, "This is no answer to the login that was begun.")
		return
	}
	// It is used up by the first who knows the state.
	first := false
	c.once.Do(func() { first = true })
	if !first {
		page(w, http.StatusBadRequest, "This login has ended.")
		return
	}
	code, err := c.judge(query)
	if err != nil {
		page(w, http.StatusBadRequest, "The login failed. The terminal says why.")
	} else {
		page(w, http.StatusOK, "You are back. The terminal goes on: this window may be closed.")
	}
	c.result <- returned{code, err}
}

// end ends the login with an error, unless it has ended.
func (c *callback) end(r returned) {
	c.once.Do(func() { c.result <- r })
}

// twice reports whether a parameter is there more than once.
func twice(query url.Values) bool {
	for _, values := range query {
		if len(values) > 1 {
			return true
		}
	}
	return false
}

// page answers with a sentence of our own: nothing of the request is repeated.
func page(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<!doctype html><title>Weir</title><p>"+text+"</p>\n")
}
