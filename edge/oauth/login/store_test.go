package login_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/oauth/login"
)

func TestStore(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("rights of files are others there")
	}
	s := storeOf(t)
	path := filepath.Join(s.Dir, login.FileName)
	if all, err := s.List(); all != nil || err != nil {
		t.Fatalf("none: %v, %v", all, err)
	}
	// 1. One file of its owner alone, in a folder of its owner alone.
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"https://b", "https://a", "https://b"} {
		if err := s.Put(t.Context(), login.Kept{URL: url, Tokens: login.Tokens{Access: "PLANTED"}}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]os.FileMode{path: 0o600, s.Dir: 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if all, err := s.List(); len(all) != 2 || all[0].URL != "https://a" || err != nil {
		t.Errorf("%v, %v", all, err)
	}
	// 2. Sealed from the first write with a key on, and opened with any of the keys.
	key, other := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	sealed := &login.Store{Dir: s.Dir, Keys: [][]byte{key}}
	if err := sealed.Remove(t.Context(), "https://b"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || bytes.Contains(text, []byte("PLANTED")) || bytes.Contains(text, []byte("https://a")) {
		t.Errorf("%s, %v", text, err)
	}
	if all, err := (&login.Store{Dir: s.Dir, Keys: [][]byte{other, key}}).List(); len(all) != 1 || all[0].Tokens.Access != "PLANTED" || err != nil {
		t.Errorf("with both keys: %v, %v", all, err)
	}
	for want, one := range map[string]*login.Store{"it is sealed": s, "sealed with another key": {Dir: s.Dir, Keys: [][]byte{other}}} {
		want = strings.Replace(want, "it is sealed", "is sealed: name the file of its key with --auth-key-file", 1)
		if _, err := one.List(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
		if err := one.Put(t.Context(), login.Kept{URL: "https://c"}); err == nil {
			t.Error("it was written over")
		}
	}
	// 3. What is damaged is said, and not written over.
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for want, damaged := range map[string][]byte{
		"is damaged: move it away": text[:len(text)/2],
		"is of version 2":          []byte(`{"version":2}`),
		"more than 4194304 bytes":  bytes.Repeat([]byte(" "), 4<<20+1),
		"with another key":         bytes.Replace(text, []byte(`"sealed": "`), []byte(`"sealed": "AAAA`), 1),
	} {
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := sealed.Put(t.Context(), login.Kept{URL: "https://c"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, damaged) {
			t.Errorf("%s: it was written over: %v", want, err)
		}
	}
	// 4. One that others may read.
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := sealed.Remove(t.Context(), ""); err == nil || strings.Contains(err.Error(), "log out") {
		t.Errorf("to log out is refused, and so no advice: %v", err)
	}
	if _, err := sealed.List(); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("error %v", err)
	}
}

// TestStoreAtOnce has 8 goroutines with stores of their own write at once: nothing is lost.
func TestStoreAtOnce(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			s := &login.Store{Dir: dir}
			for j := range 5 {
				if err := s.Put(t.Context(), login.Kept{URL: fmt.Sprintf("https://%d-%d", i, j)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if kept, err := (&login.Store{Dir: dir}).List(); len(kept) != 40 || err != nil {
		t.Errorf("%d logins, %v", len(kept), err)
	}
	if left, _ := filepath.Glob(dir + "/*.new-*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestK21 holds the callback server: loopback only, one path, one state, once, and gone.
func TestK21(t *testing.T) {
	l, redirect, err := login.Listen("the-state")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: edgetest.Patience}
	ask := func(method, url, host string) (int, string) {
		r, err := http.NewRequest(method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			r.Host = host
		}
		answer, err := client.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body)
	}
	type returned struct {
		code string
		err  error
	}
	came := make(chan returned, 1)
	go func() {
		code, err := l.Wait(t.Context())
		came <- returned{code, err}
	}()
	root := strings.TrimSuffix(redirect, "/callback")
	good := redirect + "?state=the-state&code=c"
	for _, test := range []struct {
		method, url, host string
		want              int
	}{
		{"GET", root + "/?state=the-state&code=c", "", 404},
		{"GET", root + "/callback/?state=the-state&code=c", "", 404},
		{"GET", redirect + "?code=c", "", 400},
		{"GET", redirect + "?state=another&code=PLANTED", "", 400},
		{"GET", redirect + "?state=the-state&state=the-state&code=c", "", 400},
		{"GET", redirect + "?state=the-state&code=a&code=b", "", 400},
		{"GET", redirect + "?state=the-state&code=%zz", "", 400},
		{"POST", good, "", 405},
		{"GET", good, "evil.example.com", 404},
		{"GET", good, "127.0.0.1:1", 404},
	} {
		if status, body := ask(test.method, test.url, test.host); status != test.want || strings.Contains(body, "PLANTED") {
			t.Errorf("%s %s: %d %s", test.method, test.url, status, body)
		}
	}
	// Nobody but this machine reaches it.
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(root, "http://"))
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			if c, err := net.DialTimeout("tcp", net.JoinHostPort(n.IP.String(), port), time.Second); err == nil {
				_ = c.Close()
				t.Errorf("%s is reached", n.IP)
			}
		}
	}
	// Two at once: one is it.
	results := make(chan int, 2)
	for range 2 {
		go func() { status, _ := ask("GET", good, ""); results <- status }()
	}
	a, b := <-results, <-results
	if (a == 200) == (b == 200) {
		t.Errorf("both at once: %d and %d", a, b)
	}
	if r := <-came; r.code != "c" || r.err != nil {
		t.Errorf("came %+v", r)
	}
	if status, said := ask("GET", good, ""); status != 0 {
		t.Errorf("after its end: %d %s", status, said)
	}

	// It is gone at the time-out, and after too many requests.
	l, redirect, err = login.Listen("s")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Wait(ctx); err == nil {
		t.Error("no error at the time-out")
	}
	if status, _ := ask("GET", redirect+"?state=s&code=c", ""); status != 0 {
		t.Error("it is there after the time-out")
	}
	l, redirect, err = login.Listen("s")
	if err != nil {
		t.Fatal(err)
	}
	for range 101 {
		ask("GET", redirect+"?state=x", "")
	}
	if _, err := l.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "keeps asking") {
		t.Errorf("error %v", err)
	}
}

// TestT09 holds what a browser is started with: one argument, nothing that means something to
// a shell, and no scheme but http and https.
func TestT09(t *testing.T) {
	sh, err := exec.LookPath("sh")
	edgetest.Need(t, err == nil, "a shell for a browser that says what it was given")
	dir := t.TempDir()
	said := filepath.Join(dir, "said")
	program := filepath.Join(dir, "browser")
	if err := os.WriteFile(program, []byte("#!"+sh+"\nprintf '%s\\n' \"$#\" \"$1\" > "+said+".new && mv "+said+".new "+said+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BROWSER", program)
	for _, url := range []string{"javascript:alert(1)", "file:///etc/passwd", "--flag", "-x", "calc.exe", "", "https:", "https://u:p@x/", "data:text/html,x"} {
		if err := login.Browse(url); err == nil {
			t.Errorf("%q was opened", url)
		}
	}
	if err := login.Browse("https://x/$(calc)`id`;a|b&c=d'e\"f g?q=$HOME&r=%s"); err != nil {
		t.Fatal(err)
	}
	var text []byte
	edgetest.Until(t, "the browser has started", func() bool {
		text, err = os.ReadFile(said)
		return err == nil
	})
	count, url, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if count != "1" || !strings.HasPrefix(url, "https://x/") || strings.ContainsAny(url, "$`;|'\"() \\<>") {
		t.Errorf("started with %q", text)
	}
}
