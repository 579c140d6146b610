package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Bounds of a dial.
const (
	dialTimeout  = 10 * time.Second // resolution, and all addresses together
	maxAddresses = 64               // of one name; more are refused
	maxTried     = 4                // of them
	ownKept      = 2 * time.Second  // for how long the addresses of this host are remembered
)

// Refusal says why a connection is not made.
type Refusal struct {
	Host   string // in its canonical form, where it has one
	Port   int
	Reason Reason
	What   string // more about it, in words; "" for nothing
	Next   string // what would allow it; "" for nothing
}

func (e *Refusal) Error() string {
	text := "egress to " + net.JoinHostPort(e.Host, fmt.Sprint(e.Port)) + ": " + e.Reason.words()
	if e.What != "" {
		text += ": " + e.What
	}
	if e.Next != "" {
		text += "; " + e.Next
	}
	return text
}

// words say a reason to people.
func (r Reason) words() string {
	return [...]string{
		"allowed", "no destination that can be judged", "the gateway of a container engine is not reached", "the profile does not name the host",
		"the profile does not name the port", "the name stands for no address here", "it stands for a private address, which the profile does not name",
		"it stands for an address that no server reaches", "it stands for an address of this host", "TLS asks for another name than was connected to",
		"no name has this address", "no request with one reading", "the workload has as many connections as it may have", "nobody answers",
	}[r]
}

// Resolver finds the addresses of a name.
type Resolver func(ctx context.Context, name string) ([]netip.Addr, error)

// system asks as this machine does; a name of more than one label without search domains,
// which the dot at its end says. With that the C library does not find it in the file of
// hosts, and Go does: so the C library is asked for what Go does not find.
func system(ctx context.Context, name string) ([]netip.Addr, error) {
	if strings.Contains(name, ".") {
		name += "."
	}
	own := net.Resolver{PreferGo: true}
	addrs, err := own.LookupNetIP(ctx, "ip", name)
	if err != nil && ctx.Err() == nil {
		addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	}
	return addrs, err
}

// own knows the addresses of this host, and the networks of engines on it.
type own struct {
	mu       sync.Mutex
	at       time.Time
	addrs    map[netip.Addr]bool
	nets     []netip.Prefix
	gateways []netip.Addr // of this host at engines' networks
	outward  []netip.Addr // of this host at others, without loopback and link-local ones
}

// judge says whether an address is this host's, or of an engine on it: what; "" for neither.
// Where the addresses cannot be had every address is.
func (o *own) judge(a netip.Addr) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fresh() != nil {
		return "the addresses of this host cannot be had"
	}
	for _, a := range [...]netip.Addr{a.Unmap().WithZone(""), embedded(a)} {
		if o.addrs[a] {
			return "an address of this host"
		}
		for _, p := range o.nets {
			if p.Contains(a) {
				return "an address of the network of a container engine"
			}
		}
	}
	return ""
}

// gateway are the addresses at which containers reach this host: those that it has in
// networks of engines, or else the others that are not loopback.
func (o *own) gateway() ([]netip.Addr, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.fresh(); err != nil {
		return nil, err
	}
	if len(o.gateways) > 0 {
		return slices.Clone(o.gateways), nil
	}
	return slices.Clone(o.outward), nil
}

// fresh has the addresses read again when they are old.
func (o *own) fresh() error {
	if o.addrs != nil && time.Since(o.at) <= ownKept {
		return nil
	}
	err := o.read()
	if err != nil {
		o.addrs = nil
	}
	return err
}

func (o *own) read() error {
	all, err := net.Interfaces()
	if err != nil {
		return err
	}
	o.addrs, o.nets, o.gateways, o.outward, o.at = map[netip.Addr]bool{}, nil, nil, nil, time.Now()
	for _, one := range all {
		addrs, err := one.Addrs()
		if err != nil {
			return err
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue // none of the internet
			}
			at := p.Addr().Unmap()
			o.addrs[at] = true
			switch {
			case ofEngine(one.Name):
				o.nets = append(o.nets, p.Masked())
				if at.Is4() {
					o.gateways = append(o.gateways, at)
				}
			case one.Flags&net.FlagUp != 0 && at.IsGlobalUnicast():
				o.outward = append(o.outward, at)
			}
		}
	}
	return nil
}

