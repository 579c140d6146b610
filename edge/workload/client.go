package workload

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// API is the version of what the manager and its clients say to each other.
const API = 1

// Bounds of an answer of the manager, in bytes.
const (
	maxAnswer = 64 << 20
	maxEvent  = 1 << 20
)

// Hello is how a manager introduces itself.
type Hello struct {
	API     int       `json:"api"`
	Version string    `json:"version"` // of the program
	PID     int       `json:"pid"`
	Since   time.Time `json:"since"`
	Watcher string    `json:"watcher"` // who starts it again: "watcher", "systemd", "launchd"; "" for nobody
	Admin   string    `json:"admin,omitempty"`
}

// ErrNoManager says that nobody answers on the manager's socket.
var ErrNoManager = errors.New("no manager runs: `weir up --detach` starts one")

// Client asks a manager in another process. It is a Manager.
type Client struct {
	Hello Hello // of the manager

	http http.Client
}

var _ Manager = (*Client)(nil)

// helloWithin is how long a manager may take to introduce itself.
var helloWithin = 5 * time.Second

// Dial finds the manager that answers on a socket. The error is ErrNoManager where nobody
// does, and an *Error where somebody else does. A manager of another version is an *Error, too,
// beside a client that can ask it to end.
func Dial(ctx context.Context, socket string) (*Client, error) {
	if err := ownSocket(socket); err != nil {
		return nil, err
	}
	c := &Client{}
	c.http.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			path, done, err := shortened(socket)
			if err != nil {
				return nil, err
			}
			defer done()
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
		DisableCompression: true, MaxIdleConns: 4, IdleConnTimeout: time.Minute,
	}
	asking, cancel := context.WithTimeout(ctx, helloWithin)
	defer cancel()
	err := c.ask(asking, "GET", "/hello", nil, nil, &c.Hello)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return nil, &Error{Code: CodeFault, Message: fmt.Sprintf("the manager has not answered within %s", helloWithin), Next: "try again; where it stays so, kill its process (`weir up`), and start another one with `weir up --detach`"}
	case over(err):
		return nil, ErrNoManager
	case err != nil:
		return nil, err
	case c.Hello.API != API:
		return c, &Error{Code: CodeFault, Message: fmt.Sprintf("the manager that runs is of another version, %s, which this program does not understand", c.Hello.Version), Next: "weir up --replace"}
	}
	return c, nil
}

// over reports whether an error of a connection says that the manager has ended.
func over(err error) bool {
	return slices.ContainsFunc([]error{syscall.ECONNREFUSED, fs.ErrNotExist, syscall.ECONNRESET, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF}, func(end error) bool { return errors.Is(err, end) })
}

// errEnded is the error of a request whose manager ended: it may have begun with it.
var errEnded = &Error{Code: CodeFault, Message: "the manager ended before it was done", Next: "`weir list` shows what it did"}

// ownSocket says why a socket is none of this user's.
func ownSocket(socket string) error {
	info, err := os.Lstat(socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNoManager
	case err != nil:
		return NoSocket(err)
	case info.Mode().Type() != fs.ModeSocket && onUnix:
		return &Error{Code: CodeFault, Message: socket + " is no socket, so no manager can be asked there", Next: "remove it, and start one with `weir up --detach`"}
	}
	if err := owned(socket, info); err != nil {
		return &Error{Code: CodeFault, Message: "the manager's socket is not yours: " + err.Error()}
	}
	return nil
}

// Close gives up connections that are not used.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Down has the manager stop all processes and end. It returns when it has said so.
func (c *Client) Down(ctx context.Context, told func(Event)) error {
	return c.events(ctx, "POST", "/down", nil, nil, told)
}

// Run is Manager.Run.
func (c *Client) Run(ctx context.Context, manifest []byte, replace bool, wait time.Duration, told func(Event)) error {
	return c.events(ctx, "POST", "/workloads", url.Values{"replace": {strconv.FormatBool(replace)}, "wait": {wait.String()}}, manifest, told)
}

// List is Manager.List.
func (c *Client) List(ctx context.Context) (all []Status, err error) {
	return all, c.ask(ctx, "GET", "/workloads", nil, nil, &all)
}

// Inspect is Manager.Inspect.
func (c *Client) Inspect(ctx context.Context, name string) (*Detail, error) {
	d := new(Detail)
	if err := c.ask(ctx, "GET", at(name), nil, nil, d); err != nil {
		return nil, err
	}
	return d, nil
}

// Start is Manager.Start.
func (c *Client) Start(ctx context.Context, name string, wait time.Duration, told func(Event)) error {
	return c.events(ctx, "POST", at(name)+"/start", url.Values{"wait": {wait.String()}}, nil, told)
}

