package local

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/container"
	"github.com/weir-edge/weir/edge/container/build"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/image"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/oauth/login"
	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/stdio"
	"github.com/weir-edge/weir/edge/workload"
	"github.com/weir-edge/weir/edge/workload/logs"
	"github.com/weir-edge/weir/wasm"
)

// How a workload that is served is: whether it answers, and why it does not.

// Meet is workload.Edge.Meet.
func (d *Doors) Meet(ctx context.Context, name string) error {
	one := d.of(name)
	if one == nil {
		return errNotOpen
	}
	b, lists := d.Edge.Alone(name)
	if b == nil {
		return errNotOpen
	}
	one.mu.Lock()
	again, local := one.met, one.local
	one.met = true
	one.mu.Unlock()
	var err error
	switch {
	case local == nil || again:
		err = b.Renew(ctx)
	default: // what opened the backend has asked it already
		select {
		case <-one.settled:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		one.mu.Lock()
		state := one.state
		one.mu.Unlock()
		if state == stdio.Running {
			_, err = b.Introduced(ctx, nil)
		} else {
			err = errors.New("has not introduced itself")
		}
	}
	switch {
	case err == nil && !again:
		if lists != nil {
			lists.Listed(ctx, edge.Tool)
		}
		for _, text := range findings(lists) {
			one.Say("warning: " + text)
		}
		return nil
	case err == nil || ctx.Err() != nil:
		return err
	case b.WantsUser(err) || b.Personal() && edge.KindOf(err) == edge.Unauthenticated:
		return nil // it answers to users alone, so it lives
	}
	return one.why(err)
}

var errNotOpen = &workload.Error{Code: workload.CodeFault, Message: "the workload is not served"}

// why says for the user why a server has not introduced itself.
func (o *opened) why(err error) error {
	o.mu.Lock()
	failed, local, stray := o.failed, o.local, o.stray
	o.mu.Unlock()
	e := &workload.Error{Code: workload.CodeStart, Message: o.unmet(err.Error())}
	if local == nil && failed == nil {
		b := o.plan.Servers[0].Backends[0]
		needed := new(login.NeededError)
		var answer interface{ HTTPStatus() int }
		refused := edge.KindOf(err) == edge.Unauthenticated || errors.As(err, &answer) && answer.HTTPStatus() == http.StatusUnauthorized
		switch {
		case errors.As(err, &needed):
			e.Code, e.Message, e.Next = workload.CodeLogin, o.Name+" wants a login: "+needed.Why, "weir start "+o.Name+", at a terminal"
		case refused && b.Login != nil && b.Login.BearerTokenPath != "":
			e.Code, e.Message, e.Next = workload.CodeLogin, o.Name+" refuses the token in "+b.Login.BearerTokenPath+": "+err.Error(), "write one that it takes into the file, then weir start "+o.Name
		case refused && b.Login != nil:
			e.Code, e.Message, e.Next = workload.CodeLogin, o.Name+" wants a login: "+err.Error(), "weir start "+o.Name+", at a terminal"
		case refused:
			e.Code, e.Message, e.Next = workload.CodeLogin, o.Name+" wants a credential: "+err.Error(), "weir run --replace --name "+o.Name+" --remote-auth URL, or with --remote-auth-bearer-token-file, with the rest of what it was run with"
		case errors.As(err, new(x509.UnknownAuthorityError)):
			e.Next = "weir run --replace --name " + o.Name + " --weir-ca-bundle FILE, which has the certificate of its authority, with the rest of what it was run with"
		case errors.As(err, new(*tls.CertificateVerificationError)):
			e.Next = "have whoever runs it mend its certificate, or check the clock of this machine and the host in the URL"
		case errors.As(err, new(*mcp.SyntaxError)), errors.As(err, &answer) && answer.HTTPStatus() < http.StatusInternalServerError && !slices.Contains([]int{http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests}, answer.HTTPStatus()):
			e.Message += ": no MCP server answers at this URL"
			e.Next = "give the URL of its MCP endpoint: often the path is /mcp, or /sse with --transport sse"
		}
		return e
	}
	var helper *sandbox.HelperError
	var grade *sandbox.GradeError
	var mount *sandbox.MountError
	var port *sandbox.PortError
	var module *wasm.Refusal
	var engine *container.Error
	var unbuilt *build.Error
	var unproven *image.Error
	switch {
	case errors.As(failed, &unbuilt):
		return BuildFailure(o.Name, unbuilt)
	case errors.As(failed, &unproven):
		*e = *Unproven(unproven)
	case errors.As(failed, &engine):
		*e = *EngineFailure(engine)
		if engine.Kind == container.NoEngine {
			e.Next += ", or run the server as a process of this machine: " + o.localForm()
		}
	case errors.As(failed, &module):
		e.Code, e.Message, e.Next = workload.CodeRefused, fmt.Sprintf("%s cannot be started: %v", o.Name, failed), "build it for WASI preview 1: `weir plugin new --server` begins one"
		if module.Section != "import" && module.Section != "export" && module.Section != "module" {
			e.Next = "build it again, or smaller: `weir plugin new --server` begins one that fits"
		}
	case errors.As(failed, &helper):
		e.Code, e.Message = workload.CodeSandbox, failed.Error()
	case errors.As(failed, &grade):
		e.Code, e.Message, e.Next = workload.CodeSandbox, strings.TrimSuffix(failed.Error(), ": "+grade.Next), grade.Next
	case errors.As(failed, &mount):
		e.Code, e.Message, e.Next = workload.CodeRefused, strings.TrimSuffix(failed.Error(), ": "+mount.Next), mount.Next
	case errors.As(failed, &port) && errors.Is(failed, syscall.EADDRINUSE):
		e.Code, e.Field, e.Passing = workload.CodeTaken, "--target-port", true // somebody may leave it
		e.Message, e.Next = fmt.Sprintf("%s cannot be started: somebody else listens on port %d of this machine, which it shares", o.Name, port.Port), "give another --target-port, or none"
	case failed != nil:
		e.Message = fmt.Sprintf("%s cannot be started: %v", o.Name, failed)
	default:
		// One that was stopped or closed was ended by us, and that is no reason.
		s := statusOf(local)
		met := !strings.HasPrefix(s.Reason, "call: ended") // it ended later than while it introduced itself
		if errors.As(err, new(*stdio.RestError)) && met {
			e.Message = fmt.Sprintf("%s rests: %s", o.Name, s.Reason)
		} else if s.Ended != "" && s.Ended != "stopped" && s.Ended != "closed" {
			e.Message = fmt.Sprintf("%s ended before it had introduced itself: %s", o.Name, s.Ended)
		} else if s.Reason != "" {
			e.Message = o.unmet(s.Reason)
		}
		if w := o.plan.Servers[0].Backends[0].Workload; w.Form == compile.FormContainer {
			e.Next = unwritable(o.Name, statusOf(local).Said, w.Writable)
		}
		e.Next = cmp.Or(e.Next, limited(statusOf(local).Ended))
		if _, lines := local.(backend.OverLines); lines && stray != "" { // of another all that it writes is for people
			e.Message += fmt.Sprintf("; what it writes to standard output is no message of MCP: %q", edge.Brief(stray))
		}
	}
	return e
}

// unmet says that a server has not introduced itself, for a reason that may say so itself.
func (o *opened) unmet(reason string) string {
	if late, ok := strings.CutPrefix(reason, "introduction: "); ok {
		return o.Name + " " + late
	}
	if said := strings.TrimPrefix(reason, "call: "); strings.HasPrefix(said, "refuses ") {
		return o.Name + " " + said
	}
	return o.Name + " has not introduced itself: " + reason
}

// refusals are what servers say of a path of a container that they may not write to, or not
// read as the user that they are.
var refusals = sync.OnceValue(func() [2]*regexp.Regexp {
	const path = `[^/]*(/[^\s:'",)\]]+)`
	return [2]*regexp.Regexp{regexp.MustCompile(`(?i)(?:EROFS|read-only file system)` + path + `|(/[^\s:'",)\]]+)[^/]*read-only file system`), regexp.MustCompile(`(?i)(?:EACCES|permission denied)` + path + `|(/[^\s:'",)\]]+)[^/]*permission denied`)}
})

// unwritable is what to type for a server that said that it may not write somewhere; "" where
// it said nothing of it. Where it has memory already, that is not the user's to write to.
func unwritable(name string, said, writable []string) string {
	for i, next := range []string{"give it memory to write to there, weir run --writable %s, or a directory, -v HOST:%[1]s", "if it has to be the user of its image, weir run --run-as image; if it is to write there, --writable %s"} {
		for _, line := range said {
			if m := refusals()[i].FindStringSubmatch(line); m != nil {
				dir := path.Dir(m[1] + m[2])
				if slices.Contains(writable, dir) {
					next = "give it a directory that its user may write to there, weir run -v HOST:%s"
				}
				return fmt.Sprintf(next, edge.Brief(dir)) + "; weir logs " + name
			}
		}
	}
	return ""
}

// limited is what to type for a server that ended since it wanted more than it may have; "" for
// another end.
func limited(ended string) string {
	if reason, _, _ := strings.Cut(ended, ":"); reason == sandbox.ReasonMemory {
		return "give it more memory: weir run --replace --memory SIZE, with the rest of what it was run with"
	}
	return ""
}

// statusOf is what is known of a local server.
func statusOf(local backend.Local) stdio.Status {
	if s, ok := local.(interface{ Status() stdio.Status }); ok {
		return s.Status()
	}
	return stdio.Status{}
}

// Look is workload.Edge.Look.
func (d *Doors) Look(name string) (workload.Look, bool) {
	one := d.of(name)
	if one == nil {
		return workload.Look{}, false
	}
	b, lists := d.Edge.Alone(name)
	if b == nil {
		return workload.Look{}, false
	}
	one.mu.Lock()
	local := one.local
	look := workload.Look{State: workload.Running, URL: d.url(one), Tools: findings(lists), Sandbox: one.box, Open: one.wide, Notes: slices.Clone(one.notes)}
	if c := one.image; c != nil {
		look.Image, look.Verified = c.Image, verifiedOf(c)
	}
	one.mu.Unlock()
	if local == nil {
		now := b.Status()
		if now.Failures > 0 { // and some more make it unhealthy
			look.Reason = now.Message
		}
		switch now.Is() {
		case health.Unknown: // it was not asked yet
			look.State = workload.Starting
		case health.Unavailable:
			look.State, look.Reason = workload.Unhealthy, now.Message
		case health.Unauthenticated:
			look.State, look.Reason = workload.AuthRetrying, now.Message
		}
		return look, true
	}
	if r, ok := local.(interface{ RunAs() []string }); ok {
		look.RunAs = r.RunAs()
	}
	now := statusOf(local)
	look.Reason, look.Processes, look.Restarts = now.Reason, now.Processes, int(now.Restarts)
	look.Ended, look.Stderr, look.Next = now.Ended, now.Said, limited(now.Ended)
	switch now.State {
	case stdio.Starting:
		look.State = workload.Starting
	case stdio.Unhealthy:
		look.State = workload.Unhealthy
	case stdio.Failed, stdio.Stopped:
		look.State, look.Over = workload.Failed, now.State == stdio.Stopped
	}
	return look, true
}

// byFlags says of what a user typed what a catalog says of the object that was made of it.
var byFlags = strings.NewReplacer("filter of its own toolConfigRef names", "--tools names", "overrides of its own toolConfigRef name ", "--tools-override names ")

// findings are what there is to know of a workload's tools.
func findings(lists *catalog.Book) (all []string) {
	if lists == nil {
		return nil // its tools are what its server says
	}
	for _, f := range lists.Report().Tools() {
		all = append(all, byFlags.Replace(f.String()))
	}
	return all
}

// url is where clients reach a workload.
func (d *Doors) url(one *opened) string {
	at := d.Edge.DoorAddr(one.Name)
	if at == "" {
		return ""
	}
	s := d.settings
	s.ExternalURL = one.plan.Doors[0].ExternalURL
	url := s.Endpoint(at)
	if one.plan.Servers[0].Older {
		url = strings.TrimSuffix(url, "/mcp") + "/sse"
	}
	return url
}

// has notes who keeps the processes of a workload.
func (o *opened) has(local backend.Local) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.local = local
}

