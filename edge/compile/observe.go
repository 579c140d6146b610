package compile

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/audit"
	"github.com/weir-edge/weir/filters/telemetry"
)

// audit plans what of a server's exchanges is written down; nil for nothing.
func (c *compiler) audit(o *object, config *v1beta1.ServerConfig) *audit.Spec {
	if config.Audit == nil {
		return nil
	}
	return c.recorded(o, *config.Audit, field.NewPath("spec", "config", "audit"))
}

// recorded judges what is written down, which stands at path of an object.
func (c *compiler) recorded(o *object, config v1beta1.Audit, path *field.Path) *audit.Spec {
	spec := audit.Spec{Server: o.ref.Name, Config: config, Path: path}
	part, wrong := audit.Parse(spec)
	c.faults(o, wrong)
	if part == nil {
		return nil
	}
	return &spec
}

// telemetry plans what of a server is measured and traced; nil for nothing. An
// object that the server refers to takes precedence over its own section.
func (c *compiler) telemetry(o *object, s *v1beta1.VirtualMCPServer, config *v1beta1.ServerConfig) *telemetry.Spec {
	switch {
	case s.Spec.TelemetryConfigRef != nil:
		if config.Telemetry != nil {
			c.find(Warning, o, "spec.config.telemetry", ReasonUnused, "not used: spec.telemetryConfigRef takes precedence")
		}
		return c.measured(o, s.Spec.TelemetryConfigRef)
	case config.Telemetry != nil:
		return c.observing(o, telemetry.FromConfig(o.ref.Name, config.Telemetry, field.NewPath("spec", "config", "telemetry")))
	}
	return nil
}

// measured is the telemetry that an object refers to; nil for none.
func (c *compiler) measured(o *object, ref *v1beta1.TelemetryConfigRef) *telemetry.Spec {
	at := o.telemetryConfig()
	if ref == nil || at == nil {
		return nil // that it is not there was said where it is referred to
	}
	kind := &at.value.(*v1beta1.MCPTelemetryConfig).Spec
	var ca []byte
	if t := kind.OpenTelemetry; t != nil && t.CABundleRef != nil && t.CABundleRef.ConfigMapRef != nil {
		ca = []byte(c.bundled(at, t.CABundleRef.ConfigMapRef.Key, "spec.openTelemetry.caBundleRef.configMapRef.key"))
	}
	service := cmp.Or(ref.ServiceName, "weir-"+o.ref.Name)
	return c.observing(at, telemetry.FromKind(o.ref.Name, service, kind, ca, field.NewPath("spec")))
}

// observing judges what is measured and traced, which stands in an object.
func (c *compiler) observing(at *object, spec telemetry.Spec) *telemetry.Spec {
	part, wrong := telemetry.Parse(spec)
	c.faults(at, wrong)
	telemetry.Unused(spec, func(name, why string) {
		path := strings.TrimSuffix(spec.EndpointPath.String(), "endpoint") + name
		said := slices.ContainsFunc(c.report.Findings, func(f Finding) bool { return f.Index == at.index && f.Path == path }) // of another server that refers to it
		if len(wrong) == 0 && at.gives(path) && !said {
			c.find(Note, at, path, ReasonUnused, "not used: %s", why)
		}
	})
	if part == nil {
		return nil
	}
	return &spec
}

// telemetryConfig is the MCPTelemetryConfig that a server refers to; nil when
// there is none.
func (o *object) telemetryConfig() *object {
	for _, l := range o.links {
		if _, ok := l.to.value.(*v1beta1.MCPTelemetryConfig); ok {
			return l.to
		}
	}
	return nil
}

// services demands that no two servers send telemetry under one service name:
// what they send could not be told apart.
func (c *compiler) services(plan *Plan) {
	taken := map[string]string{}
	for _, s := range plan.Servers {
		if s.Telemetry == nil {
			continue
		}
		first, ok := taken[s.Telemetry.Service]
		if !ok {
			taken[s.Telemetry.Service] = s.Name
			continue
		}
		o := c.owners[s.Name]
		path := "spec.telemetryConfigRef.serviceName"
		if v, ok := o.value.(*v1beta1.VirtualMCPServer); ok && v.Spec.TelemetryConfigRef == nil {
			path = "spec.config.telemetry.serviceName"
		}
		c.fail(o, path, ReasonConflict, "%q is the service name of %s, too: give each its own", brief(s.Telemetry.Service), c.owners[first].ref)
	}
}
