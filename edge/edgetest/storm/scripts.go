package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// bombs are scripts that are meant to hurt: by steps, memory, time, depth and output, and
// that compute for as long as they may.
func bombs() []string {
	return []string{
		"while True: pass",
		"d = {}\nfor i in range(10000000): d[i] = i",
		"x = 'a' * 1000000000",
		"x = [0] * 100000000",
		"x = list(range(100000000))",
		"x = 'a'\nfor _ in range(40): x += x",
		"x = [1]\nfor _ in range(40): x += x",
		"x = ','.join(['a' * 1000000] * 3000)",
		"x = ('a' * 100000).replace('a', 'b' * 20000)",
		"x = '%s' * 1000000 % tuple(['a' * 1000] * 1000000)",
		"x = list(enumerate(range(20000000)))",
		"x = int('9' * 3000000)",
		"x = 3\nfor _ in range(27): x = x * x",
		"x = sorted(range(30000000))",
		"x = list(range(1000000))\nfor _ in range(100): 1.5 in x",
		"t = 1\nfor _ in range(40): t = (t, t)\nreturn {t: 1}",
		"a = []\nfor _ in range(40): a = [a, a]\nreturn str(a)",
		"a = []\nfor _ in range(26): a = [a, a]\nreturn json.encode(a)",
		"a = []\na.append(a)\nreturn a == a",
		"return json.decode('[' * 1000000)",
		"def f(): return f()\nreturn f()",
		"return " + strings.Repeat("(", 60000),
		"return " + strings.Repeat("[", 60000),
		"return " + strings.Repeat("1+", 30000) + "1",
		"x = " + strings.Repeat("9", 65000),
		"for _ in range(100000): print('x' * 1000)",
		"return parallel([lambda: [0] * 1000000 for _ in range(1000)])",
		"return parallel([lambda: work(text='x') for _ in range(10000)])",
		"r = []\nfor _ in range(2000): r.append(attempt(lambda: work(text='x')))\nreturn len(r)",
		"return 'x' * 50000000",
	}
}

// runScripts is G21 and X33: scripts that are meant to hurt, ten at once of three clients,
// beside calls that come by the clock.
func runScripts(ctx context.Context, s *storm) {
	const goal, atOnce = 500, 10
	times := s.size(s.count, 100, 3, "times")
	// 1. An edge with code mode, and its interpreter.
	b := s.newBackend(kit.Modern, nil)
	p := kit.PlanOf(b.Addr)
	p.Config = "    codeMode: {enabled: true}\n"
	e := s.startPlan(ctx, p)
	clients := []*scripter{newScripter(e.Addr, "127.0.0.1"), newScripter(e.Addr, "127.0.0.2"), newScripter(e.Addr, "127.0.0.3")}
	for {
		status, _, err := clients[0].run(ctx, "return 1")
		kit.Check(err)
		if status == http.StatusOK {
			break
		}
	}
	// 2. The neighbours alone.
	gun, rate := s.gunAt(ctx, e, goal)
	defer gun.Close()
	calm := gun.Fire(ctx, rate, s.span(s.length, 20*time.Second, 5*time.Second, "load"))
	if _, shed, _, failed := kit.Sort(calm); shed+failed > 0 {
		kit.Fail("%d calls failed before the first script", shed+failed)
	}
	base := settled(ctx, e)
	// 3. The same beside the bombs.
	top := s.peak(e)
	ending, end := context.WithCancel(ctx)
	defer end()
	var beside []kit.Shot
	var work sync.WaitGroup
	work.Go(func() {
		for ending.Err() == nil {
			beside = append(beside, gun.Fire(ending, rate, time.Second)...)
		}
	})
	var next atomic.Int64
	var ran, busy, wrong atomic.Int64
	var mu sync.Mutex
	var longest time.Duration
	var slow string // the script that took so long
	var hurling sync.WaitGroup
	all := bombs()
	for i := range atOnce {
		hurling.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= times*len(all) || ctx.Err() != nil {
					return
				}
				began := time.Now()
				status, text, err := clients[i%len(clients)].run(ctx, all[n%len(all)])
				switch {
				case err == nil && status == http.StatusOK && (strings.Contains(text, `"isError":true`) || strings.Contains(text, `"result":`)):
					ran.Add(1)
				case err == nil && status == http.StatusServiceUnavailable:
					busy.Add(1)
				default:
					wrong.Add(1)
				}
				took := time.Since(began)
				mu.Lock()
				if took > longest {
					longest, slow = took, all[n%len(all)]
				}
				mu.Unlock()
			}
		})
	}
	hurling.Wait()
	end()
	work.Wait()
	highest := top()
	kit.Check(ctx.Err())
	after := settled(ctx, e)

	alone, crowded := kit.Percentile(tookOf(calm), 990), kit.Percentile(tookOf(finished(beside)), 990)
	_, shed, _, failed := kit.Sort(finished(beside))
	s.bar(wrong.Load() == 0, "0", "%d scripts ran and %d were told to come back; %d ended in another way", ran.Load(), busy.Load(), wrong.Load())
	s.bar(longest <= 20*time.Second, "20 s", "the longest took %.1f s, its turn included: %.60q", longest.Seconds(), slow)
	s.bar(shed+failed == 0, "0", "%d of %d neighbours failed%s", shed+failed, len(finished(beside)), reasons(finished(beside)))
	s.bar(crowded <= max(alone*12/10, alone+5*time.Millisecond), "± 20 % or + 5 ms", "p99 of the neighbours %.1f ms, %.1f ms without scripts", kit.Millis(crowded), kit.Millis(alone))
	s.bar(highest-base <= atOnce*80<<20, "+ 80 MiB a script", "resident %.0f MiB at the most, %.0f before, %.0f after", kit.MiB(highest), kit.MiB(base), kit.MiB(after))
	status, text, err := clients[0].run(ctx, "return 1")
	kit.Check(err)
	s.bar(status == http.StatusOK && strings.Contains(text, `"result":1`), "200", "a script afterwards: %d", status)
}

// finished leaves out the calls that the end of the load cut off.
func finished(shots []kit.Shot) []kit.Shot {
	if len(shots) == 0 {
		return nil
	}
	last := shots[len(shots)-1].Due.Add(-time.Second)
	var out []kit.Shot
	for _, one := range shots {
		if one.Due.Before(last) {
			out = append(out, one)
		}
	}
	return out
}

// reasons says how calls failed that did.
func reasons(shots []kit.Shot) string {
	counts := make(map[string]int)
	for _, one := range shots {
		if one.Err != nil && len(counts) < 5 {
			counts[one.Err.Error()]++
		}
	}
	if len(counts) == 0 {
		return ""
	}
	return fmt.Sprintf(": %v", counts)
}

// scripter is a client that sends scripts from one address.
type scripter struct {
	url  string
	http *http.Client
}

func newScripter(addr, from string) *scripter {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return &scripter{"http://" + addr + "/mcp", &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 16}, Timeout: 2 * time.Minute}}
}

// run runs a script, and returns the status and the text of the answer.
func (c *scripter) run(ctx context.Context, script string) (status int, text string, err error) {
	quoted, err := json.Marshal(script)
	if err != nil {
		return 0, "", err
	}
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_tool_script","arguments":{"script":%s},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"storm","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, quoted)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28",
		"Mcp-Method": "tools/call", "Mcp-Name": "execute_tool_script",
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
