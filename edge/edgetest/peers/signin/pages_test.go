package signin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/peers/signin"
)

// narrow is the smallest screen that pages are made for (WCAG 2.2, 1.4.10: 320 CSS pixels).
const narrow = 320

// TestPages is each page, light and dark, wide and at 320 pixels: what axe-core says of it,
// whether it fits, and a picture of it.
func TestPages(t *testing.T) {
	r := newRealm(t, how{pages: forms})
	a := r.register("A program with a name of sixty-four characters, as many as fit", "http://127.0.0.1:7/cb")
	private := r.register("", "com.example.app:/cb") // from which the page that leads on leads nowhere here
	pictures := t.ArtifactDir()                      // kept by go test -artifacts
	for _, look := range []signin.Look{{}, {Dark: true}, {Width: narrow, Height: 640}, {Dark: true, Width: narrow, Height: 640}} {
		name := map[bool]string{false: "light", true: "dark"}[look.Dark] + map[bool]string{false: "", true: "-narrow"}[look.Width > 0]
		t.Run(name, func(t *testing.T) {
			p := newUser(t, look).tab()
			for page, address := range map[string]string{
				"consent":         a.asks("x", "scope", "openid profile email offline_access"),
				"consent-unnamed": private.asks("x"),
				"error":           a.asks("x", "redirect_uri", "https://evil.example/"),
				"error-client":    strings.Replace(a.asks("x"), "client_id=weir1.", "client_id=weir1.A", 1),
				"error-return":    a.base + "/oauth/callback?state=x",
			} {
				p.open(address)
				sound(t, p, filepath.Join(pictures, name+"-"+page))
			}
			p.open(private.asks("x"))
			p.click(deny)
			p.leaves("com.example.app:/cb")
			p.see("a.button")
			sound(t, p, filepath.Join(pictures, name+"-on"))
		})
	}
}

// sound holds the page of a tab to what all pages keep, and takes its picture.
func sound(t *testing.T, p *tab, picture string) {
	t.Helper()
	name := filepath.Base(picture)
	p.do(signin.Command{Do: "shot", File: picture + ".png"}, nil)
	if info, err := os.Stat(picture + ".png"); err != nil || info.Size() < 1<<10 {
		t.Errorf("%s: no picture: %v", name, err)
	}
	layout(t, p, name)
	if said := p.said(); slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, "policy") || strings.Contains(s, "Content Security") }) {
		t.Errorf("%s: the console says %q", name, said)
	}
	var found struct {
		Violations, Incomplete []string
		Passes                 int
	}
	p.do(signin.Command{Do: "axe"}, &found)
	if len(found.Violations) > 0 || len(found.Incomplete) > 0 || found.Passes < 15 {
		t.Errorf("%s: %d rules hold; violated: %q; not decided: %q", name, found.Passes, found.Violations, found.Incomplete)
	}
}

// layout holds a page to its width, and to what every page has.
func layout(t *testing.T, p *tab, name string) {
	t.Helper()
	var got struct {
		Wide, Seen, H1, Main, Scripts, Images int
		Lang, Title                           string
		Outside                               []string
	}
	p.run(`(() => {
		const d = document.documentElement;
		const outside = [...document.body.querySelectorAll('*')].filter((e) => { const r = e.getBoundingClientRect(); return r.width > 0 && (r.left < -1 || r.right > d.clientWidth + 1); });
		return {
			wide: d.scrollWidth, seen: d.clientWidth, h1: document.querySelectorAll('h1').length, main: document.querySelectorAll('main').length,
			scripts: document.scripts.length, images: document.images.length, lang: d.lang, title: document.title, outside: outside.map((e) => e.outerHTML.slice(0, 80)),
		};
	})()`, &got)
	if got.Wide > got.Seen || len(got.Outside) > 0 {
		t.Errorf("%s: %d pixels wide on a screen of %d: %q", name, got.Wide, got.Seen, got.Outside)
	}
	if got.H1 != 1 || got.Main != 1 || got.Lang != "en" || got.Title == "" || got.Scripts > 0 || got.Images > 0 {
		t.Errorf("%s: %+v", name, got)
	}
}

// TestKeyboard is a user without a mouse: each control is reached by Tab in the order of the
// page, is seen to have the focus, and Allow and Deny are answered by Enter and by the space
// bar.
func TestKeyboard(t *testing.T) {
	r := newRealm(t, how{one: true, pages: forms})
	a := r.register("A program", "com.example.app:/cb")
	focus := func(p *tab) (what string) {
		t.Helper()
		var got struct {
			What, Style string
			Width       float64
		}
		p.run(`(() => { const e = document.activeElement, s = getComputedStyle(e); return { what: e.innerText, style: s.outlineStyle, width: parseFloat(s.outlineWidth) }; })()`, &got)
		if got.Style == "none" || got.Width < 2 {
			t.Errorf("the focus of %q is not seen: %+v", got.What, got)
		}
		return got.What
	}
	for _, key := range []string{"Enter", "Space"} {
		p := newUser(t, signin.Look{}).tab()
		p.open(a.asks("keys"))
		p.press("Tab")
		if got := focus(p); got != "Allow" {
			t.Errorf("first is %q", got)
		}
		p.press("Tab")
		if got := focus(p); got != "Deny" {
			t.Errorf("second is %q", got)
		}
		p.press(key)
		p.leaves("com.example.app:/cb?error=access_denied")
		p.see("a.button")
		p.press("Tab")
		if got := focus(p); got != "Go on" {
			t.Errorf("on the page that leads on, first is %q", got)
		}
		p.leave() // the browser asks whether to start the program, and until then takes no keys for the page

		p = newUser(t, signin.Look{}).tab()
		p.open(a.asks("keys"))
		p.press("Tab")
		p.press(key)
		p.logIn(a.corp, "olga")
		if back := p.leaves("com.example.app:/cb?code="); back == "" {
			t.Error("no code")
		}
		p.leave()
	}
}

