package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// The manager answers HTTP and JSON on a Unix socket that its user alone can open, and
// nowhere else. What takes time is answered line by line, an Event each.

// Bounds of what clients may ask.
const (
	maxClients   = 64
	maxFollowers = 48 // of them, who read logs for as long as they like: others have room
	maxAskHeader = 16 << 10
	askWithin    = 30 * time.Second // for a request to arrive
)

// friends takes connections of this user alone, and so many at a time.
type friends struct {
	net.Listener
	room chan struct{}
}

func (f *friends) Accept() (net.Conn, error) {
	for {
		c, err := f.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if !edge.OfThisUser(c) {
			c.Close()
			continue
		}
		f.room <- struct{}{}
		return &friend{Conn: c, leave: sync.OnceFunc(func() { <-f.room })}, nil
	}
}

type friend struct {
	net.Conn
	leave func()
}

func (c *friend) Close() error {
	c.leave()
	return c.Conn.Close()
}

// routes are what can be asked.
func (a *Front) routes() http.Handler {
	k, mux := a.k, http.NewServeMux()
	value := func(pattern string, f func(r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			v, err := f(r)
			if err != nil {
				refuse(w, err)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v)
		})
	}
	events := func(pattern string, f func(r *http.Request, told func(Event)) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s := &stream{w: w}
			if err := f(r, s.event); err != nil {
				s.end(err)
			}
		})
	}
	name := func(r *http.Request) string { return r.PathValue("name") }

	value("GET /hello", func(*http.Request) (any, error) {
		return Hello{API, k.Version, os.Getpid(), k.since, k.watched(), k.Admin}, nil
	})
	value("GET /workloads", func(r *http.Request) (any, error) { return k.List(r.Context()) })
	mux.HandleFunc("POST /workloads", func(w http.ResponseWriter, r *http.Request) {
		c, s := http.NewResponseController(w), &stream{w: w}
		_ = c.SetReadDeadline(time.Now().Add(askWithin))
		manifest, err := io.ReadAll(io.LimitReader(r.Body, MaxManifest+1))
		if err != nil {
			refuse(w, &Error{Code: CodeInvalid, Message: "the manifests did not arrive: " + err.Error()})
			return
		}
		_ = c.SetReadDeadline(time.Time{}) // from here on it tells that the client is gone
		wait, err := duration(r, "wait")
		replace, wrong := boolean(r, "replace")
		if err = errors.Join(err, wrong); err == nil {
			err = k.Run(r.Context(), manifest, replace, wait, s.event)
		}
		if err != nil {
			s.end(err)
		}
	})
	value("GET /workloads/{name}", func(r *http.Request) (any, error) { return k.Inspect(r.Context(), name(r)) })
	events("DELETE /workloads/{name}", func(r *http.Request, told func(Event)) error {
		force, err := boolean(r, "force")
		if err != nil {
			return err
		}
		keep, err := boolean(r, "keepImage")
		if err != nil {
			return err
		}
		volumes, err := boolean(r, "keepVolumes")
		if err != nil {
			return err
		}
		return k.Remove(r.Context(), name(r), RemoveOptions{Force: force, KeepImage: keep, KeepVolumes: volumes}, told)
	})
	timed := func(verb, parameter string, f func(context.Context, string, time.Duration, func(Event)) error) {
		events("POST /workloads/{name}/"+verb, func(r *http.Request, told func(Event)) error {
			d, err := duration(r, parameter)
			if err != nil {
				return err
			}
			return f(r.Context(), name(r), d, told)
		})
	}
	timed("start", "wait", k.Start)
	timed("restart", "wait", k.Restart)
	timed("stop", "timeout", k.Stop)
	mux.HandleFunc("GET /workloads/{name}/logs", a.logs)
	value("POST /prune-logs", func(r *http.Request) (any, error) {
		files, bytes, err := k.PruneLogs(r.Context())
		return pruned{files, bytes}, err
	})
	value("GET /groups", func(r *http.Request) (any, error) { return k.Groups(r.Context()) })
	value("PUT /groups/{name}", func(r *http.Request) (any, error) { return struct{}{}, k.CreateGroup(r.Context(), name(r)) })
	events("DELETE /groups/{name}", func(r *http.Request, told func(Event)) error {
		with, err := boolean(r, "withWorkloads")
		if err != nil {
			return err
		}
		return k.RemoveGroup(r.Context(), name(r), with, told)
	})
	if k.Unlock != nil {
		mux.Handle(UnlockPath, k.Unlock)
	}
	events("POST /down", func(_ *http.Request, told func(Event)) error {
		told(Event{Time: time.Now(), Text: "stopping all workloads"})
		a.mu.Lock()
		again := a.ended
		a.ended = true
		a.mu.Unlock()
		if !again {
			a.down()
		}
		told(Event{Time: time.Now(), Text: "the manager has ended", State: Stopped})
		return nil
	})
	return mux
}

