package door

import (
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// watcher notices clients that leave while their call is under way. The HTTP
// server cannot: it does not read from a connection while a handler runs. One
// goroutine waits on an epoll set that holds every connection once,
// edge-triggered and for the end of the stream alone, so that neither data
// that arrives nor a call costs a system call.
type watcher struct {
	fd   int
	wake int // an eventfd that ends the goroutine

	mu    sync.Mutex
	conns map[uint64]*Conn // by a number that is never used again, as descriptors are
	next  uint64
}

func newWatcher() (*watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &watcher{fd: fd, wake: wake, conns: make(map[uint64]*Conn)}, nil
}

// add watches a connection until remove. What cannot be watched is not.
func (w *watcher) add(c *Conn, under net.Conn) {
	sc, ok := under.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	w.mu.Lock()
	w.next++
	c.watched = w.next
	w.conns[c.watched] = c
	w.mu.Unlock()
	_ = raw.Control(func(fd uintptr) {
		e := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(uint32(c.watched)), Pad: int32(uint32(c.watched >> 32))}
		_ = unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, int(fd), &e)
	})
}

// remove forgets a connection; closing its descriptor takes it out of the set.
func (w *watcher) remove(c *Conn) {
	w.mu.Lock()
	delete(w.conns, c.watched)
	w.mu.Unlock()
}

// run tells connections that their client has left. It ends with close.
func (w *watcher) run() {
	events := make([]unix.EpollEvent, 256)
	for {
		n, err := unix.EpollWait(w.fd, events, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		for _, e := range events[:n] {
			number := uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32
			if number == 0 {
				unix.Close(w.fd)
				unix.Close(w.wake)
				return
			}
			w.mu.Lock()
			c := w.conns[number]
			w.mu.Unlock()
			if c != nil {
				c.left()
			}
		}
	}
}

func (w *watcher) close() {
	_, _ = unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}
