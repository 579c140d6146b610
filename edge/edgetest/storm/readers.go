package main

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

const (
	eventSize = 8 << 10

	// ownReceive is what this program lets the kernel hold for a client that
	// does not read; the kernel doubles it. What is held there is this
	// program's share and not the edge's.
	ownReceive = 4 << 10

	// cutWithin is how long a client may leave its stream unread.
	cutWithin = 30 * time.Second
)

// runReaders is G08: streams whose clients never read, beside as many whose
// clients do. All of them are GET streams of legacy sessions, each with a
// stream of its own to a backend. A backend has at most 1024 connections, so
// there are two backends, and each streams to one kind of client.
func runReaders(ctx context.Context, s *storm) {
	const every = 500 * time.Millisecond
	hold := s.span(s.length, 60*time.Second, 45*time.Second, "load")
	f := &feeder{every: every, padding: strings.Repeat("x", eventSize-100), quiet: make(chan struct{})}
	var backends []*kit.Backend
	var addrs []string
	for _, name := range []string{healthy, deaf} {
		b := s.newBackend(kit.Legacy, func(b *kit.Backend) { b.Feed, b.Feeds = f.feed, name })
		backends, addrs = append(backends, b), append(addrs, b.Addr)
	}
	e := s.startPlan(ctx, kit.PlanOf(addrs...), "--max-streams", "20000", "--max-sessions", "20000", "--max-sessions-per-principal", "20000")
	const most = 1000
	count := s.size(min(s.count, most), most, 100, "streams of each kind")
	fed := func() (n int64) {
		for _, b := range backends {
			n += b.Counts().Streams
		}
		return n
	}

	// 1. Healthy streams, and what the edge and the kernel hold with them.
	var hear sync.WaitGroup
	clients, err := kit.OpenAll(ctx, e.Addr, count, func(i int) (*kit.Client, error) {
		c, in, err := openStream(ctx, e.Addr, healthy+strconv.Itoa(i), kit.DialOptions{From: i})
		if err == nil {
			hear.Go(func() { f.hear(in, healthy+strconv.Itoa(i)) })
		}
		return c, err
	})
	defer hear.Wait()
	defer func() { kit.CloseAll(clients) }()
	kit.Check(err)
	if !kit.WaitFor(ctx, kit.Patience, func() bool { return fed() == int64(count) }) {
		kit.Fail("%d of %d streams reached the backend", fed(), count)
	}
	hearts := &pulse{}
	others, err := kit.OpenAll(ctx, e.Addr, 10, func(i int) (*kit.Client, error) {
		c, in, err := openStream(ctx, e.Addr, still+strconv.Itoa(i), kit.DialOptions{From: i})
		if err == nil {
			hear.Go(func() { hearts.feel(in) })
		}
		return c, err
	})
	defer func() { kit.CloseAll(others) }()
	kit.Check(err)
	base := settled(ctx, e)
	baseTCP, _, err := kit.KernelTCP()
	kit.Check(err)
	baseOwn := kit.Must(shares(e, backends...))

	// 2. Those that never read.
	opened := time.Now()
	silent, err := kit.OpenAll(ctx, e.Addr, count, func(i int) (*kit.Client, error) {
		c, _, err := openStream(ctx, e.Addr, deaf+strconv.Itoa(i), kit.DialOptions{From: i, Receive: ownReceive, Buffer: 512})
		return c, err
	})
	defer func() { kit.CloseAll(silent) }()
	kit.Check(err)
	s.say("%d + %d streams after %s", count, count, time.Since(opened).Round(time.Millisecond))

	// 3. Look every second until all of them are cut.
	w := newCutWatch(silent)
	mostUser, mostTCP := int64(0), int64(0)
	var mostShare share
	orphans := 0
	for began := time.Now(); time.Since(began) < hold; {
		kit.Pause(ctx, time.Second)
		user := kit.Must(kit.Resident(e.PID()))
		tcp, left, err := kit.KernelTCP()
		kit.Check(err)
		now := kit.Must(shares(e, backends...))
		open := w.look(now.clients, time.Now())
		mostUser, mostTCP, orphans = max(mostUser, user-base), max(mostTCP, tcp-baseTCP), max(orphans, left)
		if now.edge() > mostShare.edge() {
			mostShare = now.share
		}
		s.say("%3.0f s: %d open, user %.1f MiB, kernel %.1f MiB (edge %.1f, backends %.1f, clients %.1f), %d orphans",
			time.Since(began).Seconds(), open, kit.MiB(user-base), kit.MiB(tcp-baseTCP), kit.MiB(now.edge()), kit.MiB(now.backend), kit.MiB(now.client), left)
		if open == 0 && time.Since(began) > 40*time.Second {
			break
		}
	}
	gap := hearts.longest(time.Now())
	close(f.quiet)
	kit.WaitFor(ctx, kit.Patience, func() bool { return f.missing() == 0 })

	// 4. What it comes to. The kernel counts for all sockets together; of each
	// socket it tells what is held, so that the edge's part can be told from
	// that of the clients and the backends, which are this program.
	edgeTCP := mostShare.edge() - baseOwn.edge()
	s.bar(kit.KiB(mostUser, count) <= 64, "64 KiB", "%d readers that never read, events of 8 KiB: user %.1f KiB each", count, kit.KiB(mostUser, count))
	s.bar(kit.KiB(edgeTCP, count) <= 160, "160 KiB", "kernel, the edge's sockets, %.1f KiB each: %.1f towards its client and %.1f towards the backend", kit.KiB(edgeTCP, count), kit.KiB(mostShare.front-baseOwn.front, count), kit.KiB(mostShare.back-baseOwn.back, count))
	s.bar(mostUser+edgeTCP <= 250<<20*int64(count)/1000, fmt.Sprintf("%d MiB", 250*count/1000), "both together %.0f MiB", kit.MiB(mostUser+edgeTCP))
	s.tell("all TCP memory of the machine grew by %.0f MiB: beside the edge's, %.0f MiB of the backends' sockets and %.0f MiB of the clients'", kit.MiB(mostTCP), kit.MiB(mostShare.backend-baseOwn.backend), kit.MiB(mostShare.client-baseOwn.client))
	broken := 0
	f.ends.Range(func(name, why any) bool {
		if broken++; broken == 1 {
			s.note("%s, a client that reads: its stream ended %s", name, why)
		}
		return true
	})
	cut, latest := w.result()
	s.bar(cut == count && latest <= cutWithin+2*time.Second, "30 s, ± 2 s of the sampling", "%d of %d cut, the last %.0f s after nothing more went to it", cut, count, latest.Seconds())
	s.bar(f.missing() == 0, "0 lost", "%d healthy streams: %d events sent, %d lost, %d of the streams ended", count, f.sent.Load(), f.missing(), broken)
	s.bar(gap <= 15*time.Second+5*time.Second, "15 s, + 5 s", "%d streams with nothing on them: the longest time without a heartbeat or another sign of life %.0f s", len(others), gap.Seconds())
	if orphans > 0 {
		left, stay, err := kit.KernelTCP()
		kit.Check(err)
		s.note("after the cut the kernel kept up to %d sockets of the edge that belong to no process, with what their clients had not read; %d and %.0f MiB at the end", orphans, stay, kit.MiB(left-baseTCP))
	}
}

