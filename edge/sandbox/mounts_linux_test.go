package sandbox

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/edge/edgetest/escape"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// TestK04 refuses mounts that show secrets or steer this machine, whatever way leads there,
// unless they are asked for by name.
func TestK04(t *testing.T) {
	m := machine(t)
	home := t.TempDir()
	t.Setenv("HOME", home)
	state := filepath.Join(t.TempDir(), "weir")
	link := func(target string) string {
		path := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, dir := range []string{".ssh", ".gnupg", ".aws/x", ".kube", ".docker", ".config/app", "project"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	key := filepath.Join(home, ".ssh", "id")
	if err := os.WriteFile(key, []byte("k"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(state, "workloads"), 0o700); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	hardlink := func() Mount { return Mount{Host: link(link(key))} }
	for name, c := range map[string]struct {
		mount Mount
		want  string
	}{
		"the root":               {Mount{Host: "/", Inside: "/host"}, "it holds /"},
		"proc":                   {Mount{Host: "/proc", Inside: "/host"}, "it has secrets or controls this machine"},
		"in proc":                {Mount{Host: "/proc/1", Inside: "/host"}, "it is in /proc"},
		"sys":                    {Mount{Host: "/sys", Inside: "/host"}, "it has secrets"},
		"a device":               {Mount{Host: "/dev/null", Inside: "/host"}, "no directory and no file"},
		"run":                    {Mount{Host: "/run", Inside: "/host"}, "it has secrets"},
		"var run":                {Mount{Host: "/var/run", Inside: "/host"}, "it leads to /run"},
		"etc":                    {Mount{Host: "/etc", Inside: "/host"}, "it has secrets"},
		"in etc":                 {Mount{Host: "/etc/passwd", Inside: "/host"}, "it is in /etc"},
		"by two dots":            {Mount{Host: "/usr/../etc", Inside: "/host"}, "it has secrets"},
		"by a link":              {Mount{Host: link("/"), Inside: "/host"}, "it leads to /"},
		"by two links":           {Mount{Host: link(link("/etc")), Inside: "/host"}, "it leads to /etc"},
		"the home":               {Mount{Host: home}, "it has secrets"},
		"what holds the home":    {Mount{Host: filepath.Dir(home)}, "it holds " + home},
		"ssh":                    {Mount{Host: filepath.Join(home, ".ssh")}, "it has secrets"},
		"a key":                  {Mount{Host: key}, "it is in " + filepath.Join(home, ".ssh")},
		"a key by links":         {hardlink(), "it leads to " + key},
		"aws":                    {Mount{Host: filepath.Join(home, ".aws", "x")}, "it is in"},
		"config":                 {Mount{Host: filepath.Join(home, ".config")}, "it has secrets"},
		"weir's own":             {Mount{Host: filepath.Join(state, "workloads")}, "it is in " + state},
		"a socket":               {Mount{Host: socket}, "it is a socket"},
		"nothing":                {Mount{Host: "/nowhere"}, "no such file"},
		"a relative path":        {Mount{Host: "x"}, "not an absolute path"},
		"a relative path inside": {Mount{Host: "/usr/share", Inside: "x"}, "no clean absolute path"},
		"dots inside":            {Mount{Host: "/usr/share", Inside: "/x/../proc"}, "no clean absolute path"},
		"over proc":              {Mount{Host: "/usr/share", Inside: "/proc/self"}, "/proc inside is the sandbox's own"},
		"over the root":          {Mount{Host: "/usr/share", Inside: "/"}, "/ inside is the sandbox's own"},
		"over a file of etc":     {Mount{Host: "/usr/share", Inside: "/etc/passwd"}, "/etc/passwd inside is the sandbox's own"},
		"over the names":         {Mount{Host: "/usr/share", Inside: "/etc/nsswitch.conf"}, "/etc/nsswitch.conf inside is the sandbox's own"},
		"over the helper":        {Mount{Host: "/usr/share", Inside: "/run/weir-inside"}, "the sandbox's own"},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{Name: "test", Command: []string{"true"}, Home: t.TempDir(), Mounts: []Mount{c.mount}, Protected: []string{state}}
			_, err := m.Open(t.Context(), config)
			var refused *MountError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) || refused.Next == "" {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	t.Run("twice", func(t *testing.T) {
		c := Config{Name: "test", Command: []string{"true"}, Home: t.TempDir(), Mounts: []Mount{{Host: "/usr/share", Inside: "/a"}, {Host: "/usr/lib", Inside: "/a"}}}
		if _, err := m.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "/a is mounted twice") {
			t.Error(err)
		}
	})
	t.Run("asked for", func(t *testing.T) {
		bwrapped(t, m)
		c := config(t, Bwrap, "read:"+key)
		c.Mounts, c.AllowUnsafe = []Mount{{Host: filepath.Join(home, ".ssh")}}, []string{filepath.Join(home, ".ssh")}
		if got, _ := said(t, openBox(t, m, c)); got["read:"+key] != `"k"` {
			t.Errorf("%q", got)
		}
	})
}

// TestMounts shows directories and files at their places, and lets write where that was asked.
func TestMounts(t *testing.T) {
	asNobody(t)
	m := machine(t)
	dir := t.TempDir()
	for _, name := range []string{"ro", "rw", "rw/in"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "file"), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ro, rw := filepath.Join(dir, "ro"), filepath.Join(dir, "rw")
	if err := os.Symlink("in", filepath.Join(rw, "link")); err != nil {
		t.Fatal(err)
	}
	t.Run("bwrap", func(t *testing.T) {
		bwrapped(t, m)
		c := config(t, Bwrap, "read:/data/file", "write:/data/file", "write:/data/x", "read:/more/deep/file", "write:/more/deep/new", "read:/one", "write:/work/x", "list:/more/deep")
		c.Mounts = []Mount{{Host: filepath.Join(rw, "in"), Inside: "/more/deep/in"}, {Host: rw, Inside: "/more/deep", Writable: true}, {Host: filepath.Join(ro, "file"), Inside: "/one"}, {Host: ro, Inside: "/data"}}
		c.Writable = []string{"/work"}
		got, _ := said(t, openBox(t, m, c))
		for try, want := range map[string]string{
			"read:/data/file": `"ro"`, "write:/data/file": "refused: open /data/file: read-only file system", "write:/data/x": "refused: open /data/x: read-only file system",
			"read:/more/deep/file": `"rw"`, "write:/more/deep/new": "wrote", "read:/one": `"ro"`, "write:/work/x": "wrote", "list:/more/deep": "file in link new",
		} {
			if got[try] != want {
				t.Errorf("%s: %q, want %q", try, got[try], want)
			}
		}
	})
	t.Run("places", func(t *testing.T) {
		bwrapped(t, m)
		for _, c := range []struct {
			mounts   []Mount
			writable []string
			in       string // what has no place; "" where there is one
		}{
			{mounts: []Mount{{Host: rw, Inside: "/usr/weir/none"}}, in: "/usr"},
			{mounts: []Mount{{Host: rw, Inside: "/bin/weir-none"}}, in: "/bin"},
			{writable: []string{"/opt/weir-none"}, in: "/opt"},
			{mounts: []Mount{{Host: ro, Inside: "/data"}, {Host: rw, Inside: "/data/none"}}, in: "/data"},
			{mounts: []Mount{{Host: ro, Inside: "/data"}}, writable: []string{"/data/none"}, in: "/data"},
			{mounts: []Mount{{Host: rw, Inside: "/usr/share"}}},
			{mounts: []Mount{{Host: dir, Inside: "/data"}, {Host: rw, Inside: "/data/ro"}}},
			{mounts: []Mount{{Host: ro, Inside: "/data"}, {Host: rw, Inside: "/data/in", Writable: true}, {Host: ro, Inside: "/data/in/new"}}, in: "/data"},
			{mounts: []Mount{{Host: ro, Inside: "/usr/lib/x"}}, writable: []string{"/usr/lib"}},
		} {
			set := config(t, Bwrap)
			set.Mounts, set.Writable = c.mounts, c.writable
			box, err := m.Open(t.Context(), set)
			if err == nil {
				box.Close()
			}
			var refused *MountError
			if errors.As(err, &refused) != (c.in != "") || c.in != "" && !strings.HasPrefix(refused.Why, c.in+" is read-only inside") {
				t.Errorf("%+v: %v", c, err)
			}
		}
		for _, link := range []struct{ inside, to string }{{"/lib64", "/usr/lib64"}, {"/bin", "/usr/bin"}, {"/data/link", "/data/in"}} {
			if to, err := os.Readlink(link.inside); link.inside != "/data/link" && (err != nil || filepath.Join("/", to) != link.to) {
				continue // this system has a directory there
			}
			set := config(t, Bwrap)
			set.Mounts = []Mount{{Host: rw, Inside: "/data"}, {Host: ro, Inside: link.inside}}
			box, err := m.Open(t.Context(), set)
			if err == nil {
				box.Close()
			}
			var refused *MountError
			if !errors.As(err, &refused) || refused.Why != "it is a link to "+link.to+" inside" || !strings.Contains(refused.Next, link.to) {
				t.Errorf("%s: %v", link.inside, err)
			}
		}
		set := config(t, Bwrap)
		if err := os.Symlink("in\x1b[2J", filepath.Join(set.Home, "link")); err != nil {
			t.Fatal(err)
		}
		for at, to := range map[string]string{"/data/link": "/data/in", set.Home + "/link": set.Home + "/in?[2J"} { // where the server may make links
			set.Mounts = []Mount{{Host: rw, Inside: "/data", Writable: true}, {Host: ro, Inside: at}}
			box, err := m.Open(t.Context(), set)
			if err == nil {
				box.Close()
			}
			var refused *MountError
			if !errors.As(err, &refused) || refused.Why != "it is a link to "+to+" inside" {
				t.Errorf("%s: %v", at, err)
			}
		}
		outside := t.TempDir()
		way := config(t, Bwrap)
		if err := os.Symlink("/oldroot"+outside, filepath.Join(way.Home, "way")); err != nil { // where the machine is while bubblewrap makes places
			t.Fatal(err)
		}
		for _, c := range []Config{{Mounts: []Mount{{Host: ro, Inside: way.Home + "/way/new"}}}, {Writable: []string{way.Home + "/way/new"}}} {
			way.Mounts, way.Writable = c.Mounts, c.Writable
			box, err := m.Open(t.Context(), way)
			if err == nil {
				box.Close()
			}
			var refused *MountError
			if !errors.As(err, &refused) || refused.Why != way.Home+"/way is a link to /oldroot"+outside+" inside" {
				t.Errorf("below a link: %v", err)
			}
			if _, err := os.Lstat(filepath.Join(outside, "new")); err == nil {
				t.Error("its place was made outside")
			}
		}
		over := config(t, Bwrap)
		for _, hides := range []struct {
			mounts   []Mount
			writable []string
		}{{mounts: []Mount{{Host: ro, Inside: filepath.Dir(over.Home)}}}, {writable: []string{filepath.Dir(over.Home)}}, {writable: []string{over.Home}}} {
			over.Mounts, over.Writable = hides.mounts, hides.writable
			box, err := m.Open(t.Context(), over)
			if err == nil {
				box.Close()
			}
			var refused *MountError
			if !errors.As(err, &refused) || !strings.Contains(refused.Why, "it would hide the home") {
				t.Errorf("%+v: %v", hides, err)
			}
		}
	})
	t.Run("landlock", func(t *testing.T) {
		grades(t, m, Landlock)
		secret := filepath.Join(dir, "file")
		if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
			t.Fatal(err)
		}
		c := config(t, Landlock, "read:"+ro+"/file", "write:"+ro+"/file", "write:"+rw+"/landlock", "read:"+secret, "list:"+dir, "read:/etc/passwd", "read:/etc/shadow", "read:/etc/hostname",
			"list:/root", "write:/tmp/x", "list:/tmp", "write:/dev/null", "write:/usr/x")
		c.Command = append(c.Command, "write:"+c.Home+"/x", "write:"+c.Home+"/.tmp/x")
		// Modes are not held, and the user is told so; but nobody becomes this user by them.
		own := strconv.Itoa(os.Getegid())
		const no, none = "operation not permitted", "operation not supported"
		refused := map[string]string{"chmod:" + ro + "/file,4755": no, "chmod:" + c.Home + ",2755": no, "xattr:" + secret: none, "xattr:" + c.Home: none}
		c.Command = append(c.Command, "chmod:"+ro+"/file,644", "chgrp:"+c.Home+","+own)
		c.Command = slices.AppendSeq(c.Command, maps.Keys(refused))
		c.Mounts = []Mount{{Host: ro}, {Host: rw, Writable: true}}
		got, _ := said(t, openBox(t, m, c))
		allowed := []string{"read:" + ro + "/file", "write:" + rw + "/landlock", "read:/etc/passwd", "write:/dev/null", "write:" + c.Home + "/x", "write:" + c.Home + "/.tmp/x", "chmod:" + ro + "/file,644", "chgrp:" + c.Home + "," + own}
		for _, try := range c.Command[1:] {
			if strings.HasPrefix(got[try], "refused: ") == slices.Contains(allowed, try) || got[try] == "" {
				t.Errorf("%s: %q", try, got[try])
			}
			if want, is := refused[try]; is && got[try] != "refused: "+want {
				t.Errorf("%s: %q, want %s", try, got[try], want)
			}
		}
	})
	t.Run("tools in landlock", func(t *testing.T) { // which set modes, owners and attributes, as root, too
		grades(t, m, Landlock)
		c := config(t, Landlock)
		c.Command = []string{"/bin/sh", "-c", "exec 2>&1; cd $HOME && mkdir a out && echo x >a/f && chmod 750 a/f && tar cf a.tar a && tar xpf a.tar -C out && cp -a out/a b && install -m 755 b/f c && echo done"}
		p := startIn(t, openBox(t, m, c))
		if out, err := io.ReadAll(p.Stdout()); string(out) != "done\n" {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("where there are no overlays", func(t *testing.T) {
		for _, grade := range []Grade{Landlock, None} {
			grades(t, m, grade)
			c := config(t, grade)
			c.Mounts = []Mount{{Host: ro, Inside: "/data"}}
			var refused *MountError
			if _, err := m.Open(t.Context(), c); !errors.As(err, &refused) {
				t.Errorf("%s: %v", grade, err)
			}
			c.Mounts, c.Writable = nil, []string{"/work"}
			if _, err := m.Open(t.Context(), c); !errors.As(err, &refused) || refused.Path != "/work" {
				t.Errorf("%s: memory: %v", grade, err)
			}
		}
	})
}

// TestPrefixes shows a program what it was installed with, and never a home.
func TestPrefixes(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	app := t.TempDir()
	file := func(path string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := func(path, target string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tool := file(filepath.Join(app, "tool/bin/run"))
	workload := filepath.Join(home, "state")
	for name, c := range map[string]struct {
		program string
		want    []string
	}{
		"of the system":        {"/usr/bin/env", nil},
		"by PATH":              {"env", nil},
		"one that is not":      {"/nowhere/x", nil},
		"in bin":               {tool, []string{filepath.Join(app, "tool")}},
		"in a directory":       {file(filepath.Join(app, "other/server")), []string{filepath.Join(app, "other")}},
		"in the home":          {file(filepath.Join(home, "server")), []string{filepath.Join(home, "server")}},
		"in bin of the home":   {file(filepath.Join(home, "bin/server")), []string{filepath.Join(home, "bin/server")}},
		"a project in it":      {file(filepath.Join(home, "project/server")), []string{filepath.Join(home, "project")}},
		"in a secret place":    {file(filepath.Join(home, ".config/server")), []string{filepath.Join(home, ".config/server")}},
		"a link out of a home": {link(filepath.Join(home, "bin/linked"), tool), []string{filepath.Join(home, "bin/linked"), filepath.Join(app, "tool")}},
		"in the server's HOME": {file(filepath.Join(workload, "bin/x")), nil},
		"in /tmp":              {file(filepath.Join(os.TempDir(), "weir-prefix-test")), []string{filepath.Join(os.TempDir(), "weir-prefix-test")}},
	} {
		conf := Config{Command: []string{c.program}, Home: workload}
		if got, _ := prefixes(&conf, newUnsafe(&conf)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	_ = os.Remove(filepath.Join(os.TempDir(), "weir-prefix-test"))
}

// TestEtc shows what programs of each kind of system are configured by, and no key or password, also
// where the files are root's and so is the server.
func TestEtc(t *testing.T) {
	if !inRoom(t) {
		return
	}
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("etc", "/etc", "tmpfs", 0, "mode=755")); err != nil {
		t.Fatal(err)
	}
	shown := []string{
		"java-17-openjdk/security/java.security", "java-17-openjdk/management/management.properties", "java/java-21/java-21.0/conf/net.properties",
		"pki/ca-trust/extracted/pem/bundle.pem", "pki/java/cacerts", "pki/tls/certs/bundle.crt", "pki/tls/openssl.cnf", "crypto-policies/back-ends/opensslcnf.config",
		"ssl/openssl.cnf", "ssl/deep/x.cnf", "services", "protocols", "os-release", "fonts/fonts.conf",
	}
	secret := []string{
		"ssl/private/key.pem", "pki/tls/private/localhost.key", "pki/nssdb/key4.db", "shadow", "machine-id",
		"java-17-openjdk/management/jmxremote.password", "java/java-21/java-21.0/conf/management/jmxremote.password",
	}
	for _, name := range slices.Concat(shown, secret, []string{"passwd", "hosts", "resolv.conf"}) {
		path := filepath.Join("/etc", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("content"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"ssl/certs": "../pki/tls/certs", "pki/tls/cert.pem": "certs/bundle.crt", "ssl/by-link": "private"} {
		if err := os.Symlink(to, filepath.Join("/etc", link)); err != nil {
			t.Fatal(err)
		}
	}
	shown = append(shown, "ssl/certs/bundle.crt", "pki/tls/cert.pem")
	secret = append(secret, "ssl/by-link/key.pem")
	m := machine(t)
	for _, grade := range []Grade{Bwrap, Landlock} {
		grades(t, m, grade)
		c := config(t, grade, "list:/etc/ssl/private", "write:/etc/ssl/private/x", "write:/etc/services")
		for _, name := range slices.Concat(shown, secret) {
			c.Command = append(c.Command, "read:/etc/"+name)
		}
		got, _ := said(t, openBox(t, m, c))
		for _, name := range shown {
			if got := got["read:/etc/"+name]; got != `"content"` {
				t.Errorf("%s: /etc/%s: %q", grade, name, got)
			}
		}
		for _, name := range secret {
			if got := got["read:/etc/"+name]; !strings.HasPrefix(got, "refused: ") {
				t.Errorf("%s: /etc/%s: %q", grade, name, got)
			}
		}
		if got := got["list:/etc/ssl/private"]; got != "" && !strings.HasPrefix(got, "refused: ") {
			t.Errorf("%s: /etc/ssl/private has %q", grade, got)
		}
		for _, try := range []string{"write:/etc/ssl/private/x", "write:/etc/services"} {
			if !strings.HasPrefix(got[try], "refused: ") {
				t.Errorf("%s: %s: %q", grade, try, got[try])
			}
		}
	}
}

// A program in a mounted directory that its server may write to is shown with that directory, and
// no link in there shows what it leads to, also where it is not the program that is one.
func TestPrefixesOfServer(t *testing.T) {
	home := tree(t, ".ssh/id", "p/bin/server", "p/real/server", "other/server")
	t.Setenv("HOME", home)
	work := filepath.Join(home, "p")
	for path, to := range map[string]string{"p/server": ".ssh/id", "p/deep": "other", "p/inner": "p/real", "in": "p", "midst": "p/deep", "tool": "p/server"} {
		if err := os.Symlink(filepath.Join(home, to), filepath.Join(home, path)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		program  string
		writable bool
		want     []string
	}{
		{"p/server", true, []string{"p"}},
		{"p/bin/server", true, []string{"p"}},
		{"p/deep/server", true, []string{"p"}},
		{"in/server", true, []string{"in"}},
		{"midst/server", true, nil},
		{"tool", true, []string{"tool", "p"}},
		{"other/server", true, []string{"other"}},
		{"p/server", false, []string{"p", ".ssh/id"}}, // it is the user's
		{"p/real/server", false, []string{"p/real"}},
	} {
		conf := Config{Command: []string{filepath.Join(home, c.program)}, Home: t.TempDir(), Mounts: []Mount{{Host: work, Inside: "/work", Writable: c.writable}}}
		var want []string
		for _, path := range c.want {
			want = append(want, filepath.Join(home, path))
		}
		got, unfollowed := prefixes(&conf, newUnsafe(&conf))
		if !slices.Equal(got, want) {
			t.Errorf("%s, writable %t: %q, want %q", c.program, c.writable, got, want)
		}
		if stops := c.writable && (c.program == "p/server" || c.program == "tool"); stops != (unfollowed == filepath.Join(work, "server")) {
			t.Errorf("%s, writable %t: stops at %q", c.program, c.writable, unfollowed)
		}
	}
}

// A bubblewrap that is there and cannot make a sandbox is not to be installed: what it says is
// told in one line, and what keeps it from it.
func TestBwrapRefused(t *testing.T) {
	grades(t, machine(t), Landlock)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bwrap"), []byte("#!/bin/sh\necho 'bwrap: No permissions' >&2\necho 'to create new namespace' >&2\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	m := NewMachine(t.TempDir())
	defer m.Close()
	const cannot = "bubblewrap cannot make a sandbox here: bwrap: No permissions to create new namespace"
	grade, note, err := m.choose(&Config{Name: "test"})
	if grade != Landlock || err != nil || !strings.Contains(note, cannot+"): not held") || !strings.Contains(note, "let users make namespaces") || strings.Contains(note, "install") {
		t.Errorf("%q, %q, %v", grade, note, err)
	}
	var typed *GradeError
	if _, _, err := m.choose(&Config{Name: "test", Grade: Bwrap}); !errors.As(err, &typed) || !strings.Contains(err.Error(), cannot) || !strings.Contains(err.Error(), "let users make namespaces") {
		t.Errorf("asked for: %v", err)
	}
}

// TestGrades chooses what a sandbox has, and says what is less than the best.
func TestGrades(t *testing.T) {
	m := machine(t)
	bwrapped(t, m)
	grades(t, m, Landlock)
	probe(t)                    // while the go command is found
	hidden := func() *Machine { // bubblewrap is not in PATH
		t.Helper()
		t.Setenv("PATH", filepath.Join(t.TempDir(), "empty"))
		h := NewMachine(m.cache)
		t.Cleanup(h.Close)
		return h
	}
	h := hidden()
	old := NewMachine(m.cache) // nor has the kernel Landlock
	old.abi = func() int { return 3 }
	before := NewMachine(m.cache) // an older one
	before.abi = func() int { return 5 }
	t.Cleanup(old.Close)
	t.Cleanup(before.Close)
	const install = "install bubblewrap"
	for name, c := range map[string]struct {
		m     *Machine
		c     Config
		grade Grade
		note  []string
		err   string
	}{
		"the best":                  {m, Config{}, Bwrap, nil, ""},
		"off, asked for":            {m, Config{Grade: None}, None, []string{"test: sandbox none (--sandbox off): nothing is held, the server can do what its user can: run it without --sandbox off"}, ""},
		"landlock, asked for":       {m, Config{Grade: Landlock}, Landlock, []string{"sandbox landlock", "not held"}, ""},
		"no bubblewrap":             {h, Config{}, Landlock, []string{"bubblewrap is not in PATH", "not held", install}, ""},
		"and an open network":       {h, Config{Network: Host}, Landlock, []string{"not held: the network (it is open, loopback included); modes and times of this user's files (also those of read-only mounts and those that are not mounted) and which paths there are; processes of this user (they can be seen)", ": " + install}, ""},
		"and an older kernel":       {before, Config{}, Landlock, []string{"its own helper"}, ""},
		"neither":                   {old, Config{}, None, []string{"nothing is held", "Landlock of version 3", install}, ""},
		"bwrap, asked for":          {h, Config{Grade: Bwrap}, "", nil, "--sandbox bwrap: bubblewrap is not in PATH"},
		"landlock, not there":       {old, Config{Grade: Landlock}, "", nil, "--sandbox landlock"},
		"isolation, asked for":      {old, Config{Isolate: true}, "", nil, "--isolate-network"},
		"isolation and off":         {m, Config{Isolate: true, Grade: None}, "", nil, "--isolate-network: the grade none isolates nothing (--sandbox off): run it without --sandbox off"},
		"isolation by landlock":     {h, Config{Isolate: true}, Landlock, []string{"not held"}, ""},
		"HTTP by landlock and none": {h, Config{Port: 8080}, "", nil, "an HTTP server with the profile none"},
		"hosts":                     {m, Config{Network: Profile, Isolate: true}, Bwrap, nil, ""},
		"hosts by landlock":         {h, Config{Network: Profile}, Landlock, []string{"bubblewrap is not in PATH", "not held: what its profile names", install}, ""},
		"hosts, landlock asked for": {m, Config{Network: Profile, Grade: Landlock}, Landlock, []string{"not held: what its profile names"}, ""},
		"hosts, isolation asked":    {h, Config{Network: Profile, Isolate: true}, "", nil, "--isolate-network: the grade landlock holds a server to no hosts (bubblewrap is not in PATH)"},
		"hosts and neither":         {old, Config{Network: Profile}, None, []string{"nothing is held", install}, ""},
		"hosts, isolation, neither": {old, Config{Network: Profile, Isolate: true}, "", nil, "--isolate-network"},
		"hosts, isolation and off":  {m, Config{Network: Profile, Isolate: true, Grade: None}, "", nil, "--isolate-network"},
		"HTTP, network open":        {h, Config{Port: 8080, Network: Host}, Landlock, []string{"not held"}, ""},
	} {
		c.c.Name = "test"
		grade, note, err := c.m.choose(&c.c)
		var typed *GradeError
		switch {
		case c.err != "" && (!errors.As(err, &typed) || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, want %q", name, err, c.err)
		case c.err == "" && (err != nil || grade != c.grade):
			t.Errorf("%s: %q, %v", name, grade, err)
		}
		if c.note == nil && note != "" || strings.Contains(note, "\n") {
			t.Errorf("%s: note %q", name, note)
		}
		for _, want := range c.note {
			if !strings.Contains(note, want) {
				t.Errorf("%s: note %q, want %q", name, note, want)
			}
		}
	}
	// A profile that is not held is none: the server has the network, and the sandbox says so.
	wide := Config{Name: "test", Network: Profile, Outlet: newOut(t, escape.Round{Outbound: v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test"}}}), Command: []string{probe(t), "env"}, Home: t.TempDir()}
	s := openBox(t, h, wide)
	if got, _ := said(t, s); !s.Open() || s.Grade() != Landlock || strings.Contains(got["env"], "HTTP_PROXY") {
		t.Errorf("open %v, %s, %s", s.Open(), s.Grade(), got["env"])
	}
	// Where nothing is held, neither is the profile none.
	if s := openBox(t, m, Config{Name: "test", Network: Closed, Grade: None, Command: []string{probe(t), "env"}, Home: t.TempDir()}); !s.Open() || s.Grade() != None {
		t.Errorf("without a sandbox: open %v, %s", s.Open(), s.Grade())
	}
	// It is really so.
	c := Config{Name: "test", Command: []string{probe(t), "pid"}, Home: t.TempDir()}
	if s := openBox(t, h, c); s.Grade() != Landlock {
		t.Errorf("grade %s", s.Grade())
	}
}

// TestParseGrade reads what people write.
func TestParseGrade(t *testing.T) {
	for text, want := range map[string]Grade{"": Auto, "auto": Auto, "bwrap": Bwrap, "landlock": Landlock, "off": None, "none": None} {
		if got, err := ParseGrade(text); err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if _, err := ParseGrade("docker"); err == nil {
		t.Error("docker is none")
	}
}

// TestRisky names variables that run code.
func TestRisky(t *testing.T) {
	for name, want := range map[string]bool{"LD_PRELOAD": true, "NODE_OPTIONS": true, "BASH_ENV": true, "PYTHONPATH": true, "TOKEN": false, "PATH": false} {
		if Risky(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

// TestPool has one sandbox for each principal, for as long as it has processes.
func TestPool(t *testing.T) {
	m := machine(t)
	bwrapped(t, m)
	pool := NewPool(m, config(t, Bwrap, "echo"), func(note string) { t.Errorf("it holds less: %s", note) })
	ctx := context.Background()
	start := func(principal string) *Process {
		t.Helper()
		p, err := pool.Start(ctx, principal)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _, _ = p.Stdin().Close(), p.Stdout().Close(), p.Stderr().Close() })
		return p
	}
	one, two, other := start("a"), start("a"), start("b")
	if len(pool.boxes) != 2 || pool.boxes["a"].users != 2 {
		t.Fatalf("%d sandboxes", len(pool.boxes))
	}
	box := pool.boxes["a"].box.(*Sandbox)
	one.Stop(0)
	two.Stop(0)
	again := start("a")
	if pool.boxes["a"].box != Box(box) {
		t.Error("the sandbox was not kept for the next process")
	}
	// One that died is opened anew.
	box.end("")
	again.Wait()
	<-box.Ended()
	if start("a"); pool.boxes["a"].box == Box(box) {
		t.Error("a sandbox that has ended is used")
	}
	pool.Close()
	for _, p := range []*Process{other, again} {
		p.Wait()
	}
	if _, err := pool.Start(ctx, "a"); !errors.Is(err, errClosed) {
		t.Error(err)
	}
}

// failing is a sandbox in which the first starts fail.
type failing struct {
	Box
	fails  int
	closed bool
}

func (f *failing) Start(context.Context) (*Process, error) {
	if f.fails--; f.fails >= 0 {
		return nil, errors.New("it fails")
	}
	return newProcess(), nil
}
func (f *failing) HasEnded() bool { return false }
func (f *failing) Close()         { f.closed = true }

// A sandbox in which nothing could be started is not kept for the next start, which may be to
// show something else; one in which something could be is.
func TestPoolOfFailing(t *testing.T) {
	var all []*failing
	pool := NewPoolOf(func(context.Context) (Box, error) {
		all = append(all, &failing{fails: 1 - len(all)})
		return all[len(all)-1], nil
	})
	defer pool.Close()
	if _, err := pool.Start(t.Context(), "a"); err == nil || len(all) != 1 || !all[0].closed {
		t.Fatalf("%d sandboxes, %v", len(all), err)
	}
	if _, err := pool.Start(t.Context(), "a"); err != nil || len(all) != 2 {
		t.Fatalf("%d sandboxes, %v", len(all), err)
	}
	all[1].fails = 1
	if _, err := pool.Start(t.Context(), "a"); err == nil || all[1].closed {
		t.Errorf("a sandbox with a process was closed, %v", err)
	}
	all[1].fails = 0
	if _, err := pool.Start(t.Context(), "a"); err != nil || len(all) != 2 {
		t.Errorf("%d sandboxes, %v", len(all), err)
	}
}

// TestHelperIsCurrent holds the embedded helper to its source: what make helper builds now is
// what is embedded.
func TestHelperIsCurrent(t *testing.T) {
	m := machine(t)
	path, err := Helper(m.cache)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o500); err != nil {
		t.Fatal(err)
	}
	embedded, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(t.TempDir(), "weir-inside")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", fresh, "../../cmd/weir-inside")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want, err := os.ReadFile(fresh)
	if err != nil {
		t.Fatal(err)
	}
	if string(embedded) != string(want) {
		t.Error("the embedded helper is stale: make helper")
	}
	if len(want) > 3<<20 {
		t.Errorf("the helper has %d bytes, and the limit is 3 MiB", len(want))
	}
	// One that was tampered with, or is not ours to run, is unpacked anew.
	if again, err := Helper(m.cache); err != nil || again != path {
		t.Errorf("%q, %v", again, err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != helperMode {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := os.Chmod(m.cache, 0o777); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(path)
	var refused *HelperError
	if _, err := Helper(m.cache); !errors.As(err, &refused) {
		t.Errorf("a directory that others can write to: %v", err)
	}
}

// TestPoolNotes: what sandboxes hold less than the best is told once, for all of them.
func TestPoolNotes(t *testing.T) {
	m := machine(t)
	grades(t, m, Landlock)
	var told []string
	pool := NewPool(m, config(t, Landlock, "echo"), func(note string) { told = append(told, note) })
	defer pool.Close()
	for _, who := range []string{"ann", "bob"} {
		p, err := pool.Start(t.Context(), who)
		if err != nil {
			t.Fatal(err)
		}
		p.Kill()
	}
	if len(told) != 1 || !strings.Contains(told[0], "not held") {
		t.Errorf("told: %q", told)
	}
}
