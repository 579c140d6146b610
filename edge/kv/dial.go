package kv

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weir-edge/weir/edge"
)

// What sentinels and the members of a cluster say of where others are is what
// others say: it is bounded, and where it leads is looked at like every address
// that an operator names.
const (
	// maxMembers is how many addresses a cluster may have, and maxSlots how many
	// slots it does.
	maxMembers = 1000
	maxSlots   = 16384

	// askSentinels is how often sentinels are asked where the master is, and
	// trustSentinels for how long what they say is taken for true.
	askSentinels   = time.Second
	trustSentinels = 50 * time.Millisecond
)

// door makes the connections to a store. Nothing else does.
type door struct {
	options   *Options
	config    *tls.Config // nil for no TLS
	sentinels *tls.Config // likewise
	dialer    net.Dialer
	budget    budget

	replies allowed // to what the store is asked
	places  allowed // to the question where something is

	mu       sync.Mutex
	members  map[string]bool     // of the cluster: addresses that may be connected to
	loopback string              // the host of members on this machine
	open     map[*checked]string // connections to the master, and where they lead
	asked    []*redis.SentinelClient
	master   string
	when     time.Time     // the sentinels said so
	asking   chan struct{} // holds one
}

func newDoor(o *Options, config, sentinels *tls.Config) *door {
	largest := header + o.Value + 1
	d := &door{
		options: o, config: config, sentinels: sentinels,
		dialer:  net.Dialer{Timeout: o.Dial, ControlContext: mayDial},
		replies: allowed{bulk: largest, bytes: max(largest, fetchBytes) + 1<<20, elements: 1024},
		places:  allowed{bulk: 4 << 10, bytes: 8 << 20, elements: 1 << 18},
		members: make(map[string]bool), open: make(map[*checked]string), asking: make(chan struct{}, 1),
	}
	d.budget.most = int64(largest) + 4<<20
	if o.Mode == Cluster {
		d.replies.redirect = d.redirected
		for _, a := range o.Addresses {
			d.members[a] = true
		}
	}
	return d
}

// mayDial refuses addresses that no store is at, whoever names them.
func mayDial(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return edge.MayDial(at.Addr(), true)
}

// connect connects to an address and checks what comes from there.
func (d *door) connect(ctx context.Context, address string, config *tls.Config, a *allowed, gone func(*checked)) (net.Conn, *checked, error) {
	raw, err := d.dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, nil, err
	}
	c := newChecked(raw, a, &d.budget)
	c.gone = gone
	if config == nil {
		if s, ok := raw.(syscall.Conn); ok {
			return plain{c, s}, c, nil
		}
		return c, c, nil
	}
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(address) // it was dialled
	}
	t := tls.Client(raw, config)
	within, cancel := context.WithTimeout(ctx, d.options.Dial)
	defer cancel()
	if err := t.HandshakeContext(within); err != nil {
		_ = raw.Close() // nothing was said yet
		return nil, nil, err
	}
	c.Conn = t
	return c, c, nil
}

// dial is how the client library connects.
func (d *door) dial(ctx context.Context, _, address string) (net.Conn, error) {
	if d.options.Mode == Sentinel {
		return d.dialMaster(ctx)
	}
	if host, port, err := net.SplitHostPort(address); err == nil && host == "" {
		// The client library takes the host from members that are on this machine.
		d.mu.Lock()
		address = net.JoinHostPort(d.loopback, port)
		d.mu.Unlock()
	}
	conn, _, err := d.connect(ctx, address, d.config, &d.replies, nil)
	return conn, err
}

// ask is how it connects to ask where something is.
func (d *door) ask(ctx context.Context, _, address string) (net.Conn, error) {
	conn, _, err := d.connect(ctx, address, d.config, &d.places, nil)
	return conn, err
}

// askSentinel is how it connects to a sentinel.
func (d *door) askSentinel(ctx context.Context, _, address string) (net.Conn, error) {
	conn, _, err := d.connect(ctx, address, d.sentinels, &d.places, nil)
	return conn, err
}

