package escape

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-edge/weir/edge/egress"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Wants are how what comes back of each try is to begin.
type Wants map[string]string

func (w Wants) add(result string, tries ...string) {
	for _, try := range tries {
		w[try] = result
	}
}

// Check holds what came back to it.
func (w Wants) Check(t *testing.T, got map[string]string) {
	t.Helper()
	for try, want := range w {
		if !strings.HasPrefix(got[try], want) || got[try] == "" && want != "" {
			t.Errorf("%s: %q; want %q", try, got[try], want)
		}
	}
}

// Direct are the tries by which all hosts outside are reached without a proxy.
func Direct() (direct []string) {
	for _, a := range farAddresses {
		host, _, _ := strings.Cut(a, "/")
		for _, port := range farPorts {
			direct = append(direct, "tcp:"+net.JoinHostPort(host, strconv.Itoa(port)))
		}
		direct = append(direct, "udp:"+net.JoinHostPort(host, "53"), "udp:"+net.JoinHostPort(host, "443"))
	}
	return append(direct, "tcp:[::ffff:93.184.216.34]:443")
}

// Alive shows that the hosts outside are reached from outside, and counted. asked is Far's.
func Alive(t *testing.T, probe string, asked func() map[string]int) {
	t.Helper()
	text, err := exec.Command(probe, Direct()...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for try, result := range Results(string(text)) {
		if result != "reached" {
			t.Errorf("from outside, %s: %s", try, result)
		}
	}
	if counts := asked(); len(counts) < len(farAddresses)*(len(farPorts)+2) {
		t.Errorf("from outside %v were counted", counts)
	}
}

// Round is one sandbox, what it is let out to, and what comes back inside.
type Round struct {
	Options  egress.Options
	Outbound v1beta1.ProfileOutbound
	Wants    Wants
}

// Isolated lets out to one host at one port: V01 to V20. near is what stands around.
func Isolated(near *Outside) Round {
	r := Round{Outbound: v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test", "meta.test", "both.test", "own.test", "engine.test", ".below.test"}, AllowPort: []int{443}}, Wants: Wants{}}
	direct, want := Direct(), r.Wants.add
	want("refused: ", direct...)     // V01, V02, V03, V06
	want("refused: ", near.All()...) // V07, V08, V11, V12
	want("refused: ", Refused...)    // V05
	want("NameError", "dns:udp,1,evil.test.", "dns:tcp,1,evil.test.", "dns:udp,16,evil.test.", "dns:udp,10,evil.test.", "dns:udp,28,evil.test.", "dns:udp,1,host.docker.internal.")
	for i := range 20 { // V04; the unit tests ask 1,000
		want("NameError", fmt.Sprintf("dns:udp,1,s%d.allowed.test.", i))
	}
	want("Success", "dns:udp,28,allowed.test.")
	want("Success 127.84.0.", "dns:udp,1,allowed.test.", "dns:tcp,1,allowed.test.")
	want("403", "connect:169.254.169.254:443", "connect:[fd00:ec2::254]:443", "connect:100.100.100.200:443", "connect:meta.test:443", // V06
		"connect:10.9.8.7:4484", "connect:10.9.8.7:443", "connect:own.test:443", "connect:[2001:db8:8::7]:443", // V07, V11
		"connect:host.docker.internal:443", "connect:172.17.0.1:443", "connect:engine.test:443", // V08
		"connect:127.0.0.1:443", "connect:localhost:443", "connect:0.0.0.0:443", "connect:[::1]:443", // V09
		"connect:172.17.0.9:443", "connect:10.77.0.5:443", // V10
		"connect:93.184.216.34:443",                          // V13
		"connect:allowed.test:80", "connect:allowed.test:22", // V14
		"connect:allowed.test.evil:443", "connect:evilallowed.test:443", "connect:evil.test:443", "connect:xn--llowed-6fg.test:443", // V17
		"connect:both.test:443", "connect:x.below.test:443", // V18
		"proxy:GET http://evil.test/ HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n") // V19
	want("400 closed", "connect:0:443", "connect:[::ffff:127.0.0.1]:443", "connect:2130706433:443", "connect:0x7f.1:443", "connect:127.1:443", // V09
		"connect:allowed.test:0", "connect:allowed.test:65536", // V14
		"connect:allowed.test%00.evil:443", "connect:a@evil:443", "connect:"+strings.Repeat("a", 254)+":443", // V17
		"proxy:GET http://allowed.test:443/ HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n", // V16
		"proxy:POST http://allowed.test:443/ HTTP/1.1\\r\\nHost: allowed.test:443\\r\\nContent-Length: 4\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n",
		"proxy:GET http://allowed.test:443/ HTTP/1.1\\r\\nHost: allowed.test:443\\r\\nA: b\\r\\n c\\r\\n\\r\\n",
		"proxy:PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n") // V20
	want("", "proxy:\\x05\\x01\\x00")
	want("403 403 403", "proxy:"+strings.Repeat("GET http://evil.test/ HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n", 3))                                                          // V16
	want("refused: ", "tls:proxy,allowed.test:443,evil.test", "tls:proxy,allowed.test:443,", "tls:proxy,allowed.test:443,evil.test,1", "tls:direct,allowed.test:443,evil.test", // V15
		"say:proxy,allowed.test:443,GET / HTTP/1.1\\r\\n\\r\\n", "tls:direct,evil.test:443,evil.test", "say:direct,127.84.9.9:443,x")
	return r
}

// Allowed is what passes where Isolated is held: by the proxy, without it, in pieces, in any
// case.
func Allowed() Wants {
	passes := Wants{}
	for _, try := range []string{"tls:proxy,allowed.test:443,allowed.test", "tls:proxy,ALLOWED.test.:443,allowed.test", "tls:proxy,allowed.test:443,allowed.test,1", "tls:direct,allowed.test:443,allowed.test", "tls:direct,allowed.test:443,allowed.test,7"} {
		passes[try] = "reached"
	}
	return passes
}

// Network is the profile network: all that is public, by the proxy and on the web's ports; no
// private address, nothing of this host, no other way out.
func Network(near *Outside) Round {
	r := Round{Options: egress.Options{Ports: []int{8443}}, Outbound: v1beta1.ProfileOutbound{InsecureAllowAll: true}, Wants: Wants{}}
	direct, want := Direct(), r.Wants.add
	want("refused: ", direct...)
	want("refused: ", near.All()...)
	want("403", "connect:10.77.0.5:443", "connect:private.test:443", "connect:127.0.0.1:4484", "connect:10.9.8.7:4484", "connect:own.test:4484", "connect:172.17.0.1:4484", "connect:host.docker.internal:4484", "connect:169.254.169.254:80", "connect:meta.test:80", "connect:both.test:443")
	want("refused: ", "say:direct,evil.test:8080,GET / HTTP/1.1\\r\\n\\r\\n")
	want("reached", "tls:proxy,evil.test:443,any.test", "tls:direct,evil.test:443,any.test", "tls:direct,evil.test:8443,any.test", "tls:proxy,93.184.216.99:443,any.test")
	want("302 closed", "proxy:GET http://evil.test/ HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n", "proxy:GET http://evil.test:8080/ HTTP/1.1\\r\\nHost: evil.test:8080\\r\\n\\r\\n")
	want(`"HTTP/1.1 302`, "say:direct,allowed.test:80,GET / HTTP/1.1\\r\\n\\r\\n", "say:proxy,allowed.test:22,GET / HTTP/1.1\\r\\n\\r\\n")
	return r
}

// Gateway lets out to the gateway of an engine: this host at every port, less what is of an edge
// (V08, V11). The process of the test listens at 4484, and another program, which says what it
// is told, at 5432.
func Gateway() Round {
	r := Round{Options: egress.Options{Gateway: true}, Outbound: v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test"}, AllowPort: []int{443}}, Wants: Wants{}}
	want := r.Wants.add
	want(`"hello`, "say:proxy,host.docker.internal:5432,hello\\n", "say:proxy,172.17.0.1:5432,hello\\n")
	want("403", "connect:host.docker.internal:4484", "connect:172.17.0.1:4484", "connect:10.9.8.7:5432", "connect:evil.test:443")
	want("refused: ", "tcp:172.17.0.1:5432", "tcp:10.9.8.7:5432")
	return r
}

// Proxy is what lets out in a round, and how many names were looked up for it.
func (r Round) Proxy(t *testing.T) (proxy *egress.Proxy, lookups *atomic.Int64) {
	t.Helper()
	rules, err := egress.NewRules(&v1beta1.Profile{Name: "test", Network: v1beta1.ProfileNetwork{Outbound: r.Outbound}}, r.Options)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string][]string{
		"allowed.test": {"93.184.216.34"}, "evil.test": {"93.184.216.99"}, "meta.test": {"169.254.169.254"}, "both.test": {"93.184.216.34", "127.0.0.1"},
		"private.test": {"10.77.0.5"}, "x.below.test": {"10.77.0.5"}, "own.test": {"10.9.8.7"}, "engine.test": {"172.17.0.9"},
	}
	lookups = &atomic.Int64{}
	return egress.New(egress.Config{Workload: "w", Rules: rules, Log: slog.New(slog.DiscardHandler), Resolve: func(_ context.Context, name string) (all []netip.Addr, err error) {
		lookups.Add(1)
		for _, a := range names[name] {
			all = append(all, netip.MustParseAddr(a))
		}
		return all, nil
	}}), lookups
}
