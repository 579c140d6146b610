// Command packager stands in a test's base for the programs that install packages: npm, uv,
// python3 and apk, by the name that it is run by. What it installs is itself, with a record of
// how it was asked, and run from there it answers each line with that record.
//
// The name of the package says what becomes of it: fails, hangs, keeps, hostile, scripted (which the
// base's node runs), or anything else.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// record is how a program was asked.
type record struct {
	Program string
	Args    []string
	Env     []string
	Dir     string
	UID     int
	CapEff  string
	Secrets map[string]int // files below /run/secrets, and their sizes
	CA      int            // bytes of the file that SSL_CERT_FILE names
	Mounts  string         // of what is mounted there
}

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "npm", "uv", "apk":
		install(name)
	case "python3":
		if len(os.Args) < 2 || os.Args[1] != "-m" {
			fail("python3 is run by itself")
		}
		prefix := os.Args[slices.Index(os.Args, "--prefix")+1]
		put(filepath.Join(prefix, "bin/uv"))
		note("/home/weir/pip.json")
	default:
		serve()
	}
}

// now is how this program was asked.
func now() record {
	r := record{Program: filepath.Base(os.Args[0]), Args: os.Args[1:], Env: os.Environ(), UID: os.Getuid(), Secrets: map[string]int{}}
	r.Dir, _ = os.Getwd()
	r.Env = slices.DeleteFunc(r.Env, func(line string) bool { return strings.HasPrefix(line, "HOSTNAME=") })
	slices.Sort(r.Env)
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			r.CapEff = strings.TrimSpace(value)
		}
	}
	all, _ := os.ReadDir("/run/secrets")
	for _, one := range all {
		text, _ := os.ReadFile("/run/secrets/" + one.Name())
		r.Secrets[one.Name()] = len(text)
	}
	text, _ := os.ReadFile(os.Getenv("SSL_CERT_FILE"))
	r.CA = len(text)
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " /run/secrets ") {
			r.Mounts = line
		}
	}
	return r
}

func note(path string) {
	text, err := json.Marshal(now())
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		fail(err.Error())
	}
}

// put puts this program somewhere.
func put(path string) {
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, self, 0o755)
	}
	if err != nil {
		fail(err.Error())
	}
}

func write(path, text string) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		fail(err.Error())
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		fail(err.Error())
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(7)
}

// install does what the package says.
func install(program string) {
	wanted := os.Args[len(os.Args)-1]
	name := wanted
	if i := strings.LastIndexAny(wanted, "@="); i > 0 {
		name = strings.TrimRight(wanted[:i], "=")
	}
	if program == "apk" {
		if wanted == "none" {
			fail("ERROR: unable to select packages: none (no such package)")
		}
		note("/etc/installed.json")
		return
	}
	switch name {
	case "fails":
		for i := range 30 {
			fmt.Printf("line %d\n", i)
		}
		all, _ := os.ReadDir("/run/secrets")
		for _, one := range all {
			text, _ := os.ReadFile("/run/secrets/" + one.Name())
			fmt.Printf("\x1b[31mnpm error\x1b[0m it said %s\n", text)
		}
		fail("npm error code E404")
	case "hangs":
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = []string{"server"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		in, _ := cmd.StdinPipe() // which stays open
		_ = cmd.Start()
		_ = in
		fmt.Println("hanging")
		time.Sleep(time.Hour)
	case "keeps": // what it can read
		all, _ := os.ReadDir("/run/secrets")
		for _, one := range all {
			text, _ := os.ReadFile("/run/secrets/" + one.Name())
			write("/app/kept/"+one.Name(), string(text))
		}
	case "hostile":
		_ = os.Symlink("/etc", "/app/outside")
		_ = os.Mkdir("/app/.wh..wh..opq", 0o755)
	case "odd":
		put("/app/setuid")
		_ = os.Chmod("/app/setuid", 0o6755)
		_ = syscall.Mkfifo("/app/fifo", 0o644)
		_ = os.Symlink("/etc/passwd", "/app/outside")
		_ = os.Link("/app/setuid", "/app/hard")
		cmd := exec.Command("/proc/self/exe") // it goes on, and changes what was made
		cmd.Args = []string{"server", "linger"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			fail(err.Error())
		}
	}
	if program == "uv" {
		put("/app/bin/" + strings.ToLower(name))
		if name == "several" {
			put("/app/bin/one")
			_ = os.Rename("/app/bin/several", "/app/bin/two")
		}
		if pip, err := os.ReadFile("/home/weir/pip.json"); err == nil {
			write("/app/pip.json", string(pip))
		}
	} else {
		at := "/app/node_modules/" + name
		bin := `"bin/server"`
		switch name {
		case "nobin":
			bin = `{}`
		case "leads-out":
			bin = `"../../../bin/node"`
		}
		write(at+"/package.json", `{"name": "`+name+`", "bin": `+bin+`}`)
		put(at + "/bin/server")
		if name == "scripted" {
			write(at+"/bin/server", "#!/usr/bin/env node\n")
		}
		if text, err := os.ReadFile(os.Getenv("NPM_CONFIG_GLOBALCONFIG")); err == nil {
			write("/app/npmrc", string(text))
		}
	}
	if there, err := os.ReadFile("/etc/installed.json"); err == nil {
		write("/app/installed.json", string(there))
	}
	note("/app/record.json")
}

// serve answers each line with what the image has of it.
func serve() {
	if len(os.Args) > 1 && os.Args[1] == "linger" {
		for {
			_ = os.WriteFile("/app/late", []byte(time.Now().String()), 0o644)
			time.Sleep(time.Millisecond)
		}
	}
	answer := map[string]json.RawMessage{}
	for name, path := range map[string]string{"record": "/app/record.json", "pip": "/app/pip.json", "installed": "/app/installed.json"} {
		if text, err := os.ReadFile(path); err == nil {
			answer[name] = text
		}
	}
	npmrc, _ := os.ReadFile("/app/npmrc")
	answer["npmrc"], _ = json.Marshal(string(npmrc))
	answer["env"], _ = json.Marshal(os.Environ())
	answer["uid"], _ = json.Marshal(os.Getuid())
	home, err := os.CreateTemp(os.Getenv("HOME"), "x")
	if err == nil {
		_ = home.Close()
	}
	answer["home"], _ = json.Marshal(fmt.Sprint(err))
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text, _ := json.Marshal(answer)
		fmt.Println(string(text))
	}
}
