// Package audit writes down what clients asked for and what came of it: one
// line of JSON for each exchange.
//
// It wraps authentication, so that a client that is turned away is written down
// too, and knows who it was all the same, because it holds the same exchange.
// The path never waits for the log: records go into a bounded queue, and what
// finds no room there is counted, told in the log itself, and in the metrics.
package audit

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Spec describes the audit log of one server.
type Spec struct {
	Server   string
	Endpoint string        // path at which clients reach the server; /mcp when empty
	Config   v1beta1.Audit // with its defaults filled in
	Path     *field.Path   // of Config
}

// Components of records.
const (
	Server   = "vmcp-server"   // of exchanges, when the configuration names none
	Composer = "vmcp-composer" // of composite tools
)

// bounds of what a record has room for, in bytes.
const (
	maxWord   = 256
	maxRecord = 1 << 10 // of data, when the configuration gives no maxDataSize
)

// Part is the audit log of one server, not yet open. The functions are set
// before Open; each may be nil.
type Part struct {
	// Answer says how an error looks on the wire: its HTTP status and its
	// JSON-RPC code. nil leaves both out of records.
	Answer func(edge.Kind, mcp.Era) (status, code int)

	// Decision says what a policy decided of an exchange; false for nothing.
	Decision func(*edge.Exchange) (Decision, bool)

	// Transport says how an exchange came: "streamable-http" or "sse". nil is
	// the former for all.
	Transport func(*edge.Exchange) string

	// Script says the SHA-256 of the script that an exchange asks to have run, in
	// hexadecimal; "" for none.
	Script func(*edge.Exchange) string

	server, endpoint, component string
	file                        string // "" for standard output
	request, response           bool   // data is recorded
	size                        int
	detect                      bool
	wanted                      [types]bool

	// Copy sees each record when it is made. It neither waits nor keeps the bytes.
	// nil for nobody.
	Copy func(record []byte)

	open func(string) (file, error) // of logFile
}

// Decision is what a policy decided, as records have it.
type Decision struct {
	Allowed  bool
	Reason   string
	Policies []string // that decided
	Version  string   // of the policies
}

// Parse makes the audit log of a server, or says everything that is wrong with
// it (config.audit of the virtual server document). It returns nil without an
// error for a log that is not enabled.
func Parse(s Spec) (*Part, field.ErrorList) {
	c := &s.Config
	if !c.Enabled {
		return nil, nil
	}
	p := &Part{
		server: s.Server, endpoint: cmp.Or(s.Endpoint, "/mcp"), component: cmp.Or(c.Component, Server),
		file: c.LogFile, request: c.IncludeRequestData, response: c.IncludeResponseData,
		size: maxRecord, detect: true, open: openFile,
	}
	var errs field.ErrorList
	if c.MaxDataSize != nil {
		p.size = *c.MaxDataSize
		if p.size < 0 {
			errs = append(errs, field.Invalid(s.Path.Child("maxDataSize"), p.size, "must not be negative"))
		}
	}
	if c.DetectApplicationErrors != nil {
		p.detect = *c.DetectApplicationErrors
	}
	names := Types()
	choose := func(path *field.Path, list []string, wanted bool) {
		for i, name := range list {
			if at := slices.Index(names, name); at >= 0 {
				p.wanted[at] = wanted
			} else {
				errs = append(errs, field.NotSupported(path.Index(i), name, names))
			}
		}
	}
	for t := range p.wanted {
		p.wanted[t] = len(c.EventTypes) == 0
	}
	choose(s.Path.Child("eventTypes"), c.EventTypes, true)
	choose(s.Path.Child("excludeEventTypes"), c.ExcludeEventTypes, false)
	if len(errs) > 0 {
		return nil, errs
	}
	return p, nil
}

// Log is an open audit log. It is safe for concurrent use.
type Log struct {
	*Part
	queue *queue
	log   *slog.Logger
	now   func() time.Time // by which records are dated
}

// Open is edge.Part.Open.
func (p *Part) Open(env edge.Env) (edge.Filter, error) {
	l, err := p.Start(env)
	if err != nil {
		return nil, err
	}
	return l.Filter, nil
}

// Start opens the log, and closes it when the plan retires. It fails for a
// file that cannot be appended to.
func (p *Part) Start(env edge.Env) (*Log, error) {
	f, err := p.open(p.file)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return nil, edge.Errorf(edge.Internal, "audit", "logFile: %w: make its directory, in which the edge can write, or name another file", err)
	case err != nil:
		return nil, edge.Errorf(edge.Internal, "audit", "logFile: %w", err)
	}
	l := &Log{Part: p, log: env.Log, now: env.Clock()}
	l.queue = newQueue(p, f, env.Log, l.now)
	env.Defer(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		l.Close(ctx)
	})
	return l, nil
}

// closing bounds how long the end of a plan waits for the log.
const closing = 5 * time.Second

// Close writes down what is left, as long as ctx lasts, and closes the file.
// What could not be written is counted as lost and told to the process log.
// What is recorded later is counted as lost.
func (l *Log) Close(ctx context.Context) { l.queue.close(ctx) }

// Reopen opens the log file by its name again before the next write, for those
// who rotate it. It does nothing for standard output. While the file cannot be
// opened, the log keeps the old one and tries again.
func (l *Log) Reopen() { l.queue.reopen() }

// Counters are what a log has counted since it was opened. Recorded is Written,
// Lost and what waits in the queue together.
type Counters struct {
	Recorded uint64 // records that were made
	Written  uint64 // of those, lines that the file took
	Lost     uint64 // of those, lines that nobody will find
	Failures uint64 // attempts to write or to open that failed
}

// Counters returns what has been counted.
func (l *Log) Counters() Counters { return l.queue.counters() }

// Collect is edge.Collector.Collect.
func (l *Log) Collect(m edge.Emitter) {
	c := l.Counters()
	m.Counter("weir_audit_recorded", "Records that were made.", float64(c.Recorded))
	m.Counter("weir_audit_written", "Records that the log took.", float64(c.Written))
	m.Counter("weir_audit_lost", "Records that nobody will find.", float64(c.Lost))
	m.Counter("weir_audit_failures", "Attempts to write or to open the log that failed.", float64(c.Failures))
}
