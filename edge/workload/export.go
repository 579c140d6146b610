package workload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/runner"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// The formats of exports.
const (
	FormatWeir      = "weir"      // manifests, as they are kept
	FormatK8s       = "k8s"       // manifests for a cluster
	FormatRunConfig = "runconfig" // of the reference, in JSON
)

// Formats are the formats of exports, the usual one first.
func Formats() []string { return []string{FormatWeir, FormatK8s, FormatRunConfig} }

// ExportOptions say what an export holds.
type ExportOptions struct {
	WithValues bool // of variables, headers and parameters of URLs whose names read like those of secrets
}

// replaceMe stands for an image that there is none of.
const replaceMe = "REPLACE-ME"

// Export writes the manifest of a workload for another machine, another program, or to be run
// again: the same bytes for the same workload. Secrets stand in it by name. Notes say what
// another place will lack; one that is Refused, that what was made has to be changed first.
func Export(manifest []byte, format string, o ExportOptions) ([]byte, []Note, error) {
	s, err := readSet("manifest", manifest)
	if err != nil {
		return nil, nil, err
	}
	s.forget()
	s.settle()
	e := &exporter{set: s}
	if !o.WithValues {
		e.hide()
	}
	var out []byte
	switch format {
	case FormatWeir:
		e.paths()
		out, err = s.write()
	case FormatK8s:
		e.forCluster()
		out, err = s.write()
	case FormatRunConfig:
		e.paths()
		if out, err = e.runConfig(); err == nil {
			for _, text := range e.comments {
				e.notes = append(e.notes, Note{Text: text}) // JSON has no comments
			}
			return out, e.notes, nil
		}
	default:
		return nil, nil, wrong("format", "%q is none of %s", format, strings.Join(Formats(), ", "))
	}
	var b bytes.Buffer
	for _, text := range e.comments {
		fmt.Fprintf(&b, "# %s\n", strings.ReplaceAll(edge.Clean(text), "\n", " "))
	}
	b.Write(out)
	return b.Bytes(), e.notes, err
}

// exporter changes a set into what is written.
type exporter struct {
	*set
	comments []string // at the top
	notes    []Note
}

// hide takes out the values of variables, headers and parameters of URLs whose names read like those of secrets.
func (e *exporter) hide() {
	e.inClear(func(name, _ string) string {
		e.comments = append(e.comments, "The value of "+edge.Printable(name)+" is left out, since the name reads like that of a secret: fill it in, or better keep it as a secret.")
		return ""
	})
}

// Shown is a manifest for people, without the values that an export leaves out. One that cannot
// be read may hold anything, and nothing of it is shown.
func Shown(manifest []byte) string {
	s, err := readSet("manifest", manifest)
	if err != nil {
		return ""
	}
	hidden := false
	s.inClear(func(_, value string) string {
		hidden = hidden || value != ""
		return edge.Secret(value).String()
	})
	if !hidden {
		return string(manifest)
	}
	text, err := s.write()
	if err != nil {
		return ""
	}
	return string(text)
}

// paths notes which paths of this machine the workload needs.
func (e *exporter) paths() {
	var all []string
	add := func(paths ...string) {
		for _, path := range paths {
			if path != "" && !slices.Contains(all, path) {
				all = append(all, path)
			}
		}
	}
	f := e.fields()
	if e.server != nil {
		if path, ok := strings.CutPrefix(e.server.Spec.Image, "exec://"); ok {
			add(path)
		} else if path, ok := strings.CutPrefix(e.server.Spec.Image, "wasm:///"); ok {
			path, _, _ = strings.Cut(path, "#")
			add("/" + path)
		} else if source, err := runner.ParseSource(e.server.Spec.Image); err == nil && source != nil {
			add(source.Dir)
		}
		add(e.server.Spec.Run.BuildCA)
		for _, v := range e.server.Spec.Volumes {
			add(v.HostPath)
		}
		add(e.server.Spec.Run.EnvFiles...)
	}
	add(f.run.CABundle)
	if l := f.run.RemoteAuth; l != nil {
		add(l.ClientSecretPath, l.BearerTokenPath)
	}
	if f.run.AuditConfig != nil {
		add(f.run.AuditConfig.LogFile)
	}
	if e.oidc != nil && e.oidc.Spec.Inline != nil {
		add(e.oidc.Spec.Inline.JWKSAuthTokenPath)
	}
	for _, path := range all {
		e.notes = append(e.notes, note("another machine needs %s, too", path))
	}
	e.settle()
}

// isLocal reports whether spec.image is a process of this machine.
func isLocal(image string) bool {
	return strings.HasPrefix(image, "exec://") || slices.Contains(runners, image)
}

// forCluster takes out what says nothing in a cluster.
func (e *exporter) forCluster() {
	f := e.fields()
	var run any = f.run
	if e.server != nil {
		run = e.server.Spec.Run
	}
	for _, line := range leaves(run) {
		e.comments = append(e.comments, "left out, it says nothing in a cluster: spec.run."+line)
	}
	group := *f.group
	if e.server == nil {
		e.proxy.Spec.Run = nil
	} else {
		s := &e.server.Spec
		if s.Run = nil; isLocal(s.Image) || isModule(s.Image) || isBuilt(s.Image) {
			what := "is a program of this machine"
			switch {
			case isModule(s.Image):
				what = "is a module of WebAssembly"
			case isBuilt(s.Image):
				what = "is an image that is built here (weir build -t TAG, and push it)"
			}
			e.notes = append(e.notes, Note{Text: "spec.image: " + s.Image + " " + what + ": name an image of it in place of " + replaceMe, Refused: true})
			s.Image = replaceMe
		}
	}
	if group != nil {
		e.more = append(e.more, &v1beta1.MCPGroup{ObjectMeta: metav1.ObjectMeta{Name: group.Name}})
	}
}

// leaves are the fields of a section that say something, a line each.
func leaves(section any) (lines []string) {
	text, err := json.Marshal(section)
	var all map[string]json.RawMessage
	if err != nil || json.Unmarshal(text, &all) != nil {
		return nil // it is of this model, and can be written
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		lines = append(lines, name+": "+string(all[name]))
	}
	return lines
}
