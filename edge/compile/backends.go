package compile

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// static plans the backends that the server lists itself, whatever its group
// holds.
func (c *compiler) static(o *object, s *v1beta1.VirtualMCPServer, members []*object, ways map[string]way) []Backend {
	source := o.text("spec.config.outgoingAuth.source")
	at := "spec.config.outgoingAuth.source"
	if written := o.text("spec.outgoingAuth.source"); written != "" {
		source, at = written, "spec.outgoingAuth.source"
	}
	if source == string(v1beta1.AuthDiscovered) {
		c.fail(o, at, ReasonConflict, "discovered finds the backends in the group, but spec.config.backends lists them: set inline, or take the list out")
	}
	var out []Backend
	names := map[string]int{}
	for i, b := range s.Spec.Config.Backends {
		path := fmt.Sprintf("spec.config.backends[%d]", i)
		if first, ok := names[b.Name]; ok && !o.wrong[path+".name"] {
			c.fail(o, path+".name", ReasonDuplicate, "%q is already the name of spec.config.backends[%d]: rename one", brief(b.Name), first)
		}
		names[b.Name] = i
		out = append(out, Backend{
			Name:         b.Name,
			URL:          b.URL,
			Transport:    Transport(b.Transport),
			CABundlePath: b.CABundlePath,
			Private:      true,
			Metadata:     maps.Clone(b.Metadata),
		})
		if b.CABundlePath != "" && strings.HasPrefix(b.URL, "http://") {
			c.find(Warning, o, path+".caBundlePath", ReasonUnused, "not used: the URL is http, which knows no certificates")
		}
	}
	for _, m := range members {
		if w, ok := ways[m.ref.Name]; ok && w.own == m {
			for _, path := range []string{"spec.toolConfigRef", "spec.headerForward", "spec.caBundleRef", "spec.run.remoteAuth"} {
				if m.gives(path) {
					c.find(Warning, m, path, ReasonUnused, "not used: %s lists its backends itself, and takes the credential of this one alone", o.ref)
				}
			}
			continue
		}
		c.find(Warning, m, "", ReasonUnused, "not used: %s lists its backends itself", o.ref)
	}
	return out
}

// discovered plans the backends that are the members of the group.
func (c *compiler) discovered(o *object, group *object, members []*object) []Backend {
	if group == nil {
		return nil // A missing group was said where it is referred to.
	}
	var out []Backend
	for _, m := range members {
		switch e := m.value.(type) {
		case *v1beta1.MCPServerEntry:
			out = append(out, Backend{
				Name:      e.Name,
				URL:       e.Spec.RemoteURL,
				Transport: Transport(e.Spec.Transport),
				CABundle:  c.bundle(m, e),
				Private:   e.Spec.AllowPrivateEndpoint,
			})
		case *v1beta1.MCPRemoteProxy:
			b := Backend{
				Name:      e.Name,
				URL:       e.Spec.RemoteURL,
				Transport: Transport(e.Spec.Transport),
				Private:   e.Spec.AllowPrivateEndpoint,
			}
			if e.Spec.Run != nil && !c.set.Cluster {
				b.Login = c.login(m, e.Spec.Run.RemoteAuth)
			}
			out = append(out, b)
		case *v1beta1.MCPServer:
			if e.Spec.Run != nil && e.Spec.Run.RemoteAuth != nil && !c.set.Cluster {
				c.fail(m, "spec.run.remoteAuth", ReasonConflict, "a login is to a server at a URL: describe it with an MCPRemoteProxy, or take this out")
			}
			w := c.workload(m, e)
			out = append(out, Backend{Name: e.Name, URL: w.URL(), Transport: Transport(e.Spec.Transport), Workload: w, Private: w.URL() != ""})
		}
	}
	path := "spec.groupRef.name"
	if o.Config {
		path = "spec.config.groupRef"
	}
	if len(members) == 0 && c.whole() && !c.partial() {
		c.fail(o, path, ReasonNotFound, "%s has no members: add an MCPServerEntry with spec.groupRef.name %s, or list the backend under spec.config.backends", group.ref, group.ref.Name)
	}
	names := map[string]*object{}
	for _, m := range members {
		if first := names[m.ref.Name]; first != nil && m.ref != first.ref {
			c.fail(m, "metadata.name", ReasonDuplicate, "%q is already the name of the backend %s: rename one", brief(m.ref.Name), first.ref)
		}
		names[m.ref.Name] = m
	}
	return out
}

// failure is spec.config.operational.failureHandling with its defaults.
func failure(config *v1beta1.ServerConfig) Failure {
	f := Failure{Interval: 30 * time.Second, Timeout: 10 * time.Second, Threshold: 3, Report: 30 * time.Second}
	if config.Operational == nil || config.Operational.FailureHandling == nil {
		return f
	}
	given := config.Operational.FailureHandling
	set := func(to *time.Duration, d v1beta1.Duration) {
		if d.Std() > 0 {
			*to = d.Std()
		}
	}
	set(&f.Interval, given.HealthCheckInterval)
	set(&f.Timeout, given.HealthCheckTimeout)
	set(&f.Report, given.StatusReportingInterval)
	if given.UnhealthyThreshold != nil && *given.UnhealthyThreshold > 0 {
		f.Threshold = *given.UnhealthyThreshold
	}
	f.BestEffort = given.PartialFailureMode == v1beta1.PartialBestEffort
	if b := given.CircuitBreaker; b != nil && b.Enabled {
		f.Breaker = &Breaker{Threshold: 5, Timeout: time.Minute}
		if b.FailureThreshold != nil {
			f.Breaker.Threshold = *b.FailureThreshold
		}
		set(&f.Breaker.Timeout, b.Timeout)
	}
	return f
}

// bundle returns the certificates that an entry trusts, "" for those of the
// system.
func (c *compiler) bundle(m *object, e *v1beta1.MCPServerEntry) string {
	if e.Spec.CABundleRef == nil || e.Spec.CABundleRef.ConfigMapRef == nil {
		return ""
	}
	if strings.HasPrefix(e.Spec.RemoteURL, "http://") {
		c.find(Warning, m, "spec.caBundleRef", ReasonUnused, "not used: the URL is http, which knows no certificates")
	}
	return c.bundled(m, e.Spec.CABundleRef.ConfigMapRef.Key, "spec.caBundleRef.configMapRef.key")
}

// bundled returns the certificates under a key of the ConfigMap that m refers
// to; path is that of the key.
func (c *compiler) bundled(m *object, key, path string) string {
	for _, l := range m.links {
		config, ok := l.to.Value.(*ConfigMap)
		if !ok || l.to.Partial {
			continue
		}
		text, ok := config.entry(key)
		if ok && !certificates(text) {
			c.fail(m, path, ReasonInvalid, "what %s holds under %q is no list of PEM certificates", l.to.ref, brief(key))
		}
		return text
	}
	return ""
}

// certificates reports whether text holds PEM certificates, at least one and
// nothing that only looks like one.
func certificates(text string) bool {
	rest, found := []byte(text), false
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return found
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return false
		}
		found = true
	}
}

// defaultTimeout is the documents' default of spec.config.operational.timeouts.default.
const defaultTimeout = 30 * time.Second

func (c *compiler) timeout(config *v1beta1.ServerConfig, backend string) time.Duration {
	if config.Operational == nil || config.Operational.Timeouts == nil {
		return defaultTimeout
	}
	t := config.Operational.Timeouts
	if own := t.PerWorkload[backend].Std(); own > 0 {
		return own
	}
	if all := t.Default.Std(); all > 0 {
		return all
	}
	return defaultTimeout
}
