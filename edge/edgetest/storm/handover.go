package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/port"
	"github.com/weir-edge/weir/edge/mcp"
)

// runHandOver is Z12 and Z45: processes take over from each other while legacy
// clients have sessions that their backend keeps state in, streams that break and
// are resumed, subscriptions, and questions that wait for people, and while calls
// of modern clients are parked.
func runHandOver(ctx context.Context, s *storm) error {
	const times = 5
	sessions := s.size(0, 100, 20, "sessions")
	parkedCalls := s.size(s.count, 1000, 100, "parked calls")
	hold := s.span(s.length, 4*time.Second, 2*time.Second, "between two hand-overs")
	b, err := newKeeper()
	if err != nil {
		return err
	}
	s.later(b.close)
	manifest, err := s.manifest([]string{b.addr})
	if err != nil {
		return err
	}
	addr, err := port.Free()
	if err != nil {
		return err
	}
	admin, err := port.Free()
	if err != nil {
		return err
	}
	flags := []string{"--hand-over", filepath.Join(filepath.Dir(manifest), "h"), "--drain-timeout", drainTimeout.String(),
		"--max-parked", "2000", "--max-streams", "20000", "--max-backend-connections", "4096"}
	first, err := s.startAt(ctx, manifest, addr, admin, flags...)
	if err != nil {
		return err
	}
	all := []*edge{first}

	seen := &handOverSeen{}
	loading, unload := context.WithCancel(ctx)
	defer unload()
	var load sync.WaitGroup
	for i := range sessions {
		c := newVisitor(addr, "visitor-"+strconv.Itoa(i))
		if err := c.begin(ctx); err != nil {
			return first.fault(err)
		}
		load.Go(func() { c.count(loading, b, seen) })
		switch i % 3 {
		case 1:
			if err := c.subscribe(ctx); err != nil {
				return first.fault(err)
			}
			load.Go(func() { c.hear(loading, seen) })
		case 2:
			load.Go(func() { c.resume(loading, b, seen) })
		}
	}
	load.Go(func() {
		for sleep(loading, 50*time.Millisecond) {
			b.update()
		}
	})
	for i := range times {
		// 1. Calls are parked, and questions wait.
		var waits []func() error
		for n := range parkedCalls / times {
			answer, err := newVisitor(addr, "").park(ctx, fmt.Sprintf("parked-%d-%d", i, n))
			if err != nil {
				return all[len(all)-1].fault(fmt.Errorf("park: %w", err))
			}
			waits = append(waits, answer)
		}
		for n := range 10 {
			c := newVisitor(addr, "asked")
			if err := c.begin(ctx); err != nil {
				return all[len(all)-1].fault(err)
			}
			answer, err := c.ask(ctx, fmt.Sprintf("asked-%d-%d", i, n))
			if err != nil {
				return all[len(all)-1].fault(fmt.Errorf("ask: %w", err))
			}
			waits = append(waits, answer)
		}
		// 2. The next process.
		young, err := s.launch(manifest, addr, admin, flags...)
		if err != nil {
			return err
		}
		all = append(all, young)
		if !sleep(ctx, hold) {
			return ctx.Err()
		}
		if err := young.awaitReady(ctx); err != nil {
			return err
		}
		// 3. The people answer.
		for n, answer := range waits {
			if err := answer(); err != nil {
				seen.bad(&seen.unanswered, "an answer to %d: %v", n, err)
			}
		}
		s.say("hand-over %d: %d answers, %d lost so far", i+1, len(waits), seen.unanswered.Load())
	}
	sleep(ctx, time.Second)
	unload()
	load.Wait()
	left := 0
	for _, e := range all[:times] {
		if !e.awaitEnd(drainTimeout + 5*time.Second) {
			left++
		}
	}
	b.mu.Lock()
	twice := 0
	for _, n := range b.ran {
		if n > 1 {
			twice++
		}
	}
	b.mu.Unlock()
	s.bar(seen.lost.Load() == 0, "0", "%d hand-overs, %d sessions, %d calls: %d sessions lost", times, sessions, seen.calls.Load(), seen.lost.Load())
	s.bar(seen.anew.Load() == 0, "0", "%d times a backend met a client anew, or a call went without an answer that it ran", seen.anew.Load())
	s.bar(seen.gaps.Load() == 0 && seen.events.Load() > 0 && seen.resumed.Load() > 0, "0", "%d events of subscriptions, %d streams resumed by the id of their last event: %d events lost", seen.events.Load(), seen.resumed.Load(), seen.gaps.Load())
	s.bar(seen.unanswered.Load() == 0, "0", "%d answers to parked calls and %d to questions of legacy clients: %d lost", parkedCalls, 10*times, seen.unanswered.Load())
	s.bar(twice == 0, "0", "%d calls ran twice", twice)
	s.bar(left == 0, "0", "%d of %d old processes did not leave", left, times)
	s.tell("%d calls met a connection that was closing and were sent again, %d events came twice", seen.again.Load(), seen.doubled.Load())
	for _, w := range seen.why {
		s.note("%s", w)
	}
	for i, e := range all {
		if text := e.said.String(); strings.Contains(text, "not everything") || strings.Contains(text, "anew") || strings.Contains(text, "was not") {
			s.note("process %d says: %.500s", i+1, text)
		}
	}
	return nil
}

