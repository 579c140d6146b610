package compile

import (
	"cmp"

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
	spec := audit.Spec{Server: o.ref.Name, Config: *config.Audit, Path: field.NewPath("spec", "config", "audit")}
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
	at, spec := o, telemetry.Spec{}
	switch {
	case s.Spec.TelemetryConfigRef != nil:
		if config.Telemetry != nil {
			c.find(Warning, o, "spec.config.telemetry", ReasonUnused, "not used: spec.telemetryConfigRef takes precedence")
		}
		if at = o.telemetryConfig(); at == nil {
			return nil // that it is not there was said where it is referred to
		}
		kind := &at.value.(*v1beta1.MCPTelemetryConfig).Spec
		var ca []byte
		if t := kind.OpenTelemetry; t != nil && t.CABundleRef != nil && t.CABundleRef.ConfigMapRef != nil {
			ca = []byte(c.bundled(at, t.CABundleRef.ConfigMapRef.Key, "spec.openTelemetry.caBundleRef.configMapRef.key"))
		}
		service := cmp.Or(s.Spec.TelemetryConfigRef.ServiceName, "weir-"+o.ref.Name)
		spec = telemetry.FromKind(o.ref.Name, service, kind, ca, field.NewPath("spec"))
	case config.Telemetry != nil:
		spec = telemetry.FromConfig(o.ref.Name, config.Telemetry, field.NewPath("spec", "config", "telemetry"))
	default:
		return nil
	}
	part, wrong := telemetry.Parse(spec)
	c.faults(at, wrong)
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
		o := c.byRef[Ref{"VirtualMCPServer", s.Name}]
		path := "spec.config.telemetry.serviceName"
		if v, ok := o.value.(*v1beta1.VirtualMCPServer); ok && v.Spec.TelemetryConfigRef != nil {
			path = "spec.telemetryConfigRef.serviceName"
		}
		c.fail(o, path, ReasonConflict, "%q is the service name of VirtualMCPServer/%s, too: give each its own", brief(s.Telemetry.Service), first)
	}
}
