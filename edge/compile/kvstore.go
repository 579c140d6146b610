package compile

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// resolveWait is how long a service of sentinels is looked for by its name.
const resolveWait = 5 * time.Second

// KVStore returns how the store of an authorization server is reached, and its address as an
// operator knows it. It reads the secrets, and asks for the address of a service of sentinels:
// an error names the field.
func KVStore(ctx context.Context, s *v1beta1.KVStore, secrets edge.Secrets) (address string, o kv.Options, err error) {
	read := func(name string, ref *v1beta1.SecretRef) edge.Secret {
		if ref == nil || err != nil {
			return ""
		}
		value, fault := secrets.Secret(ctx, ref.Name, ref.Key)
		if fault != nil {
			err = fmt.Errorf("%s: %w", name, fault)
		}
		return value.Trimmed()
	}
	o = kv.Options{Addresses: []string{s.Addr}, Dial: s.DialTimeout.Std(), Read: s.ReadTimeout.Std(), Write: s.WriteTimeout.Std()}
	o.Timeout = max(o.Read, o.Write)
	if s.ClusterMode {
		o.Mode = kv.Cluster
	}
	address = s.Addr
	if c := s.SentinelConfig; c != nil {
		o.Mode, o.Master, o.DB, o.Addresses = kv.Sentinel, c.MasterName, int(c.DB), c.SentinelAddrs
		if c.SentinelService != nil {
			at, err := serviceAddress(ctx, c.SentinelService)
			if err != nil {
				return "", o, fmt.Errorf("sentinelConfig.sentinelService: %w", err)
			}
			o.Addresses = []string{at}
		}
		address, o.Sentinels = c.MasterName, &kv.TLS{}
	}
	if a := s.ACLUserConfig; a != nil {
		o.Password = read("aclUserConfig.passwordSecretRef", &a.PasswordSecretRef)
		o.User = string(read("aclUserConfig.usernameSecretRef", a.UsernameSecretRef))
	}
	if t := s.TLS; t != nil {
		o.TLS, o.Insecure = true, t.InsecureSkipVerify
		o.CA = []byte(read("tls.caCertSecretRef", t.CACertSecretRef))
	}
	if t := s.SentinelTLS; t != nil {
		o.Sentinels = &kv.TLS{On: true, CA: []byte(read("sentinelTls.caCertSecretRef", t.CACertSecretRef)), Insecure: t.InsecureSkipVerify}
	}
	return address, o, err
}

// serviceAddress is where the service of sentinels is, by the first of its names that the
// system knows.
func serviceAddress(ctx context.Context, s *v1beta1.SentinelService) (string, error) {
	port := 26379
	if s.Port != nil {
		port = int(*s.Port)
	}
	names := []string{s.Name}
	if s.Namespace != "" {
		names = []string{s.Name + "." + s.Namespace + ".svc", s.Name + "." + s.Namespace}
	}
	ctx, cancel := context.WithTimeout(ctx, resolveWait)
	defer cancel()
	for _, name := range names {
		if _, err := net.DefaultResolver.LookupHost(ctx, name); err == nil {
			return net.JoinHostPort(name, strconv.Itoa(port)), nil
		}
	}
	return "", fmt.Errorf("only in a cluster: nobody knows the name %s here; write sentinelAddrs", names[0])
}
