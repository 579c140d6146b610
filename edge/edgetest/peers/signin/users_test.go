package signin_test

import (
	"fmt"
	"html"
	"math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/edgetest/peers/signin"
)

// TestUsers is what users do with the pages, and what other sites try to have them do.
func TestUsers(t *testing.T) {
	r := newRealm(t, how{one: true, pages: forms})
	program := newSite(t, true)
	a := r.register("A program", program.on("client.example")+"/cb")
	for name, test := range map[string]func(*testing.T, *app){
		"Deny": denies, "Cancel": cancels, "Back": goesBack, "Reload": reloads, "JavaScript off": withoutScripts, "Leave": leaves,
		"A04": foreignForm, "O40": foreignCallback, "Frame": framed, "Errors": errorPages,
	} {
		t.Run(name, func(t *testing.T) {
			own := *r
			own.t = t
			mine := *a
			mine.realm = &own
			test(t, &mine)
		})
	}
}

func denies(t *testing.T, a *app) {
	u := newUser(t, signin.Look{})
	p := u.tab()
	p.open(a.asks("denied"))
	p.click(deny)
	if got := a.answered(p.at(a.redirect)); got.Get("error") != "access_denied" || got.Get("state") != "denied" || got.Has("code") {
		t.Errorf("the answer is %v", got)
	}
	noLogin(t, u)
	quiet(t, p)
}

// noLogin holds a user to no cookie of a login.
func noLogin(t *testing.T, u *user) {
	t.Helper()
	for _, c := range u.cookies() {
		if strings.Contains(c.Name, "weir-login") {
			t.Errorf("there is the cookie %s", c.Name)
		}
	}
}

// cancels is a user who turns back at the provider.
func cancels(t *testing.T, a *app) {
	p := newUser(t, signin.Look{}).tab()
	p.open(a.asks("cancelled"))
	p.click(allow)
	p.at(a.corp.Issuer)
	p.click("button[value=no]")
	if got := a.answered(p.at(a.redirect)); got.Get("error") != "access_denied" || got.Get("state") != "cancelled" || got.Has("code") {
		t.Errorf("the answer is %v", got)
	}
	noLogin(t, p.user)
	quiet(t, p)
}

// goesBack is a user who goes back from the provider to the consent page and on again, and
// back once more when all is over.
func goesBack(t *testing.T, a *app) {
	p := newUser(t, signin.Look{}).tab()
	p.open(a.asks("back"))
	p.click(allow)
	p.at(a.corp.Issuer)
	p.back()
	p.at(a.base + "/oauth/authorize")
	p.click(allow)
	p.logIn(a.corp, "olga")
	first := p.at(a.redirect)
	a.redeems(first)

	// What is over stays over: no page leads on to a second answer.
	p.back()
	for range 3 {
		var where string
		if p.do(signin.Command{Do: "where"}, &where); strings.HasPrefix(where, a.redirect) && where != first {
			t.Fatalf("after going back there is another answer: %s", where)
		}
		p.back()
	}
}

// reloads is a user who loads each page again.
func reloads(t *testing.T, a *app) {
	here := *a
	private := here.register("A private one", "com.example.app:/cb") // whose answers leave the last page where it is
	p := newUser(t, signin.Look{}).tab()
	p.open(private.asks("reload"))
	for range 2 {
		if status := p.reload(); status != http.StatusOK {
			t.Errorf("the consent page again: status %d", status)
		}
	}
	p.click(allow)
	p.at(a.corp.Issuer)
	p.reload()
	p.logIn(a.corp, "olga")
	answer := strings.Fields(p.leaves("com.example.app:/cb"))[1]
	private.redeems(answer)

	// The page that led on is the answer to a state, which is spent.
	if status := p.reload(); status != http.StatusBadRequest {
		t.Errorf("the page that led on, again: status %d", status)
	}
	p.see("h1")
	if status := p.reload(); status != http.StatusBadRequest {
		t.Errorf("the error page again: status %d", status)
	}

	// The page after Deny is the answer to a form, which says no again.
	p.open(private.asks("reload-denied"))
	p.click(deny)
	p.leaves("com.example.app:/cb?error=access_denied")
	p.see(".button")
	if status := p.reload(); status != http.StatusOK {
		t.Errorf("the page after Deny, again: status %d", status)
	}
	noLogin(t, p.user)
}

func withoutScripts(t *testing.T, a *app) {
	off := false
	p := newUser(t, signin.Look{Scripts: &off}).tab()
	p.open(a.asks("no-scripts"))
	p.click(allow)
	p.logIn(a.corp, "olga")
	if got := a.redeems(p.at(a.redirect)); claims(t, got.access)["sub"] != "corp:olga" {
		t.Error("it is somebody else")
	}
	quiet(t, p)
}

