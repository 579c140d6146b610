package compile

import (
	"strings"

	"github.com/weir-edge/weir/edge/runner"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// buildFields are those of images that are built.
var buildFields = []string{"spec.run.runtimeImage", "spec.run.runtimeAddPackages", "spec.run.buildCA"}

// builds reports whether spec.image is what an image is built of.
func builds(image string) bool {
	scheme, _, found := strings.Cut(image, "://")
	return found && (scheme == runner.SchemeNPX || scheme == runner.SchemeUVX || scheme == runner.SchemeGo)
}

// unbuilt refuses what is about a build where there is none.
func (c *compiler) unbuilt(o *object, image string) {
	if builds(image) {
		return
	}
	for _, field := range buildFields {
		if o.gives(field) {
			c.fail(o, field, ReasonConflict, "it is for images that are built, npx://, uvx:// and go://, and %s is none: take it out", brief(image))
		}
	}
}

// built plans how the image of a server is built; nil for one that is there or is fetched.
func (c *compiler) built(o *object, image string, run *v1beta1.ServerRun) *Build {
	if !builds(image) {
		return nil
	}
	source, err := runner.ParseSource(image)
	if err != nil {
		c.fail(o, "spec.image", ReasonInvalid, "%v", err)
		return nil
	}
	if source.Dir != "" {
		source.Dir = o.beside(source.Dir)
	}
	if err := runner.CheckBase(run.RuntimeImage, nil); err != nil {
		c.fail(o, "spec.run.runtimeImage", ReasonInvalid, "%v", err)
	}
	if err := runner.CheckBase("", run.RuntimeAddPackages); err != nil {
		c.fail(o, "spec.run.runtimeAddPackages", ReasonInvalid, "%v", err)
	}
	b := &Build{Source: source.String(), RuntimeImage: run.RuntimeImage, AddPackages: run.RuntimeAddPackages}
	if run.BuildCA != "" {
		b.CA = o.beside(run.BuildCA)
	}
	return b
}
