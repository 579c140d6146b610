package sandbox

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/scripting"
)

// typical is a script of 25 lines with 8 calls.
const typical = `
def total(items):
    sum = 0
    for item in items:
        if item["state"] == "open":
            sum += item["points"]
    return sum

repos = ["edge", "guest", "sdk", "docs"]
issues = {}
for repo in repos:
    found = list_issues(repo = repo, state = "all", limit = 10)
    issues[repo] = found["items"]
users = parallel([lambda: get_user(id = 1), lambda: get_user(id = 2), lambda: get_user(id = 3)])
names = [u["name"] for u in users if u["active"]]
report = []
for repo in sorted(issues.keys()):
    items = issues[repo]
    points = total(items)
    titles = [i["title"].upper() for i in items if i["points"] > 3]
    report.append({"repo": repo, "count": len(items), "points": points, "titles": titles[:2]})
print("users: %s" % ", ".join(names))
post = call_tool("post_report", channel = "#team", report = report)
worst = max(report, key = lambda r: r["points"])
return {"worst": worst["repo"], "posted": post["ok"], "report": report, "names": names}
`

// typicalTools are what it calls.
func typicalTools() tools {
	var items []string
	for i := range 9 {
		items = append(items, fmt.Sprintf(`{"id":%d,"title":"An issue of number %d","state":"%s","points":%d}`, i, i, []string{"open", "closed"}[i%2], i%8))
	}
	list := value(`{"items":[` + strings.Join(items, ",") + `],"total":9}`)
	return tools{
		"list_issues": list,
		"get_user":    value(`{"id":1,"name":"Ann","active":true,"groups":["dev","ops"]}`),
		"post_report": value(`{"ok":true,"id":"r-1"}`),
	}
}

// slow is eight calls of 20 ms at once.
const slow = `
return parallel([lambda: nap(n = 1), lambda: nap(n = 2), lambda: nap(n = 3), lambda: nap(n = 4), lambda: nap(n = 5), lambda: nap(n = 6), lambda: nap(n = 7), lambda: nap(n = 8)])
`

func nap(ctx context.Context, c *scripting.Call) scripting.Answer {
	timer := time.NewTimer(20 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return echo(ctx, c)
	case <-ctx.Done():
		return until(ctx, c)
	}
}

// cases are those of P11a, and how long the middle one of many runs may take.
var cases = []struct {
	name, text string
	tools      tools
	most       time.Duration
}{
	{"return", "return 1", nil, 500 * time.Microsecond},
	{"typical", typical, typicalTools(), 1500 * time.Microsecond},
	{"slow", slow, tools{"nap": nap}, 23 * time.Millisecond},
}

// BenchmarkRun is P11a: a program that is compiled already, from its values to its result.
func BenchmarkRun(b *testing.B) {
	e := engine(b)
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			r := &scripting.Run{Program: program(b, c.text, c.tools), Call: c.tools.call}
			var each, cpu []time.Duration
			for b.Loop() {
				start := time.Now()
				o, err := e.Run(b.Context(), "me", r)
				if err != nil || o.Error != nil {
					b.Fatal(err, o)
				}
				each, cpu = append(each, time.Since(start)), append(cpu, o.CPU)
			}
			slices.Sort(each)
			slices.Sort(cpu)
			b.ReportMetric(float64(cpu[len(cpu)/2].Microseconds()), "p50-cpu-us")
			b.ReportMetric(float64(each[len(each)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(each[len(each)*99/100].Microseconds()), "p99-us")
		})
	}
}

// BenchmarkCompile is the part of a run that its program pays once.
func BenchmarkCompile(b *testing.B) {
	s := typicalTools()
	for b.Loop() {
		program(b, typical, s)
	}
}

// BenchmarkValues is what the values of the script of 25 lines cost on their way in.
func BenchmarkValues(b *testing.B) {
	answer := typicalTools()["list_issues"](b.Context(), nil)
	b.SetBytes(int64(len(answer.Value)))
	for b.Loop() {
		scripting.EncodeAnswer("list_issues", answer)
	}
}

// BenchmarkEngine is how long the module takes to compile, and to come from the cache.
func BenchmarkEngine(b *testing.B) {
	for _, cached := range []bool{false, true} {
		b.Run(fmt.Sprintf("cached=%v", cached), func(b *testing.B) {
			dir := b.TempDir()
			open := func() time.Duration {
				e := New(Options{CacheDir: dir})
				defer e.Close()
				if err := e.Ready(b.Context()); err != nil {
					b.Fatal(err)
				}
				return e.ready.module.Elapsed
			}
			if cached {
				open()
			}
			var compiling time.Duration
			for b.Loop() {
				if !cached {
					b.StopTimer()
					if err := os.RemoveAll(dir); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				compiling += open()
			}
			b.ReportMetric(float64(compiling.Milliseconds())/float64(b.N), "compile-ms")
		})
	}
}
