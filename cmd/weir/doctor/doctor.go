// Package doctor looks for what keeps a configuration from working, step by step, and
// says the cause and the next step for each thing that it finds. What can be wrong with
// a thing is said by the package that it is of.
//
//	doctor.go     the order of the steps
//	report.go     the exit codes of the classes, and how findings are shown
//	process.go    what the process needs: settings, files, manifests, secrets, addresses, the clock
//	filters.go    the modules of filters
//	store.go      the stores that servers share
//	tokens.go     whether what is asked for credentials answers
//	signin.go     authorization servers: their secrets, and the providers that they send users to
//	optimizer.go  tools that are hard to find, and embedding services
//	workflows.go  steps of composite tools that ask the caller
package doctor

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/checkup"
	"github.com/weir-edge/weir/edge/demo"
	"github.com/weir-edge/weir/edge/settings"
	"github.com/weir-edge/weir/edge/source"
)

// Doctor is what the doctor is told. All fields but Config, Made and the credentials are
// needed.
type Doctor struct {
	Config  []string      // files and directories of manifests; none for the demo
	Timeout time.Duration // of each step
	Version string        // of this program
	Made    string        // when that was made, in RFC 3339; "" where it is not known

	// Settings reads the settings of the process. The error has a line for each fault.
	Settings func() (settings.Settings, error)
	// Secrets returns the secrets that a set would be served with; dir is --secrets-dir.
	Secrets func(set *source.Set, dir string) (edge.Secrets, error)

	// User is for whom backends are asked that answer users alone; nil for nobody.
	User *edge.Identity

	StorePassword    edge.Secret // of stores whose sessionStorage names no secret
	SentinelUser     string      // "" for the default one
	SentinelPassword edge.Secret
	EmbeddingKey     edge.Secret // of embedding services; "" for none

	// Say is told of each step that has ended, of one at a time.
	Say func(edge.Finding)
	mu  sync.Mutex // held while Say is called
}

// Run takes all steps. The error is one of the doctor's own, not a finding.
func (d *Doctor) Run(ctx context.Context) (Findings, error) {
	var all Findings
	add := func(checks ...edge.Finding) { all = append(all, checks...) }

	// 1. The process.
	add(d.clock(time.Now()))
	s, err := d.Settings()
	add(d.settings(err)...)
	add(d.files(s)...)

	// 2. What is to be served.
	var opened *source.Result
	if len(d.Config) == 0 {
		backend, err := demo.Start("")
		if err != nil {
			return nil, err
		}
		defer backend.Close()
		opened = source.OpenDefaultWith(backend.URL(), s.WebhookConfig...)
	} else {
		opened = source.OpenAll(d.Config, source.Webhooks(s.WebhookConfig...), source.LocalRateLimits(s.LocalRateLimits), source.AllowWorkloads(s.AllowWorkloads...))
	}
	add(d.manifests(opened, s)...)

	secrets, found := d.secrets(ctx, opened, s.SecretsDir)
	add(found...)

	// 3. The filters, the stores that servers share, the backends, and what clients see of them. There is no plan
	// when the manifests have errors.
	if opened.Plan != nil {
		add(d.named(ctx, opened.Plan)...)
		add(d.filters(ctx, opened, s, secrets)...)
		add(d.stores(ctx, opened.Plan, s, secrets)...)
		reach, _ := s.Reach() // the step files has said what is wrong with it
		add(d.issuers(ctx, opened.Plan, secrets, reach)...)
		add(d.tokens(ctx, opened.Plan, reach)...)
		add(d.user(opened.Plan)...)
		add(d.signIns(ctx, opened.Plan, secrets, reach)...)
		look := checkup.Config{Timeout: d.Timeout, MaxMessage: s.MaxMessage, Version: d.Version, Secrets: secrets, Reach: reach, User: d.User, Step: d.step}
		for _, server := range opened.Plan.Servers {
			var told []edge.Finding
			look.Offers = d.found(ctx, server, &told)
			add(look.Server(ctx, server)...)
			add(told...)
			add(d.embeddings(ctx, server, reach)...)
		}
	}

	// 4. Where the edge is to listen.
	add(d.addresses(ctx, s)...)
	return all, nil
}

// step begins a step: within bounds, and told of when it has ended.
func (d *Doctor) step(ctx context.Context, name, subject string, f func(context.Context) edge.Finding) edge.Finding {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	c := f(ctx)
	c.Step, c.Subject = name, edge.Clean(strings.ReplaceAll(subject, "\n", " "))
	return d.tell(c)
}

// tell passes on the end of a step.
func (d *Doctor) tell(c edge.Finding) edge.Finding {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Say(c)
	return c
}
