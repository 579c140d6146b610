//go:build unix

package serve

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// A process that stands in for another takes its listening sockets over: the
// one that serves waits on a Unix socket, the new one asks there, gets the
// sockets, and says so once it serves. As both hold the same sockets, no
// connection is in a queue that is thrown away, and none is refused.

// handOverWait bounds how long either side waits for the other.
const handOverWait = time.Minute

// The words of the two.
const (
	wordSockets = 'S' // here are the sockets
	wordServing = 'R' // I serve: leave
)

// predecessor is the process that this one stands in for, while it waits to be
// told that this one serves.
type predecessor struct{ conn *net.UnixConn }

// takeOver asks the process that listens at path for its sockets. Without such
// a process it returns nothing.
func takeOver(path string) (front, admin net.Listener, from *predecessor, err error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, nil, nil, nil
	}
	if err != nil {
		return nil, nil, nil, err
	}
	word, rights := make([]byte, 1), make([]byte, syscall.CmsgSpace(2*4))
	_ = conn.SetDeadline(time.Now().Add(handOverWait))
	n, rn, _, _, err := conn.ReadMsgUnix(word, rights)
	if err == nil && (n != 1 || word[0] != wordSockets) {
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
	return all[0], all[1], &predecessor{conn}, nil
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

// leave tells the process that this one serves.
func (p *predecessor) leave() error {
	defer p.conn.Close()
	_, err := p.conn.Write([]byte{wordServing})
	return err
}

// giveWay waits at path for a process that takes over, and calls left when one
// serves. It returns what ends the waiting.
func (e *Edge) giveWay(path string, left func()) (stop func(), err error) {
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
	e.work.Go(func() { // ends with the listener
		for {
			conn, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			if err := e.handSockets(conn); err != nil {
				e.log.Warn("nobody took over", "error", err)
				continue
			}
			left()
			return
		}
	})
	return func() {
		ln.Close()
		if now, err := os.Lstat(path); err == nil && os.SameFile(now, mine) {
			os.Remove(path)
		}
	}, nil
}

// handSockets gives the sockets to the process at the other end, and waits
// until it serves.
func (e *Edge) handSockets(conn *net.UnixConn) error {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(handOverWait))
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	var fds []int
	for _, ln := range []net.Listener{e.bare, e.adminLn} {
		if ln == nil {
			continue
		}
		f, err := ln.(*net.TCPListener).File()
		if err != nil {
			return err
		}
		// File gives a descriptor that blocks, and shares that with the socket.
		if err := syscall.SetNonblock(int(f.Fd()), true); err != nil {
			return errors.Join(err, f.Close())
		}
		files, fds = append(files, f), append(fds, int(f.Fd()))
	}
	if _, _, err := conn.WriteMsgUnix([]byte{wordSockets}, syscall.UnixRights(fds...), nil); err != nil {
		return err
	}
	word := make([]byte, 1)
	if _, err := conn.Read(word); err != nil {
		return fmt.Errorf("the new process did not come to serve: %w", err)
	}
	if word[0] != wordServing {
		return errors.New("the new process said what is not understood")
	}
	return nil
}
