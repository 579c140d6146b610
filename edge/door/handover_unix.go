//go:build unix

package door

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// A process that stands in for another takes its listening sockets over: the
// one that serves waits on a Unix socket, the new one asks there, gets the
// sockets, and says so once it serves. As both hold the same sockets, no
// connection is in a queue that is thrown away, and none is refused.

// handOverWait bounds how long either side waits for the other.
const handOverWait = time.Minute

// handWithin is how long the handing over of sessions may take.
const handWithin = 20 * time.Second

// The words of the two.
const (
	wordSockets  = 'S' // here are the sockets
	wordSessions = 'H' // I am about to serve: hand me the sessions; the name of the process follows
	wordServing  = 'R' // I serve: leave
)

// handsSessions stands behind the first word of a process that hands over
// sessions, too. One of an earlier version says the word alone, and does not
// read what it does not know.
const handsSessions = '2'

var errNoSocket = errors.New("something that is no socket is there: name a path of its own")

// Predecessor is the process that this one stands in for, while it waits to be
// told that this one serves.
type Predecessor struct {
	conn     *net.UnixConn
	sessions bool // it hands them over
}

// TakeOver asks the process that listens at path for its sockets. Without such
// a process it returns nothing. What is no socket is left alone, and an error.
func TakeOver(path string) (front, admin net.Listener, from *Predecessor, err error) {
	for range 5 { // it may have left before it answered: another is there then, or none
		if front, admin, from, err = takeOver(path); !errors.Is(err, syscall.ECONNRESET) {
			break
		}
	}
	return front, admin, from, err
}

func takeOver(path string) (front, admin net.Listener, from *Predecessor, err error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if info, wrong := os.Stat(path); wrong == nil && info.Mode().Type() != os.ModeSocket {
		err = errNoSocket // which its own would take the place of
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, nil, nil, nil
	}
	if err != nil {
		return nil, nil, nil, err
	}
	word, rights := make([]byte, 2), make([]byte, syscall.CmsgSpace(2*4))
	_ = conn.SetDeadline(time.Now().Add(handOverWait))
	n, rn, _, _, err := conn.ReadMsgUnix(word, rights)
	if err == nil && (n < 1 || word[0] != wordSockets || n == 2 && word[1] != handsSessions) {
		err = errors.New("the process there is no edge of this version")
	}
	var fds []int
	if err == nil {
		fds, err = socketsIn(rights[:rn])
	}
	if err != nil {
		conn.Close()
		return nil, nil, nil, err
	}
	all := make([]net.Listener, 2)
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "listener "+strconv.Itoa(i))
		if i < len(all) && err == nil {
			all[i], err = net.FileListener(file)
		}
		file.Close()
	}
	if err != nil || all[0] == nil {
		conn.Close()
		return nil, nil, nil, errors.Join(err, errors.New("no socket came"))
	}
	return all[0], all[1], &Predecessor{conn, n == 2}, nil
}

// HandsSessions reports whether the process hands over sessions besides its sockets.
func (p *Predecessor) HandsSessions() bool { return p.sessions }

// While returns a context that ends with ctx, and with the process. done ends the watching, and
// has to be called before anything else is asked of the process.
func (p *Predecessor) While(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	_ = p.conn.SetReadDeadline(time.Time{})
	over := make(chan struct{})
	go func() { // ends with the deadline that done sets
		defer close(over)
		defer cancel()
		_, _ = p.conn.Read(make([]byte, 1)) // it says nothing that it is not asked for
	}()
	return ctx, func() {
		_ = p.conn.SetReadDeadline(time.Unix(1, 0))
		<-over
	}
}

// Inherit asks the process for its sessions on behalf of the one of a name. read
// reads them, and says what of them it took.
func (p *Predecessor) Inherit(name string, read func(io.ReadWriter) error) error {
	_ = p.conn.SetDeadline(time.Now().Add(handWithin))
	if _, err := p.conn.Write(append([]byte{wordSessions}, name...)); err != nil {
		return err
	}
	return read(p.conn)
}

// socketsIn returns the descriptors that came with a message.
func socketsIn(rights []byte) ([]int, error) {
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var all []int
	for _, m := range messages {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			return nil, err
		}
		all = append(all, fds...)
	}
	for _, fd := range all {
		syscall.CloseOnExec(fd)
	}
	return all, nil
}

