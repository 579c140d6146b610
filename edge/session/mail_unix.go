//go:build unix

package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/relay"
)

// Processes that stand in for each other (--hand-over) write the same messages to
// each other as replicas do, without a store in between: each of them listens at
// a socket of its own, beside that at which the next one takes over.

const (
	// mailWithin bounds one message on its way, and maxMailConns how many others
	// may be connected.
	mailWithin   = 5 * time.Second
	maxMailConns = 64
)

// mail is how messages come and go between the processes of one place. What is no
// message lies in the memory of the process: it is a store of this edge alone.
type mail struct {
	*kv.MemoryStore
	path string // of the sockets, up to the name of a process
	own  string // this one's
	ln   *net.UnixListener

	mu    sync.Mutex
	out   map[string]*mailConn // by the name of who reads
	in    map[net.Conn]struct{}
	ended bool
	work  sync.WaitGroup
}

// mailConn is a connection to another process. Nothing comes on it but its end.
type mailConn struct {
	net.Conn
	writing sync.Mutex
}

func mailPath(path, node string) string { return path + "." + node }

// OpenMail listens for the messages of other processes. What processes that were
// killed left behind goes.
func (ss *Sessions) OpenMail(path string) error {
	left, _ := filepath.Glob(mailPath(path, strings.Repeat("[0-9a-f]", 16))) // an odd path finds nothing
	for _, one := range left {
		if conn, err := net.DialTimeout("unix", one, time.Second); err == nil {
			conn.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			os.Remove(one)
		}
	}
	own := mailPath(path, ss.o.Relay.Node)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: own, Net: "unix"})
	if err == nil {
		err = os.Chmod(own, 0o600)
	}
	if err != nil {
		if ln != nil {
			ln.Close()
		}
		return fmt.Errorf("--hand-over: %w", err)
	}
	m := &mail{MemoryStore: ss.o.Memory, path: path, own: own, ln: ln, out: make(map[string]*mailConn), in: make(map[net.Conn]struct{})}
	t := ss.share(m, path, relay.NewSigner(ss.o.Relay.Node, nil))
	t.Direct = true
	maps.Copy(t.Handle, ss.mailHandlers(t))
	ss.mail = t
	return nil
}

// ReadMail reads messages until the mail is closed.
func (ss *Sessions) ReadMail() {
	if ss.mail == nil {
		return
	}
	m := ss.mail.Carrier.(*mail)
	m.work.Go(func() {
		for {
			conn, err := m.ln.Accept()
			if err != nil {
				if errors.Is(err, net.ErrClosed) {
					return
				}
				time.Sleep(50 * time.Millisecond) // out of descriptors: that passes
				continue
			}
			if !m.enter(conn) {
				conn.Close()
				continue
			}
			m.work.Go(func() {
				defer edge.Contain(ss.o.Log, "messages")
				defer m.leave(conn)
				for {
					text, err := readFrame(conn, ss.mail.Largest)
					if err != nil {
						return
					}
					ss.mail.Receive(text)
				}
			})
		}
	})
}

// CloseMail ends the mail, and what goes on for other processes.
func (ss *Sessions) CloseMail() {
	if ss.mail == nil {
		return
	}
	m := ss.mail.Carrier.(*mail)
	ss.mail.end()
	m.mu.Lock()
	m.ended = true
	for _, c := range m.out {
		c.Close()
	}
	for c := range m.in {
		c.Close()
	}
	m.mu.Unlock()
	m.ln.Close()
	os.Remove(m.own)
	m.work.Wait()
	ss.mail.Work.Wait()
}

func (m *mail) enter(c net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended || len(m.in) >= maxMailConns {
		return false
	}
	m.in[c] = struct{}{}
	return true
}

func (m *mail) leave(c net.Conn) {
	m.mu.Lock()
	delete(m.in, c)
	m.mu.Unlock()
	c.Close()
}

// to returns the connection to another process, and opens it when there is none.
func (m *mail) to(node string) (*mailConn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.out[node]; c != nil {
		return c, nil
	}
	if m.ended || !relay.IsNode(node) {
		return nil, net.ErrClosed
	}
	conn, err := net.DialTimeout("unix", mailPath(m.path, node), mailWithin)
	if err != nil {
		return nil, err
	}
	c := &mailConn{Conn: conn}
	m.out[node] = c
	m.work.Go(func() { // ends with either process
		_, _ = conn.Read(make([]byte, 1))
		m.drop(node, c)
	})
	return c, nil
}

func (m *mail) drop(node string, c *mailConn) {
	m.mu.Lock()
	if m.out[node] == c {
		delete(m.out, node)
	}
	m.mu.Unlock()
	c.Close()
}

// Post writes to a process of this place.
func (m *mail) Post(_ context.Context, box string, text []byte, _ time.Duration) error {
	node, _ := strings.CutPrefix(box, relay.Box(""))
	c, err := m.to(node)
	if err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(mailWithin))
	if err := writeFrame(c, text); err != nil {
		m.drop(node, c) // it is not whole
		return err
	}
	return nil
}

// Get is that of the memory, but for the question whether a process is there.
func (m *mail) Get(ctx context.Context, key string) ([]byte, error) {
	node, is := strings.CutPrefix(key, relay.AliveKey(""))
	if !is {
		return m.MemoryStore.Get(ctx, key)
	}
	if _, err := m.to(node); err != nil {
		return nil, nil
	}
	return []byte("1"), nil
}

// Away returns false: memory is there.
func (m *mail) Away() bool { return false }

// State returns that of a store that was never away.
func (m *mail) State() kv.State { return kv.State{Ready: true} }
