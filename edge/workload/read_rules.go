package workload

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/runner"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// The files of webhooks, audit and policies, which become objects beside the workload.

// readWebhooks reads files of webhooks, a later one over an earlier one. What a file names by
// path becomes a secret.
func (d *draft) readWebhooks() error {
	if len(d.WebhookConfig) == 0 {
		return nil
	}
	var paths []string
	for _, name := range d.WebhookConfig {
		paths = append(paths, d.path(name))
	}
	empty, _ := source.Read("", nil)
	source.Webhooks(paths...)(empty)
	for _, f := range empty.Compile().Findings.Errors() {
		if slices.Contains(paths, f.File) {
			return wrong("webhook-config", "%s", f)
		}
	}
	d.hooks = &v1beta1.MCPWebhookConfigSpec{}
	for _, h := range empty.Webhooks.Mutating {
		one, err := d.webhook(h.Webhook, h.CAFile, h.CertFile, h.KeyFile)
		if err != nil {
			return err
		}
		d.hooks.Mutating = append(d.hooks.Mutating, one)
	}
	for _, h := range empty.Webhooks.Validating {
		one, err := d.webhook(h.Webhook, h.CAFile, h.CertFile, h.KeyFile)
		if err != nil {
			return err
		}
		d.hooks.Validating = append(d.hooks.Validating, one)
	}
	return nil
}

// webhook is a webhook whose files are kept as secrets.
func (d *draft) webhook(h v1beta1.Webhook, ca, cert, key string) (v1beta1.Webhook, error) {
	for _, f := range []struct {
		path, what string
		to         func(*v1beta1.WebhookTLS) **v1beta1.SecretRef
	}{
		{ca, "ca", func(t *v1beta1.WebhookTLS) **v1beta1.SecretRef { return &t.CASecretRef }},
		{cert, "cert", func(t *v1beta1.WebhookTLS) **v1beta1.SecretRef { return &t.ClientCertSecretRef }},
		{key, "key", func(t *v1beta1.WebhookTLS) **v1beta1.SecretRef { return &t.ClientKeySecretRef }},
	} {
		if f.path == "" {
			continue
		}
		data, err := d.file("webhook-config", f.path, maxSecretFile)
		if err != nil {
			return h, err
		}
		if h.TLSConfig == nil {
			h.TLSConfig = &v1beta1.WebhookTLS{}
		}
		*f.to(h.TLSConfig) = d.keep(d.free("webhook-"+runner.PlainName(h.Name)+"-"+f.what), string(data))
	}
	return h, nil
}

// auditFile is what a file of --audit-config holds, by the reference's keys of now and before.
type auditFile struct {
	On                 *bool `json:"enabled,omitempty"` // nothing is yes
	v1beta1.Audit      `json:",inline"`
	EventTypesToo      []string `json:"event_types,omitempty"`
	ExcludeToo         []string `json:"exclude_event_types,omitempty"`
	IncludeRequestToo  bool     `json:"include_request_data,omitempty"`
	IncludeResponseToo bool     `json:"include_response_data,omitempty"`
	MaxDataSizeToo     *int     `json:"max_data_size,omitempty"`
	LogFileToo         string   `json:"log_file,omitempty"`
	DetectErrorsToo    *bool    `json:"detect_application_errors,omitempty"`
}

// audit is the one that the file means.
func (f *auditFile) audit() *v1beta1.Audit {
	a := f.Audit
	a.Enabled = f.On == nil || *f.On
	a.EventTypes = append(a.EventTypes, f.EventTypesToo...)
	a.ExcludeEventTypes = append(a.ExcludeEventTypes, f.ExcludeToo...)
	a.IncludeRequestData = a.IncludeRequestData || f.IncludeRequestToo
	a.IncludeResponseData = a.IncludeResponseData || f.IncludeResponseToo
	a.MaxDataSize, a.DetectApplicationErrors = cmp.Or(a.MaxDataSize, f.MaxDataSizeToo), cmp.Or(a.DetectApplicationErrors, f.DetectErrorsToo)
	a.LogFile = cmp.Or(a.LogFile, f.LogFileToo)
	return &a
}

func (d *draft) readAudit() error {
	if d.AuditConfig == "" {
		return nil
	}
	data, err := d.file("audit-config", d.AuditConfig, maxDocument)
	if err != nil {
		return err
	}
	var file auditFile
	if err := d.decode("audit-config", d.AuditConfig, data, &file); err != nil {
		return err
	}
	switch a := file.audit(); {
	case a.Enabled:
		d.audit, a.LogFile = a, d.path(a.LogFile)
	case d.EnableAudit:
		return wrong("audit-config", "%s: enabled is false, and --enable-audit: leave one out", edge.Brief(d.AuditConfig))
	default:
		d.notes = append(d.notes, note("--audit-config: enabled is false in %s: nothing is written down", edge.Brief(d.AuditConfig)))
	}
	return nil
}

// authzFile is a document of policies, as --authz-config names one.
type authzFile struct {
	Version string             `json:"version"`
	Type    string             `json:"type"`
	Policy  v1beta1.JSONObject `json:"policy,omitempty"`
	Cedar   v1beta1.JSONObject `json:"cedar,omitempty"`
	Point   v1beta1.JSONObject `json:"pdp,omitempty"`
}

// spec is the MCPAuthzConfig that says the same.
func (f *authzFile) spec() (*v1beta1.MCPAuthzConfigSpec, error) {
	bodies := slices.DeleteFunc([]v1beta1.JSONObject{f.Policy, f.Cedar, f.Point}, func(j v1beta1.JSONObject) bool { return j == "" })
	switch {
	case f.Version != "" && f.Version != "1.0":
		return nil, fmt.Errorf("version: %q is not known: write 1.0", edge.Brief(f.Version))
	case f.Type == "":
		return nil, errors.New("type: required: policyv1 or httpv1")
	case len(bodies) != 1:
		return nil, errors.New("one of policy and pdp belongs here")
	case (f.Type == "httpv1") != (f.Point != ""):
		return nil, fmt.Errorf("type: %q does not go with what stands beside it: policyv1 goes with policy, httpv1 with pdp", edge.Brief(f.Type))
	}
	return &v1beta1.MCPAuthzConfigSpec{Type: f.Type, Config: bodies[0]}, nil
}

func (d *draft) readAuthz() error {
	if d.AuthzConfig == "" {
		return nil
	}
	data, err := d.file("authz-config", d.AuthzConfig, maxDocument)
	if err != nil {
		return err
	}
	var file authzFile
	if err := d.decode("authz-config", d.AuthzConfig, data, &file); err != nil {
		return err
	}
	if d.authz, err = file.spec(); err != nil {
		return wrong("authz-config", "%s: %s", edge.Brief(d.AuthzConfig), err)
	}
	return nil
}
