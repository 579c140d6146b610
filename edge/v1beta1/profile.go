package v1beta1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"
)

// Profile is a permission profile: what a server that Weir starts may reach. It is the
// document that permissionProfile refers to (workload runner document,
// --permission-profile).
//
// +kubebuilder:object:generate=false
type Profile struct {
	Name       string         `json:"name,omitempty"`
	Read       []string       `json:"read,omitempty"`  // mounts: PATH, HOST:INSIDE, volume://NAME:/INSIDE
	Write      []string       `json:"write,omitempty"` // the same, to be written to
	Network    ProfileNetwork `json:"network"`
	Privileged bool           `json:"privileged,omitempty"`
}

// ProfileNetwork is what a profile says of the network.
//
// +kubebuilder:object:generate=false
type ProfileNetwork struct {
	Mode     string          `json:"mode,omitempty"`
	Outbound ProfileOutbound `json:"outbound"`
	Inbound  ProfileInbound  `json:"inbound"`
}

// ProfileOutbound is where a server may connect to: with AllowHost and AllowPort both must
// hold. Without anything it is nowhere.
//
// +kubebuilder:object:generate=false
type ProfileOutbound struct {
	InsecureAllowAll bool     `json:"insecure_allow_all,omitempty"`
	AllowHost        []string `json:"allow_host,omitempty"` // a name, .name and what is below it, an IP address or a CIDR
	AllowPort        []int    `json:"allow_port,omitempty"` // 80 and 443 beside hosts where there are none
}

// ProfileInbound is what requests to the server may have as Host, besides its own.
//
// +kubebuilder:object:generate=false
type ProfileInbound struct {
	AllowHost []string `json:"allow_host,omitempty"`
}

// The built-in profiles.
const (
	ProfileNone     = "none"    // no mounts, and nothing goes out
	ProfileAnywhere = "network" // no mounts, everything goes out
)

// maxProfile bounds the text of a profile, in bytes, and maxProfileItems each of its lists.
const (
	maxProfile      = 256 << 10
	maxProfileItems = 1024
)

// BuiltinProfile returns the built-in profile of a name, and whether there is one.
func BuiltinProfile(name string) (*Profile, bool) {
	switch name {
	case ProfileNone:
		return &Profile{Name: name}, true
	case ProfileAnywhere:
		return &Profile{Name: name, Network: ProfileNetwork{Outbound: ProfileOutbound{InsecureAllowAll: true}}}, true
	}
	return nil, false
}

// Offline reports whether nothing of the server goes out.
func (p *Profile) Offline() bool {
	return !p.Network.Outbound.InsecureAllowAll && len(p.Network.Outbound.AllowHost) == 0
}

// ParseProfile reads a profile: one JSON object. It is strict: unknown fields, fields that are
// there twice or in other letters, ports outside of 1 to 65535 and malformed hosts are errors,
// which name the field.
func ParseProfile(text []byte) (*Profile, error) {
	if len(text) > maxProfile {
		return nil, fmt.Errorf("the profile has %d bytes: at most %d", len(text), maxProfile)
	}
	if !utf8.Valid(text) { // what reads JSON changes such bytes
		return nil, errors.New("the profile has bytes that are no UTF-8: write it in UTF-8")
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // as manifests may begin with
	switch first := bytes.TrimLeft(text, " \t\r\n"); {
	case len(first) == 0:
		return nil, errors.New("the profile is empty: write {} for one that allows nothing")
	case first[0] != '{':
		return nil, errors.New("the profile is no object: a value of another type belongs here")
	}
	if err := exactFields(text); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	p := &Profile{}
	if err := d.Decode(p); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return nil, fmt.Errorf("%s: a value of another type belongs here", wrong.Field)
		}
		return nil, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something behind the profile's object")
	}
	out := p.Network.Outbound
	for name, n := range map[string]int{"read": len(p.Read), "write": len(p.Write), "network.outbound.allow_host": len(out.AllowHost), "network.outbound.allow_port": len(out.AllowPort), "network.inbound.allow_host": len(p.Network.Inbound.AllowHost)} {
		if n > maxProfileItems {
			return nil, fmt.Errorf("%s: %d items: at most %d", name, n, maxProfileItems)
		}
	}
	for i, port := range out.AllowPort {
		if port < 1 || port > 65535 {
			return nil, fmt.Errorf("network.outbound.allow_port[%d]: %d is no port: 1 to 65535", i, port)
		}
	}
	for i, host := range out.AllowHost {
		if !profileHost(host, anyHostForm) {
			return nil, fmt.Errorf("network.outbound.allow_host[%d]: %q is no host: write a name, .name, an IP address or a CIDR", i, host)
		}
	}
	for i, host := range p.Network.Inbound.AllowHost {
		if !profileHost(host, hostForm) || strings.HasPrefix(host, ".") || strings.Contains(host, "/") {
			return nil, fmt.Errorf("network.inbound.allow_host[%d]: %q is no host", i, host)
		}
	}
	inside := map[string]bool{}
	for _, list := range []struct {
		name   string
		mounts []string
	}{{"read", p.Read}, {"write", p.Write}} {
		for i, text := range list.mounts {
			m, err := ParseMount(text)
			if err == nil && inside[m.Target] {
				err = fmt.Errorf("%s is mounted twice", m.Target)
			}
			if err != nil {
				return nil, fmt.Errorf("%s[%d]: %w", list.name, i, err)
			}
			inside[m.Target] = true
		}
	}
	return p, nil
}

