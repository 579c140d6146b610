package local

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/container"
	"github.com/weir-edge/weir/edge/container/build"
	"github.com/weir-edge/weir/edge/image"
	"github.com/weir-edge/weir/edge/runner"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/edge/workload"
)

// building is how the image of a workload is built.
type building struct {
	builds *build.Builds
	plan   *compile.Build
}

// newBuilds makes images with the engine of a machine. spool is a directory of this user's alone;
// images know logins, and who has to have made a base.
func newBuilds(m *container.Machine, spool string, images *image.Images, mode v1beta1.ImageVerification) *build.Builds {
	home, err := os.UserHomeDir()
	if err != nil {
		home = ""
	}
	return &build.Builds{Machine: m, Spool: spool, Home: home, Lookup: os.LookupEnv, Log: m.Log, Login: images.Login, Choose: Bases(images, mode, m.State)}
}

// Bases is build.Builds.Choose: bases are chosen as images of workloads are. Whoever signs the
// image of an entry of a registry has made none of them. state is that of the builds.
func Bases(images *image.Images, mode v1beta1.ImageVerification, state string) func(context.Context, *container.Engine, string, bool) (*build.Chosen, error) {
	return func(ctx context.Context, e *container.Engine, name string, anew bool) (*build.Chosen, error) {
		c, err := images.Choose(ctx, image.Want{Name: name, Mode: mode, Anew: anew, Held: heldBy(e, state, name)})
		if err != nil {
			return nil, err
		}
		chosen := &build.Chosen{Image: c.Image, Pull: c.Pull && c.Image == name, Verified: c.Verified, Notes: c.Notes}
		if mode == v1beta1.VerifyDisabled {
			chosen.Verified = "" // nobody has looked
		}
		return chosen, nil
	}
}

// request is what is asked for, as the files that it names are now.
func request(b *compile.Build) (r build.Request, err error) {
	if r.Source, err = runner.ParseSource(b.Source); err != nil || r.Source == nil {
		return r, fmt.Errorf("spec.image: %q is nothing to build: %w", edge.Brief(b.Source), err)
	}
	r.RuntimeImage, r.AddPackages = b.RuntimeImage, b.AddPackages
	if b.CA != "" {
		if r.CA, err = build.ReadCA(b.CA); err != nil {
			return r, &container.Error{Kind: container.Refused, What: "spec.run.buildCA: " + err.Error(), Next: "name a file with certificates of authorities in PEM"}
		}
	}
	return r, nil
}

// build has the image of the workload built, or finds it, and from then on it is that of its
// containers.
func (l *contained) build() error {
	r, err := request(l.building.plan)
	if err != nil {
		return err
	}
	mode := l.source.want.Mode
	r.Proven = mode == v1beta1.VerifyEnabled
	began := false
	r.Told = func(s build.Step) {
		if !began {
			began = true
			l.said("building an image of " + l.building.plan.Source)
		}
		if s.Done {
			l.said(StepLine(s))
		} else {
			l.shown(s.Text)
		}
	}
	done, err := l.building.builds.Build(l.life, r)
	if err != nil {
		return err
	}
	for _, note := range done.Notes {
		l.said(note)
	}
	choice := &image.Choice{Image: done.Tag, Verified: done.Verified, Notes: done.Doubts}
	if mode == v1beta1.VerifyDisabled {
		choice.Verified, choice.Notes = "not verified: --image-verification disabled", nil
	}
	if l.source.told != nil {
		l.source.told(choice)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.config.Image = done.ID
	return nil
}

// StepLine is a step of a build that has ended, for people.
func StepLine(s build.Step) string {
	return fmt.Sprintf("%s (%s)", s.Text, took(s.Took))
}

// took is a length of time for people.
func took(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

// Unproven is the error of an image for the user.
func Unproven(err *image.Error) *workload.Error {
	e := &workload.Error{Code: workload.CodeRefused, Message: err.What, Next: err.Next}
	if err.Kind == image.NoPull {
		e.Code, e.Passing = workload.CodePull, true
	}
	return e
}

// BuildFailure is the error of a build for the user; nil where err is none.
func BuildFailure(name string, err *build.Error) *workload.Error {
	e := &workload.Error{Code: workload.CodeBuild, Message: fmt.Sprintf("%s cannot be built: %s: %s", name, err.Step, err.Why), Next: err.Next, Passing: true}
	if len(err.Said) > 0 {
		e.Message += "\n  " + strings.Join(err.Said, "\n  ")
	}
	if e.Next == "" {
		e.Next = "correct what its last lines say"
	}
	return e
}

// EngineFailure is the error of a container engine for the user.
func EngineFailure(err *container.Error) *workload.Error {
	kind := map[container.Kind]workload.Code{container.NoEngine: workload.CodeSandbox, container.NoImage: workload.CodePull, container.NoPull: workload.CodePull, container.Refused: workload.CodeRefused}
	return &workload.Error{Code: kind[err.Kind], Message: err.What, Next: err.Next, Passing: err.Kind != container.Refused}
}

// Forget is workload.KeeperOptions.Forget: of images that were built.
func (d *Doors) Forget(ctx context.Context, manifest []byte, others [][]byte) (forgotten []string, err error) {
	of := buildOf(manifest)
	if of == nil || slices.ContainsFunc(others, func(other []byte) bool {
		o := buildOf(other)
		return o != nil && o.Source == of.Source
	}) {
		return nil, nil
	}
	source, err := runner.ParseSource(of.Source)
	if err != nil {
		return nil, err
	}
	_, m, err := d.locals.openEngines(d.log)
	if err != nil {
		return nil, err
	}
	e, err := m.Engine(ctx)
	if err != nil {
		return nil, err
	}
	return e.Forget(ctx, build.SourceKey(source))
}

// buildOf is how the image of a workload is built, by its manifests; nil for one that is not.
func buildOf(manifest []byte) *compile.Build {
	r, _, err := compileWorkload(manifest)
	if err != nil {
		return nil
	}
	if w := r.Plan.Servers[0].Backends[0].Workload; w != nil {
		return w.Build
	}
	return nil
}

// localForm is what to type for the same server without a container engine.
func (o *opened) localForm() string {
	w := o.plan.Servers[0].Backends[0].Workload
	return cmp.Or(workload.LocalForm(w.Image, w.Args), "weir run -- COMMAND")
}
