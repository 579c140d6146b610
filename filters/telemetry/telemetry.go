// Package telemetry measures exchanges and traces them: metrics and spans for
// an OpenTelemetry collector, and metrics for Prometheus.
//
// It is the outermost filter. Counting costs an exchange no allocation and no
// call of the SDK: series are counted in place and handed over when somebody
// collects them. Only an exchange that is sampled makes a span. Nothing that a
// client sends makes a new series: see names.
package telemetry

import (
	"cmp"
	"net"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Spec describes the telemetry of one server.
type Spec struct {
	Server  string
	Service string // service.name; that of the server when empty
	Version string // service.version; "" for none

	Endpoint      string // of the collector; "" for none
	Insecure      bool   // plain text to the collector
	Headers       map[string]string
	SecretHeaders []v1beta1.SensitiveHeader
	CAFile        string // PEM certificates to trust for the collector; "" for those of the system
	CA            []byte // the same, at hand; nil for none
	Traces        bool   // are sent to the collector
	Metrics       bool   // are sent to the collector
	Sampling      string // share of traces, from 0 to 1; 0.05 when empty

	Attributes  map[string]string // of everything that is sent
	Environment []string          // variables whose values are attributes of spans
	Prometheus  bool              // metrics are there to be fetched
	Legacy      bool              // older attribute names are used as well

	// Paths of Endpoint and Sampling.
	EndpointPath, SamplingPath *field.Path

	PrometheusField string // what to write for Prometheus
}

// FromConfig is the Spec of config.telemetry; path is where that is.
func FromConfig(server string, c *v1beta1.Telemetry, path *field.Path) Spec {
	return Spec{
		Server: server, Service: c.ServiceName, Version: c.ServiceVersion,
		Endpoint: c.Endpoint, Insecure: c.Insecure, Headers: c.Headers, CAFile: c.CACertPath,
		Traces: c.TracingEnabled, Metrics: c.MetricsEnabled, Sampling: c.SamplingRate,
		Attributes: c.CustomAttributes, Environment: c.EnvironmentVariables, Prometheus: c.EnablePrometheusMetricsPath,
		Legacy:       c.UseLegacyAttributes == nil || *c.UseLegacyAttributes,
		EndpointPath: path.Child("endpoint"), SamplingPath: path.Child("samplingRate"),
		PrometheusField: "enablePrometheusMetricsPath: true",
	}
}

// FromKind is the Spec of an MCPTelemetryConfig, as a server's
// telemetryConfigRef refers to it. ca is the content of its caBundleRef, nil
// without one; path is that of the spec.
func FromKind(server, service string, c *v1beta1.MCPTelemetryConfigSpec, ca []byte, path *field.Path) Spec {
	s := Spec{Server: server, Service: service, CA: ca, Prometheus: c.Prometheus != nil && c.Prometheus.Enabled, Legacy: true, PrometheusField: "prometheus: {enabled: true}"}
	o := c.OpenTelemetry
	if o == nil || !o.Enabled {
		return s
	}
	path = path.Child("openTelemetry")
	s.Endpoint, s.Insecure, s.Headers, s.SecretHeaders, s.Attributes = o.Endpoint, o.Insecure, o.Headers, o.SensitiveHeaders, o.ResourceAttributes
	s.Legacy = o.UseLegacyAttributes == nil || *o.UseLegacyAttributes
	if o.Tracing != nil {
		s.Traces, s.Sampling = o.Tracing.Enabled, o.Tracing.SamplingRate
	}
	s.Metrics = o.Metrics != nil && o.Metrics.Enabled
	s.EndpointPath, s.SamplingPath = path.Child("endpoint"), path.Child("tracing", "samplingRate")
	return s
}

// Part is the telemetry of one server, not yet open. What has a comment of its
// own is set before Open, and each may be nil.
type Part struct {
	// Answer says how an error looks on the wire: its HTTP status and its
	// JSON-RPC code, which is the error.type of metrics and spans. nil is 500
	// and -32603 for all.
	Answer func(edge.Kind, mcp.Era) (status, code int)

	// Trace gives the traceparent and tracestate headers of an exchange.
	Trace func(*edge.Exchange) (parent, state string)

	// Transport says how an exchange came: "streamable-http" or "sse". nil is
	// the former for all.
	Transport func(*edge.Exchange) string

	// Collectors are asked for more metrics of the server.
	Collectors []edge.Collector

	// Process are asked for metrics of the whole process, which belong to no
	// server. The OpenTelemetry collector gets them from here; who fetches gets
	// them from Expose.
	Process []edge.Collector

	spec     Spec
	place    place
	sampling float64
}

// place is where a collector is.
type place struct {
	grpc, plain bool
	host, path  string // path is that of HTTP, without a slash at its end
}

// Parse makes the telemetry of a server, or says everything that is wrong with
// it. It returns nil without an error when nothing is asked for.
func Parse(s Spec) (*Part, field.ErrorList) {
	s.Service = cmp.Or(s.Service, s.Server)
	p := &Part{spec: s}
	var errs field.ErrorList
	rate, err := strconv.ParseFloat(cmp.Or(s.Sampling, "0.05"), 64)
	if err != nil || !(rate >= 0 && rate <= 1) {
		errs = append(errs, field.Invalid(s.SamplingPath, s.Sampling, "must be a decimal number from 0 to 1"))
	}
	p.sampling = rate
	switch {
	case s.Endpoint != "":
		var wrong string
		if p.place, wrong = parseEndpoint(s.Endpoint, s.Insecure); wrong != "" {
			errs = append(errs, field.Invalid(s.EndpointPath, s.Endpoint, wrong))
		}
	case s.Traces || s.Metrics:
		detail := "the collector to which traces or metrics go"
		if s.Metrics {
			detail += "; metrics are at /metrics without one: on the admin address always, on the main port with " + cmp.Or(s.PrometheusField, "Prometheus turned on")
		}
		errs = append(errs, field.Required(s.EndpointPath, detail))
	}
	if len(errs) > 0 {
		return nil, errs
	}
	if s.Endpoint == "" || !s.Traces && !s.Metrics {
		p.spec.Traces, p.spec.Metrics = false, false
		if !s.Prometheus {
			return nil, nil
		}
	}
	return p, nil
}

// Unused calls say with the settings that change nothing as the others are, by their names in
// the section of the endpoint, and why. Nothing is said of a section that is not switched on.
func Unused(s Spec, say func(name, why string)) {
	at, wrong := parseEndpoint(s.Endpoint, s.Insecure)
	switch {
	case s.EndpointPath == nil:
		return
	case s.Endpoint == "":
		say("headers", "there is no endpoint")
		say("sensitiveHeaders", "there is no endpoint")
		say("caCertPath", "there is no endpoint")
		say("caBundleRef", "there is no endpoint")
	case !s.Traces && !s.Metrics:
		say("endpoint", "neither traces nor metrics are enabled")
	case wrong == "" && at.plain:
		say("caCertPath", "with insecure: true the endpoint is spoken to in plain text")
		say("caBundleRef", "with insecure: true the endpoint is spoken to in plain text")
	}
	if !s.Traces {
		say("samplingRate", "traces are not enabled")
		say("tracing.samplingRate", "traces are not enabled")
	}
}

// parseEndpoint reads where a collector is. The scheme says how it is spoken
// to: http and https are OTLP over HTTP, grpc and grpcs OTLP over gRPC. Without
// a scheme port 4317 is gRPC, and any other HTTP (OTLP specification, "OTLP/gRPC
// default port"). wrong says what is wrong with it; "" for nothing.
func parseEndpoint(endpoint string, insecure bool) (at place, wrong string) {
	text := endpoint
	if !strings.Contains(text, "://") {
		text = "none://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "":
		return place{}, "must be a URL or host:port"
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return place{}, "must have no user, query or fragment: credentials are headers"
	}
	at = place{host: u.Host, path: strings.TrimRight(u.Path, "/"), plain: insecure}
	port := "4318"
	switch u.Scheme {
	case "none":
		at.grpc = u.Port() == "4317"
	case "https":
		at.plain = false
	case "grpcs":
		at.grpc, at.plain = true, false
	case "grpc":
		at.grpc = true
		fallthrough
	case "http":
		if !insecure {
			return place{}, "is in plain text, which needs insecure: true"
		}
	default:
		return place{}, "must have the scheme https, http, grpcs or grpc"
	}
	if at.grpc {
		port = "4317"
		if at.path != "" {
			return place{}, "must have no path: it is spoken to over gRPC"
		}
	}
	if u.Port() == "" {
		at.host = net.JoinHostPort(u.Hostname(), port)
	}
	return at, ""
}
