package main

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
)

// arrow leads from a file to one that declares what it uses.
type arrow struct{ from, to string }

// link finds the arrows between the files of a package, and their order.
func (r *room) link(fset *token.FileSet, files []*ast.File, pkg *types.Package, info *types.Info) {
	at := func(pos token.Pos) string { return filepath.Base(fset.Position(pos).Filename) }
	written := map[string]bool{}
	for _, f := range files {
		if !ast.IsGenerated(f) {
			written[at(f.Package)] = true
			r.order = append(r.order, at(f.Package))
		}
	}
	all := map[arrow]bool{}
	for ident, used := range info.Uses {
		_, function := used.(*types.Func) // a method has no scope
		if used.Pkg() != pkg || !function && used.Parent() != pkg.Scope() {
			continue
		}
		a := arrow{at(ident.Pos()), at(used.Pos())}
		if a.from != a.to && written[a.from] && written[a.to] {
			all[a] = true
		}
	}
	r.arrows = len(all)
	slices.Sort(r.order)
	r.order = settle(order(r.order, all), all)
	r.up = upward(r.order, all)
}

// order sorts files by how many arrows lead out of them and how few into them,
// and else by name.
func order(files []string, all map[arrow]bool) []string {
	down := map[string]int{}
	for a := range all {
		down[a.from]++
		down[a.to]--
	}
	return slices.SortedStableFunc(slices.Values(files), func(a, b string) int { return cmp.Or(cmp.Compare(down[b], down[a]), cmp.Compare(a, b)) })
}

// settle moves single files to where the fewest arrows lead up, until no move
// helps.
func settle(order []string, all map[arrow]bool) []string {
	for moved := true; moved; {
		moved = false
		for _, f := range slices.Sorted(slices.Values(order)) {
			now := slices.Index(order, f)
			rest := slices.Delete(slices.Clone(order), now, now+1)
			up := 0 // with f above all others
			for _, other := range rest {
				if all[arrow{other, f}] {
					up++
				}
			}
			best, least, here := 0, up, up
			for i, other := range rest { // with f below other
				if all[arrow{other, f}] {
					up--
				}
				if all[arrow{f, other}] {
					up++
				}
				if up < least {
					best, least = i+1, up
				}
				if i+1 == now {
					here = up
				}
			}
			if least < here {
				order, moved = slices.Insert(rest, best, f), true
			}
		}
	}
	return order
}

// upward are the arrows that lead up, from the uppermost target down.
func upward(order []string, all map[arrow]bool) []arrow {
	var up []arrow
	for i, to := range order {
		for _, from := range order[i+1:] {
			if all[arrow{from, to}] {
				up = append(up, arrow{from, to})
			}
		}
	}
	return up
}