// common are the options of every client.
func (d *door) common(address string) *redis.Options {
	o := d.options
	return &redis.Options{
		Addr: address, Dialer: d.dial, DB: o.DB, Username: o.User, Password: string(o.Password),
		Protocol: 2, DisableIdentity: true,
		ContextTimeoutEnabled: true, MaxRetries: -1,
		DialTimeout: o.Dial, DialerRetries: 1,
		// Each call has a deadline of its own, which is earlier.
		ReadTimeout: or(o.Read, o.Timeout+slowest), WriteTimeout: or(o.Write, o.Timeout+slowest),
		// A call that finds no connection says so before its deadline says
		// that the store was silent.
		PoolTimeout: o.Timeout * 9 / 10, PoolSize: o.Pool, PipelinePoolSize: -1,
		ConnMaxIdleTime: 5 * time.Minute,
		ReadBufferSize:  4 << 10, WriteBufferSize: 4 << 10,
		// Else the library would ask for the address of the name, and wait.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// client makes the client. It connects to nothing yet. No call is retried by a
// client of one server: who calls has a deadline, and knows better.
func (d *door) client() redis.UniversalClient {
	o := d.options
	switch o.Mode {
	case Cluster:
		c := d.common("")
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: o.Addresses, ClusterSlots: d.slots, DisableRoutingPolicies: true,
			Dialer: c.Dialer, Username: c.Username, Password: c.Password,
			Protocol: c.Protocol, DisableIdentity: true,
			ContextTimeoutEnabled: true, MaxRetries: -1, MaxRedirects: 3,
			MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 8 * time.Millisecond,
			DialTimeout: c.DialTimeout, DialerRetries: 1,
			ReadTimeout: c.ReadTimeout, WriteTimeout: c.WriteTimeout,
			PoolTimeout: c.PoolTimeout, PoolSize: c.PoolSize, PipelinePoolSize: -1,
			ConnMaxIdleTime: c.ConnMaxIdleTime,
			ReadBufferSize:  c.ReadBufferSize, WriteBufferSize: c.WriteBufferSize,
			MaintNotificationsConfig: c.MaintNotificationsConfig,
		})
	case Sentinel:
		return redis.NewClient(d.common(net.JoinHostPort(o.Master, "0"))) // a name for the pool: dial finds the address
	}
	return redis.NewClient(d.common(o.Addresses[0]))
}

// checkAddress refuses what is no host and port.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || len(host) > 255 {
		return badFrame("an address that is none")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return badFrame("an address that is none")
	}
	return nil
}

// redirected notes an address of the cluster that one of its members names.
func (d *door) redirected(address string) error {
	if err := checkAddress(address); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.members[address] && len(d.members) >= maxMembers {
		return badFrame("more than %d addresses of a cluster", maxMembers)
	}
	d.members[address] = true
	return nil
}

