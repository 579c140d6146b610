package main

import (
	"fmt"
	"path/filepath"

	"github.com/weir-edge/weir/cmd/weir/local"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
)

// printHidden prints what is hidden of the directories that a workload is to have mounted, as
// it is now, a line each, on standard error: the URL alone is on standard output.
func (a *app) printHidden(w *compile.Workload) error {
	paths, err := a.paths()
	if err != nil {
		return err
	}
	ignore := filepath.Join(paths.Config, local.IgnoreName)
	if !w.IgnoreGlobally {
		ignore = ""
	}
	all, err := local.Hidden(w, ignore)
	if err != nil {
		return err
	}
	for _, o := range all {
		fmt.Fprintln(a.err, edge.Clean(o.String()))
	}
	if len(all) == 0 {
		fmt.Fprintln(a.err, "nothing is hidden of what is mounted")
	}
	return nil
}