// handOverSeen is what clients saw.
type handOverSeen struct {
	calls, lost, anew, gaps, events, doubled, resumed, again, unanswered atomic.Int64

	mu  sync.Mutex
	why []string // the first few
}

func (h *handOverSeen) bad(n *atomic.Int64, format string, args ...any) {
	n.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.why) < 10 {
		h.why = append(h.why, fmt.Sprintf(format, args...))
	}
}

// keeper is a legacy backend that keeps state in its sessions: it counts their
// calls, asks, reports progress, and tells each session's stream of updates, from
// the last that the other side has seen.
type keeper struct {
	addr string
	http *http.Server
	end  chan struct{}

	mu       sync.Mutex
	sessions map[string]*kept
	ran      map[string]int // calls by their numbers
}

// kept is one session.
type kept struct {
	calls   int
	asked   map[string]chan json.RawMessage
	told    bool // of updates
	updates int
	sent    int
	stream  bool
	changed chan struct{}
}

func newKeeper() (*keeper, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &keeper{addr: ln.Addr().String(), end: make(chan struct{}), sessions: map[string]*kept{}, ran: map[string]int{}}
	k.http = &http.Server{Handler: k}
	go func() { _ = k.http.Serve(ln) }() // ends with close
	return k, nil
}

func (k *keeper) close() {
	close(k.end)
	_ = k.http.Close()
}

// times returns how often a call ran.
func (k *keeper) times(number string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ran[number]
}

// update tells every session that wants to know.
func (k *keeper) update() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.sessions {
		if s.told {
			s.updates++
			close(s.changed)
			s.changed = make(chan struct{})
		}
	}
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	s := k.sessions[r.Header.Get("Mcp-Session-Id")]
	k.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var m struct {
		ID     json.RawMessage
		Method string
		Result json.RawMessage
		Params struct {
			Arguments struct{ Do, N string }
			Meta      struct{ ProgressToken json.RawMessage } `json:"_meta"`
		}
	}
	_ = json.Unmarshal(body, &m) // of a GET there is none
	answer := func(result string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}
	switch {
	case m.Method == "initialize":
		id := rand.Text()
		k.mu.Lock()
		k.sessions[id] = &kept{asked: map[string]chan json.RawMessage{}, changed: make(chan struct{})}
		k.mu.Unlock()
		w.Header().Set("Mcp-Session-Id", id)
		answer(`{"protocolVersion":"` + mcp.V2511 + `","capabilities":{"tools":{},"resources":{"subscribe":true}},"serverInfo":` + server + `}`)
		return
	case s == nil && r.Header.Get("Mcp-Session-Id") == "":
		w.WriteHeader(400)
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}`)
		return
	case s == nil:
		w.WriteHeader(404)
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
		return
	case r.Method == "GET":
		k.tell(w, r, s)
		return
	case r.Method == "DELETE":
		k.mu.Lock()
		delete(k.sessions, r.Header.Get("Mcp-Session-Id"))
		k.mu.Unlock()
		return
	case m.Method == "" && m.ID != nil:
		k.mu.Lock()
		ch := s.asked[string(m.ID)]
		k.mu.Unlock()
		if ch != nil {
			ch <- m.Result
		}
		w.WriteHeader(202)
		return
	case m.ID == nil:
		w.WriteHeader(202)
		return
	case m.Method == "tools/list":
		answer("{" + toolList + "}")
		return
	case m.Method == "resources/subscribe":
		k.mu.Lock()
		s.told = true
		k.mu.Unlock()
	case m.Method == "tools/call":
		k.call(w, r, s, m.ID, m.Params.Arguments.Do, m.Params.Arguments.N, m.Params.Meta.ProgressToken)
		return
	}
	answer("{}")
}

// call runs the tool.
func (k *keeper) call(w http.ResponseWriter, r *http.Request, s *kept, id json.RawMessage, do, number string, token json.RawMessage) {
	k.mu.Lock()
	k.ran[number]++
	s.calls++
	calls := s.calls
	k.mu.Unlock()
	said := strconv.Itoa(calls)
	event := func(text string) {
		fmt.Fprintf(w, "data: %s\n\n", text)
		w.(http.Flusher).Flush()
	}
	if do != "count" {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	switch do {
	case "ask":
		ch := make(chan json.RawMessage, 1)
		k.mu.Lock()
		s.asked[`"`+number+`"`] = ch
		k.mu.Unlock()
		event(`{"jsonrpc":"2.0","id":"` + number + `","method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object"}}}`)
		select {
		case a := <-ch:
			said = string(a)
		case <-k.end:
			return
		case <-r.Context().Done():
			return
		}
	case "steps":
		for i := range 10 {
			event(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, i+1))
			select {
			case <-time.After(100 * time.Millisecond):
			case <-k.end:
				return
			}
		}
	}
	text, _ := json.Marshal(said) // text always marshals
	result := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`, id, text)
	if do != "count" {
		event(result)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, result)
}

