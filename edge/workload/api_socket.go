package workload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The manager's socket lies in XDG_RUNTIME_DIR, which the system empties when the user has logged
// out, and which a job of cron or a shell of sudo does not have. The manager goes on. So it makes
// its socket anew where that has gone, in the state directory if need be, which always says where
// it is.

// Front answers the clients of a manager.
type Front struct {
	k      *Keeper
	server http.Server
	down   func() // has the process end; returns when what it keeps has ended

	followers chan struct{} // room for them

	mu     sync.Mutex
	ended  bool // it was asked to
	closed bool
	ln     net.Listener
	path   string
	socket os.FileInfo // as it was made
}

// Listen opens the manager's socket, in place of one that nobody answers on. down has the
// process end.
func (k *Keeper) Listen(down func()) (*Front, error) {
	socket := k.Paths.Socket()
	if err := privateDir(k.Paths.Run); err != nil && k.Watcher == "" {
		return nil, NoSocket(err)
	} else if err != nil { // it was there when the watcher began: the user has logged out since
		socket = filepath.Join(k.Paths.State, filepath.Base(socket))
	}
	c, err := Dial(k.life, socket)
	if !errors.Is(err, ErrNoManager) {
		if err == nil {
			c.Close()
			err = ErrManaged
		}
		return nil, fmt.Errorf("%s: %w", socket, err)
	}
	ln, made, err := k.listen(socket)
	if err != nil {
		return nil, err
	}
	a := &Front{k: k, ln: ln, path: socket, socket: made, down: down, followers: make(chan struct{}, maxFollowers)}
	a.server = http.Server{
		Handler: a.routes(), MaxHeaderBytes: maxAskHeader, ReadHeaderTimeout: askWithin, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return k.life },
	}
	return a, nil
}

// listen makes the socket where nobody answers on one, and says where that is.
func (k *Keeper) listen(socket string) (net.Listener, os.FileInfo, error) {
	_ = os.Remove(socket) // what it was of has ended
	path, done, err := shortened(socket)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	// It gets its name when it has its mode, since clients that wait for it refuse another one.
	fresh := filepath.Join(filepath.Dir(path), "manager.new")
	_ = os.Remove(fresh) // of one that was killed just here
	ln, err := net.Listen("unix", fresh)
	if err != nil {
		return nil, nil, fmt.Errorf("the manager's socket: %w", err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false) // by then another manager may have made its own
	if err = os.Chmod(fresh, 0o600); err == nil {  // nobody else comes into its directory before
		err = os.Rename(fresh, path)
	}
	var made os.FileInfo
	if err == nil {
		made, err = os.Lstat(socket)
	}
	if err != nil {
		ln.Close()
		_ = os.Remove(path) // else it would be taken for one that answers
		return nil, nil, fmt.Errorf("the manager's socket: %w", err)
	}
	if err := replaceOwn(k.Paths.at(), []byte(socket+"\n"), false); err != nil { // found where it is looked for first
		k.Log.Warn("where the manager answers is not noted", "file", k.Paths.at(), "error", err)
	}
	return ln, made, nil
}

// Serve answers until Close, on a socket that is made anew where it has gone.
func (a *Front) Serve() error {
	room, ended, over := make(chan struct{}, maxClients), make(chan error), make(chan struct{})
	defer close(over)
	serve := func(ln net.Listener) {
		go func() {
			select {
			case ended <- a.server.Serve(&friends{Listener: ln, room: room}):
			case <-over:
			}
		}()
	}
	serve(a.ln)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			switch {
			case errors.Is(err, http.ErrServerClosed):
				return nil
			case errors.Is(err, net.ErrClosed): // another took its place
			default:
				return err
			}
		case <-tick.C:
			if ln := a.renewed(); ln != nil {
				serve(ln)
			}
		}
	}
}

// renewed returns what listens on a new socket where the one before has gone; nil where it has
// not, and where none can be made now.
func (a *Front) renewed() net.Listener {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := os.Lstat(a.path); !absent(err) || a.closed || a.k.robbed() {
		return nil
	}
	path := a.k.Paths.Socket()
	if a.k.Paths.Run != a.k.Paths.State && privateDir(a.k.Paths.Run) != nil { // the system makes it at the next login
		path = filepath.Join(a.k.Paths.State, filepath.Base(path))
	}
	ln, made, err := a.k.listen(path)
	if err != nil {
		return nil
	}
	a.k.Log.Warn("the manager's socket was removed, and is made anew", "socket", path)
	a.ln.Close()
	a.ln, a.path, a.socket = ln, path, made
	return ln
}

// absent reports whether an error says that there is nothing at a path.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// Close takes no more requests, ends those under way, and removes the socket.
func (a *Front) Close() {
	a.mu.Lock()
	a.closed = true
	if now, err := os.Lstat(a.path); err == nil && os.SameFile(a.socket, now) { // and not another manager's
		_ = os.Remove(a.path)
		_ = os.Remove(a.k.Paths.at())
	}
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if a.server.Shutdown(ctx) != nil {
		_ = a.server.Close()
	}
}

// Find finds the manager of what is kept, also where it was started with another XDG_RUNTIME_DIR.
// Errors are as those of Dial.
func Find(ctx context.Context, paths Paths) (*Client, error) {
	c, err := Dial(ctx, paths.Socket())
	if err == nil || c != nil {
		return c, err
	}
	text, failed := readOwn(paths.at(), maxSocketPath)
	socket := strings.TrimSuffix(string(text), "\n")
	if failed != nil || !filepath.IsAbs(socket) || socket == paths.Socket() {
		return nil, err
	}
	if c, failed := Dial(ctx, socket); failed == nil || c != nil {
		return c, failed
	}
	return nil, err
}

// maxSocketPath bounds the path that the state directory names, in bytes.
const maxSocketPath = 4 << 10
