package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/workload"
)

// clientsOf is a process with a manager and a home directory.
func clientsOf(t *testing.T, m *fakeManager) (a *app, home string, out, said *bytes.Buffer) {
	t.Helper()
	a, out, said = asking(t, m)
	home = t.TempDir()
	a.environ = append(a.environ, "HOME="+home, "USERPROFILE="+home, "APPDATA="+home)
	return a, home, out, said
}

// TestReadmeOfClients runs the examples of the README: what is printed is what stands there.
func TestReadmeOfClients(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the README has the paths of Linux")
	}
	text, err := os.ReadFile(filepath.Join("apps", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	a, home, out, said := clientsOf(t, newFakeManager())
	_, examples, found := strings.Cut(string(text), "```console\n")
	examples, _, _ = strings.Cut(examples, "```")
	if !found {
		t.Fatal("there are no examples")
	}
	for example := range strings.SplitSeq("\n"+strings.TrimSuffix(examples, "\n"), "\n$ ") {
		line, want, _ := strings.Cut(example, "\n")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		var got string
		switch out.Reset(); words[0] {
		case "weir":
			if code := a.run(words[1:]); code != exitOK {
				t.Errorf("%s: %d, %s", line, code, said)
			}
			got = out.String()
			got = strings.ReplaceAll(got, home, "/home/ada")
		case "cat":
			data, err := os.ReadFile(strings.ReplaceAll(words[1], "/home/ada", home))
			if err != nil {
				t.Error(err)
			}
			got = string(data)
		default:
			t.Errorf("%s is no command of these examples", words[0])
		}
		if strings.TrimSuffix(got, "\n") != want {
			t.Errorf("$ %s\n%s\nand in the README stands\n%s", line, got, want)
		}
	}
}

// TestClientsThatCannotFollow: a command on workloads does its work also where the file of a
// client is broken, and says so. Errors are JSON for programs.
func TestClientsThatCannotFollow(t *testing.T) {
	a, home, out, said := clientsOf(t, newFakeManager())
	if code := a.run([]string{"client", "setup", "cursor"}); code != exitOK {
		t.Fatalf("%d, %s", code, said)
	}
	file := filepath.Join(home, ".cursor", "mcp.json")
	written(t, map[string]string{file: "{\n  \"mcpServers\": {\n"})
	out.Reset()
	if code := a.run([]string{"stop", "files"}); code != exitOK || out.String() != "files: stopped\n" {
		t.Errorf("%d, %s", code, out)
	}
	if want := "weir stop: note: cursor does not know of it: " + file + ":2: it is no JSON"; !strings.Contains(said.String(), want) {
		t.Errorf("%s is not %s", said, want)
	}
	said.Reset()
	if code := a.run([]string{"start", "files", "--format", "json"}); code != exitOK || said.Len() > 0 {
		t.Errorf("for programs it says, with %d, %s", code, said)
	}
	if code := a.run([]string{"client", "status"}); code != exitFault || !strings.Contains(said.String(), file+":2: it is no JSON") {
		t.Errorf("status: %d, %s", code, said)
	}
}

// TestClientsAreNotAsked: where no client was set up, commands on workloads look for none.
func TestClientsAreNotAsked(t *testing.T) {
	m := newFakeManager()
	a, home, _, said := clientsOf(t, m)
	if code := a.run([]string{"stop", "files"}); code != exitOK || m.lists != 1 {
		t.Errorf("%d, %d lists, %s", code, m.lists, said)
	}
	if entries, err := os.ReadDir(home); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestClientsOfFailures: what a manager refuses is not known to clients as done.
func TestClientsOfFailures(t *testing.T) {
	m := newFakeManager()
	m.faults["stop in 30s files"] = errors.New("it does not stop")
	m.faults["stop files"] = m.faults["stop in 30s files"]
	a, home, _, said := clientsOf(t, m)
	if code := a.run([]string{"client", "setup", "cursor", "--workload", "files"}); code != exitOK {
		t.Fatalf("%d, %s", code, said)
	}
	if code := a.run([]string{"stop", "files"}); code == exitOK {
		t.Fatal("the manager did not fail")
	}
	text, err := os.ReadFile(filepath.Join(home, ".cursor", "mcp.json"))
	if err != nil || !strings.Contains(string(text), "files") {
		t.Errorf("%s, %v", text, err)
	}
	// One that fails by itself is wanted all the same: its URL stays.
	m.all["files"].Status.Status = workload.Failed
	if code := a.run([]string{"restart", "older"}); code != exitOK {
		t.Fatal(said)
	}
	if now, err := os.ReadFile(filepath.Join(home, ".cursor", "mcp.json")); err != nil || !bytes.Equal(now, text) {
		t.Errorf("%s, %v", now, err)
	}
}
