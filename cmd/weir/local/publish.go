package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/door"
)

// Bounds of published ports.
const (
	maxPublished   = 64 // connections of one workload at a time; more are closed
	publishDial    = 10 * time.Second
	publishedClose = 10 * time.Second // in which nothing moves in the other direction, when one has ended
)

// reached is a sandbox or a container, in which a port is connected to.
type reached interface {
	Dial(ctx context.Context, port int) (net.Conn, error)
	HasEnded() bool
}

// ports are those that workloads of this process publish: this process listens, and connects
// inside by way of the helper.
type ports struct {
	mu  sync.Mutex
	all map[string]*port // by their addresses
}

// port is one that is listened on.
type port struct {
	listener net.Listener
	to       *published
	inside   int
	before   []holding // whom it was taken over from, the last one last, until they have ended
}

// holding is who has a port, and where that leads.
type holding struct {
	to     *published
	inside int
}

// published are the ports of one workload, and where its server runs.
type published struct {
	name  string
	ports *ports
	log   *slog.Logger

	room chan struct{} // has one for each connection
	work sync.WaitGroup

	mu     sync.Mutex
	boxes  []reached // the newest last
	conns  map[net.Conn]bool
	closed bool
}

// publishedOf are the ports inside that a workload publishes.
func publishedOf(w *compile.Workload) (all []int) {
	for _, at := range w.Publish {
		all = append(all, int(at.Container))
	}
	return all
}

// TakenError says that somebody else has the address of a port that is to be published.
type TakenError struct {
	Address string
	Holder  string // who has it; "" for nobody knows
}

func (e *TakenError) Error() string {
	who := e.Holder
	if who == "" {
		who = "another program"
	}
	return fmt.Sprintf("the address %s, which is to be published, is that of %s", e.Address, who)
}

// open listens on the ports of a workload. What an earlier start of the same workload listens
// on is taken over. holder names who has an address; "" for none.
func (p *ports) open(w *compile.Workload, log *slog.Logger, holder func(address string) string) (*published, error) {
	if len(w.Publish) == 0 {
		return nil, nil
	}
	one := &published{name: w.Name, ports: p, log: log, room: make(chan struct{}, maxPublished), conns: map[net.Conn]bool{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[string]*port{}
	}
	// 1. All of them can be had, before one is taken over.
	made := map[string]*port{}
	fail := func(err error) (*published, error) {
		for _, m := range made {
			_ = m.listener.Close()
		}
		return nil, err
	}
	for _, at := range w.Publish {
		address := at.Address()
		has := p.all[address]
		switch {
		case has != nil && has.to.name == w.Name:
			continue
		case has != nil:
			return fail(&TakenError{address, "the workload " + has.to.name + ", which publishes it"})
		}
		network := "tcp"
		if at.IP.Is4() { // which 0.0.0.0 alone does not say: with it the system means its addresses of IPv6, too
			network = "tcp4"
		}
		l, err := net.Listen(network, address)
		if err != nil {
			if !door.InUse(err) {
				return fail(fmt.Errorf("publish %s: %w", address, errors.Unwrap(err)))
			}
			return fail(&TakenError{address, holder(address)})
		}
		made[address] = &port{listener: l}
	}
	// 2. They are its own from now on.
	for _, at := range w.Publish {
		address := at.Address()
		if m := made[address]; m != nil {
			p.all[address] = m
			go p.serve(address, m)
		} else {
			of := p.all[address]
			of.before = append(of.before, holding{of.to, of.inside})
		}
		p.all[address].to, p.all[address].inside = one, int(at.Container)
	}
	return one, nil
}

// serve accepts connections until the listener is closed.
func (p *ports) serve(address string, of *port) {
	for {
		c, err := of.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // there is no descriptor left, for now
			time.Sleep(20 * time.Millisecond)
			continue
		}
		p.mu.Lock()
		to, inside := of.to, of.inside
		p.mu.Unlock()
		if !to.take(c) {
			_ = c.Close()
			continue
		}
		select {
		case to.room <- struct{}{}:
			go to.carry(c, inside)
		default:
			to.drop(c)
			to.log.Warn("a connection to a published port is closed: there are as many as may be", "workload", to.name, "address", address)
		}
	}
}

// has notes a sandbox or container that was opened.
func (o *published) has(box reached) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.boxes = append(slices.DeleteFunc(o.boxes, reached.HasEnded), box)
}

// box is the newest one that has not ended; nil for none.
func (o *published) box() reached {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range slices.Backward(o.boxes) {
		if !b.HasEnded() {
			return b
		}
	}
	return nil
}

// take notes a connection, unless the workload has ended.
func (o *published) take(c net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false
	}
	o.conns[c] = true
	o.work.Add(1)
	return true
}

// drop ends a connection that was taken.
func (o *published) drop(c net.Conn) {
	_ = c.Close()
	o.mu.Lock()
	delete(o.conns, c)
	o.mu.Unlock()
	o.work.Done()
}

// carry connects inside, and carries what both ends say.
func (o *published) carry(c net.Conn, port int) {
	defer edge.Contain(o.log, "published port")
	defer func() {
		<-o.room
		o.drop(c)
	}()
	box := o.box()
	if box == nil {
		return // no server runs: as a port that nobody listens on
	}
	ctx, cancel := context.WithTimeout(context.Background(), publishDial)
	to, err := box.Dial(ctx, port)
	cancel()
	if err != nil {
		return
	}
	defer to.Close()
	if !o.take(to) {
		return
	}
	defer o.drop(to)
	ends := make(chan struct{}, 2)
	var moved atomic.Int64
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(counted{to, &moved}, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		ends <- struct{}{}
	}
	go pass(to, c)
	go pass(c, to)
	<-ends
	for {
		before := moved.Load()
		select {
		case <-ends:
			return
		case <-time.After(publishedClose):
		}
		if moved.Load() == before {
			_, _ = c.Close(), to.Close()
			<-ends
			return
		}
	}
}

// counted counts what is written.
type counted struct {
	io.Writer
	n *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n.Add(int64(n))
	return n, err
}

// close ends what the workload publishes, but for what a later start of it has taken over. What
// it has taken over itself is given back to who has not ended: the start has come to nothing.
func (o *published) close() {
	if o == nil {
		return
	}
	p := o.ports
	p.mu.Lock()
	for address, of := range p.all {
		of.before = slices.DeleteFunc(of.before, func(h holding) bool { return h.to == o })
		if of.to != o {
			continue
		}
		if last := len(of.before) - 1; last >= 0 {
			of.to, of.inside, of.before = of.before[last].to, of.before[last].inside, of.before[:last]
			continue
		}
		_ = of.listener.Close()
		delete(p.all, address)
	}
	p.mu.Unlock()
	o.mu.Lock()
	o.closed = true
	for c := range o.conns {
		_ = c.Close()
	}
	o.mu.Unlock()
	o.work.Wait()
}

// holder is the workload whose door has an address; "" for none.
func (d *Doors) holder(address string) string {
	host, number, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, one := range d.open {
		for _, way := range one.plan.Doors {
			at, n, err := net.SplitHostPort(way.Listen)
			if err == nil && n == number && (at == host || anywhere(at) || anywhere(host)) {
				return "the workload " + name + ", whose clients come in there"
			}
		}
	}
	return ""
}

// anywhere reports whether an address is all addresses of this machine.
func anywhere(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}
