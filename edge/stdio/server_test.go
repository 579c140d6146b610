//go:build unix

package stdio_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/stdio"
)

// asServer is the variable that makes the test program a server. Its words say how it
// behaves.
const asServer = "WEIR_STDIO_TEST_SERVER"

func TestMain(m *testing.M) {
	if how, is := os.LookupEnv(asServer); is {
		os.Exit(play(strings.Fields(how)))
	}
	edgetest.Main(m)
}

// played is a server that a test plays.
type played struct {
	how map[string]string

	mu     sync.Mutex
	out    *bufio.Writer
	level  string
	asked  int
	waits  map[string]chan json.RawMessage // questions by id
	uris   map[string]bool
	client json.RawMessage // capabilities
	calls  map[string]chan struct{}

	listens []string            // ids of subscriptions/listen
	of      map[string][]string // methods of notifications, with their URIs, by id
	keeps   map[string]string   // of a server like those of the Go SDK: the one id that each of them has
}

type packet struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string                     `json:"name"`
		URI       string                     `json:"uri"`
		Level     string                     `json:"level"`
		RequestID json.RawMessage            `json:"requestId"`
		Args      map[string]any             `json:"arguments"`
		Meta      map[string]json.RawMessage `json:"_meta"`
		Caps      json.RawMessage            `json:"capabilities"`
		Answers   map[string]json.RawMessage `json:"inputResponses"`

		Notifications json.RawMessage `json:"notifications"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func newPlayed(words []string, out io.Writer) *played {
	s := &played{how: map[string]string{}, out: bufio.NewWriter(out), waits: map[string]chan json.RawMessage{}, uris: map[string]bool{}, calls: map[string]chan struct{}{}}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		s.how[name] = value
	}
	return s
}

// inside starts played servers, by words, in this process: so they live in the time of a bubble.
type inside string

func (how inside) Start(context.Context, string) (stdio.Process, error) {
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	p := &insider{stdin: stdin, stdout: stdout, in: in, out: out, exit: make(chan stdio.Exit, 1)}
	s := newPlayed(strings.Fields(string(how)), out)
	go func() {
		code := s.read(in)
		p.Kill()
		p.exit <- stdio.Exit{Code: code}
	}()
	return p, nil
}

type insider struct {
	stdin  *io.PipeWriter
	stdout *io.PipeReader
	in     *io.PipeReader
	out    *io.PipeWriter
	exit   chan stdio.Exit
}

func (p *insider) Stdin() io.WriteCloser { return p.stdin }
func (p *insider) Stdout() io.ReadCloser { return p.stdout }
func (p *insider) Stderr() io.ReadCloser { return nil }
func (p *insider) Wait() stdio.Exit      { return <-p.exit }
func (p *insider) Terminate()            {}
func (p *insider) Kill()                 { p.in.Close(); p.out.Close() }

// play plays a server by words, some with a value: "modern", "both", "discover=die",
// "discover=late", "discover=mute", "banner", "deaf", "ignore-term", "fork", "exit=1", "tell=FILE", "http=ADDRESS", "slow", "deafen", "subscribe-mute", "text-ids", "refuses".
func play(words []string) int {
	s := newPlayed(words, os.Stdout)
	s.tell("start %d", os.Getpid())
	if _, is := s.how["ignore-term"]; is {
		signal.Ignore(syscall.SIGTERM)
	}
	if _, is := s.how["fork"]; is { // leaves a child that holds the pipes
		cmd := exec.Command("/bin/sh", "-c", "trap '' TERM; sleep 600 & sleep 600")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			return 3
		}
		s.tell("child %d", cmd.Process.Pid)
	}
	if _, is := s.how["banner"]; is {
		fmt.Print("\x1b[32mStarting the server…\x1b[0m\n\n\r\n[not, json\n\"text\"\n\xff\xfe\n")
		fmt.Fprint(os.Stderr, "on stderr\n")
	}
	if code, is := s.how["exit"]; is {
		fmt.Fprint(os.Stderr, "cannot find the thing\n")
		n, _ := strconv.Atoi(code)
		return n
	}
	if _, is := s.how["slow"]; is {
		time.Sleep(time.Second)
	}
	if _, is := s.how["deafen"]; is {
		time.Sleep(time.Hour)
	}
	if address, is := s.how["http"]; is {
		return s.playHTTP(address)
	}
	return s.read(os.Stdin)
}

// read handles the lines of its stdin; what it returns is the code to exit with.
func (s *played) read(stdin io.Reader) int {
	in := bufio.NewReaderSize(stdin, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if _, is := s.how["deaf"]; is && bytes.Contains(line, []byte("tools/call")) {
				select {}
			}
			var p packet
			if json.Unmarshal(line, &p) != nil {
				s.tell("nonsense %q", line)
				continue
			}
			if code := s.handle(&p, line); code >= 0 {
				return code
			}
		}
		if err != nil {
			if _, is := s.how["ignore-eof"]; is {
				select {}
			}
			s.tell("eof")
			return 0
		}
	}
}

// tell appends a line to the file of the word tell.
func (s *played) tell(format string, args ...any) {
	if s.how["tell"] == "" {
		return
	}
	f, err := os.OpenFile(s.how["tell"], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintf(f, "%d "+format+"\n", append([]any{os.Getpid()}, args...)...)
}

func (s *played) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...)
	s.out.Flush()
}

// says is an id, or a token, as the server writes it.
func (s *played) says(id json.RawMessage) json.RawMessage {
	if _, is := s.how["text-ids"]; is && id[0] != '"' {
		return json.RawMessage(`"` + string(id) + `"`)
	}
	return id
}

func (s *played) result(id json.RawMessage, format string, args ...any) {
	s.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, s.says(id), fmt.Sprintf(format, args...))
}

func (s *played) fail(id json.RawMessage, code int, text string) {
	s.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, s.says(id), code, text)
}

const playedTools = `{"name":"echo","inputSchema":{"type":"object"}},{"name":"notify","inputSchema":{"type":"object"}}`

// handle handles one message; what it returns is the code to exit with, -1 to go on.
func (s *played) handle(p *packet, line []byte) int {
	_, modern := s.how["modern"]
	_, both := s.how["both"]
	if strings.HasSuffix(p.Method, "/list") {
		s.tell("asked %s", p.Method)
	}
	switch p.Method {
	case "server/discover":
		switch s.how["discover"] {
		case "die":
			return 7
		case "mute":
			return -1
		case "late":
			time.Sleep(3 * time.Second)
		}
		if !modern && !both {
			s.fail(p.ID, -32601, "Method not found")
			return -1
		}
		s.result(p.ID, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}},"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"played","version":"1"}}}`)
	case "initialize":
		s.tell("initialize %s", p.Params.Caps)
		if modern {
			s.fail(p.ID, -32601, "Method not found")
			return -1
		}
		if _, is := s.how["refuses"]; is {
			s.fail(p.ID, -32603, "no such key: sk-0123456789\nat line 3")
			return -1
		}
		s.client = p.Params.Caps
		s.result(p.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{},"resources":{"subscribe":true}},"serverInfo":{"name":"played","version":"1"}}`)
	case "notifications/cancelled":
		s.tell("cancelled %s", p.Params.RequestID)
		s.mu.Lock()
		s.listens = slices.DeleteFunc(s.listens, func(id string) bool { return id == string(p.Params.RequestID) })
		if _, forgets := s.how["forgets"]; forgets && s.forget(string(p.Params.RequestID)) {
			defer s.result(p.Params.RequestID, `{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":%s}}`, p.Params.RequestID)
		}
		if c := s.calls[string(p.Params.RequestID)]; c != nil {
			close(c)
			delete(s.calls, string(p.Params.RequestID))
		}
		s.mu.Unlock()
	case "ping":
		s.result(p.ID, "{}")
	case "tools/list":
		more, _ := os.ReadFile(s.how["tell"] + ".tools")
		s.result(p.ID, `{"tools":[%s%s]}`, playedTools, more)
	case "resources/list":
		s.result(p.ID, `{"resources":[{"uri":"a:b","name":"b"}]}`)
	case "logging/setLevel":
		s.tell("level %s", p.Params.Level)
		s.mu.Lock()
		s.level = p.Params.Level
		s.mu.Unlock()
		s.result(p.ID, "{}")
	case "subscriptions/listen":
		if !modern {
			s.fail(p.ID, -32601, "Method not found")
			return -1
		}
		s.tell("listen %s %s", p.ID, p.Params.Notifications)
		s.mu.Lock()
		s.remember(string(p.ID), p.Params.Notifications)
		if strings.Contains(string(p.Params.Notifications), "refused:") || strings.Contains(string(p.Params.Meta["io.modelcontextprotocol/clientInfo"]), "refused:") {
			s.forget(string(p.ID))
			s.mu.Unlock()
			s.fail(p.ID, -32602, "no such resource")
			return -1
		}
		honoured := p.Params.Notifications
		if _, is := s.how["lists-only"]; is {
			members := map[string]json.RawMessage{}
			_ = json.Unmarshal(honoured, &members)
			delete(members, "resourceSubscriptions")
			honoured, _ = json.Marshal(members)
		}
		before := s.listens
		s.listens = append(s.listens, string(p.ID))
		if _, one := s.how["one"]; one {
			s.listens = s.listens[len(before):]
		}
		s.mu.Unlock()
		s.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":%s}}`, p.ID, honoured)
		if string(honoured) == "{}" {
			before = []string{string(p.ID)} // as servers of the Go SDK do
			s.mu.Lock()
			s.forget(string(p.ID))
			s.mu.Unlock()
		} else if _, one := s.how["one"]; !one {
			before = nil
		}
		for _, id := range before {
			s.result(json.RawMessage(id), `{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":%s}}`, id)
		}
	case "resources/subscribe", "resources/unsubscribe":
		s.tell("%s %s", p.Method, p.Params.URI)
		if _, is := s.how["subscribe-mute"]; is {
			return -1
		}
		if strings.HasPrefix(p.Params.URI, "refused:") {
			s.fail(p.ID, -32002, "Resource not found")
			return -1
		}
		s.result(p.ID, "{}")
	case "tools/call":
		if p.Params.Name == "exit" {
			fmt.Fprint(os.Stderr, "told to exit\n")
			return 1
		}
		if p.Params.Name == "close-stdin" { // here, where nobody reads it meanwhile
			os.Stdin.Close()
			s.text(p.ID, "closed")
			return -1
		}
		s.mu.Lock()
		c := make(chan struct{})
		s.calls[string(p.ID)] = c
		s.mu.Unlock()
		go s.call(p, line, c)
	case "":
		s.mu.Lock()
		if c := s.waits[string(p.ID)]; c != nil {
			delete(s.waits, string(p.ID))
			if p.Error != nil {
				c <- p.Error
			} else {
				c <- p.Result
			}
		}
		s.mu.Unlock()
	default:
		if p.ID != nil {
			s.fail(p.ID, -32601, "Method not found")
		}
	}
	return -1
}