// logs answers with the lines of a log.
func (a *Front) logs(w http.ResponseWriter, r *http.Request) {
	s := &stream{w: w}
	ctx, end := context.WithCancel(r.Context())
	defer end()
	err := func() (err error) {
		var o LogOptions
		if o.Follow, err = boolean(r, "follow"); err != nil {
			return err
		}
		if o.Proxy, err = boolean(r, "proxy"); err != nil {
			return err
		}
		if text := r.URL.Query().Get("tail"); text != "" {
			if o.Tail, err = strconv.Atoi(text); err != nil {
				return senseless("tail", text)
			}
		}
		if text := r.URL.Query().Get("since"); text != "" {
			if o.Since, err = time.Parse(time.RFC3339Nano, text); err != nil {
				return senseless("since", text)
			}
		}
		select {
		case a.followers <- struct{}{}:
			defer func() { <-a.followers }()
		default:
			return &Error{Code: CodeRefused, Message: fmt.Sprintf("%d commands read logs already", maxFollowers), Next: "end one of them"}
		}
		if o.Follow {
			s.begin() // a client that follows wants to know that there is something
		}
		return a.k.Logs(ctx, r.PathValue("name"), o, func(l Line) {
			if ctx.Err() == nil && s.send(l) != nil {
				end() // nobody takes the rest
			}
		})
	}()
	if err != nil {
		s.end(err)
	}
}

// stream answers line by line.
type stream struct {
	w     http.ResponseWriter
	begun bool
	ended bool // the last event was told
}

// slowest is how long a client may take nothing of an answer, but of a log: a pager stands still
// for as long as its user reads.
const slowest = 30 * time.Second

func (s *stream) begin() {
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "application/x-ndjson")
		s.w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(s.w).Flush()
	}
}

// send sends a line. The error says that the client takes nothing more.
func (s *stream) send(v any) error {
	s.begin()
	return cmp.Or(json.NewEncoder(s.w).Encode(v), http.NewResponseController(s.w).Flush())
}

// soon has the client take what is sent next within a time.
func (s *stream) soon() *stream {
	_ = http.NewResponseController(s.w).SetWriteDeadline(time.Now().Add(slowest))
	return s
}

func (s *stream) event(e Event) {
	s.ended = e.last()
	_ = s.soon().send(e) // a client that is gone is seen by the context
}

// end answers with an error, unless the stream has said it already.
func (s *stream) end(err error) {
	switch {
	case !s.begun:
		refuse(s.w, err)
	case !s.ended:
		_ = s.soon().send(struct {
			Time  time.Time `json:"time"`
			Error *Error    `json:"error"`
		}{time.Now(), asError(err)})
	}
}

// asError is an error for the user; nil for none.
func asError(err error) *Error {
	var e *Error
	if err != nil && !errors.As(err, &e) {
		e = &Error{Code: CodeFault, Message: err.Error()}
	}
	return e
}

// refuse answers with an error alone.
func refuse(w http.ResponseWriter, err error) {
	e, status := asError(err), http.StatusInternalServerError
	switch e.Code {
	case CodeInvalid:
		status = http.StatusBadRequest
	case CodeNotFound:
		status = http.StatusNotFound
	case CodeTaken:
		status = http.StatusConflict
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]*Error{"error": e})
}

func senseless(parameter, text string) error {
	return &Error{Code: CodeInvalid, Field: parameter, Message: fmt.Sprintf("%.40q makes no sense for %s", text, parameter)}
}

// duration reads a parameter; 0 without it.
func duration(r *http.Request, parameter string) (time.Duration, error) {
	text := r.URL.Query().Get(parameter)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, senseless(parameter, text)
	}
	return d, nil
}

// boolean reads a parameter; false without it.
func boolean(r *http.Request, parameter string) (bool, error) {
	text := r.URL.Query().Get(parameter)
	if text == "" {
		return false, nil
	}
	yes, err := strconv.ParseBool(text)
	if err != nil {
		return false, senseless(parameter, text)
	}
	return yes, nil
}