// changed notes how a workload's processes are.
func (o *opened) changed(s stdio.Status) {
	if s.State == stdio.Starting {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == "" {
		o.state = s.State
		close(o.settled)
	}
}

// boxed notes what a sandbox of the workload holds.
func (o *opened) boxed(s *sandbox.Sandbox) {
	var notes []string
	if s.Note() != "" {
		notes = []string{s.Note()}
	}
	o.holds(string(s.Grade()), s.Open(), notes)
}

// holds notes what a process of the workload runs in. Whoever waits for the start is told what
// that does not hold: once, though each principal has one of its own.
func (o *opened) holds(box string, wide bool, notes []string) {
	o.mu.Lock()
	before := o.notes
	o.box, o.wide, o.failed, o.notes = box, wide, nil, notes
	o.mu.Unlock()
	if !slices.Equal(notes, before) {
		for _, note := range notes {
			o.Say("note: " + note)
		}
	}
}

// chosen notes which image containers of the workload are made of, and says what is not certain
// of it.
func (o *opened) chosen(c *image.Choice) {
	o.mu.Lock()
	o.image = c
	o.mu.Unlock()
	for _, note := range c.Notes {
		o.Say("warning: " + note)
		o.Lines(workload.Line{Time: time.Now(), Source: logs.Event, Text: note})
	}
}

// verifiedOf is what is known of who made an image.
func verifiedOf(c *image.Choice) string {
	if c.Verified == "" {
		return strings.Join(c.Notes, "; ")
	}
	return strings.Join(append([]string{c.Verified}, c.Notes...), "; ")
}

// contained notes what a container of the workload is.
func (o *opened) contained(b *container.Box) { o.holds("container", false, b.Notes()) }

// printed passes on what a server prints.
func (o *opened) printed(l stdio.Line) {
	switch l.Source {
	case "weir":
		l.Source = logs.Event
		if how, ended := strings.CutPrefix(l.Text, "process ended: "); ended && limited(how) != "" {
			l.Text += " (more than --memory gives it)"
		}
	case "stdout":
		l.Text = strings.TrimPrefix(l.Text, "stdout: ")
		o.mu.Lock()
		o.stray = l.Text
		o.mu.Unlock()
	}
	o.Lines(workload.Line{Time: l.At, Source: l.Source, Text: l.Text})
}

// noting is a starter whose failures are noted.
type noting struct {
	stdio.Starter
	of *opened
}

func (n noting) Start(ctx context.Context, principal string) (stdio.Process, error) {
	p, err := n.Starter.Start(ctx, principal)
	if ctx.Err() == nil {
		n.of.mu.Lock()
		n.of.failed = err
		n.of.mu.Unlock()
	}
	return p, err
}

// keep has the processes of a workload looked after, and what its server speaks remembered:
// by what shapes the server, whichever start of it this is.
func (o *opened) keep(w *compile.Workload, c *stdio.Config) {
	same := *w
	same.Start = 0
	text, err := json.Marshal(same)
	if err != nil {
		panic(err) // a plan is data
	}
	sum := sha256.Sum256(text)
	digest := hex.EncodeToString(sum[:])
	c.Digest, c.Starter, c.Lines, c.Changed = digest, noting{c.Starter, o}, o.printed, o.changed
	c.Remembered = func(digest string) (mcp.Era, bool) {
		modern, known := o.Opening.Remembered(digest)
		if modern {
			return mcp.Modern, known
		}
		return mcp.Legacy, known
	}
	c.Remember = func(digest string, era mcp.Era) { o.Opening.Remember(digest, era == mcp.Modern) }
}