// Leave tells the process that this one serves, if it does; else that one goes on.
func (p *Predecessor) Leave(serves bool) error {
	defer p.conn.Close()
	if !serves {
		return nil
	}
	_ = p.conn.SetDeadline(time.Now().Add(handOverWait))
	_, err := p.conn.Write([]byte{wordServing})
	return err
}

// Succession is how a process gives way to another one.
type Succession struct {
	Path  string                    // of the Unix socket at which the other one asks
	Front *Entrance                 // whose socket is handed over
	Admin net.Listener              // a socket besides the door's; nil for none
	Hand  func(io.ReadWriter) error // hands over the sessions; without them the other process serves all the same
	Back  func()                    // the other process did not come to serve after Hand
	Left  func()                    // it serves
	Work  *sync.WaitGroup           // of what goes on by itself
}

// GiveWay waits for a process that takes over. It returns what ends the waiting.
func (d *Door) GiveWay(s Succession) (stop func(), err error) {
	path := s.Path
	// The name changes hands in one step: there is always somebody behind it.
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+strconv.Itoa(os.Getpid()))
	_ = os.Remove(temporary) // of a process that had this number and was killed
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return func() {}, fmt.Errorf("--hand-over: %w", err)
	}
	ln.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(temporary, 0o600), os.Rename(temporary, path)); err != nil {
		return func() {}, errors.Join(fmt.Errorf("--hand-over: %w", err), ln.Close(), os.Remove(temporary))
	}
	mine, err := os.Lstat(path)
	if err != nil {
		return func() {}, errors.Join(fmt.Errorf("--hand-over: %w", err), ln.Close())
	}
	over := make(chan struct{})
	s.Work.Go(func() { // ends with the listener
		for {
			conn, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			if err := d.handSockets(conn, s, over); err != nil {
				d.o.Log.Warn("nobody took over", "error", err)
				continue
			}
			s.Left()
			return
		}
	})
	return func() { // called once
		close(over)
		ln.Close()
		if now, err := os.Lstat(path); err == nil && os.SameFile(now, mine) {
			os.Remove(path)
		}
	}, nil
}

// handSockets gives the sockets to the process at the other end, and waits
// until it serves. Once this process ends (over) it waits no longer for the first
// word: nobody would serve while the other one waits for its local servers.
func (d *Door) handSockets(conn *net.UnixConn, s Succession, over <-chan struct{}) error {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(handOverWait))
	var fds []int
	defer func() {
		for _, fd := range fds {
			syscall.Close(fd)
		}
	}()
	if s.Front == nil {
		return errNoEntrance
	}
	for _, ln := range []net.Listener{s.Front.bare, s.Admin} {
		if ln == nil {
			continue
		}
		// Not by File, which has the socket block, for whoever shares it.
		raw, err := ln.(*net.TCPListener).SyscallConn()
		if err != nil {
			return err
		}
		var failed error
		err = raw.Control(func(fd uintptr) {
			syscall.ForkLock.RLock()
			defer syscall.ForkLock.RUnlock()
			one, err := syscall.Dup(int(fd))
			if failed = err; err == nil {
				syscall.CloseOnExec(one)
				fds = append(fds, one)
			}
		})
		if err := errors.Join(err, failed); err != nil {
			return err
		}
	}
	if _, _, err := conn.WriteMsgUnix([]byte{wordSockets, handsSessions}, syscall.UnixRights(fds...), nil); err != nil {
		return err
	}
	heard := make(chan struct{})
	hear := sync.OnceFunc(func() { close(heard) })
	defer hear()
	go func() { // ends with the first word, or with the waiting
		select {
		case <-over:
			_ = conn.SetReadDeadline(time.Unix(1, 0))
		case <-heard:
		}
	}()
	asked := false
	for {
		word := make([]byte, 1)
		_, err := conn.Read(word)
		hear()
		switch {
		case err == nil && word[0] == wordServing:
			return nil
		case err == nil && word[0] == wordSessions && !asked:
			asked = true
			// From here on the new process takes connections, and this one serves
			// those that it has.
			d.Pause()
			_ = conn.SetDeadline(time.Now().Add(handWithin))
			if err := s.Hand(conn); err != nil {
				d.o.Log.Warn("sessions were not handed over: clients have to begin new ones", "error", err)
			}
			_ = conn.SetDeadline(time.Now().Add(handOverWait))
			continue
		case err != nil:
			err = fmt.Errorf("the new process did not come to serve: %w", err)
		default:
			err = errors.New("the new process said what is not understood")
		}
		if asked {
			s.Back()
			d.Resume()
		}
		return err
	}
}
