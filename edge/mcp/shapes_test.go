package mcp

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// shaper writes messages of every shape: known members and others in any
// order, names with escapes, white space anywhere, values of all kinds.
type shaper struct {
	*rand.Rand
	strings.Builder
	escapes bool // names may be escaped
}

func (s *shaper) one(list ...string) string { return list[s.IntN(len(list))] }

func (s *shaper) space() {
	if s.IntN(8) == 0 {
		s.WriteString(s.one(" ", "\n", "\t", "\r\n  "))
	}
}

func (s *shaper) name(name string) {
	s.WriteByte('"')
	for _, c := range name {
		if s.escapes && s.IntN(20) == 0 {
			fmt.Fprintf(s, `\u%04x`, c)
		} else {
			s.WriteRune(c)
		}
	}
	s.WriteByte('"')
}

// object writes an object with some of the named members and some others.
func (s *shaper) object(some float64, names []string, value func(name string)) {
	for range s.IntN(4) {
		names = append(names[:len(names):len(names)], fmt.Sprintf("x%d/é", s.IntN(1000)))
	}
	if s.IntN(30) == 0 {
		for i := range 20 {
			names = append(names[:len(names):len(names)], fmt.Sprintf("wide%d", i))
		}
	}
	s.WriteByte('{')
	seen := map[string]bool{}
	for _, i := range s.Perm(len(names)) {
		if name := names[i]; !seen[name] && s.Float64() < some {
			if len(seen) > 0 {
				s.WriteByte(',')
			}
			seen[name] = true
			s.space()
			s.name(name)
			s.space()
			s.WriteByte(':')
			s.space()
			value(name)
			s.space()
		}
	}
	s.space()
	s.WriteByte('}')
}

func (s *shaper) value(string) {
	s.WriteString(s.one("1", "-0", "1152921504606846977", "1e400", "null", "true", `""`, `"text"`, `"\u0041\n\ud83d\ude00"`, "[]", "[ 1, {} ]", "{}",
		`{"b":1, "a":[2]}`, `"object"`, `"complete"`, `[{"name":"x"}]`))
}

func (s *shaper) meta(names ...string) {
	if s.IntN(10) == 0 {
		s.value("")
		return
	}
	s.object(0.5, names, s.value)
}

func (s *shaper) message() string {
	s.Reset()
	kind := s.one("request", "notification", "result", "error")
	names := map[string][]string{
		"request":      {"jsonrpc", "id", "method", "params"},
		"notification": {"jsonrpc", "method", "params"},
		"result":       {"jsonrpc", "id", "result"},
		"error":        {"jsonrpc", "id", "error"},
	}[kind]
	s.escapes = false
	s.object(0.98, names, func(name string) {
		switch name {
		case "jsonrpc":
			s.WriteString(`"2.0"`)
		case "id":
			s.WriteString(s.one("1", "9007199254740993", `"a\u0062"`, `""`, "-0"))
		case "method":
			s.WriteString(s.one(`"tools/call"`, `"tools\/list"`, `"notifications/progress"`, `"x"`))
		case "params":
			s.object(0.4, []string{"name", "arguments", "uri", "cursor", "_meta", "requestState", "inputResponses", "progressToken"}, func(name string) {
				if name == "_meta" {
					s.meta(append([]string{"progressToken", "traceparent"}, protocolKeys...)...)
					return
				}
				s.value("")
			})
		case "result":
			s.escapes = s.IntN(2) == 0
			s.object(0.4, []string{"resultType", "ttlMs", "cacheScope", "structuredContent", "content", "tools", "_meta"}, func(name string) {
				switch name {
				case "_meta":
					s.meta(MetaServerInfo, "progressToken")
				case "tools":
					s.WriteByte('[')
					for i := range s.IntN(4) {
						if i > 0 {
							s.WriteByte(',')
						}
						s.object(0.7, []string{"name", "outputSchema"}, func(string) {
							if s.IntN(2) == 0 {
								s.object(0.7, []string{"type"}, s.value)
								return
							}
							s.value("")
						})
					}
					s.WriteByte(']')
				default:
					s.value("")
				}
			})
			s.escapes = false
		case "error":
			s.escapes = s.IntN(2) == 0
			s.object(0.9, []string{"code", "message", "data", "_meta"}, func(name string) {
				if name == "code" {
					s.WriteString(s.one("-32002", "-32042", "-32020", "-32021", "-32022", "-32602", "429", "1.5", `"x"`))
					return
				}
				s.value("")
			})
			s.escapes = false
		default:
			s.value("")
		}
	})
	return s.String()
}

// Messages of many shapes go through what the fuzzers check.
func TestShapes(t *testing.T) {
	s := &shaper{Rand: rand.New(rand.NewPCG(20260728, 1))}
	count, total := map[Kind]int{}, 20_000
	if raceEnabled {
		total = 4_000
	}
	for i := range total {
		text := []byte(s.message())
		m, _ := Decode(text)
		count[m.Kind]++
		checkDecode(t, text)
		checkTranslation(t, text, uint8(i))
		if t.Failed() {
			t.Fatalf("message %d: %s", i, text)
		}
	}
	for _, kind := range []Kind{Request, Notification, Result, Failure} {
		if count[kind] < total/10 {
			t.Errorf("of the shapes only %d are of kind %d", count[kind], kind)
		}
	}
	t.Logf("%v", count)
}
