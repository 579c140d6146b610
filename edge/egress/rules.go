// Package egress lets local servers out to the hosts of their permission profile and to
// nothing else. Rules judge a destination; Proxy serves the connections that come out of the
// sandboxes of one workload: as an HTTP proxy, and for programs that ignore proxies by names
// that an answerer of DNS gives addresses of the sandbox's own loopback.
//
// What is held, and what is not, is in README.md.
package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/idna"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Reason is why a destination is refused. Its text is the value of a label of metrics.
type Reason uint8

// The reasons.
const (
	Allowed        Reason = iota
	BadTarget             // no host or port that can be judged
	Gateway               // a name of the engine's gateway
	UnlistedHost          // the profile does not name the host
	UnlistedPort          // nor the port
	NotResolved           // the name stands for no address
	PrivateAddress        // it stands for a private address that the profile does not name
	NeverAddress          // it stands for an address that nobody reaches
	OwnAddress            // it stands for an address of this host, or a network of an engine on it
	WrongName             // TLS asks for another name, or for none
	UnknownAddress        // an address of the sandbox's that no name was given
	Malformed             // no request that has one reading
	TooMany               // the workload has as many connections as it may
	Unreachable           // allowed, and nobody answers
	reasons
)

func (r Reason) String() string {
	return [...]string{"allowed", "bad_target", "gateway", "host", "port", "not_resolved", "private_address", "never_address", "own_address", "tls_name", "unknown_address", "malformed", "too_many", "unreachable"}[r]
}

// Kind is how a rule names a host.
type Kind uint8

// The kinds.
const (
	KindNone    Kind = iota
	KindName         // exactly this name
	KindSuffix       // .name: it, and what is below it
	KindAddress      // an address or a CIDR
	KindAll          // insecure_allow_all
	KindGateway      // the gateway of a container engine, which was allowed by itself
)

// Decision is what the lists say of a host and a port. Where it is allowed, the addresses
// that the host stands for have still to be judged.
type Decision struct {
	Reason Reason
	Kind   Kind
	Rule   string // the entry that allows it, as the profile has it; "" for none

	// AnyName says that TLS may ask the host for any name: everything is allowed, or it is the
	// gateway.
	AnyName bool
}

// OK reports whether it is allowed.
func (d Decision) OK() bool { return d.Reason == Allowed }

// Rules are those of one profile. They are immutable, and safe for concurrent use.
type Rules struct {
	name     string
	all      bool
	gateway  bool
	names    map[string]string // canonical name → entry
	suffixes map[string]string // what follows the dot → entry
	prefixes map[netip.Prefix]string
	lengths4 []int // of the prefixes, the longest first
	lengths6 []int
	ports    []int // sorted
	anyPort  bool
	open     [65536 / 64]uint64 // the same as ports, to be looked up
}

// webPorts are those of a profile with hosts and without ports.
func webPorts() []int { return []int{80, 443} }

// maxPorts is how many ports the rules may have: at each of them something listens in every
// sandbox.
const maxPorts = 128

// Options are what a workload allows beside its profile.
type Options struct {
	Ports   []int // more of them
	Gateway bool  // the gateway of a container engine, at every port
}

// NewRules makes the rules of a profile. An error names the entry that can never hold.
func NewRules(p *v1beta1.Profile, o Options) (*Rules, error) {
	out := p.Network.Outbound
	if err := network(p.Network); err != nil {
		return nil, err
	}
	r := &Rules{name: p.Name, all: out.InsecureAllowAll, gateway: o.Gateway, names: map[string]string{}, suffixes: map[string]string{}, prefixes: map[netip.Prefix]string{}}
	if r.name == "" {
		r.name = "(unnamed)"
	}
	for i, text := range out.AllowHost {
		if err := r.host(text); err != nil {
			return nil, fmt.Errorf("network.outbound.allow_host[%d]: %q: %w", i, text, err)
		}
	}
	r.ports = slices.Concat(out.AllowPort, o.Ports)
	switch {
	case len(out.AllowPort) == 0 && r.all:
		r.anyPort = true
		r.ports = append(r.ports, webPorts()...) // on which programs are listened to that ignore proxies
	case len(out.AllowPort) == 0 && len(out.AllowHost) > 0:
		r.ports = append(r.ports, webPorts()...)
	}
	slices.Sort(r.ports)
	if r.ports = slices.Compact(r.ports); len(r.ports) > maxPorts {
		return nil, fmt.Errorf("network.outbound.allow_port: %d ports: at most %d", len(r.ports), maxPorts)
	}
	for _, port := range r.ports {
		if port < 1 || port > 65535 {
			return nil, fmt.Errorf("network.outbound.allow_port: %d is no port: 1 to 65535", port)
		}
		r.open[port/64] |= 1 << (port % 64)
	}
	for p := range r.prefixes {
		list := &r.lengths6
		if p.Addr().Is4() {
			list = &r.lengths4
		}
		if !slices.Contains(*list, p.Bits()) {
			*list = append(*list, p.Bits())
		}
	}
	for _, list := range [][]int{r.lengths4, r.lengths6} {
		slices.SortFunc(list, func(a, b int) int { return b - a })
	}
	return r, nil
}

