package v1beta1

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// StoreLayout is how a store is laid out. The empty one is a single server.
type StoreLayout string

// The layouts of a store other than a single server.
const (
	StoreCluster  StoreLayout = "cluster"  // some servers of a cluster, which know the others
	StoreSentinel StoreLayout = "sentinel" // sentinels, which know the master of a name
)

// StoreAddress is what the address of a store says. It is no part of an object.
// +kubebuilder:object:generate=false
type StoreAddress struct {
	Layout StoreLayout `json:",omitempty"`
	Hosts  []string    // host:port
	Master string      `json:",omitempty"` // the name that sentinels know the master by
	User   string      `json:",omitempty"` // of an access control list; "" for the default user
	TLS    bool        `json:",omitempty"`
}

// maxStoreHosts is how many hosts an address of a store may name.
const maxStoreHosts = 64

// storeSchemes are the schemes of addresses. Those of a single server are
// registered (IANA, provisional), those of sentinels are what clients for other
// languages take, and those of clusters go with them.
var storeSchemes = map[string]StoreAddress{
	"redis":           {},
	"rediss":          {TLS: true},
	"redis-cluster":   {Layout: StoreCluster},
	"rediss-cluster":  {Layout: StoreCluster, TLS: true},
	"redis-sentinel":  {Layout: StoreSentinel},
	"rediss-sentinel": {Layout: StoreSentinel, TLS: true},
}

// ParseStoreAddress reads the address of a store: host:port, or a URL
//
//	redis://[USER@]HOST[:PORT]                             one server
//	redis-cluster://[USER@]HOST[:PORT],…                   servers of a cluster
//	redis-sentinel://[USER@]HOST[:PORT],…/MASTER           sentinels
//
// each with rediss for TLS. Ports left out are 6379, and 26379 of sentinels.
// An error never repeats what stands before an @: it may hold a password, which
// an address must not have.
func ParseStoreAddress(text string) (StoreAddress, error) {
	const form = "host:port, or a URL such as rediss://store.example.com:6379"
	if len(text) > 4096 || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return StoreAddress{}, errors.New("must be " + form)
	}
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		if strings.Contains(text, "@") {
			return StoreAddress{}, errors.New("must be a URL where it names a user, such as redis://USER@HOST:6379, and has no password in it: that belongs into the secret of passwordRef")
		}
		if _, _, err := net.SplitHostPort(text); err != nil {
			return StoreAddress{}, errors.New("must be " + form)
		}
		hosts, err := storeHosts(text, "")
		return StoreAddress{Hosts: hosts}, err
	}
	a, ok := storeSchemes[strings.ToLower(scheme)]
	if !ok {
		return StoreAddress{}, errors.New("must be a URL of redis://, redis-cluster:// or redis-sentinel://, or with rediss for TLS, or host:port")
	}

	// 1. Whose it is. A user ends at the last @, whatever is in it.
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, err := url.PathUnescape(rest[:at])
		switch {
		case strings.Contains(rest[:at], ":"):
			return StoreAddress{}, errors.New("must not have a password in it: that belongs into the secret of passwordRef, or into WEIR_SESSION_KVSTORE_PASSWORD")
		case err != nil || user == "" || strings.ContainsAny(rest[:at], "/?#,"):
			return StoreAddress{}, errors.New("must name the user before the @ as it stands in a URL, with % for what is special there")
		}
		a.User, rest = user, rest[at+1:]
	}

	// 2. Where it is.
	rest, path, hasPath := strings.Cut(rest, "/")
	port := "6379"
	switch {
	case strings.ContainsAny(rest+path, "?#"):
		return StoreAddress{}, errors.New("must have neither a query nor a fragment")
	case a.Layout == StoreSentinel:
		port = "26379"
		master, err := url.PathUnescape(path)
		if err != nil || master == "" || strings.Contains(path, "/") {
			return StoreAddress{}, errors.New("must end in the name that the sentinels know the master by, such as redis-sentinel://HOST:26379/mymaster")
		}
		a.Master = master
	case hasPath && path != "":
		return StoreAddress{}, errors.New("must end after the host: the number of a database goes into db")
	}
	var err error
	a.Hosts, err = storeHosts(rest, port)
	if err == nil && a.Layout == "" && len(a.Hosts) > 1 {
		err = errors.New("must name one host, or say redis-cluster:// or redis-sentinel://")
	}
	return a, err
}

// storeHosts reads hosts that are separated by commas. port stands for one that
// is left out.
func storeHosts(list, port string) ([]string, error) {
	hosts := strings.Split(list, ",")
	if len(hosts) > maxStoreHosts {
		return nil, fmt.Errorf("must name at most %d hosts", maxStoreHosts)
	}
	for i, one := range hosts {
		if port != "" && (!strings.Contains(one, ":") || strings.HasSuffix(one, "]")) {
			one += ":" + port
		}
		host, number, err := net.SplitHostPort(one)
		n, errPort := strconv.ParseUint(number, 10, 16)
		if err != nil || host == "" || strings.ContainsAny(host, `/\?#[]"`) || errPort != nil || n == 0 {
			return nil, errors.New("must name hosts as host:port, such as store.example.com:6379, with a port from 1 to 65535")
		}
		hosts[i] = net.JoinHostPort(host, strconv.FormatUint(n, 10))
	}
	return hosts, nil
}