// The names of the clients begin with what they are.
const (
	healthy = "healthy-"
	deaf    = "deaf-"
	still   = "still-" // for whom there is nothing to hear but heartbeats
)

// feeder sends numbered events to streams, and counts what the healthy clients
// get of them.
type feeder struct {
	every   time.Duration
	padding string
	quiet   chan struct{} // closed when nothing more is to be sent to healthy clients

	sent atomic.Int64 // events for healthy clients
	ends sync.Map     // by the name of the client: why its stream ended, and when
	got  sync.Map     // by the name of the client: the number of its last event, when none before it is missing
}

func (f *feeder) feed(out *kit.Feed) {
	if strings.HasPrefix(out.Client, still) {
		<-out.Gone
		return
	}
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	counted := strings.HasPrefix(out.Client, healthy)
	quiet := f.quiet
	if !counted {
		quiet = nil
	}
	for n := 1; ; n++ {
		select {
		case <-out.Gone:
			return
		case <-quiet:
			<-out.Gone
			return
		case <-tick.C:
		}
		if counted {
			f.sent.Add(1)
		}
		if !out.Notify("message", fmt.Sprintf(`"level":"info","data":"%d %s"`, n, f.padding)) {
			return
		}
	}
}

// hear reads a client's stream to its end and counts the events that come in
// their order, each once and whole.
func (f *feeder) hear(in *kit.Events, name string) {
	for last := 0; ; {
		data, err := in.Next()
		if err != nil {
			f.ends.Store(name, fmt.Sprintf("at %s after event %d: %v", time.Now().Format("15:04:05.0"), last, err))
			return
		}
		_, rest, _ := bytes.Cut(data, []byte(`"data":"`))
		number, text, _ := bytes.Cut(rest, []byte{' '})
		if n, err := strconv.Atoi(string(number)); err != nil || n != last+1 || !bytes.HasPrefix(text, []byte(f.padding+`"`)) {
			continue // what is out of order counts as lost
		}
		last++
		f.got.Store(name, last)
	}
}

