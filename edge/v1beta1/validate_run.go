package v1beta1

import (
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What is wrong with spec.run, and with what `weir run` gives besides.

// ownLabels is the prefix of labels that only Weir sets.
const ownLabels = "weir.dev/"

var prefixPattern = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)+$`)

// prefix demands a path to put before another one: the text is sent to clients.
func (f *faults) prefix(p *field.Path, s string) {
	if s == "" {
		return
	}
	if !prefixPattern.MatchString(s) || path.Clean(s) != s {
		f.invalid(p, s, "must begin with / and be a path such as /team/fetch, without a / at its end")
	}
}

func (f *faults) proxyRun(p *field.Path, r *ProxyRun) {
	if r == nil {
		return
	}
	for _, name := range sorted(r.Labels) {
		switch {
		case strings.HasPrefix(name, ownLabels):
			f.forbidden(p.Child("labels").Key(name), "labels of "+ownLabels+" are set by Weir alone")
		case len(validation.IsQualifiedName(name)) > 0:
			f.invalid(p.Child("labels").Key(name), name, "must be a name such as team or example.com/team")
		}
		if strings.ContainsAny(r.Labels[name], "\x00\n\r") {
			f.hidden(p.Child("labels").Key(name), "must be one line of text")
		}
	}
}

func (f *faults) serverRun(p *field.Path, r *ServerRun) {
	if r == nil {
		return
	}
	f.proxyRun(p, &r.ProxyRun)
	seen := map[string]bool{}
	for i, text := range r.Publish {
		published, ok := ParsePublished(text)
		if !ok {
			continue // its form is judged by itself
		}
		if key := published.Address(); seen[key] {
			f.add(field.Duplicate(p.Child("publish").Index(i), key))
		} else {
			seen[key] = true
		}
	}
	if r.IsolateNetwork != nil && !*r.IsolateNetwork && r.AllowContainerGateway {
		f.forbidden(p.Child("allowContainerGateway"), "isolateNetwork is false, and then nothing is blocked")
	}
	if r.IsolateNetwork != nil && !*r.IsolateNetwork && len(r.EgressPorts) > 0 {
		f.forbidden(p.Child("egressPorts"), "isolateNetwork is false, and then nothing is blocked")
	}
	for i, port := range r.EgressPorts {
		if port < 1 || port > 65535 {
			f.invalid(p.Child("egressPorts").Index(i), port, "must be a port from 1 to 65535")
		}
	}
}

// hostOrIP demands a host name or an IP address.
func (f *faults) hostOrIP(p *field.Path, s string) {
	if _, err := netip.ParseAddr(s); err == nil || len(validation.IsDNS1123Subdomain(strings.ToLower(s))) == 0 {
		return
	}
	f.invalid(p, s, "must be a host name or an IP address, without a port")
}

// origin demands an exact origin (RFC 6454 §6.1).
func (f *faults) origin(p *field.Path, s string) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" || u.User != nil || u.RawQuery != "" || strings.ContainsAny(s, "*#") {
		f.invalid(p, showURL(s), "must be an exact origin, such as https://app.example.com")
	}
}

// absolute demands an absolute path without . and .. in it.
func (f *faults) absolute(p *field.Path, s string) {
	if !strings.HasPrefix(s, "/") || s == "/" || path.Clean(s) != s || strings.ContainsRune(s, 0) {
		f.invalid(p, s, "must be an absolute path such as /var/cache")
	}
}

func (f *faults) publish(p *field.Path, s string) {
	if _, ok := ParsePublished(s); !ok {
		f.invalid(p, s, "must be HOST:CONTAINER or IP:HOST:CONTAINER, two ports from 1 to 65535 of TCP")
	}
}

// Published is a port of a server that its host listens on, too.
//
// +kubebuilder:object:generate=false
type Published struct {
	IP              netip.Addr // of the host; 127.0.0.1 where none is given
	Host, Container uint16     // ports
}

// Address is where the host listens.
func (p Published) Address() string { return netip.AddrPortFrom(p.IP, p.Host).String() }

// ParsePublished reads [IP:]HOST:CONTAINER. An IPv6 address stands in brackets. It reports
// false for anything else, and for ports outside of 1 to 65535.
func ParsePublished(s string) (p Published, ok bool) {
	p.IP = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	rest, container, ok := cutLast(s)
	if !ok {
		return p, false
	}
	host := rest
	if ip, port, there := cutLast(rest); there {
		addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(ip, "["), "]"))
		if err != nil || addr.Is6() != strings.HasPrefix(ip, "[") {
			return p, false
		}
		p.IP, host = addr, port
	}
	for _, one := range []struct {
		text string
		to   *uint16
	}{{host, &p.Host}, {container, &p.Container}} {
		n, err := strconv.ParseUint(one.text, 10, 16)
		if err != nil || n == 0 {
			return p, false
		}
		*one.to = uint16(n)
	}
	return p, true
}

// cutLast cuts a text at its last colon.
func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