// ofEngine reports whether an interface is the bridge of a container engine, by its name.
func ofEngine(name string) bool {
	for _, prefix := range []string{"docker", "br-", "podman", "cni"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// Check judges a host and a port as a connection to it is judged: by the lists, and by every
// address that it stands for now, which it returns; none for a name that stands for none here,
// and is asked of a proxy of this machine. A refusal is a *Refusal.
func (p *Proxy) Check(ctx context.Context, h Host, port int) (Decision, []netip.Addr, error) {
	d := p.rules.Decide(h, port)
	refused := func(r Reason, what, next string) (Decision, []netip.Addr, error) {
		return d, nil, &Refusal{h.String(), port, r, what, next}
	}
	if !d.OK() {
		return refused(d.Reason, "", "")
	}
	if d.Kind == KindGateway {
		return p.checkGateway(d, h, port)
	}
	via, err := p.via(h, port)
	switch {
	case err != nil:
		return refused(Unreachable, errUpstream.Error(), "")
	case via != nil && h.IsAddr():
		return refused(BadTarget, "this machine reaches others by a proxy (HTTPS_PROXY), which is asked for names alone", "connect to its name, or name it in NO_PROXY of the manager")
	}
	addrs := []netip.Addr{h.addr}
	if !h.IsAddr() {
		addrs, err = p.resolve(ctx, h.name)
		switch {
		case via != nil && (err != nil || len(addrs) == 0):
			return d, nil, nil
		case err != nil || len(addrs) == 0:
			return refused(NotResolved, "", "")
		case len(addrs) > maxAddresses:
			return refused(NotResolved, fmt.Sprintf("it has %d addresses, at most %d", len(addrs), maxAddresses), "")
		}
	}
	for i, a := range addrs {
		a = a.Unmap()
		addrs[i] = a
		r, what := p.rules.Address(d, a)
		if r == Allowed {
			if what = p.own.judge(a); what != "" {
				r = OwnAddress
			}
		}
		switch r {
		case Allowed:
		case PrivateAddress:
			return refused(r, fmt.Sprintf("%s is %s", a, what), "add "+netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()).String()+", or its network, to allow_host")
		default:
			return refused(r, fmt.Sprintf("%s is %s", a, what), "")
		}
	}
	return d, addrs, nil
}

// checkGateway is Check of the gateway of a container engine: where containers reach this
// host, at what does not belong to an edge.
func (p *Proxy) checkGateway(d Decision, h Host, port int) (Decision, []netip.Addr, error) {
	refused := func(r Reason, what string) (Decision, []netip.Addr, error) {
		return d, nil, &Refusal{h.String(), port, r, what, ""}
	}
	addrs, err := p.own.gateway()
	if err != nil || len(addrs) == 0 {
		return refused(NotResolved, "this host has no address at which a container would reach it")
	}
	edges, err := p.listens(port)
	switch {
	case err != nil:
		return refused(OwnAddress, "whether an edge listens there cannot be had")
	case edges:
		return refused(OwnAddress, "an edge listens at the port")
	}
	return d, addrs, nil
}

// dial is Proxy.dial for one sandbox or peer, which has half of the places at most.
func (g *Passage) dial(h Host, port int) (net.Conn, Decision, error) {
	defer g.dials.Add(-1)
	if d := g.p.rules.Decide(h, port); g.dials.Add(1) > maxDialsEach && d.OK() {
		return nil, d, &Refusal{Host: h.String(), Port: port, Reason: TooMany, What: fmt.Sprintf("%d connections of one sandbox or peer are being made", maxDialsEach)}
	}
	return g.p.dial(g.life, h, port)
}

// dial connects to a host that is judged, at an address that was judged.
func (p *Proxy) dial(ctx context.Context, h Host, port int) (net.Conn, Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, p.times.dial)
	defer cancel()
	if d := p.rules.Decide(h, port); !d.OK() { // without a wait for a place
		return nil, d, &Refusal{Host: h.String(), Port: port, Reason: d.Reason}
	}
	select {
	case p.dials <- struct{}{}:
		defer func() { <-p.dials }()
	default:
		return nil, Decision{}, &Refusal{Host: h.String(), Port: port, Reason: TooMany, What: fmt.Sprintf("%d connections are being made", maxDials)}
	}
	d, addrs, err := p.Check(ctx, h, port)
	if err != nil {
		return nil, d, err
	}
	if d.Kind != KindGateway {
		via, err := p.via(h, port)
		if err != nil {
			return nil, d, refusalOf(h, port, errUpstream)
		}
		if via != nil {
			c, err := p.through(ctx, via, h, port)
			if err != nil {
				return nil, d, refusalOf(h, port, err)
			}
			return c, d, nil
		}
	}
	addrs = inTurn(addrs)[:min(len(addrs), maxTried)]
	for i, a := range addrs {
		var c net.Conn
		if c, err = p.connect(ctx, netip.AddrPortFrom(a.Unmap(), uint16(port)), len(addrs)-i); err == nil {
			return c, d, nil
		}
	}
	return nil, d, &Refusal{Host: h.String(), Port: port, Reason: Unreachable}
}

// inTurn has addresses of IPv4 and IPv6 take turns, each in their order (RFC 8305 §4): one of the
// two may lead nowhere from here.
func inTurn(addrs []netip.Addr) []netip.Addr {
	seen := map[bool]int{}
	at := map[netip.Addr]int{}
	for _, a := range addrs {
		at[a] = seen[a.Is4()]
		seen[a.Is4()]++
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return at[a] - at[b] })
	return addrs
}

// connect connects to one address, in its share of the time that is left for so many.
func (p *Proxy) connect(ctx context.Context, to netip.AddrPort, left int) (net.Conn, error) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(left))
		defer cancel()
	}
	return p.connector(ctx, to)
}

func connectTCP(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", to.String())
}

// Dial connects to HOST:PORT as a CONNECT out of a sandbox does: for a server that has none,
// since it runs in this process. Errors are a *Refusal.
func (p *Proxy) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	h, port, err := ParseTarget(address, 0)
	if err != nil {
		e := &Refusal{Host: edge.Brief(address), Port: port, Reason: BadTarget, What: err.Error()}
		p.refuse(e)
		return nil, e
	}
	if p.open.Add(1) > maxTunnels {
		p.open.Add(-1)
		e := &Refusal{Host: h.String(), Port: port, Reason: TooMany}
		p.refuse(e)
		return nil, e
	}
	c, d, err := p.dial(ctx, h, port)
	if err != nil {
		p.open.Add(-1)
		var e *Refusal
		if errors.As(err, &e) {
			p.refuse(e)
		}
		return nil, err
	}
	p.allow(h, port, d)
	return &dialled{Conn: c, p: p}, nil
}

// dialled is a connection of Dial's, which counts while it is open.
type dialled struct {
	net.Conn
	p    *Proxy
	once sync.Once
}

// Close is net.Conn.Close.
func (d *dialled) Close() error {
	d.once.Do(func() { d.p.open.Add(-1) })
	return d.Conn.Close()
}
