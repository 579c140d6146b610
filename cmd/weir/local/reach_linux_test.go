package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/escape"
)

// TestFar is the process with the hosts outside, which TestModuleReaches runs.
func TestFar(t *testing.T) { escape.Serve(t) }

// TestModuleReaches has a server in WebAssembly ask hosts: those that its profile names answer,
// and no other hears of it, however it is named.
func TestModuleReaches(t *testing.T) {
	if !escape.InRoom(t) {
		return
	}
	asked, ca := escape.Far(t)
	names(t, map[string]string{
		"allowed.test": "93.184.216.34", "wrong.test": "93.184.216.34", "evil.test": "93.184.216.99", "metadata.test": "169.254.169.254",
		"x.below.test": "10.77.0.5", "named.test": "10.77.0.5", "own.test": "10.9.8.7",
	})
	const denied = "the permission profile of the server does not let it out to this host"
	profile := `{"name":"links","network":{"outbound":{"allow_host":["allowed.test","wrong.test","metadata.test",".below.test","named.test","own.test","nowhere.test"],"allow_port":[9,80,443]}}}`
	for _, round := range []struct {
		name, more string
		want       [][2]string // links, and what is said of them
		reached    []string
	}{
		{"hosts of the profile", "  permissionProfile: {type: configmap, name: profiles, key: links.json}\n", [][2]string{
			{"http://allowed.test/", "302"}, // where it leads to nobody looks
			{"https://allowed.test/", "302"},
			{"https://ALLOWED.test./x?y", "302"},
			{"http://named.test/", "302"}, // a private address, which is named
			{"https://wrong.test/", "TLS failed"},
			{"http://allowed.test:9/", "the connection was refused"},
			{"http://nowhere.test/", "there is no such host"},
			{"https://allowed.test:8443/", denied},
			{"http://allowed.test:443/", denied},
			{"http://evil.test/", denied},
			{"http://allowed.test.evil.test/", denied},
			{"http://93.184.216.34/", denied},
			{"http://metadata.test/latest/meta-data/", denied},
			{"http://169.254.169.254/latest/meta-data/", denied},
			{"http://x.below.test/", denied},
			{"http://own.test/", denied},
			{"http://localhost/", denied},
			{"http://127.1/", denied},
			{"http://host.docker.internal/", denied},
			{"http://somebody:password@allowed.test/", "the request is malformed"},
		}, []string{"10.77.0.5:80", "93.184.216.34:443", "93.184.216.34:80"}},
		{"everything", "  permissionProfile: {type: builtin, name: network}\n", [][2]string{
			{"http://evil.test/", "302"}, {"http://93.184.216.34:8080/", "302"}, {"http://named.test/", denied}, {"http://metadata.test/", denied}, {"http://own.test/", denied},
		}, []string{"93.184.216.34:8080", "93.184.216.99:80"}},
		{"nothing", "", [][2]string{{"http://allowed.test/", denied}, {"https://allowed.test/", denied}}, nil},
		{"no network, whatever the profile says", "  permissionProfile: {type: builtin, name: network}\n  run: {network: none}\n", [][2]string{{"http://allowed.test/", denied}}, nil},
	} {
		t.Run(round.name, func(t *testing.T) {
			notes := t.TempDir()
			var text, want []string
			for _, l := range round.want {
				text, want = append(text, "Look at <"+l[0]+">."), append(want, l[0]+": "+l[1])
			}
			if err := os.WriteFile(filepath.Join(notes, "note.md"), []byte(strings.Join(text, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			l := testLocals(t)
			l.settings.CABundle = filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(l.settings.CABundle, ca, 0o600); err != nil {
				t.Fatal(err)
			}
			more := round.more + fmt.Sprintf("  volumes: [{name: notes, hostPath: %q, mountPath: /notes, readOnly: true}]\n", notes) +
				"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: profiles}\ndata: {links.json: '" + profile + "'}\n"
			e := startModule(t, l, "wasm://"+exampleModule(t), more)
			c := e.NewClient().As(edgetest.Legacy, "")
			if got, failed := said(t, c.CallTool("1", "check_links", `{"note":"note.md"}`)); failed || got != strings.Join(want, "\n") {
				t.Errorf("it says\n%s\nand should\n%s", got, strings.Join(want, "\n"))
			}
			if got, failed := said(t, c.CallTool("2", "check_links", `{"note":"../ca.pem"}`)); !failed {
				t.Errorf("a file that nobody gave it: %q", got)
			}
			var reached []string
			for at := range asked() {
				if !strings.HasSuffix(at, " bytes") {
					reached = append(reached, at)
				}
			}
			slices.Sort(reached)
			if !slices.Equal(reached, round.reached) {
				t.Errorf("hosts that heard of it: %v, and should be %v", reached, round.reached)
			}
		})
	}
}

// exampleModule builds the example with links, once.
func exampleModule(t *testing.T) string {
	t.Helper()
	file := filepath.Join(sharedDir(t), "links.wasm")
	if _, err := os.Stat(file); err != nil {
		if err := os.Rename(builtModule(t, "../../../examples/wasm-links"), file); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// names has the names stand for addresses in this process's namespace, and no others.
func names(t *testing.T, of map[string]string) {
	t.Helper()
	text := "127.0.0.1 localhost\n"
	for name, address := range of {
		text += address + " " + name + "\n"
	}
	for file, text := range map[string]string{"/etc/hosts": text, "/etc/resolv.conf": ""} {
		own := filepath.Join(t.TempDir(), filepath.Base(file))
		if err := os.WriteFile(own, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, m := range [][3]any{{"", "/", uintptr(unix.MS_PRIVATE | unix.MS_REC)}, {own, file, uintptr(unix.MS_BIND)}} {
			if err := unix.Mount(m[0].(string), m[1].(string), "", m[2].(uintptr), ""); err != nil {
				t.Fatal(err)
			}
		}
	}
}