// text answers a call with a text.
func (s *played) text(id json.RawMessage, text string) {
	said, _ := json.Marshal(text)
	s.result(id, `{"resultType":"complete","content":[{"type":"text","text":%s}]}`, said)
}

func (s *played) call(p *packet, line []byte, cancelled chan struct{}) {
	arg := func(name string) string { v, _ := p.Params.Args[name].(string); return v }
	number := func(name string) int { v, _ := p.Params.Args[name].(float64); return int(v) }
	switch p.Params.Name {
	case "echo":
		s.text(p.ID, arg("text"))
	case "pid":
		s.text(p.ID, strconv.Itoa(os.Getpid()))
	case "env":
		s.text(p.ID, os.Getenv(arg("name")))
	case "line": // the request, as it came
		s.text(p.ID, string(line))
	case "raw": // says what it is told to, with ID for the id of the request
		for _, l := range strings.Split(arg("lines"), "\n") {
			s.say("%s", strings.NewReplacer("ID", string(p.ID), "BYTE", "\xe9", "NUL", "\x00").Replace(l))
		}
	case "half": // the beginning of an answer, and the end
		s.mu.Lock()
		fmt.Fprintf(s.out, `{"jsonrpc":"2.0","id":%s,"res`, p.ID)
		s.out.Flush()
		os.Exit(2)
	case "wait":
		s.tell("wait %s", p.ID)
		select {
		case <-cancelled:
		case <-time.After(time.Duration(number("ms")) * time.Millisecond):
			s.text(p.ID, "waited")
		}
	case "progress":
		for i := range number("n") {
			s.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, s.says(p.Params.Meta["progressToken"]), i+1)
		}
		s.text(p.ID, "done")
	case "log":
		s.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":%q}}`, arg("text"))
		s.text(p.ID, "logged")
	case "notify":
		if more := arg("tool"); more != "" { // all processes have it from now on
			if err := os.WriteFile(s.how["tell"]+".tools", []byte(`,{"name":"`+more+`","inputSchema":{"type":"object"}}`), 0o600); err != nil {
				s.text(p.ID, err.Error())
				return
			}
		}
		if _, modern := s.how["modern"]; modern { // it tells of changes whom it was asked to
			s.mu.Lock()
			what := arg("method") + " "
			if arg("method") == "notifications/resources/updated" {
				what += arg("uri")
			}
			to := slices.DeleteFunc(slices.Clone(s.listens), func(id string) bool { return !slices.Contains(s.of[id], what) })
			if _, forgets := s.how["forgets"]; forgets {
				to = slices.DeleteFunc(to, func(id string) bool { return s.keeps[what] != id })
			}
			s.mu.Unlock()
			for _, id := range to {
				s.say(`{"jsonrpc":"2.0","method":%q,"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"uri":%q}}`, arg("method"), id, arg("uri"))
			}
			s.text(p.ID, "told")
			return
		}
		s.say(`{"jsonrpc":"2.0","method":%q,"params":{"uri":%q}}`, arg("method"), arg("uri"))
		s.text(p.ID, "told")
	case "big":
		s.text(p.ID, strings.Repeat("x", number("bytes")))
	case "endless": // bytes without a newline
		s.mu.Lock()
		fmt.Fprintf(s.out, `{"jsonrpc":"2.0","id":%s,"result":{"text":"`, p.ID)
		for range number("bytes") / 1024 {
			_, _ = io.WriteString(s.out, strings.Repeat("y", 1024))
		}
		fmt.Fprint(s.out, "\"}}\n")
		s.out.Flush()
		s.mu.Unlock()
	case "flood": // as fast as it can
		s.mu.Lock()
		id := "" // of questions, in place of notifications
		if p.Params.Args["question"] == true {
			id = `"id":1,`
		}
		for i := range number("n") {
			fmt.Fprintf(s.out, `{"jsonrpc":"2.0",`+id+`"method":%q,"params":{"uri":"a:b","level":"error","data":"the number %d of many"}}`+"\n", arg("method"), i)
		}
		s.out.Flush()
		s.mu.Unlock()
		s.text(p.ID, "flooded")
	case "stderr":
		for i := range number("n") {
			fmt.Fprintf(os.Stderr, "%s %d\n", arg("text"), i)
		}
		s.text(p.ID, "printed")
	case "ask":
		if answers := p.Params.Answers; answers != nil {
			s.text(p.ID, string(answers["q"]))
			return
		}
		if _, modern := s.how["modern"]; modern {
			s.result(p.ID, `{"resultType":"input_required","inputRequests":{"q":{"method":%q,"params":%s}}}`, arg("method"), questions[arg("method")])
			return
		}
		s.mu.Lock()
		s.asked++
		id := fmt.Sprintf(`"ask-%d"`, s.asked)
		c := make(chan json.RawMessage, 1)
		s.waits[id] = c
		s.mu.Unlock()
		s.say(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, arg("method"), questions[arg("method")])
		s.text(p.ID, string(<-c))
	}
}

