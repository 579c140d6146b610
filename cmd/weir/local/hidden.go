package local

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/sandbox"
)

// IgnoreName is the file of the user's ignore patterns, in the directory of the configuration.
const IgnoreName = "ignore"

// ignores is the file of ignore patterns that hold for a workload; "" for none.
func (l *Locals) ignores(w *compile.Workload) string {
	if !w.IgnoreGlobally {
		return ""
	}
	return l.configured(IgnoreName)
}

// configured is a file of the user's defaults; "" where there is no place for one.
func (l *Locals) configured(name string) string {
	if l.config != "" {
		return filepath.Join(l.config, name)
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "weir", name)
}

// whole refuses to give a server in WebAssembly directories of which something is to be
// hidden: nothing lies over what is in them.
func (l *Locals) whole(w *compile.Workload) error {
	mounts := mountsOf(w)
	for i := range mounts { // none lies over what is in another one
		mounts[i].Inside = fmt.Sprintf("/%d", i)
	}
	hidden, err := hiddenOf(w, mounts, l.ignores(w))
	if err != nil {
		return err
	}
	if len(hidden) > 0 {
		return &sandbox.MountError{Path: hidden[0].Host, Why: "ignore patterns name it, and a server in WebAssembly has directories whole", Next: "mount a directory without it, or set spec.run.ignoreGlobally to false where the patterns are yours"}
	}
	return nil
}

// Hidden is what is hidden of the directories that a workload has mounted, by the ignore
// patterns in a file ("" for none) and in these.
func Hidden(w *compile.Workload, ignore string) ([]sandbox.Overlay, error) {
	return hiddenOf(w, mountsOf(w), ignore)
}

func mountsOf(w *compile.Workload) (mounts []sandbox.Mount) {
	for _, m := range w.Mounts {
		mounts = append(mounts, sandbox.Mount{Host: m.Source, Inside: m.Target, Writable: m.Writable})
	}
	return mounts
}

func hiddenOf(w *compile.Workload, mounts []sandbox.Mount, ignore string) ([]sandbox.Overlay, error) {
	all, err := sandbox.Overlays(mounts, ignore)
	if err != nil {
		return nil, fmt.Errorf("what is hidden of %s: %w", w.Name, err)
	}
	return all, nil
}
