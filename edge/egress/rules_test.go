package egress

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// profile is one with what it lets out.
func profile(out v1beta1.ProfileOutbound) *v1beta1.Profile {
	return &v1beta1.Profile{Name: "test", Network: v1beta1.ProfileNetwork{Outbound: out}}
}

func rules(t testing.TB, o Options, out v1beta1.ProfileOutbound) *Rules {
	t.Helper()
	r, err := NewRules(profile(out), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCanonical reads hosts as clients write them (V09, V17). An empty want is an error.
func TestCanonical(t *testing.T) {
	label63, label64 := strings.Repeat("a", 63), strings.Repeat("a", 64)
	name253 := strings.Repeat(label63+".", 3) + strings.Repeat("b", 61)
	for text, want := range map[string]string{
		"allowed.test":             "allowed.test",
		"ALLOWED.test.":            "allowed.test",
		"allowed.test.":            "allowed.test",
		"allowed.test..":           "",
		".allowed.test":            "",
		"allowed..test":            "",
		"allowed.test.evil":        "allowed.test.evil",
		"evilallowed.test":         "evilallowed.test",
		"allowed.test%00.evil":     "",
		"allowed.test\x00.evil":    "",
		"allowed.test\n":           "",
		"allowed.test ":            "",
		" allowed.test":            "",
		"a@evil":                   "",
		"allowed.test/":            "",
		"allowed.test?x":           "",
		"allowed.test#x":           "",
		`allowed.test\evil`:        "",
		"аllowed.test":             "", // a Cyrillic а
		"allowed。test":             "", // an ideographic full stop
		"ａllowed.test":             "", // a full-width a
		"ßtest":                    "",
		"xn--llowed-6fg.test":      "xn--llowed-6fg.test",
		"_dmarc.allowed.test":      "",
		"a-b.test":                 "a-b.test",
		"*.allowed.test":           "",
		"localhost":                "localhost",
		"LOCALHOST.":               "localhost",
		"":                         "",
		".":                        "",
		label63 + ".test":          label63 + ".test",
		label64 + ".test":          "",
		name253:                    name253,
		name253 + ".":              name253,
		name253 + "b":              "",
		strings.Repeat("a.", 127):  strings.Repeat("a.", 126) + "a",
		strings.Repeat("a.", 2000): "",
		"127.0.0.1":                "127.0.0.1",
		"127.0.0.1.":               "",
		"0":                        "",
		"0.0.0.0":                  "0.0.0.0",
		"2130706433":               "",
		"0x7f.1":                   "",
		"0x7f000001":               "",
		"0X7F.0.0.0x1":             "",
		"127.1":                    "",
		"127.0.1":                  "",
		"127.0.0.01":               "",
		"0177.0.0.1":               "",
		"017700000001":             "",
		"256.1.1.1":                "",
		"1.2.3.4.5":                "",
		"1.2.3":                    "",
		"host.1":                   "",
		"host.0x":                  "",
		"host.0x1g":                "host.0x1g",
		"1.2.3.a":                  "1.2.3.a",
		"::1":                      "::1",
		"2001:db8::1":              "2001:db8::1",
		"2001:DB8::1":              "", // RFC 5952 §4.3
		"2001:0db8::1":             "",
		"2001:db8:0:0:0:0:0:1":     "",
		"::ffff:127.0.0.1":         "",
		"::ffff:7f00:1":            "",
		"fe80::1%lo":               "",
		"1:2:3":                    "",
		"[::1]":                    "",
	} {
		h, err := Canonical(text)
		switch {
		case (err == nil) != (want != ""):
			t.Errorf("%q: %q, %v; want %q", text, h, err, want)
		case err == nil && h.String() != want:
			t.Errorf("%q: %q; want %q", text, h, want)
		case err != nil && len(text) > 3 && strings.Contains(err.Error(), text):
			t.Errorf("%q: the error repeats it: %v", text, err)
		}
	}
}

// TestParseTarget reads what stands behind CONNECT (V14).
func TestParseTarget(t *testing.T) {
	for text, want := range map[string]string{
		"allowed.test:443":          "allowed.test 443",
		"allowed.test":              "",
		"allowed.test:":             "",
		"allowed.test:0":            "",
		"allowed.test:65535":        "allowed.test 65535",
		"allowed.test:65536":        "",
		"allowed.test:0443":         "",
		"allowed.test:+443":         "",
		"allowed.test:443 ":         "",
		"allowed.test:443:443":      "",
		"allowed.test:443@evil":     "",
		"user@allowed.test:443":     "",
		"allowed.test:443@evil:443": "",
		"[::1]:443":                 "::1 443",
		"[::1]":                     "",
		"[::1]443":                  "",
		"::1:443":                   "",
		"[127.0.0.1]:443":           "",
		"[allowed.test]:443":        "",
		"[::ffff:127.0.0.1]:443":    "",
		"[::1":                      "",
		":443":                      "",
		"[]:443":                    "",
	} {
		h, port, err := ParseTarget(text, 0)
		if errors.Is(err, errUser) != strings.Contains(text, "@") {
			t.Errorf("%s: %v", text, err)
		}
		got := ""
		if err == nil {
			got = h.String() + " " + strings.TrimPrefix(netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(port)).String(), "0.0.0.0:")
		}
		if got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

// TestDecide judges hosts and ports by lists: both must allow.
func TestDecide(t *testing.T) {
	listed := v1beta1.ProfileOutbound{
		AllowHost: []string{"allowed.test", ".below.test", "UPPER.test.", "93.184.216.34", "10.1.0.0/16", "10.1.2.0/24", "2001:db8:1::/48", "2606:2800::1"},
		AllowPort: []int{443, 8443},
	}
	noPorts := v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test"}}
	all := v1beta1.ProfileOutbound{InsecureAllowAll: true}
	allNamed := v1beta1.ProfileOutbound{InsecureAllowAll: true, AllowHost: []string{"allowed.test", ".below.test", "10.1.0.0/16"}}
	allPorts := v1beta1.ProfileOutbound{InsecureAllowAll: true, AllowPort: []int{443}}
	onlyPorts := v1beta1.ProfileOutbound{AllowPort: []int{443}}
	for _, c := range []struct {
		out    v1beta1.ProfileOutbound
		o      Options
		target string
		want   string // kind and rule, or the reason
	}{
		{listed, Options{}, "allowed.test:443", "name allowed.test"},
		{listed, Options{}, "ALLOWED.test.:443", "name allowed.test"},
		{listed, Options{}, "upper.test:443", "name UPPER.test."},
		{listed, Options{}, "allowed.test:8443", "name allowed.test"},
		{listed, Options{}, "allowed.test:80", "port"},
		{listed, Options{}, "allowed.test:22", "port"},
		{listed, Options{}, "x.allowed.test:443", "host"},
		{listed, Options{}, "evilallowed.test:443", "host"},
		{listed, Options{}, "allowed.test.evil:443", "host"},
		{listed, Options{}, "test:443", "host"},
		{listed, Options{}, "evil.test:80", "host"},
		{listed, Options{}, "below.test:443", "suffix .below.test"},
		{listed, Options{}, "a.below.test:443", "suffix .below.test"},
		{listed, Options{}, "a.b.c.below.test:443", "suffix .below.test"},
		{listed, Options{}, "evilbelow.test:443", "host"},
		{listed, Options{}, "below.test.evil:443", "host"},
		{listed, Options{}, "a.below.test:80", "port"},
		{listed, Options{}, "93.184.216.34:443", "address 93.184.216.34"},
		{listed, Options{}, "93.184.216.35:443", "host"},
		{listed, Options{}, "93.184.216.34:80", "port"},
		{listed, Options{}, "10.1.2.3:443", "address 10.1.2.0/24"}, // the longest
		{listed, Options{}, "10.1.3.3:443", "address 10.1.0.0/16"},
		{listed, Options{}, "10.2.0.1:443", "host"},
		{listed, Options{}, "[2001:db8:1::5]:443", "address 2001:db8:1::/48"},
		{listed, Options{}, "[2001:db8:2::5]:443", "host"},
		{listed, Options{}, "[2606:2800::1]:443", "address 2606:2800::1"},
		{listed, Options{}, "host.docker.internal:443", "gateway"},
		{listed, Options{}, "HOST.docker.internal.:443", "gateway"},
		{listed, Options{}, "gateway.docker.internal:443", "gateway"},
		{listed, Options{}, "host.containers.internal:443", "gateway"},
		{listed, Options{}, "172.17.0.1:443", "gateway"},
		{listed, Options{Gateway: true}, "host.docker.internal:1", "gateway-by-option allow_container_gateway"},
		{listed, Options{Gateway: true}, "172.17.0.1:65535", "gateway-by-option allow_container_gateway"},
		{listed, Options{Gateway: true}, "evil.test:443", "host"},
		{listed, Options{Ports: []int{22}}, "allowed.test:22", "name allowed.test"},
		{listed, Options{Ports: []int{22}}, "allowed.test:80", "port"},
		{noPorts, Options{}, "allowed.test:80", "name allowed.test"},
		{noPorts, Options{}, "allowed.test:443", "name allowed.test"},
		{noPorts, Options{}, "allowed.test:8080", "port"},
		{noPorts, Options{Ports: []int{8080}}, "allowed.test:8080", "name allowed.test"},
		{noPorts, Options{Ports: []int{8080}}, "allowed.test:80", "name allowed.test"},
		{all, Options{}, "evil.test:1", "all insecure_allow_all"},
		{all, Options{}, "evil.test:65535", "all insecure_allow_all"},
		{all, Options{}, "8.8.8.8:53", "all insecure_allow_all"},
		{all, Options{}, "host.docker.internal:80", "gateway"},
		{all, Options{}, "172.17.0.1:80", "gateway"},
		{allNamed, Options{}, "allowed.test:22", "name allowed.test"},
		{allNamed, Options{}, "a.below.test:22", "suffix .below.test"},
		{allNamed, Options{}, "10.1.2.3:5432", "address 10.1.0.0/16"},
		{allNamed, Options{Ports: []int{22}}, "allowed.test:23", "name allowed.test"},
		{allNamed, Options{}, "evil.test:22", "all insecure_allow_all"},
		{allNamed, Options{}, "host.docker.internal:80", "gateway"},
		{allPorts, Options{}, "evil.test:443", "all insecure_allow_all"},
		{allPorts, Options{}, "evil.test:80", "port"},
		{onlyPorts, Options{}, "allowed.test:443", "host"},
		{v1beta1.ProfileOutbound{}, Options{}, "allowed.test:443", "host"},
		{v1beta1.ProfileOutbound{}, Options{Ports: []int{443}}, "allowed.test:443", "host"},
	} {
		h, port, err := ParseTarget(c.target, 0)
		if err != nil {
			t.Fatalf("%s: %v", c.target, err)
		}
		d := rules(t, c.o, c.out).Decide(h, port)
		got := d.Reason.String()
		if d.OK() {
			got = [...]string{"none", "name", "suffix", "address", "all", "gateway-by-option"}[d.Kind] + " " + d.Rule
		}
		if any := d.OK() && (c.out.InsecureAllowAll || d.Kind == KindGateway); d.AnyName != any {
			t.Errorf("%s: asked for any name: %v; want %v (%+v %+v)", c.target, d.AnyName, any, c.out, c.o)
		}
		if got != c.want {
			t.Errorf("%s: %s; want %s (%+v %+v)", c.target, got, c.want, c.out, c.o)
		}
	}
	if d := rules(t, Options{}, all).Decide(Host{}, 443); d.Reason != BadTarget {
		t.Errorf("no host: %+v", d)
	}
	for _, port := range []int{-1, 0, 65536, 1 << 20} {
		if rules(t, Options{Gateway: true}, all).Decide(Host{name: "host.docker.internal"}, port).OK() || rules(t, Options{}, all).Decide(Host{name: "a"}, port).OK() {
			t.Errorf("port %d is allowed", port)
		}
	}
}

// TestAddress judges what a host stands for (V06, V18): by which kind of rule each address
// may be reached, of name, suffix, CIDR and insecure_allow_all. "-" is by none.
func TestAddress(t *testing.T) {
	r := rules(t, Options{}, v1beta1.ProfileOutbound{
		InsecureAllowAll: true, AllowHost: []string{"192.168.7.0/24", "64:ff9b::/96", "168.0.0.0/7", "fd12::/16", "0.0.0.0/0", "::/0"},
	})
	bare := rules(t, Options{}, v1beta1.ProfileOutbound{InsecureAllowAll: true})
	for text, want := range map[string]string{
		"93.184.216.34": "nsca", "8.8.8.8": "nsca", "2606:2800::1": "nsca",
		"10.0.0.1": "nc", "10.255.255.255": "nc", "172.16.0.1": "nc", "172.31.255.255": "nc", "172.15.0.1": "nsca", "172.32.0.1": "nsca",
		"192.168.7.1": "nc", "100.64.0.1": "nc", "100.127.255.255": "nc", "100.63.0.1": "nsca", "100.128.0.1": "nsca",
		"198.18.0.1": "nc", "192.0.2.1": "nc", "203.0.113.5": "nc", "198.51.100.1": "nc",
		"fd12:3456::1": "nc", "fc00::1": "nc", "fdff::1": "nc", "2001:db8::1": "nc",
		"127.0.0.1": "-", "127.255.255.255": "-", "0.0.0.0": "-", "0.1.2.3": "-", "::": "-", "::1": "-",
		"169.254.169.254": "-", "169.254.0.1": "-", "100.100.100.200": "-", "168.63.129.16": "-", "192.0.0.192": "-",
		"fd00:ec2::254": "-", "fd20:ce::254": "-", "fe80::1": "-", "febf::1": "-", "fec0::1": "-",
		"224.0.0.1": "-", "239.255.255.255": "-", "240.0.0.1": "-", "255.255.255.255": "-", "ff02::1": "-",
		"172.17.0.1": "-",
		// An address that stands for another is judged as that.
		"::ffff:127.0.0.1": "-", "::ffff:169.254.169.254": "-", "::ffff:93.184.216.34": "nsca", "::ffff:10.0.0.1": "nc",
		"64:ff9b::7f00:1": "-", "64:ff9b::a9fe:a9fe": "-", "64:ff9b::5db8:d822": "nsca", "64:ff9b::a00:1": "nc",
		"64:ff9b:1::a9fe:a9fe": "-", "64:ff9b:1::1": "-",
		"2002:7f00:1::1": "-", "2002:a9fe:a9fe::1": "-", "2002:a00:1::1": "nc", "2002:5db8:d822::1": "nc",
		"2606:2800::5efe:127.0.0.1": "-", "2606:2800::200:5efe:a9fe:a9fe": "-", "2606:2800::5efe:10.0.0.1": "nc",
		"2001::1": "-", "::127.0.0.1": "-", "::93.184.216.34": "-", "4000::1": "-", "100::1": "-",
	} {
		a := netip.MustParseAddr(text)
		got := ""
		for i, k := range []Kind{KindName, KindSuffix, KindAddress, KindAll} {
			if reason, _ := bare.Address(Decision{Kind: k}, a); reason == Allowed {
				got += string("nsca"[i])
			}
		}
		if got == "" {
			got = "-"
		}
		if got != want {
			t.Errorf("%s: %s; want %s", text, got, want)
		}
		// A CIDR beside the rule lets private addresses through, and no others.
		reason, _ := r.Address(Decision{Kind: KindSuffix}, a)
		if (reason == Allowed) != (want != "-") {
			t.Errorf("%s beside a CIDR: %s; want %s", text, reason, want)
		}
	}
	for _, a := range []netip.Addr{{}, netip.MustParseAddr("fe80::1%lo"), netip.MustParseAddr("2606:2800::1%lo")} {
		if reason, _ := bare.Address(Decision{Kind: KindName}, a); reason != NeverAddress {
			t.Errorf("%v: %v", a, reason)
		}
	}
}

// TestNewRules refuses entries that could never hold.
func TestNewRules(t *testing.T) {
	many := make([]int, maxPorts+1)
	for i := range many {
		many[i] = 1000 + i
	}
	for _, c := range []struct {
		out  v1beta1.ProfileOutbound
		want string
	}{
		{v1beta1.ProfileOutbound{AllowHost: []string{"a.test", "127.1"}}, `allow_host[1]: "127.1"`},
		{v1beta1.ProfileOutbound{AllowHost: []string{"127.0.0.1"}}, "a loopback address"},
		{v1beta1.ProfileOutbound{AllowHost: []string{"169.254.169.254"}}, "a cloud metadata address"},
		{v1beta1.ProfileOutbound{AllowHost: []string{"127.0.0.0/8"}}, "a loopback address"},
		{v1beta1.ProfileOutbound{AllowHost: []string{"169.254.169.0/24"}}, "a link-local address"},
		{v1beta1.ProfileOutbound{AllowHost: []string{"fe80::/10"}}, "a link-local address"},
		{v1beta1.ProfileOutbound{AllowHost: []string{"10.1.2.3/8"}}, "write 10.0.0.0/8"},
		{v1beta1.ProfileOutbound{AllowHost: []string{"::ffff:1.2.3.4"}}, "usual form"},
		{v1beta1.ProfileOutbound{AllowHost: []string{"::ffff:1.2.3.0/120"}}, "usual form"},
		{v1beta1.ProfileOutbound{AllowHost: []string{"fe80::1%lo"}}, "allow_host[0]"},
		{v1beta1.ProfileOutbound{AllowHost: []string{"host.docker.internal"}}, "the gateway"},
		{v1beta1.ProfileOutbound{AllowHost: []string{"a@b"}}, "allow_host[0]"},
		{v1beta1.ProfileOutbound{AllowHost: []string{"*.test"}}, "allow_host[0]"},
		{v1beta1.ProfileOutbound{AllowPort: []int{0}, AllowHost: []string{"a.test"}}, "0 is no port"},
		{v1beta1.ProfileOutbound{AllowPort: []int{65536}, AllowHost: []string{"a.test"}}, "65536 is no port"},
		{v1beta1.ProfileOutbound{AllowPort: many, AllowHost: []string{"a.test"}}, "129 ports: at most 128"},
	} {
		if _, err := NewRules(profile(c.out), Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want %s", c.out, err, c.want)
		}
	}
	// Some of these are reached.
	for _, wide := range []string{"0.0.0.0/0", "::/0", "160.0.0.0/3", "172.17.0.0/16", "64:ff9b::/96", "100.64.0.0/10"} {
		if _, err := NewRules(profile(v1beta1.ProfileOutbound{AllowHost: []string{wide}}), Options{}); err != nil {
			t.Errorf("%s: %v", wide, err)
		}
	}
}

// TestNetworkOfAProfile: the network that a profile asks for is no other than the one that it gets.
func TestNetworkOfAProfile(t *testing.T) {
	some := v1beta1.ProfileOutbound{AllowHost: []string{"a.test"}}
	for _, c := range []struct {
		mode string
		out  v1beta1.ProfileOutbound
		want string
	}{
		{"", some, ""}, {"bridge", some, ""}, {"default", some, ""}, {"none", v1beta1.ProfileOutbound{}, ""},
		{"none", some, "network.mode: none, and network.outbound lets the server out"},
		{"none", v1beta1.ProfileOutbound{InsecureAllowAll: true}, "network.mode: none"},
		{"host", some, `network.mode: "host": a profile says`},
		{"None", v1beta1.ProfileOutbound{}, `network.mode: "None"`},
	} {
		p := profile(c.out)
		p.Network.Mode = c.mode
		if _, err := NewRules(p, Options{}); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %+v: %v; want %s", c.mode, c.out, err, c.want)
		}
	}
}

// TestOtherAlphabets: a profile may write names as people do; programs ask for them in ASCII,
// and a look-alike is another name.
func TestOtherAlphabets(t *testing.T) {
	r := rules(t, Options{}, v1beta1.ProfileOutbound{AllowHost: []string{"Bücher.test", ".日本.test", "faß.test"}})
	for name, want := range map[string]bool{
		"xn--bcher-kva.test": true, "XN--BCHER-KVA.test.": true, "bucher.test": false, "xn--bchr-uoa.test": false,
		"xn--wgv71a.test": true, "www.xn--wgv71a.test": true, "xn--fa-hia.test": true, "fass.test": false,
	} {
		h, err := Canonical(name)
		if err != nil {
			t.Fatal(err)
		}
		if d := r.Decide(h, 443); d.OK() != want {
			t.Errorf("%s: %+v", name, d)
		}
	}
	for _, name := range []string{"a\u200d.test", "ⓐ.test/", "\u2028.test", strings.Repeat("ü", 64) + ".test", "x..ü"} {
		if _, err := NewRules(profile(v1beta1.ProfileOutbound{AllowHost: []string{name}}), Options{}); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
}

// TestDecideAllocates keeps a decision from allocating.
func TestDecideAllocates(t *testing.T) {
	r := rules(t, Options{}, many(1000))
	h, err := Canonical("h999.example.com")
	if err != nil {
		t.Fatal(err)
	}
	a := netip.MustParseAddr("93.184.216.34")
	if n := testing.AllocsPerRun(100, func() {
		d := r.Decide(h, 443)
		if reason, _ := r.Address(d, a); !d.OK() || reason != Allowed {
			t.Fatal(d, reason)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// many is a profile with so many hosts, each of them as a name, or below another.
func many(n int) v1beta1.ProfileOutbound {
	out := v1beta1.ProfileOutbound{}
	for i := range n {
		name := "h" + itoa(i) + ".example.com"
		if i%2 == 0 {
			name = "." + name
		}
		out.AllowHost = append(out.AllowHost, name)
	}
	return out
}