// hostileNames are names that clients might give themselves: 50 of them.
func hostileNames() []string {
	names := []string{
		`<script>alert(1)</script>`, `<img src=x onerror=alert(1)>`, `</strong></p><form action="https://evil.example">`, `"><svg onload=alert(1)>`, `' onmouseover='alert(1)`,
		`<base href="https://evil.example/">`, `<meta http-equiv=refresh content="0;url=//evil.example">`, `{{.Form}}`, `{{template "page"}}`, `${7*7}`,
		`&lt;b&gt;`, `&#x202e;`, `<!--`, `-->`, `]]>`,
		`<style>*{display:none}</style>`, `</main></body></html>`, `<button name=answer value=allow>Deny</button>`, `<a href=javascript:alert(1)>x</a>`, `<iframe srcdoc=x>`,
		"\u202egro.elpmaxe\u202c", "\u2066x\u2069\u2067y", "\u200b\u200c\u200d\ufeff", "a\u0000b", "line\nbreak\r\nand\ttab",
		"\u2028\u2029", "\u001b[31mred", "\u0301\u0302\u0303", "Z" + strings.Repeat("\u0300", 20), "\u00a0\u3000\u2003",
		"\u0430pple", "G\u043e\u043egle", "\u2139ncorporated", "ᏢayᏢal", "𝕎𝕖𝕚𝕣",
		"Allow access?", "It is described at microsoft.com.", "nobody vouches for it", "this server", "Weir",
		strings.Repeat("W", 64), strings.Repeat("\u4e00", 21), strings.Repeat("\U0001f600", 16), "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0639\u0628\u0631\u064a", strings.Repeat("\ufdfd", 21),
		strings.Repeat("\u0e49", 21), "\U000e0041\U000e0042", "\u115f\u1160\u3164\uffa0", "\ufff9x\ufffay\ufffb", "https://bank.example/login?next=" + strings.Repeat("a", 20),
	}
	return names
}

// TestA18 shows the consent page with each of 50 hostile names, and with one of 9 KiB in a
// metadata document.
func TestA18(t *testing.T) {
	names := hostileNames()
	if len(names) != 50 {
		t.Fatalf("%d names", len(names))
	}
	r := newRealm(t, how{one: true, pages: forms, dev: true})
	documents := newSite(t, true)
	pictures := t.ArtifactDir() // kept by go test -artifacts
	u := newUser(t, signin.Look{Width: narrow, Height: 640})
	p := u.tab()
	// Documents, of which many may come at once; of registrations one a second, and these are
	// the ones with the bound of 64 bytes.
	for i, name := range append(names, strings.Repeat("<b>x\u202e", 1320)) {
		path := fmt.Sprintf("/client-%d.json", i)
		id := documents.URL + path
		var text strings.Builder
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(map[string]any{"client_id": id, "client_name": name, "redirect_uris": []string{documents.URL + "/cb"}}); err != nil {
			t.Fatal(err)
		}
		if i == len(names) && text.Len() < 9<<10 {
			t.Fatalf("the document has %d bytes", text.Len())
		}
		documents.put(path, text.String())
		a := r.app(id, documents.URL+"/cb")
		edgetest.Until(t, "room for another document", func() bool { // the edge bounds how many come at once, and how often one asks
			status := p.open(a.asks("a18"))
			return status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests
		})
		var got struct {
			Shown, Title, Text string
			Forms, Buttons     int
			Action, Form       string
			Height, Elements   int
			Order              []string
		}
		p.run(`(() => {
			const name = document.querySelector('.name');
			return {
				shown: name ? name.textContent : '', title: document.title, text: document.body.innerText, forms: document.forms.length, buttons: document.querySelectorAll('button').length,
				action: document.forms[0] ? document.forms[0].action : '', form: document.querySelector('input[name=form]') ? 'there' : '', height: name ? Math.round(name.getBoundingClientRect().height) : 0, elements: name ? name.children.length : 0,
				order: [...document.querySelectorAll('button')].map((b) => b.innerText),
			};
		})()`, &got)
		if got.Forms != 1 || got.Buttons != 2 || got.Action != r.base+"/oauth/consent" || got.Form == "" || got.Elements > 0 || !slices.Equal(got.Order, []string{"Allow", "Deny"}) || got.Title != "Allow access?" {
			t.Errorf("%q: the page is %+v", name, got)
		}
		if n := len([]rune(got.Shown)); n > 64 || got.Height > 400 {
			t.Errorf("%q: %d characters, %d pixels high", name, n, got.Height)
		}
		for _, c := range got.Shown {
			if c != ' ' && !unicode.IsGraphic(c) || unicode.Is(unicode.Bidi_Control, c) || unicode.Is(unicode.Cf, c) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, c) {
				t.Errorf("%q: %U is shown", name, c)
			}
		}
		if got.Shown == "" && !strings.Contains(got.Text, "gives no name") {
			t.Errorf("%q: nothing is said of a name", name)
		}
		if want := "described at 127.0.0.1"; !strings.Contains(got.Text, want) {
			t.Errorf("%q: whose it is, is not said: %s", name, got.Text)
		}
		layout(t, p, fmt.Sprintf("%q", name))
		if i%10 == 0 || i == len(names) {
			sound(t, p, filepath.Join(pictures, fmt.Sprintf("a18-%d", i)))
		}
		for _, said := range p.said() {
			if strings.HasPrefix(said, "dialog") || strings.HasPrefix(said, "policy") {
				t.Errorf("%q: %s", name, said)
			}
		}
	}
}
