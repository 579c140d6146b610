package stdio

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// dialWithin bounds the connecting to a socket.
const dialWithin = 5 * time.Second

// Socket is a Starter for a server that runs elsewhere: each connection to the Unix socket
// at this path is an attach to its standard streams, as the sidecar of a pod gives. There
// is one server, so it wants Mode Shared, and Newline, since half a line of an attach before
// may stand in what the server reads.
type Socket string

// Start is Starter.Start.
func (s Socket) Start(ctx context.Context, _ string) (Process, error) {
	d := net.Dialer{Timeout: dialWithin}
	c, err := d.DialContext(ctx, "unix", string(s))
	if err != nil {
		return nil, err
	}
	return &attached{c: c, closed: make(chan struct{})}, nil
}

// attached is a server at the other end of a connection.
type attached struct {
	c      net.Conn
	closed chan struct{} // when the connection is over
	once   sync.Once
}

// attachedIn is the connection as stdin. To close it ends the attach: there is no half of
// one.
type attachedIn struct {
	*net.UnixConn
	a *attached
}

func (i attachedIn) Close() error { i.a.Kill(); return nil }

// attachedOut is the connection as stdout. Its end is that of the attach.
type attachedOut struct{ a *attached }

func (o attachedOut) Read(b []byte) (int, error) {
	n, err := o.a.c.Read(b)
	if err != nil {
		o.a.Kill()
	}
	return n, err
}

func (o attachedOut) Close() error { o.a.Kill(); return nil }

func (a *attached) Stdin() io.WriteCloser { return attachedIn{a.c.(*net.UnixConn), a} }
func (a *attached) Stdout() io.ReadCloser { return attachedOut{a} }
func (a *attached) Stderr() io.ReadCloser { return nil }

// Wait is Process.Wait.
func (a *attached) Wait() Exit {
	<-a.closed
	return Exit{Code: -1}
}

// Terminate is Process.Terminate.
func (a *attached) Terminate() { a.Kill() }

// Kill is Process.Kill: the server lives on, and its next attach finds it as it is.
func (a *attached) Kill() {
	a.once.Do(func() {
		a.c.Close()
		close(a.closed)
	})
}
