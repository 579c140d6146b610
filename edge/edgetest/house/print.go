package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// write writes all figures.
func (h *house) write(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprint(w, "FIGURE\tNOW\tLIMIT\tGOAL\tWHERE\n")
	for _, l := range limits {
		n, where := l.figure(h)
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\n", l.what, n, l.most, l.goal, where)
	}

	fmt.Fprint(w, "\nGROUP\tLINES\n")
	var names []string
	lines, tests := map[string]int{}, 0
	for _, r := range h.rooms {
		if lines[r.group] += r.code; !slices.Contains(names, r.group) {
			names = append(names, r.group)
		}
		tests += r.tests
	}
	for _, name := range names {
		fmt.Fprintf(w, "%s\t%d\n", name, lines[name])
	}
	fmt.Fprintf(w, "tests\t%d\n", tests)

	fmt.Fprint(w, "\nPACKAGE\tGROUP\tLINES\tTESTS\tFILES\tARROWS\tUP\n")
	for _, r := range h.rooms {
		if !r.product() {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t\t\t\n", r.path, r.group, r.code, r.tests)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\n", r.path, r.group, r.code, r.tests, len(r.order), r.arrows, len(r.up))
	}

	fmt.Fprint(w, "\nINTERFACE\tMETHODS\n")
	type placed struct {
		name string
		kind
	}
	var types []placed
	for _, r := range h.product() {
		for _, f := range r.faces {
			fmt.Fprintf(w, "%s.%s\t%d\n", r.path, f.name, f.methods)
		}
		for _, k := range r.types {
			types = append(types, placed{r.path + "." + k.name, k})
		}
	}
	for _, top := range []struct {
		title string
		size  func(k placed) int
	}{
		{"MOST FIELDS", func(k placed) int { return k.fields }},
		{"MOST METHODS", func(k placed) int { return k.methods }},
	} {
		fmt.Fprintf(w, "\n%s\tFIELDS\tMETHODS\n", top.title)
		slices.SortStableFunc(types, func(a, b placed) int { return cmp.Compare(top.size(b), top.size(a)) })
		for _, k := range types[:min(5, len(types))] {
			fmt.Fprintf(w, "%s\t%d\t%d\n", k.name, k.fields, k.methods)
		}
	}
}

// writeArrows writes the order of a room's files and what leads up in it.
func (h *house) writeArrows(w io.Writer, path string) error {
	i := slices.IndexFunc(h.rooms, func(r *room) bool { return r.path == strings.TrimSuffix(strings.TrimPrefix(path, "./"), "/") })
	if i < 0 || !h.rooms[i].product() {
		return fmt.Errorf("%s is no package of the product", path)
	}
	r := h.rooms[i]
	for _, file := range r.order {
		fmt.Fprintln(w, file)
	}
	fmt.Fprintf(w, "\n%d of %d arrows lead up:\n", len(r.up), r.arrows)
	for _, a := range r.up {
		fmt.Fprintf(w, "%s → %s\n", a.from, a.to)
	}
	return nil
}
