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

// hostileWorkflows is an edge's configuration: composites whose operator wrote what one writes,
// and that strangers' parameters are to turn against the edge.
const hostileWorkflows = `    compositeTools:
    - name: text
      parameters: {type: object, properties: {n: {type: integer}}}
      script: 'return {"x": "x" * params["n"]}'
    - name: list
      parameters: {type: object, properties: {n: {type: integer}}}
      script: 'return {"x": len([0] * params["n"])}'
    - name: loop
      parameters: {type: object, properties: {n: {type: integer}}}
      script: |
        x = []
        for i in range(params["n"]):
            x.append(str(i) * 100)
        return len(x)
    - name: key
      parameters: {type: object, properties: {n: {type: integer}}}
      script: |
        t = (1,)
        for _ in range(params["n"]):
            t = (t, t)
        return {t: 1}
    - name: range
      parameters: {type: object, properties: {l: {type: array}}}
      steps: [{id: a, tool: BACKEND.work, arguments: {text: "{{range .params.l}}{{range $.params.l}}{{range $.params.l}}x{{end}}{{end}}{{end}}"}}]
    - name: deep
      parameters: {type: object, properties: {s: {type: string}}}
      steps: [{id: a, tool: BACKEND.work, arguments: {text: "{{fromJson .params.s}}{{.params.s}}{{.params.s}}{{.params.s}}"}}]
    - name: echo
      parameters: {type: object, properties: {s: {type: string}}}
      steps: [{id: a, tool: BACKEND.work, arguments: {text: "{{.params.s}}"}}]
    - name: items
      parameters: {type: object, properties: {l: {type: array}}}
      steps: [{id: a, type: forEach, collection: "{{json .params.l}}", maxIterations: 1000, maxParallel: 50, step: {tool: BACKEND.work, arguments: {text: "{{.forEach.item}}"}}}]
    - name: again
      steps: [{id: a, tool: BACKEND.nobody, onError: {action: retry, retryCount: 10, retryDelay: 0s}}]
    - name: pattern
      parameters: {type: object, properties: {s: {type: string, pattern: "^(a+)+$"}, child: {$ref: "#"}}}
      steps: [{id: a, tool: BACKEND.work, arguments: {text: x}}]
    - name: late
      timeout: 300ms
      steps:
      - {id: a, tool: BACKEND.work, arguments: {text: x}, onError: {action: retry, retryCount: 10, retryDelay: 1m}}
      - {id: b, type: elicitation, message: "Sure?", schema: {type: object, properties: {ok: {type: boolean}}, required: [ok]}}
    - name: sure
      steps:
      - {id: b, type: elicitation, message: "Sure?", schema: {type: object, properties: {ok: {type: boolean}}, required: [ok]}}
      - {id: a, tool: BACKEND.work, dependsOn: [b], arguments: {text: x}}
`

// throw is a call of a composite that is meant to hurt, and what must be in its answer; "" where
// any answer will do.
type throw struct{ tool, arguments, want string }

// throws are all of them.
func throws() []throw {
	long := strings.Repeat("a", 200_000)
	many := "[" + strings.Repeat("1,", 100_000) + "1]"
	return []throw{
		{"text", `{"n":1000000000}`, "a value of more than 8 MiB"},
		{"text", `{"n":8000000}`, ""},
		{"text", `{"n":` + strings.Repeat("9", 4000) + `}`, "isError"},
		{"list", `{"n":1000000000}`, "a value of more than 1000000 elements"},
		{"loop", `{"n":1000000000}`, "isError"},
		{"key", `{"n":40}`, "a key or a side of a comparison"},
		{"range", `{"l":[` + strings.Repeat("1,", 999) + `1]}`, "isError"},
		{"deep", `{"s":"` + strings.Repeat("[", 500_000) + `"}`, "deeper than 100"},
		{"deep", `{"s":"` + strings.Repeat("7", 4000) + `"}`, ""},
		{"echo", `{"s":"{{.params.s}}{{range 1000000000}}x{{end}}\"}}{{\" ') + fail('\n"}`, "range 1000000000"},
		{"echo", `{"s":{"x":1}}`, "invalid arguments: /s"},
		{"items", `{"l":` + many + `}`, "at most 1000 are allowed"},
		{"items", `{"l":` + strings.Replace(many, "1,", `"{{.forEach}}",`, 1) + `}`, "isError"},
		{"again", `{}`, "isError"},
		{"pattern", `{"s":"` + long + `b"}`, "invalid arguments: /s"},
		{"pattern", strings.Repeat(`{"child":`, 90) + `{"s":1}` + strings.Repeat("}", 90), "invalid arguments: /child"},
		{"late", `{}`, ""},
	}
}