// remember notes a subscription; a server of the Go SDK (1.8) has of each list and resource the
// last one of the connection. s.mu is held.
func (s *played) remember(id string, notifications json.RawMessage) {
	var w struct {
		Tools     bool     `json:"toolsListChanged"`
		Prompts   bool     `json:"promptsListChanged"`
		Resources bool     `json:"resourcesListChanged"`
		URIs      []string `json:"resourceSubscriptions"`
	}
	_ = json.Unmarshal(notifications, &w)
	if s.keeps == nil {
		s.keeps, s.of = map[string]string{}, map[string][]string{}
	}
	s.of[id] = nil
	keep := func(what string) {
		s.keeps[what] = id
		s.of[id] = append(s.of[id], what)
	}
	for what, wished := range map[string]bool{"tools": w.Tools, "prompts": w.Prompts, "resources": w.Resources} {
		if wished {
			keep("notifications/" + what + "/list_changed ")
		}
	}
	for _, uri := range w.URIs {
		keep("notifications/resources/updated " + uri)
	}
}

// forget notes the end of a subscription as such a server does, whose end takes all lists, and its
// resources, from all others. s.mu is held.
func (s *played) forget(id string) bool {
	all, ok := s.of[id]
	if !ok {
		return false
	}
	delete(s.of, id)
	for _, what := range []string{"tools", "prompts", "resources"} {
		delete(s.keeps, "notifications/"+what+"/list_changed ")
	}
	for _, what := range all {
		delete(s.keeps, what)
	}
	return true
}

var questions = map[string]string{
	"roots/list":             "{}",
	"elicitation/create":     `{"mode":"form","message":"who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`,
	"sampling/createMessage": `{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":5}`,
}
