package compile

import (
	"fmt"
	"slices"
	"strings"
)

// refuse notes every field of o that the edge cannot serve.
func (c *compiler) refuse(o *object) {
	type refusal struct {
		at   *given
		rule unsupported
	}
	var refusals []refusal
	add := func(at *given, rule unsupported) {
		if len(refusals) > maxErrors {
			return
		}
		for _, r := range refusals {
			if r.at.path == at.path {
				return
			}
		}
		refusals = append(refusals, refusal{at, rule})
	}
	for _, g := range o.given {
		e := c.tables.find(o.ref.Kind, g.pattern)
		switch {
		case e.class != classUnsupported:
		case e.rule.enabled != "":
			if on := g.above(e.path); o.text(on.path+"."+e.rule.enabled) == "true" {
				add(on, *e.rule)
			}
		case g.pattern != e.path || !slices.Contains(e.rule.allow, g.value):
			add(g.above(e.path), *e.rule)
		}
	}
	for _, e := range c.tables.entries[o.ref.Kind] {
		if !o.unread(e.path) && e.rule != nil && e.rule.absent != "" && o.text(e.path) == "" {
			add(&given{path: e.path, pattern: e.path, value: e.rule.absent}, *e.rule)
		}
	}
	for _, r := range refusals {
		if r.rule.with != "" && slices.ContainsFunc(refusals, func(other refusal) bool {
			return other.at.pattern == r.rule.with && under(r.at.path, other.at.path[:strings.LastIndexByte(other.at.path, '.')])
		}) {
			continue
		}
		if o.wrong[r.at.path] {
			continue // What is wrong with the field is said already.
		}
		c.fail(o, r.at.path, ReasonUnsupported, "not supported yet%s", r.rule.words(r.at))
	}
}

// words ends the message of a refusal.
func (u unsupported) words(g *given) string {
	what := ""
	switch {
	case u.absent != "" && g.up == nil:
		what = fmt.Sprintf(": %q, which is the default", u.absent)
	case u.path == "spec":
		what = ": an object of this kind behind a server"
	case g.value != "" && g.pattern == u.path && len(u.allow) > 0:
		what = fmt.Sprintf(": %q", brief(g.value))
	}
	if u.instead == "" {
		return what + "; take it out for now"
	}
	return what + "; " + u.instead
}