// runWorkflows is G21 for composite tools: workflows that wait for their clients, and a hundred
// more at a time with parameters that are meant to hurt, beside calls that come by the clock.
func runWorkflows(ctx context.Context, s *storm) {
	const goal, atOnce, waiting = 500, 100, 10
	times := s.size(s.count, 50, 3, "times")
	b := s.newBackend(kit.Modern, nil)
	p := kit.PlanOf(b.Addr)
	p.Config = strings.ReplaceAll(hostileWorkflows, "BACKEND", kit.NameOf(0))
	e := s.startPlan(ctx, p)
	clients := []*composer{newComposer(e.Addr, "127.0.0.1"), newComposer(e.Addr, "127.0.0.2"), newComposer(e.Addr, "127.0.0.3")}

	// 1. The neighbours alone.
	gun, rate := s.gunAt(ctx, e, goal)
	defer gun.Close()
	calm := gun.Fire(ctx, rate, s.span(s.length, 20*time.Second, 5*time.Second, "load"))
	if _, shed, _, failed := kit.Sort(calm); shed+failed > 0 {
		kit.Fail("%d calls failed before the first workflow", shed+failed)
	}
	base := settled(ctx, e)

	// 2. Workflows that wait for their clients all the while.
	var parked []string
	for i := range waiting {
		_, text, err := clients[i%len(clients)].call(ctx, "sure", "{}", "")
		kit.Check(err)
		parked = append(parked, text)
	}

	// 3. The same beside what is meant to hurt.
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
	const full = "hold as much memory as they may now" // by the values of runs that go on beside it
	var next, told, turned, wrong, longest atomic.Int64
	var first atomic.Pointer[string]
	var hurling sync.WaitGroup
	all := throws()
	for i := range atOnce {
		hurling.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= times*len(all) || ctx.Err() != nil {
					return
				}
				t, began := all[n%len(all)], time.Now()
				status, text, err := clients[i%len(clients)].call(ctx, t.tool, t.arguments, "")
				if err == nil && status == http.StatusOK && strings.Contains(text, `"result":`) && strings.Contains(text, full) {
					told.Add(1)
					turned.Add(1)
				} else if err == nil && status == http.StatusOK && strings.Contains(text, `"result":`) && strings.Contains(text, t.want) {
					told.Add(1)
				} else {
					wrong.Add(1)
					said := fmt.Sprintf("%s %.60s: %d %.200s %v", t.tool, t.arguments, status, text, err)
					first.CompareAndSwap(nil, &said)
				}
				for took := int64(time.Since(began)); ; {
					was := longest.Load()
					if took <= was || longest.CompareAndSwap(was, took) {
						break
					}
				}
			}
		})
	}
	hurling.Wait()
	end()
	work.Wait()
	highest := top()
	kit.Check(ctx.Err())

	// 4. Those that wait are answered: half of them as asked, half as nobody asked.
	gone := 0
	for i, text := range parked {
		answer, want := `{"action":"accept","content":{"ok":true}}`, `"resultType":"complete"`
		if i%2 == 1 {
			answer, want = `{"action":"accept","content":{"ok":"`+strings.Repeat("x", 100_000)+`"}}`, "the answer does not fit"
		}
		_, text, err := clients[i%len(clients)].call(ctx, "sure", "{}", `,"inputResponses":{"b":`+answer+`},"requestState":`+stateOf(text))
		if err != nil || !strings.Contains(text, want) {
			gone++
			said := fmt.Sprintf("sure: %.300s %v", text, err)
			first.CompareAndSwap(nil, &said)
		}
	}
	// An edge at rest gives memory back.
	began, after := time.Now(), int64(0)
	for ; time.Since(began) < time.Minute; kit.Sleep(ctx, time.Second) {
		if after = kit.Must(kit.Resident(e.PID())); after <= base+48<<20 {
			break
		}
	}
	rested := time.Since(began)

	if said := first.Load(); said != nil {
		s.tell("the first that ended in another way: %s", *said)
	}
	alone, crowded := kit.Percentile(tookOf(calm), 990), kit.Percentile(tookOf(finished(beside)), 990)
	_, shed, _, failed := kit.Sort(finished(beside))
	s.bar(wrong.Load() == 0 && 2*turned.Load() <= told.Load(), "0", "%d workflows ended as they must, %d of them since others hold the memory; %d in another way", told.Load(), turned.Load(), wrong.Load())
	s.bar(gone == 0, "0", "%d of %d workflows that waited went wrong", gone, waiting)
	s.bar(time.Duration(longest.Load()) <= 60*time.Second, "60 s", "the longest took %.1f s, %d at once", time.Duration(longest.Load()).Seconds(), atOnce)
	s.bar(shed+failed == 0, "0", "%d of %d neighbours failed%s", shed+failed, len(finished(beside)), reasons(finished(beside)))
	s.tell("p99 of the neighbours %.1f ms, %.1f ms without workflows", kit.Millis(crowded), kit.Millis(alone))
	s.bar(highest-base <= atOnce*16<<20, "+ 16 MiB a workflow", "resident %.0f MiB at the most, %.0f before", kit.MiB(highest), kit.MiB(base))
	s.bar(after <= base+48<<20, "+ 48 MiB", "resident %.0f MiB, %.0f s after the last", kit.MiB(after), rested.Seconds())
}

// stateOf is the requestState of a result, as it is written.
func stateOf(text string) string {
	var m struct {
		Result struct {
			RequestState json.RawMessage `json:"requestState"`
		} `json:"result"`
	}
	if json.Unmarshal([]byte(text), &m) != nil || m.Result.RequestState == nil {
		return `""`
	}
	return string(m.Result.RequestState)
}

// composer is a modern client that calls composites from one address, and can be asked.
type composer struct {
	url  string
	http *http.Client
}

func newComposer(addr, from string) *composer {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return &composer{"http://" + addr + "/mcp", &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 64}, Timeout: 2 * time.Minute}}
}

// call calls a composite, and returns the status and the text of the answer. arguments is JSON
// text; more are further members of params.
func (c *composer) call(ctx context.Context, tool, arguments, more string) (status int, text string, err error) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s%s,`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"storm","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}}}`, tool, arguments, more)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, "", err
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28",
		"Mcp-Method": "tools/call", "Mcp-Name": tool,
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
