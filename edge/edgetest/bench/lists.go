package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// listTools is how many tools the list of P6 has; one page of an edge holds so
// many.
const listTools = 1000

// listCase is one line of P6.
type listCase struct {
	what     string
	incoming string // spec.incomingAuth, YAML on one line; empty for anonymous
	hidden   int    // tools that it does not show
}

// listCases are the lines of P6: without policies, and with some that hide two
// tools and show the others.
func listCases() []listCase {
	hiding := policed(append(idlePolicies(listPolicies-3),
		`permit(principal, action, resource);`,
		`forbid(principal, action, resource == Tool::"`+prefixOf(0)+`slow");`,
		`forbid(principal, action, resource) when { resource.originalName == "echo" };`))
	return []listCase{
		{what: "no policies"},
		{what: fmt.Sprintf("%d policies that hide 2 of them", listPolicies), incoming: hiding, hidden: 2},
	}
}

// listPolicies is how many policies the second line of P6 has.
const listPolicies = 20

// listRow is one line of P6.
type listRow struct {
	what    string
	size    int                 // of the answer, bytes
	figures map[string][]figure // of static and edge, per round
}

// static is the floor of P6: a server that answers with the same bytes.
const static = "static"

func (l listRow) verdict() verdict {
	floor, edge := middle(l.figures[static]), middle(l.figures[weir])
	v := verdict{
		"P6", fmt.Sprintf("CPU per `tools/list` of %d tools from cache, %.0f KiB, %s, 8 connections", listTools, float64(l.size)/1024, l.what),
		fmt.Sprintf("%.1f µs", edge.cpu), fmt.Sprintf("%.1f µs", floor.cpu), "–", "≤ 1.50 × bare serving the same bytes", "–",
	}
	if floor.cpu > 0 {
		ratio := edge.cpu / floor.cpu
		v.ratio, v.reached = fmt.Sprintf("%.2f", ratio), yesNo(ratio <= 1.5)
	}
	return v
}

// runLists is P6.
func (b *bench) runLists(ctx context.Context) {
	for _, c := range listCases() {
		b.tryEdge(ctx, "P6, "+c.what, func(ctx context.Context) { b.listsOf(ctx, c) })
	}
}

func (b *bench) listsOf(ctx context.Context, lc listCase) {
	// 1. An edge whose cache is filled, and what it answers.
	backend := b.startBackend(ctx, kit.Modern, "json", "--tools", strconv.Itoa(listTools))
	e := b.startPlan(ctx, kit.Plan{Backends: backend.addrs, Prefixed: true, Incoming: lc.incoming})
	text := listed(ctx, e, listTools-lc.hidden)
	// 2. A server of the same bytes.
	file := filepath.Join(b.dir, fmt.Sprintf("list-%d.json", lc.hidden))
	kit.Check(os.WriteFile(file, text, 0o600))
	floor := b.startHelper(ctx, "static", "--file", file)
	// 3. The rounds. A list is some fifty times as large as a call's answer.
	do := func(c *client, _ uint64) error { return listAgain(c.Client, text) }
	targets := []*target{{name: static, Process: floor.Process, do: do}, {name: weir, Process: e.Process, do: do}}
	row := listRow{what: lc.what, size: len(text), figures: map[string][]figure{}}
	load := cell{kit.Modern, kit.Modern, "json", 8, false}
	before := kit.Must(kit.CountsAt(ctx, backend.Addr))
	for range b.rounds {
		b.roundOf(ctx, load, targets, max(b.calls/10, 1), sliceCalls/10)
		for _, t := range targets {
			row.figures[t.name] = append(row.figures[t.name], figureOf(t.run, t.cpu))
		}
	}
	after := kit.Must(kit.CountsAt(ctx, backend.Addr))
	b.report.lists = append(b.report.lists, row)
	b.say("P6, %s: %s, %s as the floor", row.what, row.verdict().value, row.verdict().floor)
	// The list lives for a minute, and is asked for anew about as often.
	if n := after.Since(before).Methods["tools/list"]; n > 20 {
		kit.Fail("the backend was asked %d times for its list", n)
	}
}

// listID is the id of every list request, so that the answers are the same.
const listID = "1"

func listText(c *kit.Client, cursor string) []byte {
	if cursor != "" {
		cursor = `"cursor":` + strconv.Quote(cursor)
	}
	return c.Modern(listID, "tools/list", "", cursor, "")
}

// listAgain lists and verifies that the answer is the one before.
func listAgain(c *kit.Client, want []byte) error {
	a, err := c.Do(listText(c, ""))
	if err != nil {
		return err
	}
	if a.Status != 200 || !bytes.Equal(a.Body, want) {
		return fmt.Errorf("list: status %d, %d bytes and not the %d that were there: %.200s", a.Status, len(a.Body), len(want), a.Body)
	}
	return nil
}

// listed lists all pages until they have so many tools, and returns the first.
func listed(ctx context.Context, e *kit.Edge, tools int) []byte {
	for began := time.Now(); ; kit.Pause(ctx, 50*time.Millisecond) {
		first, n := listOnce(ctx, e.Addr)
		if n == tools {
			return first
		}
		if time.Since(began) > 20*time.Second {
			kit.Fail("list: %d tools, not %d", n, tools)
		}
	}
}

func listOnce(ctx context.Context, addr string) (first []byte, tools int) {
	c := kit.Must(dial(ctx, addr, kit.Modern, 0))
	defer c.Close()
	c.Wait(handshakeLimit)
	for cursor, page := "", 0; page == 0 || cursor != ""; page++ {
		a := kit.Must(c.Do(listText(c.Client, cursor)))
		var m struct {
			Result struct {
				Tools []struct{ Name string }
				Next  string `json:"nextCursor"`
			}
		}
		if a.Status != 200 {
			return nil, 0 // the backends have not all answered yet
		}
		kit.Check(json.Unmarshal(a.Body, &m))
		if page == 0 {
			first = bytes.Clone(a.Body)
		}
		tools += len(m.Result.Tools)
		cursor = m.Result.Next
	}
	return first, tools
}
