package doctor

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/near"
	"github.com/weir-edge/weir/edge/settings"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/filters/audit"
)

// clock looks whether the time can be right: it is not before this program was
// made.
func (d *Doctor) clock(now time.Time) edge.Finding {
	return d.step(context.Background(), "clock", "this machine", func(context.Context) edge.Finding {
		made, err := time.Parse(time.RFC3339, d.Made)
		if err == nil && now.Before(made) {
			return edge.Warning(edge.ClassClock, "set the clock: certificates and tokens are judged by it",
				"it is %s by the clock, which is before this program was made", now.UTC().Format(time.RFC3339))
		}
		return edge.Fine(now.UTC().Format(time.RFC3339))
	})
}

// settings reports what is wrong with the settings.
func (d *Doctor) settings(err error) []edge.Finding {
	if err == nil {
		return []edge.Finding{d.tell(edge.Finding{Step: "settings", Subject: "of the process"})}
	}
	var out []edge.Finding
	for line := range strings.Lines(err.Error()) {
		subject, cause, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			subject, cause = "of the process", subject
		}
		c := edge.Problem(edge.ClassSettings, "correct it where it comes from: `weir settings` shows all of them and where each is from", "%s", cause)
		c.Step, c.Subject = "settings", subject
		out = append(out, d.tell(c))
	}
	return out
}

// manifests reports what reading and compiling found.
func (d *Doctor) manifests(r *source.Result, s settings.Settings) []edge.Finding {
	subject := strings.Join(d.Config, ", ")
	if subject == "" {
		subject = "(default)"
	}
	var out []edge.Finding
	tell := func(c edge.Finding, at string) {
		c.Step, c.Subject = "manifests", at
		out = append(out, d.tell(c))
	}
	for _, f := range r.Findings {
		c := f.Advice()
		tell(c, cmp.Or(c.Subject, subject))
	}
	if r.Plan == nil {
		return out
	}
	names := []string{}
	backends := 0
	for _, one := range r.Plan.Servers {
		names = append(names, one.Name)
		backends += len(one.Backends)
	}
	if want := s.DefaultServer; want != "" && !slices.Contains(names, want) {
		_, hint := near.Hint(want, names)
		c := edge.Problem(edge.ClassSettings, "name one of "+strings.Join(names, ", "), "--default-server: there is no server %q: %s", want, cmp.Or(hint, "the manifests describe none"))
		tell(c, "--default-server")
	}
	out = append(out, d.questions(r, s)...)
	tell(edge.Fine(edge.Count(len(r.Plan.Servers), "server")+", "+edge.Count(backends, "backend")), subject)
	return out
}

// secrets looks for the secrets that the manifests refer to, and returns where it
// looked; nil where there is nowhere.
func (d *Doctor) secrets(ctx context.Context, r *source.Result, dir string) (edge.Secrets, []edge.Finding) {
	if r.Plan == nil || dir == "" && len(r.Plan.Needs) == 0 {
		return nil, nil
	}
	secrets, err := d.Secrets(r.Set, dir)
	if err != nil {
		return nil, []edge.Finding{d.step(ctx, "secrets", "--secrets-dir", func(context.Context) edge.Finding {
			return edge.Problem(edge.ClassSettings, "name a directory that is there with --secrets-dir", "%v", err)
		})}
	}
	out := []edge.Finding{}
	for _, f := range r.Missing(ctx, secrets) {
		out = append(out, d.step(ctx, "secrets", f.Object.String(), func(context.Context) edge.Finding {
			return edge.Problem(edge.ClassSecret, "put the value into one of the places, or correct the reference", "%s", f)
		}))
	}
	if len(out) == 0 {
		out = append(out, d.step(ctx, "secrets", "of the manifests", func(context.Context) edge.Finding { return edge.Fine(edge.Count(len(r.Plan.Needs), "secret")) }))
	}
	return secrets, out
}

// files looks at the files that the settings name.
func (d *Doctor) files(s settings.Settings) (out []edge.Finding) {
	s.LookAtFiles(time.Now(), func(name string, f func() edge.Finding) {
		out = append(out, d.step(context.Background(), "files", "--"+name, func(context.Context) edge.Finding { return f() }))
	})
	return out
}

// named looks at the files and variables that servers name, besides those of their backends.
func (d *Doctor) named(ctx context.Context, plan *compile.Plan) (out []edge.Finding) {
	for _, s := range plan.Servers {
		look := func(step, class, of, name, next string, f func(string) error) {
			if name != "" {
				out = append(out, d.step(ctx, step, s.Name+" "+of, func(context.Context) edge.Finding {
					if err := f(name); err != nil {
						return edge.Problem(class, next, "%v", err)
					}
					return edge.Fine("")
				}))
			}
		}
		const certificates = "name a file with the certificates of authorities in PEM"
		authorities := func(path string) error { _, err := edge.Authorities(path); return err }
		if in := s.Incoming; in != nil {
			look("files", edge.ClassFile, "incomingAuth", in.CABundlePath, certificates, authorities)
			look("secrets", edge.ClassSecret, "incomingAuth", in.ClientSecretEnv, "give the variable its value where the edge is started", func(string) error { return in.Sound(edge.Env{}) })
		}
		if s.Telemetry != nil {
			look("files", edge.ClassFile, "telemetry", s.Telemetry.CAFile, certificates, authorities)
		}
		if s.Audit != nil {
			look("files", edge.ClassFile, "audit", s.Audit.Config.LogFile, "name a file in a directory that is there with logFile", audit.LookAt)
		}
	}
	return out
}

// addresses looks whether the edge could listen where it is to listen.
func (d *Doctor) addresses(ctx context.Context, s settings.Settings) []edge.Finding {
	var out []edge.Finding
	for _, one := range []struct{ flag, address string }{{"listen", s.Listen}, {"admin-listen", s.AdminListen}} {
		if _, _, err := net.SplitHostPort(one.address); err != nil {
			continue // there is none, or the settings have said what is wrong with it
		}
		out = append(out, d.step(ctx, "addresses", "--"+one.flag+" "+one.address, func(ctx context.Context) edge.Finding {
			return door.LookAt(ctx, one.flag, one.address, s.HandOver != "")
		}))
	}
	return out
}
