package signin_test

import (
	"crypto/tls"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/edgetest/peers"
	"github.com/weir-edge/weir/edge/edgetest/peers/signin"
)

// shared is what all tests use: one browser, and the certificate of everybody here.
var shared struct {
	once    sync.Once
	kit     peers.Kit
	browser *signin.Browser
	files   idp.TLS
	dir     string
	err     error
}

// run is the tests, and the end of what they share.
type run struct{ *testing.M }

func (r run) Run() int {
	code := r.M.Run() // the browser has goroutines of ours: it ends before they are looked for
	if shared.browser != nil {
		if err := shared.browser.Close(); err != nil {
			println("the browser ends with", err.Error())
			code = 1
		}
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir) // a browser may write to the last
	}
	return code
}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(run{m},
		// They are the HTTP server's: one lives as long as the process, one ends when it next wakes.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	)
}

// need is the kit and the certificate. The test is skipped, or fails, where something is
// missing: see edgetest.Need.
func need(t *testing.T) (peers.Kit, idp.TLS) {
	t.Helper()
	k, err := peers.Find()
	if err != nil {
		t.Fatal(err)
	}
	edgetest.Need(t, signin.Lacks(k) == "", signin.Lacks(k))
	shared.once.Do(func() {
		shared.kit = k
		if shared.dir, shared.err = os.MkdirTemp("", "signin-"); shared.err != nil {
			return
		}
		shared.files = idp.NewTLSIn(t, shared.dir)
		shared.browser, shared.err = signin.Open(k, shared.dir, &shared.files.Pair)
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return k, shared.files
}

// user is somebody with a browser whose cookies nobody shares.
type user struct {
	t    *testing.T
	id   int
	gone bool
}

// newUser is a user who sees pages in some way.
func newUser(t *testing.T, look signin.Look) *user {
	t.Helper()
	need(t)
	u := &user{t: t}
	u.do(signin.Command{Do: "user", Look: look}, &u.id)
	t.Cleanup(u.leave)
	return u
}

// leave closes all that the user has open.
func (u *user) leave() {
	u.t.Helper()
	if !u.gone {
		u.gone = true
		u.do(signin.Command{Do: "leave", User: u.id}, nil)
	}
}

func (u *user) do(c signin.Command, value any) {
	u.t.Helper()
	if err := shared.browser.Do(u.t.Context(), c, value); err != nil && u.t.Context().Err() == nil {
		u.t.Fatal(err)
	} else if err != nil { // the test is over, and cleans up
		_ = shared.browser.Do(background, c, value)
	}
}

// tab is a page of a user's.
type tab struct {
	*user
	id int
}

func (u *user) tab() *tab {
	u.t.Helper()
	p := &tab{user: u}
	u.do(signin.Command{Do: "tab", User: u.id}, &p.id)
	return p
}

func (p *tab) do(c signin.Command, value any) {
	p.t.Helper()
	c.Tab = p.id
	p.user.do(c, value)
}

// open goes to an address, and returns the status of the answer; 0 where the page led on at
// once.
func (p *tab) open(url string) (status int) {
	p.t.Helper()
	p.do(signin.Command{Do: "goto", URL: url}, &status)
	return status
}

func (p *tab) reload() (status int) {
	p.t.Helper()
	p.do(signin.Command{Do: "reload"}, &status)
	return status
}

func (p *tab) back() {
	p.t.Helper()
	p.do(signin.Command{Do: "back"}, nil)
}

func (p *tab) click(selector string) {
	p.t.Helper()
	p.do(signin.Command{Do: "click", Selector: selector}, nil)
}

func (p *tab) write(selector, text string) {
	p.t.Helper()
	p.do(signin.Command{Do: "type", Selector: selector, Text: text}, nil)
}

// press presses a key where the focus is.
func (p *tab) press(key string) {
	p.t.Helper()
	p.do(signin.Command{Do: "press", Text: key}, nil)
}

// enter presses Enter at an element. Without such a gesture of a user a browser starts no
// program on the computer.
func (p *tab) enter(selector string) {
	p.t.Helper()
	p.do(signin.Command{Do: "press", Selector: selector, Text: "Enter"}, nil)
}

// see waits for an element.
func (p *tab) see(selector string) {
	p.t.Helper()
	p.do(signin.Command{Do: "see", Selector: selector}, nil)
}

// at waits until the browser is at an address that begins with one, and returns it.
func (p *tab) at(url string) (where string) {
	p.t.Helper()
	p.do(signin.Command{Do: "at", URL: url}, &where)
	return where
}

// leaves waits until a page asks the browser to leave for an address that begins with one,
// which no page need be at, and returns how and where.
func (p *tab) leaves(url string) (how string) {
	p.t.Helper()
	p.do(signin.Command{Do: "leaves", URL: url}, &how)
	return how
}

func (p *tab) text() (text string) {
	p.t.Helper()
	p.do(signin.Command{Do: "text"}, &text)
	return text
}

// run computes an expression of JavaScript in the page.
func (p *tab) run(code string, value any) {
	p.t.Helper()
	p.do(signin.Command{Do: "run", Code: code}, value)
}

// said is what the console and the inspector of policies have been told.
func (p *tab) said() (all []string) {
	p.t.Helper()
	p.do(signin.Command{Do: "said"}, &all)
	return all
}

// statuses are those of all pages so far.
func (p *tab) statuses() (all []int) {
	p.t.Helper()
	p.do(signin.Command{Do: "statuses"}, &all)
	return all
}

// cookie is one of a user's.
type cookie struct {
	Name, Value, Domain, Path, SameSite string
	Secure, HTTPOnly                    bool
}

func (u *user) cookies() (all []cookie) {
	u.t.Helper()
	u.do(signin.Command{Do: "cookies", User: u.id}, &all)
	return all
}

// secure is how servers of tests show the certificate.
func secure(files idp.TLS) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{files.Pair}, MinVersion: tls.VersionTLS12}
}
