package main

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// crossera holds the scenarios that cannot pass where the client speaks another
// era than the backend, each with its reason.
//
//go:embed crossera.tsv
var crossera string

// otherwise holds the checks that succeed directly and that the suite only notes,
// with INFO, through the edge, each with the reason why that is right.
var otherwise = map[string]string{
	"server-sse-streams-functional": "The backend answers with streams of one message each. The edge hands those on as JSON, which the transport allows, and the suite then has no streams to look at.",
}

// asListed holds the scenarios that look for tools in the list, by set, each with the reason why
// they cannot pass where clients find tools.
var asListed = map[string]map[string]string{
	legacySet: {
		"json-schema-2020-12": "The scenario reads the schema of a tool in the list, which holds find_tool and call_tool.",
	},
	modernSet: {
		"json-schema-2020-12":                  "The scenario reads the schema of a tool in the list, which holds find_tool and call_tool.",
		"http-custom-header-server-validation": "The scenario looks in the list for a tool whose arguments are mirrored in headers, and those of the list have none.",
	},
}

// unlisted holds the checks of other scenarios that are about the list of tools, and that come
// to nothing where clients find tools, each with the reason why that is right.
var unlisted = map[string]string{
	"sep-2575-server-sends-tools-list-changed-on-subscription": "The list holds find_tool and call_tool whatever the backend's tools are: that they change is no news of the list.",
}

// cell is a set of scenarios with a backend of an era.
type cell struct {
	set     string
	backend peers.Era
}

func (c cell) String() string { return c.set + " " + string(c.backend) + " backend" }

// crosses reports whether the set's clients speak another era than the backend.
func (c cell) crosses() bool { return eraOf(c.set) != c.backend }

// The sets that there are.
const (
	legacySet = "2025-11-25"
	modernSet = "2026-07-28"
)

func eraOf(set string) peers.Era {
	if set == legacySet {
		return peers.Legacy
	}
	return peers.Modern
}

// reasons are why scenarios fail, by cell and scenario.
type reasons map[cell]map[string]string

const reasonsHeader = "set\tbackend\tscenario\treason"

// parseReasons reads the table: a header, then a line of four columns for each
// scenario, ordered, without doubles. The error joins all that is wrong.
func parseReasons(text string) (reasons, error) {
	r := reasons{}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if lines[0] != reasonsHeader {
		return nil, fmt.Errorf("crossera.tsv:1: the header is not %q", reasonsHeader)
	}
	var wrong []error
	for i, line := range lines[1:] {
		fault := func(format string, args ...any) {
			wrong = append(wrong, fmt.Errorf("crossera.tsv:%d: %s", i+2, fmt.Sprintf(format, args...)))
		}
		columns := strings.Split(line, "\t")
		if len(columns) != 4 || slices.Contains(columns, "") {
			fault("not four columns with something in each")
			continue
		}
		c := cell{columns[0], peers.Era(columns[1])}
		switch {
		case c.set != legacySet && c.set != modernSet:
			fault("no set %q", c.set)
			continue
		case c.backend != peers.Legacy && c.backend != peers.Modern:
			fault("no backend %q", c.backend)
			continue
		case !c.crosses():
			fault("%s is of one era, where nothing is excused", c)
			continue
		case r[c][columns[2]] != "":
			fault("%s is there twice", columns[2])
			continue
		}
		if r[c] == nil {
			r[c] = map[string]string{}
		}
		r[c][columns[2]] = columns[3]
	}
	if !slices.IsSorted(lines[1:]) {
		wrong = append(wrong, errors.New("crossera.tsv: the lines are not in order"))
	}
	return r, errors.Join(wrong...)
}