// missing is how many events were sent to healthy clients and did not come.
func (f *feeder) missing() int64 {
	n := f.sent.Load()
	f.got.Range(func(_, last any) bool {
		n -= int64(last.(int))
		return true
	})
	return n
}

// pulse is the longest time between two heartbeats of any of some streams.
type pulse struct {
	mu   sync.Mutex
	last map[*kit.Events]time.Time
	most time.Duration
}

// feel reads a stream to its end.
func (p *pulse) feel(in *kit.Events) {
	p.beat(in, time.Now())
	for {
		line, err := in.Lines.ReadSlice('\n')
		if err != nil {
			return
		}
		if bytes.HasPrefix(line, []byte(":")) || bytes.HasPrefix(line, []byte("data:")) {
			p.beat(in, time.Now()) // whatever comes is a sign of life
		}
	}
}

func (p *pulse) beat(in *kit.Events, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = map[*kit.Events]time.Time{}
	}
	if last, ok := p.last[in]; ok {
		p.most = max(p.most, at.Sub(last))
	}
	p.last[in] = at
}

// longest counts the time since the last heartbeat, too. A stream that has
// ended has none any more.
func (p *pulse) longest(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := p.most
	for _, last := range p.last {
		most = max(most, now.Sub(last))
	}
	return most
}

// openStream begins a legacy session under a name and opens its stream.
func openStream(ctx context.Context, addr, name string, o kit.DialOptions) (*kit.Client, *kit.Events, error) {
	c, err := kit.Dial(ctx, addr, kit.Legacy, o)
	if err != nil {
		return nil, nil, err
	}
	if err := c.Begin(name); err != nil {
		c.Close()
		return nil, nil, err
	}
	in, err := c.Listen("", "")
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return c, in, nil
}

// share is kernel memory by whose sockets it is held for, in bytes: the edge's
// towards clients and towards backends, and those of both others.
type share struct{ front, back, backend, client int64 }

func (h share) edge() int64 { return h.front + h.back }

// holdings is share with the edge's sockets towards clients, by the client's
// address.
type holdings struct {
	share
	clients map[netip.AddrPort]kit.Socket
}

// shares asks the kernel what it holds for the sockets of the edge, of the
// clients and of the backends.
func shares(e *kit.Edge, backends ...*kit.Backend) (h holdings, err error) {
	door := kit.PortOf(e.Addr)
	ports := map[uint16]bool{door: true}
	behind := map[uint16]bool{}
	for _, b := range backends {
		ports[kit.PortOf(b.Addr)], behind[kit.PortOf(b.Addr)] = true, true
	}
	all, err := kit.Sockets(ports)
	if err != nil {
		return h, err
	}
	h.clients = map[netip.AddrPort]kit.Socket{}
	for _, k := range all {
		switch {
		case k.Local.Port() == door:
			h.front += int64(k.Held)
			h.clients[k.Peer] = k
		case behind[k.Peer.Port()]:
			h.back += int64(k.Held)
		case behind[k.Local.Port()]:
			h.backend += int64(k.Held)
		default:
			h.client += int64(k.Held)
		}
	}
	return h, nil
}

// cutWatch notices when the edge ends connections of clients that cannot
// notice it themselves, because they do not read.
type cutWatch struct {
	all map[netip.AddrPort]*watched
}

type watched struct {
	unsent int
	stuck  time.Time // since when the same is unsent
	cut    time.Time
}

func newCutWatch(clients []*kit.Client) *cutWatch {
	w := &cutWatch{all: map[netip.AddrPort]*watched{}}
	for _, c := range clients {
		w.all[c.Local()] = &watched{stuck: time.Now()}
	}
	return w
}

// look takes the edge's sockets by the address of their client, and returns how
// many of the watched are open still.
func (w *cutWatch) look(now map[netip.AddrPort]kit.Socket, at time.Time) (open int) {
	for from, one := range w.all {
		if !one.cut.IsZero() {
			continue
		}
		k, ok := now[from]
		if !ok || k.State != kit.Established && k.State != kit.CloseWait {
			one.cut = at
			continue
		}
		open++
		if k.Unsent != one.unsent {
			one.unsent, one.stuck = k.Unsent, at
		}
	}
	return open
}

// result is how many were cut, and the longest time that one of them lived
// after the last byte had been taken for it.
func (w *cutWatch) result() (cut int, latest time.Duration) {
	for _, one := range w.all {
		if !one.cut.IsZero() {
			cut++
			latest = max(latest, one.cut.Sub(one.stuck))
		}
	}
	return cut, latest
}