// slots finds out which member of the cluster has what.
func (d *door) slots(ctx context.Context) (slots []redis.ClusterSlot, err error) {
	defer func() { // the client library calls this where a panic would end the process
		if r := recover(); r != nil {
			slots, err = nil, badFrame("%v", r)
		}
	}()
	d.mu.Lock()
	var at []string
	for a := range d.members {
		at = append(at, a)
	}
	d.mu.Unlock()
	rand.Shuffle(len(at), func(i, j int) { at[i], at[j] = at[j], at[i] })
	// Those that the operator names come last: the others are nearer to what is
	// true, and these are there when none of the others is.
	at = append(at[:min(len(at), 8)], d.options.Addresses...)
	err = errors.New("no member of the cluster answers")
	for _, a := range at {
		if slots, err = d.slotsOf(ctx, a); err == nil {
			return slots, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// slotsOf asks one member.
func (d *door) slotsOf(ctx context.Context, address string) ([]redis.ClusterSlot, error) {
	o := d.common(address)
	o.Dialer, o.PoolSize, o.PoolTimeout = d.ask, 1, d.options.Dial
	one := redis.NewClient(o)
	defer one.Close()
	within, cancel := context.WithTimeout(ctx, d.options.Dial)
	defer cancel()
	//lint:ignore SA1019 CLUSTER SHARDS is of Redis 7; older ones are served, too
	slots, err := one.ClusterSlots(within).Result()
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(address) // it was dialled
	here, _ := netip.ParseAddr(host)
	members, loopback := make(map[string]bool), ""
	for i := range slots {
		s := &slots[i]
		if s.Start < 0 || s.End < s.Start || s.End >= maxSlots || len(slots) > maxSlots {
			return nil, badFrame("slots that no cluster has")
		}
		for j := range s.Nodes {
			h, p, err := net.SplitHostPort(s.Nodes[j].Addr)
			if err != nil {
				return nil, badFrame("an address that is none")
			}
			// A member that does not know its own name or port, or only knows
			// the one that it has for itself, is where it was asked.
			if there, err := netip.ParseAddr(h); h == "" || err == nil && there.IsLoopback() && !here.IsLoopback() && host != "localhost" {
				h = host
			}
			if p == "0" {
				p = port
			}
			if there, err := netip.ParseAddr(h); err == nil && there.IsLoopback() {
				loopback = h
			}
			a := net.JoinHostPort(h, p)
			if err := checkAddress(a); err != nil {
				return nil, err
			}
			if s.Nodes[j].Addr, members[a] = a, true; len(members) > maxMembers {
				return nil, badFrame("more than %d addresses of a cluster", maxMembers)
			}
		}
	}
	if len(members) == 0 {
		return nil, badFrame("a cluster without members")
	}
	for _, a := range d.options.Addresses {
		members[a] = true
	}
	d.mu.Lock()
	d.members, d.loopback = members, loopback
	d.mu.Unlock()
	return slots, nil
}

// dialMaster connects to the master that the sentinels know.
func (d *door) dialMaster(ctx context.Context) (net.Conn, error) {
	at, err := d.find(ctx)
	if err != nil {
		return nil, err
	}
	conn, c, err := d.connect(ctx, at, d.config, &d.replies, func(c *checked) {
		d.mu.Lock()
		delete(d.open, c)
		d.mu.Unlock()
	})
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.open[c] = at
	d.mu.Unlock()
	return conn, nil
}

// find asks the sentinels where the master is, all of them at once, and
// believes the first that says an address. One asks at a time.
func (d *door) find(ctx context.Context) (string, error) {
	select {
	case d.asking <- struct{}{}:
		defer func() { <-d.asking }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	d.mu.Lock()
	if d.asked == nil {
		for _, a := range d.options.Addresses {
			o := d.common(a)
			o.Dialer, o.DB, o.PoolSize, o.PoolTimeout = d.askSentinel, 0, 2, d.options.Dial
			o.Username, o.Password = d.options.SentinelUser, string(d.options.SentinelPassword)
			d.asked = append(d.asked, redis.NewSentinelClient(o))
		}
	}
	sentinels, master, when := d.asked, d.master, d.when
	d.mu.Unlock()
	if master != "" && time.Since(when) < trustSentinels {
		return master, nil
	}
	type said struct {
		at  string
		err error
	}
	all := make(chan said, len(sentinels))
	for _, s := range sentinels {
		go func() {
			// Who is slower than another goes on: its connection is kept.
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.options.Dial)
			defer cancel()
			at, err := d.masterOf(within, s)
			all <- said{at, err}
		}()
	}
	var errs []error
	for range sentinels {
		var one said
		select {
		case one = <-all:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		if one.err != nil {
			errs = append(errs, one.err)
			continue
		}
		d.mu.Lock()
		d.master, d.when = one.at, time.Now()
		d.mu.Unlock()
		return one.at, nil
	}
	return "", fmt.Errorf("no sentinel knows the master: %w", errors.Join(errs...))
}

// masterOf asks one sentinel.
func (d *door) masterOf(ctx context.Context, s *redis.SentinelClient) (at string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = badFrame("%v", r)
		}
	}()
	words, err := s.GetMasterAddrByName(ctx, d.options.Master).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return "", errors.New("a sentinel knows no master of that name")
	case err != nil:
		return "", err
	case len(words) != 2:
		return "", errReply
	}
	at = net.JoinHostPort(words[0], words[1])
	return at, checkAddress(at)
}

// follow asks the sentinels again and again where the master is, and ends the
// connections to one that is it no longer. It ends with ctx.
func (d *door) follow(ctx context.Context) {
	for pause(ctx, askSentinels) == nil {
		at, err := d.find(ctx)
		if err != nil {
			continue // as long as nobody says otherwise, it is where it was
		}
		d.mu.Lock()
		var old []*checked
		for c, led := range d.open {
			if led != at {
				old = append(old, c)
			}
		}
		d.mu.Unlock()
		for _, c := range old {
			_ = c.Close() // who uses it is told
		}
	}
}

// close ends what the door has opened for itself.
func (d *door) close() {
	d.mu.Lock()
	asked := slices.Clone(d.asked)
	d.mu.Unlock()
	for _, s := range asked {
		_ = s.Close() // nobody asks any more
	}
}