// leaves has the browser leave for each kind of client, with a login page of each kind before.
func leaves(t *testing.T, a *app) {
	loopback := newSite(t, false)
	lead := newRealm(t, how{one: true, pages: [2]idp.Page{idp.LeadingPage}})
	for name, r := range map[string]*realm{"redirects": a.realm, "leads": lead} {
		for kind, redirect := range map[string]string{"https": a.redirect, "loopback": loopback.on("127.0.0.1") + "/cb", "private": "com.example.app:/cb", "editor": "cursor://anysphere.cursor-mcp/oauth/cb"} {
			c := r.register(kind, redirect)
			for _, answer := range []string{allow, deny} {
				p := newUser(t, signin.Look{}).tab()
				p.open(c.asks("leaves"))
				p.enter(answer)
				if answer == allow {
					p.logIn(r.corp, "olga")
				}
				var back string
				if kind == "https" || kind == "loopback" {
					back = p.at(redirect)
				} else {
					back = strings.Fields(p.leaves(redirect))[1]
				}
				if got := c.answered(back); got.Get("state") != "leaves" || got.Has("code") != (answer == allow) {
					t.Errorf("%s, %s: the answer is %v", name, kind, got)
				}
				quiet(t, p)
				p.leave()
			}
		}
	}
}

var sealedForm = regexp.MustCompile(`name="form" value="([^"]+)"`)

// ofAttacker is what another sends for the consent page, without a browser: the request that
// the server has sealed for them, and the cookie that came with it.
func ofAttacker(t *testing.T, a *app, state string) (form string, web *http.Client) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	own := *a.web
	own.Jar = jar
	resp, err := own.Get(a.asks(state))
	if err != nil {
		t.Fatal(err)
	}
	m := sealedForm.FindStringSubmatch(read(t, resp))
	if m == nil {
		t.Fatalf("no consent page: status %d", resp.StatusCode)
	}
	return html.UnescapeString(m[1]), &own
}

// foreignForm is A04: another site posts the consent form, with a request that was sealed for
// the attacker, and with one that was sealed for the very user who is there.
func foreignForm(t *testing.T, a *app) {
	evil := newSite(t, true)
	form, _ := ofAttacker(t, a, "attacker")
	u := newUser(t, signin.Look{})
	victim := u.tab()
	victim.open(a.asks("victim")) // has a form and a cookie of their own
	var own string
	victim.run(`document.querySelector('input[name=form]').value`, &own)
	for name, sealed := range map[string]string{"the attacker's request": form, "the user's own": own} {
		for _, kind := range []string{"", ` target="_self" rel="opener"`} {
			evil.put("/", fmt.Sprintf(`<form method="post"%s action="%s/oauth/consent"><input name="form" value="%s"><button name="answer" value="allow">Win</button></form>`, kind, a.base, html.EscapeString(sealed)))
			p := u.tab()
			p.open(evil.on("evil.example") + "/")
			p.click("button")
			p.at(a.base + "/oauth/consent")
			p.see("h1")
			if all := p.statuses(); all[len(all)-1] != http.StatusForbidden {
				t.Errorf("%s: statuses %v", name, all)
			}
			noLogin(t, u)
		}
	}

	// By script, without leaving the page, nothing comes of it either.
	p := u.tab()
	p.open(evil.on("evil.example") + "/")
	var got string
	p.run(fmt.Sprintf(`fetch(%q, {method: 'POST', mode: 'no-cors', credentials: 'include', headers: {'Content-Type': 'application/x-www-form-urlencoded'}, body: new URLSearchParams({form: %q, answer: 'allow'})}).then((r) => r.type)`, a.base+"/oauth/consent", own), &got)
	noLogin(t, u)
	p.run(fmt.Sprintf(`fetch(%q, {credentials: 'include'}).then(() => 'read', () => 'not read')`, a.asks("read")), &got)
	if got != "not read" {
		t.Errorf("another site's script has %s the consent page", got)
	}

	// The user's own page works on.
	victim.click(allow)
	victim.at(a.corp.Issuer)
}

// foreignCallback is O40: a user follows the last link of an attacker's login, and would be
// signed in as the attacker.
func foreignCallback(t *testing.T, a *app) {
	form, web := ofAttacker(t, a, "attacker")
	resp, err := web.Do(formRequest(t, a.base+"/oauth/consent", url.Values{"form": {form}, "answer": {"allow"}}))
	if err != nil {
		t.Fatal(err)
	}
	read(t, resp)
	to, err := resp.Location()
	if err != nil {
		t.Fatalf("status %d: %v", resp.StatusCode, err)
	}
	q := to.Query()
	q.Set("login_hint", "attacker")
	to.RawQuery = q.Encode()
	stolen := a.corp.Browse(t, to.String(), a.base+"/oauth/callback")
	u := newUser(t, signin.Look{})
	p := u.tab()
	p.open(a.asks("own")) // a login of their own is under way in another tab
	p.click(allow)
	p.at(a.corp.Issuer)
	victim := u.tab()
	if status := victim.open(stolen); status != http.StatusBadRequest {
		t.Errorf("the attacker's callback: status %d", status)
	}
	p.logIn(a.corp, "olga")
	if got := a.redeems(p.at(a.redirect)); claims(t, got.access)["sub"] != "corp:olga" {
		t.Error("it is somebody else")
	}
}