// Restart is Manager.Restart.
func (c *Client) Restart(ctx context.Context, name string, wait time.Duration, told func(Event)) error {
	return c.events(ctx, "POST", at(name)+"/restart", url.Values{"wait": {wait.String()}}, nil, told)
}

// Stop is Manager.Stop.
func (c *Client) Stop(ctx context.Context, name string, timeout time.Duration, told func(Event)) error {
	return c.events(ctx, "POST", at(name)+"/stop", url.Values{"timeout": {timeout.String()}}, nil, told)
}

// Remove is Manager.Remove.
func (c *Client) Remove(ctx context.Context, name string, o RemoveOptions, told func(Event)) error {
	return c.events(ctx, "DELETE", at(name), url.Values{"force": {strconv.FormatBool(o.Force)}, "keepImage": {strconv.FormatBool(o.KeepImage)}, "keepVolumes": {strconv.FormatBool(o.KeepVolumes)}}, nil, told)
}

// Logs is Manager.Logs.
func (c *Client) Logs(ctx context.Context, name string, o LogOptions, line func(Line)) error {
	q := url.Values{"follow": {strconv.FormatBool(o.Follow)}, "tail": {strconv.Itoa(o.Tail)}, "proxy": {strconv.FormatBool(o.Proxy)}}
	if !o.Since.IsZero() {
		q.Set("since", o.Since.Format(time.RFC3339Nano))
	}
	return c.stream(ctx, "GET", at(name)+"/logs", q, nil, func(text []byte) error {
		var l struct {
			Line
			Error *Error `json:"error"`
		}
		if err := json.Unmarshal(text, &l); err != nil {
			return err
		}
		if l.Error != nil {
			return l.Error
		}
		line(l.Line)
		return nil
	})
}

// PruneLogs is Manager.PruneLogs.
func (c *Client) PruneLogs(ctx context.Context) (files int, bytes int64, err error) {
	var pruned pruned
	err = c.ask(ctx, "POST", "/prune-logs", nil, nil, &pruned)
	return pruned.Files, pruned.Bytes, err
}

// pruned is the answer to PruneLogs.
type pruned struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// Groups is Manager.Groups.
func (c *Client) Groups(ctx context.Context) (all []Group, err error) {
	return all, c.ask(ctx, "GET", "/groups", nil, nil, &all)
}

// CreateGroup is Manager.CreateGroup.
func (c *Client) CreateGroup(ctx context.Context, name string) error {
	return c.ask(ctx, "PUT", "/groups/"+url.PathEscape(name), nil, nil, nil)
}

// RemoveGroup is Manager.RemoveGroup.
func (c *Client) RemoveGroup(ctx context.Context, name string, withWorkloads bool, told func(Event)) error {
	return c.events(ctx, "DELETE", "/groups/"+url.PathEscape(name), url.Values{"withWorkloads": {strconv.FormatBool(withWorkloads)}}, nil, told)
}

// at is the path of a workload.
func at(name string) string { return "/workloads/" + url.PathEscape(name) }

// send asks the manager, and returns its answer, or the error that it answers with.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://manager"+path+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	answer, err := c.http.Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the rest says how it was asked, which is nothing of the user's
		}
		if over(err) && path != "/hello" {
			return nil, errEnded
		}
		return nil, fmt.Errorf("the manager: %w", err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer answer.Body.Close()
	var said struct {
		Error *Error `json:"error"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxEvent)).Decode(&said); err != nil || said.Error == nil {
		return nil, fmt.Errorf("the manager answers with status %d", answer.StatusCode)
	}
	return nil, said.Error
}

// ask asks for one value of JSON, which out takes; nil for nobody.
func (c *Client) ask(ctx context.Context, method, path string, query url.Values, body []byte, out any) error {
	answer, err := c.send(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("the manager: %w", err)
	}
	return nil
}

// events asks for something that takes time, and tells each step. It returns the error of
// the last one.
func (c *Client) events(ctx context.Context, method, path string, query url.Values, body []byte, told func(Event)) error {
	ended := false
	err := c.stream(ctx, method, path, query, body, func(text []byte) error {
		var e Event
		if err := json.Unmarshal(text, &e); err != nil {
			return err
		}
		ended = e.last()
		if told != nil {
			told(e)
		}
		if e.Error != nil {
			return e.Error
		}
		return nil
	})
	if (err == nil || over(err)) && !ended {
		return errEnded
	}
	return err
}

// last reports whether no further event follows.
func (e *Event) last() bool { return e.State != "" || e.Error != nil }

// stream asks for lines of JSON.
func (c *Client) stream(ctx context.Context, method, path string, query url.Values, body []byte, each func(text []byte) error) error {
	answer, err := c.send(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		if err := each(lines.Bytes()); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("the manager: %w", err)
	}
	return nil
}
