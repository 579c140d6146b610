//go:build linux

package main

import (
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/edge/sandbox/link"
)

// Where servers find the proxy and the answerer of DNS, on loopback (edge/egress).
const (
	dnsPort   = 53
	proxyPort = 3128
)

// maxAsked is how many queries of DNS may wait for their answers; of more the oldest is
// forgotten, and its program asks again.
const maxAsked = 64

// doors are the sockets by which servers get out: each connection is handed to the manager,
// and each query of DNS is asked there. The helper decides nothing and relays nothing.
type doors struct {
	poll []unix.PollFd // the first is the one for queries

	mu    sync.Mutex
	last  uint32
	asked [maxAsked]asked
}

// asked is a query that waits for its answer.
type asked struct {
	id   uint32
	from unix.Sockaddr
}

// listen opens the doors for ports; nil for none. The proxy and DNS are at 127.0.0.1; the
// ports of hosts are at all addresses, since each name has one of its own.
func listen(ports []int) (*doors, error) {
	if len(ports) == 0 {
		return nil, nil
	}
	d := &doors{}
	loopback, any := [4]byte{127, 0, 0, 1}, [4]byte{}
	if err := d.open(unix.SOCK_DGRAM, dnsPort, loopback); err != nil {
		return nil, err
	}
	own := map[int]bool{dnsPort: true, proxyPort: true}
	for _, port := range ports {
		delete(own, port)
		if err := d.open(unix.SOCK_STREAM, port, any); err != nil {
			return nil, err
		}
	}
	for port := range own {
		if err := d.open(unix.SOCK_STREAM, port, loopback); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *doors) open(kind, port int, at [4]byte) error {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: at})
	}
	if err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, 128)
	}
	if err != nil {
		return fail("port "+strconv.Itoa(port)+" of the sandbox", err)
	}
	d.poll = append(d.poll, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	return nil
}

// admit takes what servers send to the doors, on one thread.
func (h *helper) admit() {
	d := h.doors
	for {
		if _, err := unix.Poll(d.poll, -1); err != nil && err != unix.EINTR {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if d.poll[0].Revents != 0 {
			h.query(int(d.poll[0].Fd))
		}
		for _, one := range d.poll[1:] {
			if one.Revents != 0 {
				h.accept(int(one.Fd))
			}
		}
	}
}

// accept hands one connection over. Where it was meant to go it says itself.
func (h *helper) accept(door int) {
	fd, _, err := unix.Accept4(door, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	switch err {
	case nil:
		h.send(&link.Message{Kind: link.Accepted}, fd)
		_ = unix.Close(fd)
	case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
		time.Sleep(20 * time.Millisecond) // it stays ready until there is room
	}
}

// query asks the manager what one datagram asks.
func (h *helper) query(door int) {
	var b [maxQuery + 1]byte
	n, from, err := unix.Recvfrom(door, b[:], unix.MSG_DONTWAIT)
	if err != nil || n > maxQuery || from == nil {
		return
	}
	d := h.doors
	d.mu.Lock()
	d.last++
	id := d.last
	d.asked[id%maxAsked] = asked{id, from}
	d.mu.Unlock()
	h.send(&link.Message{Kind: link.Query, ID: id, Text: string(b[:n])})
}

// maxQuery bounds a query, in bytes.
const maxQuery = 1232

// answer sends an answer to who asked, unless that was forgotten.
func (d *doors) answer(m *link.Message) {
	d.mu.Lock()
	one := &d.asked[m.ID%maxAsked]
	to := one.from
	if one.id != m.ID {
		to = nil
	}
	*one = asked{}
	d.mu.Unlock()
	if to != nil {
		_ = unix.Sendto(int(d.poll[0].Fd), []byte(m.Text), unix.MSG_DONTWAIT, to)
	}
}
