package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Alone serves the proxy by itself, at an address: for workloads that have no link to this
// process, such as the pods of a cluster. Who is no peer is answered nothing.
type Alone struct {
	Proxy *Proxy
	Peers *Peers
	Log   *slog.Logger

	mu    sync.Mutex
	peers map[netip.Addr]*peer // those that are connected
}

// peer is who is answered.
type peer struct {
	passage *Passage
	conns   int // of its own; the mutex of the proxy guards it
}

// maxOfPeer is how many connections one peer may have, of those of all.
const maxOfPeer = maxTunnels / 2

// lookEvery is how often connections of what is no peer any longer are looked for.
const lookEvery = time.Second

// Serve answers peers at a listener, which it closes, until ctx ends.
func (a *Alone) Serve(ctx context.Context, ln net.Listener) error {
	a.peers = make(map[netip.Addr]*peer)
	var work sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer func() {
		stop()
		_ = ln.Close()
		a.part(func(netip.Addr) bool { return true })
		work.Wait()
	}()
	looking, end := context.WithCancel(ctx)
	defer end()
	work.Go(func() { a.look(looking) })
	for wait := time.Duration(0); ; {
		c, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = c.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // out of descriptors
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
			continue
		}
		wait = 0
		p := a.enter(c)
		if p == nil {
			_ = c.Close()
			continue
		}
		work.Go(func() {
			defer a.leave(p)
			defer edge.Contain(a.Log, "egress")
			p.passage.ServeProxy(c)
		})
	}
}

// enter counts a connection of a peer; nil for one of who is none, or has as many as may be.
func (a *Alone) enter(c net.Conn) *peer {
	from, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return nil
	}
	addr := from.AddrPort().Addr().Unmap().WithZone("")
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.Peers.has(addr, a.Log) {
		return nil
	}
	p := a.peers[addr]
	if p == nil {
		p = &peer{passage: a.Proxy.Open()}
		a.peers[addr] = p
	}
	if p.conns >= maxOfPeer {
		a.Proxy.refuse(&Refusal{Reason: TooMany})
		return nil
	}
	p.conns++
	return p
}

func (a *Alone) leave(p *peer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p.conns--
}

// look ends, until ctx does, the connections of who is no peer any longer, and forgets peers
// without any.
func (a *Alone) look(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		a.part(func(addr netip.Addr) bool { return a.peers[addr].conns == 0 || !a.Peers.has(addr, a.Log) })
	}
}

// part closes the passages of peers.
func (a *Alone) part(which func(netip.Addr) bool) {
	a.mu.Lock()
	var out []*Passage
	for addr, p := range a.peers {
		if which(addr) {
			delete(a.peers, addr)
			out = append(out, p.passage)
		}
	}
	a.mu.Unlock()
	for _, g := range out {
		g.Close()
	}
}

// Bounds of a file of peers.
const (
	maxPeersFile = 1 << 20
	maxPeers     = 10_000
)

// Peers are the addresses that a proxy by itself answers: those of a file, which is read again
// when it changes, or without one this machine's own. It is safe for concurrent use.
type Peers struct {
	path string

	mu    sync.Mutex
	read  os.FileInfo
	at    time.Time // when it was looked at
	nets  map[netip.Prefix]bool
	wrong string // why the file counts for nothing; "" where it does
}

// LoopbackPeers are those without a file.
func LoopbackPeers() *Peers { return &Peers{} }

// ReadPeers reads a file: an address or a CIDR on each line; what follows a # is not read.
func ReadPeers(path string) (*Peers, error) {
	p := &Peers{path: path}
	p.again()
	if p.wrong != "" {
		return nil, errors.New(p.wrong)
	}
	return p, nil
}

// statEvery is for how long a file of peers counts as it was read.
const statEvery = 200 * time.Millisecond

// has reports whether an address is a peer's. A file that cannot be read has none.
func (p *Peers) has(a netip.Addr, log *slog.Logger) bool {
	if p.path == "" {
		return a.IsLoopback()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.at) > statEvery {
		if was := p.wrong; p.again() && log != nil && p.wrong != was {
			if p.wrong != "" {
				log.Error("the file of peers cannot be read: nobody is answered", "error", p.wrong)
			} else {
				log.Info("the file of peers is read again", "peers", len(p.nets))
			}
		}
	}
	for bits := a.BitLen(); bits >= 0; bits-- {
		if net, err := a.Prefix(bits); err == nil && p.nets[net] {
			return true
		}
	}
	return false
}

// again reads the file where it has changed, and reports whether it did; p.mu is held, or
// nobody else has it yet.
func (p *Peers) again() bool {
	p.at = time.Now()
	now, err := os.Stat(p.path) // through links, which a cluster changes
	if err == nil && p.read != nil && os.SameFile(now, p.read) && now.ModTime().Equal(p.read.ModTime()) && now.Size() == p.read.Size() {
		return false
	}
	p.read, p.nets, p.wrong = now, nil, ""
	if err == nil {
		p.nets, err = parsePeers(p.path)
	}
	if err != nil {
		p.read, p.wrong = nil, err.Error()
	}
	return true
}

func parsePeers(path string) (map[netip.Prefix]bool, error) {
	f, err := edge.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPeersFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxPeersFile {
		return nil, fmt.Errorf("%s: more than %d bytes", path, maxPeersFile)
	}
	nets := make(map[netip.Prefix]bool)
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		net, err := netip.ParsePrefix(line)
		if a, failed := netip.ParseAddr(line); err != nil && failed == nil && a.Zone() == "" {
			net, err = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
		}
		if err != nil || net != net.Masked() || net.Addr().Is4In6() {
			return nil, fmt.Errorf("%s, line %d: no address and no CIDR, such as 10.1.2.3 or 10.1.2.0/24", path, number)
		}
		if nets[net] = true; len(nets) > maxPeers {
			return nil, fmt.Errorf("%s: more than %d peers", path, maxPeers)
		}
	}
	return nets, nil
}