// tell writes the updates of a session to its stream, of which there is one.
func (k *keeper) tell(w http.ResponseWriter, r *http.Request, s *kept) {
	k.mu.Lock()
	if s.stream {
		k.mu.Unlock()
		w.WriteHeader(409)
		return
	}
	s.stream = true
	if last, err := strconv.Atoi(r.Header.Get("Last-Event-ID")); err == nil {
		s.sent = last
	}
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		s.stream = false
		k.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	w.(http.Flusher).Flush()
	for {
		k.mu.Lock()
		from, to, changed := s.sent, s.updates, s.changed
		s.sent = to
		k.mu.Unlock()
		for n := from + 1; n <= to; n++ {
			fmt.Fprintf(w, "id: %d\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\",\"params\":{\"uri\":\"x:%d\"}}\n\n", n, n)
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-k.end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// visitor is a client of either era.
type visitor struct {
	url, name, session string
	http               *http.Client
}

func newVisitor(addr, name string) *visitor {
	return &visitor{url: "http://" + addr + "/mcp", name: name, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2}}}
}

// send sends one request; head comes in pairs.
func (v *visitor) send(ctx context.Context, method, body string, head ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, v.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	if method == "GET" {
		r.Header.Set("Accept", "text/event-stream")
	} else {
		r.Header.Set("Content-Type", "application/json")
	}
	if v.session != "" {
		r.Header.Set("Mcp-Session-Id", v.session)
		r.Header.Set("MCP-Protocol-Version", mcp.V2511)
	}
	for i := 0; i+1 < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	return v.http.Do(r)
}

// do is send that reads the whole answer, of a stream its last event. What met a
// connection that was closing is sent again as long as ran says that nobody ran
// it.
func (v *visitor) do(ctx context.Context, body string, ran func() bool, again *atomic.Int64, head ...string) (status int, message []byte, err error) {
	for try := 0; ; try++ {
		status, message, err = v.once(ctx, body, head...)
		if err == nil || ctx.Err() != nil || try == 20 || ran() {
			return status, message, err
		}
		again.Add(1)
		sleep(ctx, 20*time.Millisecond)
	}
}

func (v *visitor) once(ctx context.Context, body string, head ...string) (int, []byte, error) {
	r, err := v.send(ctx, "POST", body, head...)
	if err != nil {
		return 0, nil, err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream") {
		return r.StatusCode, text, err
	}
	if i := bytes.LastIndex(text, []byte("data: ")); i >= 0 {
		text = text[i+len("data: "):]
	}
	return r.StatusCode, text, nil
}

func never() bool { return false }

// begin begins a session.
func (v *visitor) begin(ctx context.Context) error {
	r, err := v.send(ctx, "POST", fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{"elicitation":{}},"clientInfo":{"name":%q,"version":"1"}}}`, mcp.V2511, v.name))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body)
	if v.session = r.Header.Get("Mcp-Session-Id"); v.session == "" {
		return fmt.Errorf("initialize: HTTP %d", r.StatusCode)
	}
	return nil
}

func callOf(id, do, number, more string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"work","arguments":{"do":%q,"n":%q}%s}}`, id, do, number, more)
}

