package main

import (
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestLimits holds this module to its limits.
func TestLimits(t *testing.T) {
	h, err := measure("../../..", groups)
	if err != nil {
		t.Fatal(err)
	}
	for _, over := range h.over(limits) {
		t.Error(over)
	}
	for _, l := range limits {
		if l.goal > l.most {
			t.Errorf("%s: the goal, %d, is above the limit, %d", l.what, l.goal, l.most)
		}
	}
}

var tinyGroups = []group{{"kit", tools}, {"low", "model"}, {"middle", "core"}, {"top", "commands"}}

func tiny(t *testing.T) *house {
	t.Helper()
	h, err := measure("testdata/tiny", tinyGroups)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestMeasure counts by hand what the program counts in a small module.
func TestMeasure(t *testing.T) {
	h := tiny(t)
	if got, want := h.chain, []string{"top", "middle", "low"}; !slices.Equal(got, want) {
		t.Errorf("chain %v, want %v", got, want)
	}
	want := []*room{
		{path: "kit", group: tools, code: 4, inits: 1, mocks: 1},
		{
			path: "low", group: "model", code: 6, types: []kind{{"Key", 0, 1}},
			order: []string{"low.go"},
		},
		{
			// Lines: shop.go 16, door.go 4, till.go 8, wait_windows.go 5. The
			// method of Windows is not seen; the generated Copy is one of Shop's.
			path: "middle", group: "core", imports: []string{"low"}, code: 33, tests: 7, inits: 2,
			faces: []kind{{"guard", 0, 2}}, types: []kind{{"Shop", 3, 3}, {"door", 1, 1}},
			// shop.go and door.go use each other, and both use till.go, which
			// uses Shop.
			order: []string{"door.go", "shop.go", "till.go"}, arrows: 5,
			up: []arrow{{"shop.go", "door.go"}, {"till.go", "shop.go"}},
		},
		{
			path: "top", group: "commands", imports: []string{"low", "middle"}, code: 8,
			order: []string{"main.go"},
		},
	}
	if len(h.rooms) != len(want) {
		t.Fatalf("%d packages, want %d", len(h.rooms), len(want))
	}
	for i, r := range h.rooms {
		if !reflect.DeepEqual(r, want[i]) {
			t.Errorf("%s:\n got %+v\nwant %+v", want[i].path, *r, *want[i])
		}
	}
}

// TestFigures holds each figure to what stands in the small module, and proves
// that one too many is noticed.
func TestFigures(t *testing.T) {
	h := tiny(t)
	want := map[string]int{
		"lines of the largest package": 33, "arrows up in one package": 2,
		"lines of the product": 47, "lines of tools": 4, "packages of the product": 3, "longest import chain": 3,
		"interfaces": 1, "methods of all interfaces": 2, "init functions": 2, "mocks": 1,
	}
	for _, l := range limits {
		n, is := want[l.what]
		if !is {
			continue // of a type that the small module has not
		}
		delete(want, l.what)
		if l.most = n; len(h.over([]limit{l})) != 0 {
			t.Errorf("%v, want %d", h.over([]limit{l}), n)
		}
		if l.most = n - 1; len(h.over([]limit{l})) != 1 {
			t.Errorf("%s: one above the limit of %d is not noticed", l.what, l.most)
		}
	}
	if len(want) > 0 {
		t.Errorf("no such figures: %v", want)
	}
	shop := of("middle", "Shop", func(k kind) int { return k.fields })
	if n, _ := shop(h); n != 3 {
		t.Errorf("Shop has %d fields, want 3", n)
	}
	gone := limit{"fields of a type that is gone", of("middle", "Stall", func(k kind) int { return k.fields }), 1000, 0}
	if over := h.over([]limit{gone}); len(over) != 1 || !strings.Contains(over[0], "no such type") {
		t.Errorf("a type that is gone: %q", over)
	}
}

func TestGroups(t *testing.T) {
	for path, want := range map[string]string{
		"edge": "core", "edge/serve": "core", "edge/v1beta1": "model", "edge/edgetest/storm": tools,
		"sdk/abi": "guests", "sdk/examples/everyhook": tools, "filters/audit/mask": "filters", "cmd/weir": "commands", "attic": "",
	} {
		if got := groupOf(groups, path); got != want {
			t.Errorf("%s is of %q, want %q", path, got, want)
		}
	}
	if _, err := measure("testdata/tiny", tinyGroups[1:]); err == nil || !strings.Contains(err.Error(), "kit is of no group") {
		t.Errorf("a package of no group: %v", err)
	}
}

func TestLines(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"comments and blanks":  {"// one\n\npackage p // two\n\n/* three\nfour */\n", 1},
		"code after a comment": {"package p\n/* a\n */ var x int\n", 2},
		"a string over lines":  {"package p\nvar x = `a\n\n  \n// b\n`\n", 4},
		"a line directive":     {"package p\n//line other.go:100\nvar x int\n", 2},
		"two to a line":        {"package p; var x int; var y int\n", 1},
	} {
		if got := lines([]byte(c.text)); got != c.want {
			t.Errorf("%s: %d lines, want %d", name, got, c.want)
		}
	}
}

func TestOrder(t *testing.T) {
	for name, c := range map[string]struct {
		arrows string // pairs of files
		order  string
		up     int
	}{
		"none":                       {"", "", 0},
		"a row, from the last":       {"dc cb ba", "dcba", 0},
		"a circle":                   {"ab bc ca", "abc", 1},
		"two that use each other":    {"ab ba", "ab", 1},
		"two circles with one arrow": {"ab bc ca ad dc", "abdc", 1},
		"one that all use, and back": {"ad bd cd da", "bcad", 1},
		// a has the most arrows out, and stands highest until it is moved.
		"one that is moved": {"ad ae af ca bc", "bcadef", 0},
	} {
		all, files := map[arrow]bool{}, []string{}
		for pair := range strings.FieldsSeq(c.arrows) {
			all[arrow{pair[:1], pair[1:]}] = true
			files = append(files, pair[:1], pair[1:])
		}
		slices.Sort(files)
		files = slices.Compact(files)
		order := settle(order(files, all), all)
		if up := upward(order, all); len(up) != c.up || strings.Join(order, "") != c.order {
			t.Errorf("%s: order %v with %v up, want %s with %d", name, order, up, c.order, c.up)
		}
	}
}

func TestPrint(t *testing.T) {
	var out strings.Builder
	h := tiny(t)
	h.write(&out)
	for _, want := range []string{"core      33\n", "middle   core      33     7      3      5       2\n", "middle.guard  2\n", "middle.Shop  3       3\n", "top → middle → low"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := h.writeArrows(&out, "./middle/"); err != nil || !strings.HasSuffix(out.String(), "2 of 5 arrows lead up:\nshop.go → door.go\ntill.go → shop.go\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := h.writeArrows(io.Discard, "kit"); err == nil {
		t.Error("arrows of a tool, which are not counted")
	}
}

// TestCommand runs the program in a module whose packages have no groups.
func TestCommand(t *testing.T) {
	for args, want := range map[string]string{
		"-C testdata/tiny": "is of no group",
		"-C testdata/none": "go list",
		"more":             `unexpected argument "more"`,
		"-h":               "help requested",
	} {
		if err := command(strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("house %s: %v, want %q", args, err, want)
		}
	}
}
