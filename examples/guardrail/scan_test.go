package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestBenignTexts: of two hundred texts that hold nothing at most one in a
// hundred is taken for something.
func TestBenignTexts(t *testing.T) {
	file, err := os.ReadFile("testdata/benign.txt")
	if err != nil {
		t.Fatal(err)
	}
	texts := strings.Split(strings.TrimSpace(string(file)), "\n")
	if len(texts) < 200 {
		t.Fatalf("%d texts", len(texts))
	}
	wrong := map[string]int{}
	for _, text := range texts {
		text = strings.ReplaceAll(text, `\n`, "\n")
		for what, is := range map[string]bool{
			"secrets": is(hide(text)), "characters": is(strip(text)), "urls": is(pictures(text)), "calls": calling(text), "instructions": instructs(text, false),
		} {
			if is {
				wrong[what]++
				t.Logf("%s in %q", what, text)
			}
		}
	}
	for what, n := range wrong {
		if 100*n > len(texts) {
			t.Errorf("%s in %d of %d texts without", what, n, len(texts))
		}
	}
}

func is(_ string, found bool) bool { return found }

// TestSecretsWithin finds secrets at every place of a text, several of them, and
// not in words that only resemble them.
func TestSecretsWithin(t *testing.T) {
	for name, secret := range secretTexts {
		mark := "[redacted: " + name + "]"
		for _, form := range []string{"%s", "x %s", "%s\n", "key=%s;", "\"%s\"", "(%s)", "%s, %[1]s"} {
			if got, _ := hide(fmt.Sprintf(form, secret)); got != fmt.Sprintf(form, mark) {
				t.Errorf("%s: %q becomes %q", name, form, got)
			}
		}
		if name == "private key" { // which may be cut off
			if got, _ := hide("x " + secret[:40]); got != "x "+mark {
				t.Errorf("the beginning of a key: %q", got)
			}
			continue
		}
		for _, other := range []string{"a" + secret, secret[:len(secret)/2], strings.ToLower(secret)} {
			if got, found := hide(other); found && strings.HasPrefix(secret, "AK") {
				t.Errorf("%s: %q becomes %q", name, other, got)
			}
		}
	}
}

// hostile are texts that scanners without a bound take long over.
func hostile(n int) map[string]string {
	all := map[string]string{}
	for _, unit := range []string{
		"![", "![](", "![](https://", "<img ", "<img src=", "-----BEGIN ", "-----BEGIN PRIVATE KEY", "eyJ", "eyJ-", "eyJhbGciOiJ.", "ghp_", "xoxb-", "github_pat_", "AKIA",
		"ignore ", "ignore all of the ", "do not tell this ", "note for the ", "tools/call", "\"method\":\"tools/", "<", "i", "\u200b", "é\u200d", "(", "a ", "\\u0041", "{\"a\":",
	} {
		all[unit] = strings.Repeat(unit, n/len(unit))
	}
	return all
}

// TestHostileTexts: what is made to take long takes no more than a few steps for
// each byte. Twice as much of it takes about twice as long, not four times.
func TestHostileTexts(t *testing.T) {
	scan := func(s string) time.Duration {
		began := time.Now()
		e := &edit{rules: &rules{instructions: redact, characters: redact, urls: redact, calls: flag, secrets: redact}}
		e.text(s, false)
		instructs(s, true)
		return time.Since(began)
	}
	small, large := hostile(128<<10), hostile(1<<20)
	for unit := range small {
		least := scan(small[unit])
		for range 4 {
			least = min(least, scan(small[unit]))
		}
		most := 40*least + 200*time.Millisecond
		took := scan(large[unit])
		for range 4 { // a busy machine may have kept it waiting
			if took <= most {
				break
			}
			took = min(took, scan(large[unit]))
		}
		if took > most {
			t.Errorf("%q: %s for 128 KiB and %s for 1 MiB", unit, least, took)
		}
	}
}

// TestHostileResults sends the same through an edge: each is answered within the
// fuel of weir.yaml.
func TestHostileResults(t *testing.T) {
	back := offers(t, edgetest.Modern, tool("get"))
	c := start(t, "guardrail", "{results: {instructions: redact, calls: redact, schema: block}}", servers{"web": back}).NewClient().As(edgetest.Modern, "")
	for unit, text := range hostile(64 << 10) {
		answers(back, `"content":[{"type":"text","text":`+quoted(text)+`}],"structuredContent":{"a":`+quoted(text)+`}`)
		if r := c.CallTool("1", "web_get", "{}"); r.Status != 200 || r.Message().Error != nil {
			t.Errorf("%q: status %d: %.300s", unit, r.Status, r.Body)
		}
	}
	deep := strings.Repeat("[", 60) + strings.Repeat("]", 60)
	answers(back, `"content":[],"structuredContent":{"a":`+deep+`}`)
	if got := c.CallTool("1", "web_get", "{}").Result(); !strings.Contains(got, deep) {
		t.Errorf("what is deep: %.300s", got)
	}
}