// textOf is the text of a result.
func textOf(message []byte) string {
	var m struct {
		Result struct{ Content []struct{ Text string } }
	}
	if json.Unmarshal(message, &m) != nil || len(m.Result.Content) != 1 {
		return ""
	}
	return m.Result.Content[0].Text
}

// count calls a tool that says how many calls there have been in the session.
func (v *visitor) count(ctx context.Context, b *keeper, seen *handOverSeen) {
	was := 0
	for n := 1; sleep(ctx, 50*time.Millisecond); n++ {
		number := fmt.Sprintf("%s-%d", v.name, n)
		status, message, err := v.do(ctx, callOf(strconv.Itoa(n), "count", number, ""), func() bool { return b.times(number) > 0 }, &seen.again)
		if ctx.Err() != nil {
			return
		}
		seen.calls.Add(1)
		said, _ := strconv.Atoi(textOf(message))
		switch {
		case err != nil:
			seen.bad(&seen.anew, "%s: %v", number, err)
		case status == 404:
			seen.bad(&seen.lost, "%s: %.200s", number, message)
			return
		case said <= was:
			seen.bad(&seen.anew, "%s: %d calls in the session, after %d: HTTP %d: %.200s", number, said, was, status, message)
		}
		was = max(was, said)
	}
}

// subscribe subscribes to what hear hears.
func (v *visitor) subscribe(ctx context.Context) error {
	var again atomic.Int64
	status, message, err := v.do(ctx, `{"jsonrpc":"2.0","id":"s","method":"resources/subscribe","params":{"uri":"x:"}}`, never, &again)
	if err == nil && status != 200 {
		err = fmt.Errorf("resources/subscribe: HTTP %d: %.200s", status, message)
	}
	return err
}

// hear reads the stream of the session, and opens it again whenever it ends.
func (v *visitor) hear(ctx context.Context, seen *handOverSeen) {
	last := 0
	for ctx.Err() == nil {
		r, err := v.send(ctx, "GET", "")
		if err != nil {
			sleep(ctx, 20*time.Millisecond)
			continue
		}
		if r.StatusCode != 200 && ctx.Err() == nil {
			seen.bad(&seen.lost, "GET: HTTP %d", r.StatusCode)
			r.Body.Close()
			return
		}
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			_, uri, ok := strings.Cut(lines.Text(), `"uri":"x:`)
			if !ok {
				continue
			}
			n, _ := strconv.Atoi(strings.TrimRight(uri, `"}`))
			seen.events.Add(1)
			switch {
			case n <= last:
				seen.doubled.Add(1)
			case last > 0 && n > last+1:
				seen.bad(&seen.gaps, "%s: update %d after %d", v.name, n, last)
			}
			last = max(last, n)
		}
		r.Body.Close()
	}
}