// framed is a site that shows the consent page inside its own.
func framed(t *testing.T, a *app) {
	evil := newSite(t, true)
	evil.put("/", fmt.Sprintf(`<iframe src="%s" width=500 height=500></iframe>`, html.EscapeString(a.asks("framed"))))
	p := newUser(t, signin.Look{}).tab()
	p.open(evil.on("evil.example") + "/")
	waitFor(t, "the report of the frame", func() bool {
		return slices.ContainsFunc(p.said(), func(s string) bool {
			return strings.Contains(s, "frame-ancestors") || strings.Contains(s, "X-Frame-Options")
		})
	})
}

// errorPages hold to what stands in the threat rows: they are pages, and lead nowhere.
func errorPages(t *testing.T, a *app) {
	p := newUser(t, signin.Look{}).tab()
	for name, address := range map[string]string{
		"an unknown client":  strings.Replace(a.asks("x"), url.QueryEscape(a.id), "nobody", 1),
		"a removed client":   strings.Replace(a.asks("x"), url.QueryEscape(a.id), "weir1.AAAA", 1),
		"another redirect":   a.asks("x", "redirect_uri", "https://evil.example/"),
		"a duplicate":        a.asks("x") + "&client_id=y",
		"an unknown state":   a.base + "/oauth/callback?state=" + strings.Repeat("A", 43) + "&code=x",
		"an upstream's word": a.base + "/oauth/callback?error=%3Cimg%20src%3Dx%3E&error_description=PLANTED",
	} {
		if status := p.open(address); status != http.StatusBadRequest {
			t.Errorf("%s: status %d", name, status)
		}
		if text := p.text(); strings.Contains(text, "evil") || strings.Contains(text, "PLANTED") || strings.Contains(text, "<img") {
			t.Errorf("%s: %s", name, text)
		}
	}
	for _, said := range p.said() {
		if strings.Contains(said, "policy") || strings.Contains(said, "Content Security") {
			t.Errorf("the console says %s", said)
		}
	}
}

// TestA05 is 20 logins in the tabs of one browser, each begun by a link on another site and
// loaded again once, and finished in any order: each gets its own code.
func TestA05(t *testing.T) {
	const n = 20
	r := newRealm(t, how{one: true, pages: forms})
	program, other := newSite(t, true), newSite(t, true)
	u := newUser(t, signin.Look{})
	apps, tabs := make([]*app, n), make([]*tab, n)
	for i := range n {
		a := *r.app("", program.on("client.example")+"/cb")
		if i%5 == 0 { // registrations come one a second from one address
			a = *r.register(fmt.Sprintf("Tab %d", i), a.redirect)
		} else {
			a.id = apps[i-1].id
		}
		a.verifier = fmt.Sprintf("%043d", i)
		apps[i] = &a
		other.put(fmt.Sprintf("/%d", i), fmt.Sprintf(`<a href="%s">Sign in</a>`, html.EscapeString(a.asks(fmt.Sprintf("state-%d", i)))))
	}
	order := rand.Perm(n)
	backs := make([]string, n)
	each := func(step func(int)) {
		var all sync.WaitGroup
		places := make(chan struct{}, 4)
		for _, i := range order {
			places <- struct{}{}
			all.Go(func() {
				defer func() { <-places }()
				step(i)
			})
		}
		all.Wait()
	}
	each(func(i int) {
		p := u.tab()
		tabs[i] = p
		p.open(fmt.Sprintf("%s/%d", other.on("other.example"), i))
		p.click("a")
		p.at(r.base)
		p.see(allow)
		p.reload()
	})
	rand.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	each(func(i int) {
		tabs[i].click(allow)
		tabs[i].at(r.corp.Issuer)
	})
	rand.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, i := range order {
		tabs[i].logIn(r.corp, "olga")
		backs[i] = tabs[i].at(apps[i].redirect)
	}
	codes := map[string]bool{}
	for i, back := range backs {
		got := apps[i].answered(back)
		if got.Get("state") != fmt.Sprintf("state-%d", i) || codes[got.Get("code")] {
			t.Errorf("tab %d: the answer is %v", i, got)
		}
		codes[got.Get("code")] = true
		apps[i].redeems(back)
	}
	noLogin(t, u)
}
