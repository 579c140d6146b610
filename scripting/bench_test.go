package scripting_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/scripting"
)

// usualScript is a script of 25 lines with 8 calls, as agents write them.
const usualScript = `def summary(issue):
  return {"number": issue["number"], "title": issue["title"], "labels": sorted(issue["labels"])}

found = search(query = "is:open label:bug", limit = 50)
rows = []
for issue in found["items"]:
  if "wontfix" in issue["labels"]:
    continue
  rows.append(summary(issue))
detail = parallel([lambda: fetch(id = 1), lambda: fetch(id = 2), lambda: fetch(id = 3), lambda: fetch(id = 4)])
by_label = {}
for row in rows:
  for label in row["labels"]:
    by_label[label] = by_label.get(label, 0) + 1
total = 0
for d in detail:
  total += len(d["items"])
last = attempt(lambda: fetch(id = 5))
if not last["ok"]:
  print("no details:", last["error"]["message"])
notes = [fetch(id = i)["items"][0]["title"].upper() for i in range(2)]
top = sorted(by_label.items(), key = lambda kv: -kv[1])[:3]
text = "%d issues, %d items" % (len(rows), total)
print(text)
return {"text": text, "top": top, "rows": rows[:5], "notes": notes}
`

// issues is a tool's answer of about 4 KiB.
func issues() []byte {
	var b strings.Builder
	b.WriteString(`{"items":[`)
	for i := range 30 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"number":%d,"title":"The edge says no to call number %d","labels":["bug","area-%d"],"score":%d.5,"open":true,"closed_at":null}`, i, i, i%7, i)
	}
	b.WriteString(`],"total":30}`)
	return []byte(b.String())
}

func benchScript(b *testing.B) (*scripting.Program, tools) {
	answer := issues()
	ts := tools{}
	for _, name := range []string{"search", "fetch"} {
		ts[name] = func(ctx, *scripting.Call) scripting.Answer { return scripting.Answer{Value: answer} }
	}
	p, err := scripting.Compile("script.star", usualScript, ts.scope())
	if err != nil {
		b.Fatal(err)
	}
	return p, ts
}

func BenchmarkCompile(b *testing.B) {
	_, ts := benchScript(b)
	for b.Loop() {
		if _, err := scripting.Compile("script.star", usualScript, ts.scope()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExecute(b *testing.B) {
	p, ts := benchScript(b)
	b.ReportAllocs()
	for b.Loop() {
		o, err := scripting.Execute(b.Context(), &scripting.Run{Program: p, Call: ts.call})
		if err != nil || o.Error != nil {
			b.Fatal(err, o.Error)
		}
	}
}

// BenchmarkInterpret is what a guest does: read the program, and run it with answers in the
// wire form.
func BenchmarkInterpret(b *testing.B) {
	p, _ := benchScript(b)
	encoded := p.Encode()
	answer := scripting.EncodeAnswer("fetch", scripting.Answer{Value: issues()})
	next, waiting := uint32(0), []uint32(nil)
	host := &scripting.Host{
		Submit: func(scripting.Kind, string, []byte) uint32 {
			next++
			waiting = append(waiting, next)
			return next
		},
		Wait: func() uint32 {
			id := waiting[0]
			waiting = waiting[1:]
			return id
		},
		Answer: func(uint32) []byte { return answer },
		Print:  func(string) {},
	}
	b.ReportAllocs()
	for b.Loop() {
		p, err := scripting.Load(encoded)
		if err != nil {
			b.Fatal(err)
		}
		if end := scripting.Interpret(p, nil, scripting.Limits{}, host); end.Error != nil {
			b.Fatal(end.Error)
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	p, _ := benchScript(b)
	encoded := p.Encode()
	for b.Loop() {
		if _, err := scripting.Load(encoded); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFromJSON(b *testing.B) {
	text := issues()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := scripting.FromJSON(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkToJSON(b *testing.B) {
	wire, err := scripting.FromJSON(issues())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(issues())))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := scripting.ToJSON(wire); err != nil {
			b.Fatal(err)
		}
	}
}