// resume makes calls with progress, leaves in the middle of their streams, and
// reads on by the id of the last event.
func (v *visitor) resume(ctx context.Context, b *keeper, seen *handOverSeen) {
	for n := 1; sleep(ctx, 20*time.Millisecond); n++ {
		number := fmt.Sprintf("%s-steps-%d", v.name, n)
		id := strconv.Itoa(1_000_000 + n)
		step, last, done := 0, "", false
		for try := 0; !done && try < 60; try++ {
			var r *http.Response
			var err error
			if last == "" {
				if b.times(number) > 0 {
					break // it left before the first event: nothing to resume by
				}
				r, err = v.send(ctx, "POST", callOf(id, "steps", number, `,"_meta":{"progressToken":`+id+`}`))
			} else {
				r, err = v.send(ctx, "GET", "", "Last-Event-ID", last)
				seen.resumed.Add(1)
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				sleep(ctx, 20*time.Millisecond)
				continue
			}
			if r.StatusCode != 200 {
				body, _ := io.ReadAll(io.LimitReader(r.Body, 200))
				r.Body.Close()
				if r.StatusCode == 503 {
					sleep(ctx, 50*time.Millisecond)
					continue
				}
				seen.bad(&seen.gaps, "%s from %s: HTTP %d: %s", number, last, r.StatusCode, body)
				break
			}
			lines := bufio.NewScanner(r.Body)
			read := 0
			for lines.Scan() && (read < 3 || step >= 9) {
				if got, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
					last = got
				}
				data, ok := strings.CutPrefix(lines.Text(), "data: ")
				if !ok || data == "" {
					continue
				}
				read++
				var m struct {
					ID     json.RawMessage
					Params struct{ Progress int }
				}
				_ = json.Unmarshal([]byte(data), &m) // what is none has neither
				switch {
				case m.ID != nil && textOf([]byte(data)) != "":
					done = true
					if step != 10 {
						seen.bad(&seen.gaps, "%s: the answer after step %d", number, step)
					}
				case m.ID != nil:
					seen.bad(&seen.gaps, "%s: %.300s", number, data)
					done = true
				case m.Params.Progress != step+1:
					seen.bad(&seen.gaps, "%s: step %d after %d", number, m.Params.Progress, step)
					step = m.Params.Progress
				default:
					step++
				}
			}
			r.Body.Close()
		}
		if !done && last != "" && ctx.Err() == nil {
			seen.bad(&seen.gaps, "%s: no answer after step %d", number, step)
		}
	}
}

// ask makes a call of a legacy client whose tool asks, and returns what answers
// it and reads the end of the call.
func (v *visitor) ask(ctx context.Context, number string) (func() error, error) {
	r, err := v.send(ctx, "POST", callOf("1", "ask", number, ""))
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(r.Body)
	next := func() (data string, err error) {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && data != "" {
				return data, nil
			}
		}
		return "", errors.Join(errors.New("the stream ended"), lines.Err())
	}
	question, err := next()
	if err != nil {
		return nil, err
	}
	var q struct{ ID json.RawMessage }
	if err := json.Unmarshal([]byte(question), &q); err != nil || q.ID == nil {
		return nil, fmt.Errorf("%.200s", question)
	}
	return func() error {
		defer r.Body.Close()
		var again atomic.Int64
		status, message, err := v.do(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"n":%q}}}`, q.ID, number), never, &again)
		if err != nil || status != 202 {
			return fmt.Errorf("HTTP %d: %.200s: %w", status, message, err)
		}
		result, err := next()
		if err == nil && !strings.Contains(textOf([]byte(result)), number) {
			err = fmt.Errorf("%.300s", result)
		}
		return err
	}, nil
}

// park makes a call of a modern client that is parked, and returns what comes back
// with the answer.
func (v *visitor) park(ctx context.Context, number string) (func() error, error) {
	const meta = `,"_meta":{"` + mcp.MetaVersion + `":"` + mcp.V2607 + `","` + mcp.MetaClientInfo + `":{"name":"storm","version":"1"},"` + mcp.MetaCapabilities + `":{"elicitation":{}}}`
	head := []string{"MCP-Protocol-Version", mcp.V2607, "Mcp-Method", "tools/call", "Mcp-Name", "work"}
	var again atomic.Int64
	status, message, err := v.do(ctx, callOf("1", "ask", number, meta), never, &again, head...)
	var m struct {
		Result struct {
			InputRequests map[string]json.RawMessage
			RequestState  string
		}
	}
	if err != nil || json.Unmarshal(message, &m) != nil || len(m.Result.InputRequests) != 1 {
		return nil, fmt.Errorf("HTTP %d: %.300s: %w", status, message, err)
	}
	key := ""
	for k := range m.Result.InputRequests {
		key = k
	}
	return func() error {
		more := fmt.Sprintf(`,"requestState":%q,"inputResponses":{%q:{"action":"accept","content":{"n":%q}}}`, m.Result.RequestState, key, number) + meta
		status, message, err := v.do(ctx, callOf("2", "ask", number, more), never, &again, head...)
		if err == nil && !strings.Contains(textOf(message), number) {
			err = fmt.Errorf("HTTP %d: %.300s", status, message)
		}
		return err
	}, nil
}
