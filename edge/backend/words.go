package backend

import (
	"bytes"
	"io"
	"net/url"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/wire"
)

// secrets is what must not be told of a request: the lines of a credential,
// those of the client that went along, and its session.
func (r *reply) secrets() []string {
	var all []string
	for line := range bytes.SplitSeq(r.lines, []byte("\r\n")) {
		if _, value, ok := bytes.Cut(line, []byte(": ")); ok {
			all = append(all, wire.SecretsOf(string(value))...)
		}
	}
	lines := [][]edge.Header{r.ask.forward, r.ask.params}
	for _, some := range lines {
		for _, h := range some {
			all = append(all, wire.SecretsOf(h.Value)...)
		}
	}
	if r.ask.session != "" {
		all = append(all, r.ask.session)
	}
	if u, err := url.ParseRequestURI(r.peer.target); err == nil {
		all = append(all, wire.SecretsIn(u)...)
	}
	return all
}

// refuses is what a status says that is no success. Its body is still to be read.
func (r *reply) refuses() *refusal {
	e := &refusal{status: r.status, sent: r.lines != nil, challenge: r.challenged, after: r.c.Head.After, secrets: r.secrets()}
	if r.status == 403 && r.challenged {
		e.scopes = wire.Scopes(r.c.Head.Challenge)
	}
	return e
}

// beginning reads what a refusal that may have no end begins with, and gives up
// on the rest.
func (r *reply) beginning() []byte {
	r.quiet()
	now := time.Now()
	r.c.ReadBy(now.Add(time.Second), now)
	body, _ := io.ReadAll(io.LimitReader(r.stream(), wire.MaxLook)) // what has come says what there is to say
	r.close()
	return body
}