// network judges the network that a profile asks for, which shapes nothing: it must not say
// another thing than what is done.
func network(n v1beta1.ProfileNetwork) error {
	switch n.Mode {
	case "", "bridge", "default": // the usual one
		return nil
	case "none":
		if n.Outbound.InsecureAllowAll || len(n.Outbound.AllowHost) > 0 {
			return fmt.Errorf("network.mode: none, and network.outbound lets the server out: take one out")
		}
		return nil
	}
	return fmt.Errorf("network.mode: %q: a profile says where a server connects to, and not in which network it is: take it out, and choose that with spec.run.network (--network)", edge.Brief(n.Mode))
}

// host takes an entry of the list.
func (r *Rules) host(text string) error {
	if p, err := netip.ParsePrefix(text); err == nil {
		if p != p.Masked() {
			return fmt.Errorf("it has bits behind its length: write %s", p.Masked())
		}
		return r.prefix(p, text)
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return r.prefix(netip.PrefixFrom(a, a.BitLen()), text)
	}
	name, below := strings.CutPrefix(text, ".")
	if strings.ContainsFunc(name, func(r rune) bool { return r >= 0x80 }) {
		ascii, err := idna.Lookup.ToASCII(name) // as programs ask for it
		if err != nil {
			return errAlphabet
		}
		name = ascii
	}
	h, err := Canonical(name)
	switch {
	case err != nil:
		return err
	case h.IsAddr():
		return errNumber
	case isGateway(h.name):
		return fmt.Errorf("the gateway of a container engine is not reached by a list")
	case below:
		r.suffixes[h.name] = text
	default:
		r.names[h.name] = text
	}
	return nil
}

func (r *Rules) prefix(p netip.Prefix, text string) error {
	if p.Addr().Is4In6() || p.Addr().Zone() != "" {
		return errAddress
	}
	if c, what := Classify(p.Addr()); c == Never && (p.IsSingleIP() || p.Bits() >= neverBits(p.Addr())) {
		return fmt.Errorf("it is %s, which no server reaches", what)
	}
	r.prefixes[p] = text
	return nil
}

// Name is the profile's.
func (r *Rules) Name() string { return r.name }

// Ports are those on which programs that ignore proxies are listened to.
func (r *Rules) Ports() []int { return r.ports }

// gateways are names by which engines lead to the host.
func isGateway(name string) bool {
	switch name {
	case "host.docker.internal", "gateway.docker.internal", "host.containers.internal":
		return true
	}
	return false
}

// engineGateway is the address that engines give to their gateway when nobody says another.
var engineGateway = netip.AddrFrom4([4]byte{172, 17, 0, 1})

// Decide judges a host and a port by the lists. It allocates nothing.
func (r *Rules) Decide(h Host, port int) Decision {
	d := r.ByName(h)
	if d.OK() && (port < 1 || port > 65535 || !r.anyPort && d.Kind != KindGateway && r.open[port/64]&(1<<(port%64)) == 0) {
		return Decision{Reason: UnlistedPort}
	}
	d.AnyName = d.OK() && (r.all || d.Kind == KindGateway)
	return d
}

// ByName judges a host alone.
func (r *Rules) ByName(h Host) Decision {
	if isGateway(h.name) || h.addr == engineGateway {
		if r.gateway {
			return Decision{Kind: KindGateway, Rule: "allow_container_gateway"}
		}
		return Decision{Reason: Gateway}
	}
	if h.IsAddr() {
		if rule, ok := r.listed(h.addr); ok {
			return Decision{Kind: KindAddress, Rule: rule}
		}
		if r.all {
			return Decision{Kind: KindAll, Rule: "insecure_allow_all"}
		}
		return Decision{Reason: UnlistedHost}
	}
	if h.name == "" {
		return Decision{Reason: BadTarget}
	}
	if rule, ok := r.names[h.name]; ok {
		return Decision{Kind: KindName, Rule: rule}
	}
	for rest := h.name; len(r.suffixes) > 0; {
		if rule, ok := r.suffixes[rest]; ok {
			return Decision{Kind: KindSuffix, Rule: rule}
		}
		dot := strings.IndexByte(rest, '.')
		if dot < 0 {
			break
		}
		rest = rest[dot+1:]
	}
	if r.all {
		return Decision{Kind: KindAll, Rule: "insecure_allow_all"}
	}
	return Decision{Reason: UnlistedHost}
}

// listed is the entry with an address, as the list has it.
func (r *Rules) listed(a netip.Addr) (string, bool) {
	lengths := r.lengths6
	if a.Is4() {
		lengths = r.lengths4
	}
	for _, n := range lengths {
		p, err := a.Prefix(n)
		if err != nil {
			continue
		}
		if rule, ok := r.prefixes[p]; ok {
			return rule, true
		}
	}
	return "", false
}

// Address judges an address that a host stands for which the lists allow as d says; what says
// in words what is wrong with it. It allocates nothing.
func (r *Rules) Address(d Decision, a netip.Addr) (reason Reason, what string) {
	switch class, what := Classify(a); class {
	case Never:
		return NeverAddress, what
	case Private:
		if d.Kind == KindName || d.Kind == KindAddress {
			return Allowed, ""
		}
		if _, ok := r.listed(a.Unmap()); !ok {
			return PrivateAddress, what
		}
	}
	return Allowed, ""
}
