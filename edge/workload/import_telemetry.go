package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// observation reads what is written down and measured.
func (i *importer) observation() error {
	c := i.c
	if c.Audit == nil && c.AuditPath != "" {
		c.Audit = &auditFile{}
		if err := i.beside("audit_config_path", c.AuditPath, c.Audit); err != nil {
			return err
		}
	}
	if c.Audit != nil && c.Audit.On != nil && !*c.Audit.On {
		i.say("audit_config: left out: enabled is false, and nothing is written down")
	} else if c.Audit != nil {
		i.audit = c.Audit.audit()
		var err error
		if i.audit.LogFile, err = i.absolute("audit_config.log_file", i.audit.LogFile); err != nil {
			return err
		}
	}
	t := c.Telemetry
	if t == nil {
		return nil
	}
	i.OtelEndpoint, i.OtelServiceName, i.OtelInsecure, i.OtelTracing, i.OtelMetrics = t.Endpoint, t.ServiceName, t.Insecure, t.TracingEnabled, t.MetricsEnabled
	i.OtelPrometheus, i.OtelEnvVars = t.EnablePrometheusMetricsPath, t.EnvironmentVariables
	i.attributes = t.CustomAttributes // whose values may hold commas, as no flag's can
	if t.ServiceVersion != "" {
		i.say("telemetry_config.serviceVersion: left out: none is sent")
	}
	i.OtelLegacyAttributes = t.UseLegacyAttributes == nil || *t.UseLegacyAttributes
	if err := i.authorities("telemetry_config.caCertPath", t.CACertPath); err != nil {
		return err
	}
	for name, value := range t.Headers {
		rest, sealed := strings.CutPrefix(value, "secret://")
		if !sealed {
			if secret.HeaderReadsLike(name) && value != "" { // as an export leaves it
				return &Error{Code: CodeInvalid, Field: "telemetry_config.headers", Message: i.file + ": telemetry_config.headers." + edge.Brief(name) + ": it holds a secret in clear", Next: "keep it with `weir secret set NAME`, and write secret://NAME"}
			}
			if i.headers == nil {
				i.headers = map[string]string{}
			}
			i.headers[name] = value
			continue
		}
		ref, err := secretRef("otel-headers", rest)
		if err != nil {
			return i.bad("telemetry_config.headers", "no name of a secret")
		}
		i.draft.sealed = append(i.draft.sealed, v1beta1.SensitiveHeader{Name: name, SecretKeyRef: ref})
	}
	slices.SortFunc(i.draft.sealed, func(a, b v1beta1.SensitiveHeader) int { return cmp.Compare(a.Name, b.Name) })
	return i.sampled(t)
}

func (i *importer) sampled(t *v1beta1.Telemetry) error {
	if t.SamplingRate == "" {
		i.unsampled = true
		return nil
	}
	if _, err := fmt.Sscanf(t.SamplingRate, "%g", &i.OtelSamplingRate); err != nil || i.OtelSamplingRate < 0 || i.OtelSamplingRate > 1 {
		return i.bad("telemetry_config.samplingRate", "%q is not from 0 to 1", edge.Brief(t.SamplingRate))
	}
	return nil
}

// LoggedIn is the manifest of a workload whose server is sent a login, in the way that the
// server says.
func LoggedIn(manifest []byte) ([]byte, error) {
	s, err := readSet("manifest", manifest)
	if err != nil {
		return nil, err
	}
	s.fields().run.RemoteAuth = (&draft{Options: DefaultOptions()}).login()
	return s.write()
}

// Debugged is the manifest of a workload that logs each exchange.
func Debugged(manifest []byte) ([]byte, error) {
	s, err := readSet("manifest", manifest)
	if err != nil {
		return nil, err
	}
	s.fields().run.Debug = true
	return s.write()
}