// profileFields are the fields of a profile and of the objects in it.
var profileFields = []string{"name", "read", "write", "network", "privileged", "mode", "outbound", "inbound", "insecure_allow_all", "allow_host", "allow_port"}

// exactFields refuses fields whose names are written in other letters, and those that are there
// twice, which the JSON of the standard library takes: whoever reads the profile sees another
// one. What is no JSON is left to be told by who reads it.
func exactFields(text []byte) error {
	type level struct {
		seen map[string]bool // fields of an object; nil in an array
		name string          // of the field whose value is next; "" where a name is
	}
	var in []level
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if err != nil {
			return nil
		}
		at := len(in) - 1
		if name, is := token.(string); is && at >= 0 && in[at].seen != nil && in[at].name == "" {
			switch {
			case !slices.Contains(profileFields, name):
				return fmt.Errorf("unknown field %q", name)
			case in[at].seen[name]:
				var path []string
				for _, one := range in[:at] {
					path = append(path, one.name)
				}
				return fmt.Errorf("%s: it is there twice", strings.Join(append(path, name), "."))
			}
			in[at].seen[name], in[at].name = true, name
			continue
		}
		switch token {
		case json.Delim('{'):
			in = append(in, level{seen: map[string]bool{}})
			continue
		case json.Delim('['):
			in = append(in, level{})
			continue
		case json.Delim('}'), json.Delim(']'):
			in = in[:at]
		}
		if at = len(in) - 1; at < 0 {
			return nil
		}
		in[at].name = "" // the value has ended
	}
}

// Hosts of profiles: names in ASCII, and in any alphabet, which the rules of egress judge
// further.
const (
	hostForm    = `^\.?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.?$`
	anyHostForm = `^\.?([\pL\pN_]([\pL\pM\pN_-]{0,61}[\pL\pM\pN_])?\.)*[\pL\pN_]([\pL\pM\pN_-]{0,61}[\pL\pM\pN_])?\.?$`
)

// profileHost reports whether a text is a host of a profile, in any case.
func profileHost(text, form string) bool {
	if _, err := netip.ParsePrefix(text); err == nil {
		return true
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return true
	}
	return len(text) <= 253 && regex(form).MatchString(strings.ToLower(text))
}

// Mount is a mount of a profile.
//
// +kubebuilder:object:generate=false
type Mount struct {
	Source string // on the host; "" for a volume
	Volume string // its name; "" for a path
	Target string // inside
}

// ParseMount reads PATH, HOST:INSIDE or volume://NAME:/INSIDE. The path inside is absolute,
// and PATH stands at the same place inside.
func ParseMount(text string) (m Mount, err error) {
	rest, volume := strings.CutPrefix(text, "volume://")
	source, target, two := strings.Cut(rest, ":")
	switch {
	case text == "" || strings.ContainsRune(text, 0):
		return m, errors.New("no path")
	case strings.Contains(target, ":"):
		return m, fmt.Errorf("%q has more than two parts", text)
	case volume && (!two || source == "" || strings.Contains(source, "/")):
		return m, fmt.Errorf("%q is no volume: write volume://NAME:/INSIDE", text)
	case volume:
		m = Mount{Volume: source, Target: target}
	case two:
		m = Mount{Source: source, Target: target}
	default:
		m = Mount{Source: source, Target: source}
	}
	if !strings.HasPrefix(m.Target, "/") {
		return m, fmt.Errorf("%q is no absolute path", m.Target)
	}
	return m, nil
}
