package compile

import (
	"regexp"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// What a container alone may have.

// engineNames are names of an engine's volumes and networks. How long they may be is asked
// apart: a bound in the expression is a copy of the class for each byte.
var engineNames = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

const (
	maxVolumes     = 16  // of a server
	maxVolumeName  = 64  // bytes
	maxNetworkName = 128 // bytes
)

// volume plans a volume that a profile names. inside are the paths that are mounted, with what
// mounts them.
func (c *compiler) volume(o *object, w *Workload, inside map[string]string, v Volume) {
	const at = "spec.permissionProfile"
	first, twice := inside[v.Target]
	switch {
	case len(v.Name) > maxVolumeName || !engineNames.MatchString(v.Name):
		c.fail(o, at, ReasonInvalid, "volume://%s is no volume: its name has letters, digits, _, . and -, at most 64", brief(v.Name))
	case twice:
		c.fail(o, at, ReasonDuplicate, "%s is mounted by %s already", brief(v.Target), first)
	case len(w.Volumes) == maxVolumes:
		c.fail(o, at, ReasonInvalid, "it names more than %d volumes", maxVolumes)
	default:
		inside[v.Target] = at
		w.Volumes = append(w.Volumes, v)
	}
}

// privileged judges whether a container has the engine's privileged mode.
func (c *compiler) privileged(o *object, run *v1beta1.ServerRun, w *Workload) {
	const at, profile = "spec.run.allowPrivileged", "spec.permissionProfile"
	switch {
	case w.Image == "" && run.AllowPrivileged:
		c.fail(o, at, ReasonConflict, "a process of this machine has the rights of its user at the most: this is for containers")
	case w.Image == "":
	case w.Profile.Privileged && !run.AllowPrivileged:
		c.fail(o, profile, ReasonNotAllowed, "the profile asks for a privileged container, which can do what root of this machine can: allow it with spec.run.allowPrivileged, or take privileged out of the profile")
	case run.AllowPrivileged && !w.Profile.Privileged:
		c.find(Warning, o, at, ReasonUnused, "not used: the profile does not ask for a privileged container")
	default:
		w.Privileged = w.Profile.Privileged
	}
}
