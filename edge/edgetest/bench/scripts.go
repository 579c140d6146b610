package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// scriptCases are the lines of P11: what is run, and the bar of the sandbox alone, which is
// told beside what a client waits through HTTP.
func scriptCases() []scriptRow {
	const script = `rows = []
total = 0
for i in range(8):
    answer = call_tool("echo", text="row %d" % i)
    rows.append({"number": i, "answer": answer})
    total += i

def long(row):
    return len(str(row["answer"])) > 3

kept = [r for r in rows if long(r)]
names = {}
for r in kept:
    key = "n%d" % r["number"]
    if key in names:
        fail("twice: " + key)
    names[key] = r["answer"]

first = sorted(names.keys())[0]
summary = {
    "count": len(kept),
    "total": total,
    "first": first,
    "names": sorted(names.keys()),
}
return summary`
	return []scriptRow{
		{what: "`return 1`", script: "return 1", calls: 1},
		{what: "25 lines with 8 calls of 0 ms", script: script, calls: 1},
		{what: "8 calls of 20 ms in parallel()", script: `return len(parallel([lambda: call_tool("slow") for _ in range(8)]))`, calls: 10, bar: 25 * time.Millisecond},
	}
}

// scriptRow is one line of P11.
type scriptRow struct {
	what, script string
	calls        int           // the run's are divided by it
	bar          time.Duration // 0 for none
	took         []time.Duration
	alone        []time.Duration // the calls of the script one by one, of the same client
}

func (r scriptRow) verdict() verdict {
	half := kit.Percentile(r.took, 500)
	v := verdict{"P11", "script through HTTP, p50 (p99), one connection: " + r.what,
		fmt.Sprintf("%.2f ms (%.2f ms)", kit.Millis(half), kit.Millis(kit.Percentile(r.took, 990))), "–", "–", "–", "–"}
	if len(r.alone) > 0 {
		v.floor = fmt.Sprintf("%.2f ms, 8 calls one after the other", kit.Millis(kit.Percentile(r.alone, 500)))
	}
	if r.bar > 0 {
		v.bar, v.reached = fmt.Sprintf("≤ %.0f ms", kit.Millis(r.bar)), yesNo(half <= r.bar)
	}
	return v
}

// runScripts is P11: scripts that one client sends one after the other.
func (b *bench) runScripts(ctx context.Context) { b.tryEdge(ctx, "P11", b.scripts) }

func (b *bench) scripts(ctx context.Context) {
	backend := b.startBackend(ctx, kit.Modern, "json")
	p := kit.PlanOf(backend.Addr)
	p.Config = "    codeMode: {enabled: true}\n"
	e := b.startPlan(ctx, p)
	c := &poster{url: "http://" + e.Addr + "/mcp"}
	for { // while the interpreter is not compiled, it is 503
		status, _, err := c.call(ctx, "execute_tool_script", map[string]any{"script": "return 1"})
		kit.Check(err)
		if status == http.StatusOK {
			break
		}
	}
	for _, row := range scriptCases() {
		n := max(b.calls/20/row.calls, 20)
		for i := range n + n/10 {
			began := time.Now()
			status, text, err := c.call(ctx, "execute_tool_script", map[string]any{"script": row.script})
			kit.Check(err)
			if status != http.StatusOK || strings.Contains(text, `"isError":true`) {
				kit.Fail("status %d: %.300s", status, text)
			}
			if i >= n/10 { // the first warm it up
				row.took = append(row.took, time.Since(began))
			}
		}
		if strings.Contains(row.script, "8)") && row.bar == 0 {
			for range n {
				began := time.Now()
				for range 8 {
					_, _, err := c.call(ctx, "echo", map[string]any{"text": "x"})
					kit.Check(err)
				}
				row.alone = append(row.alone, time.Since(began))
			}
		}
		b.report.scripts = append(b.report.scripts, row)
		b.say("P11, %s: %s", row.what, row.verdict().value)
	}
}

// poster is a client of one connection.
type poster struct {
	url  string
	http http.Client
}

// call calls a tool, and returns the status and the text of the answer.
func (c *poster) call(ctx context.Context, tool string, arguments map[string]any) (status int, text string, err error) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": tool, "arguments": arguments,
		"_meta": map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": map[string]any{"name": "bench", "version": "1"}, "io.modelcontextprotocol/clientCapabilities": map[string]any{}},
	}})
	if err != nil {
		return 0, "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool,
	} {
		r.Header.Set(name, value)
	}
	a, err := c.http.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer a.Body.Close()
	answer, err := io.ReadAll(a.Body)
	return a.StatusCode, string(answer), err
}
