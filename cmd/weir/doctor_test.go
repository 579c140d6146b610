package main

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest/fake"
)

// Where an edge serves already, that is said, and is no fault.
func TestDoctorBesideAnEdge(t *testing.T) {
	_, url := demoProcess(t)
	address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp")
	out, err := exec.CommandContext(t.Context(), "weir", "doctor", "--listen", address, "--admin-listen", "", "--json").Output()
	if err != nil {
		t.Fatalf("%s, %v", out, err)
	}
	var said struct {
		OK       bool
		Warnings int
		Steps    []struct{ Step, Level, Cause, Next string }
	}
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatal(err)
	}
	last := said.Steps[len(said.Steps)-1]
	if !said.OK || said.Warnings != 1 || last.Step != "addresses" || last.Level != "warning" || last.Cause != "an edge listens there already" {
		t.Errorf("%s", out)
	}
}

// A doctor that is interrupted ends, whatever it waits for.
func TestDoctorInterrupted(t *testing.T) {
	reached := make(chan struct{}, 8)
	address := fake.Listen(t, func(c net.Conn) { reached <- struct{}{}; _, _ = io.Copy(io.Discard, c) }).Addr
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte("name: main\ngroupRef: g\nincomingAuth: {type: anonymous}\noutgoingAuth: {source: inline}\nbackends: [{name: a, url: \"http://"+address+"/mcp\", transport: streamable-http}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := run(t, "doctor", "-c", path, "--listen", "127.0.0.1:0", "--admin-listen", "", "--timeout", "10m")
	p.until("connect main/a: ok")
	<-reached
	p.signal(os.Interrupt)
	if code := p.end(); code != 130 || p.said[len(p.said)-1] != "weir doctor: interrupted" {
		t.Errorf("exit code %d, %q", code, p.said)
	}
}

// The help of the doctor has every step that it takes.
func TestDoctorHelpHasEveryStep(t *testing.T) {
	files, err := filepath.Glob("doctor/*.go")
	if err != nil {
		t.Fatal(err)
	}
	steps := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range regexp.MustCompile(`d\.step\(ctx, "([^"]+)"`).FindAllSubmatch(text, -1) {
			steps[string(step[1])] = true
		}
	}
	if !steps["sign-in"] || !steps["names"] || !steps["addresses"] {
		t.Fatalf("the steps are not found in the text of the doctor: %v", steps)
	}
	help := testApp().doctorCommand().Long
	for step := range steps {
		if !strings.Contains(help, "\n  "+step+" ") {
			t.Errorf("no line for %s", step)
		}
	}
}
