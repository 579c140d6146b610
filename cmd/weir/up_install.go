package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/workload"
)

// What starts the manager at each login, and again when it ends.
const (
	unitName       = "weir.service"
	agentName      = "dev.weir.manager"
	watcherSystemd = "systemd"
	watcherLaunchd = "launchd"
)

// unit is the systemd unit of a manager. The processes of workloads end by the manager, in
// order; what is left at the end is killed. Limits of workloads need the delegated cgroups.
func unit(command []string, environ map[string]string) string {
	quote := func(s string) string {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, `$`, `$$`, "\n", `\n`).Replace(s) + `"`
	}
	var words, lines []string
	for _, word := range command {
		words = append(words, quote(word))
	}
	for _, name := range installedVariables() {
		if value := environ[name]; value != "" {
			lines = append(lines, "Environment="+strings.ReplaceAll(quote(name+"="+value), "$$", "$"))
		}
	}
	return `[Unit]
Description=Weir, which keeps the MCP servers of this user

[Service]
ExecStart=` + strings.Join(words, " ") + `
` + strings.Join(append(lines, ""), "\n") + `Restart=always
RestartSec=1
KillMode=mixed
TimeoutStopSec=90
Delegate=yes

[Install]
WantedBy=default.target
`
}

// installedVariables are those that say where things are kept and found, and how the manager is.
func installedVariables() []string {
	settings, _ := managerVariables()
	return append([]string{"PATH", "WEIR_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "WEIR_ENGINE", "DOCKER_HOST"}, settings...)
}

// agent is the property list of a manager for launchd.
func agent(command []string, environ map[string]string, log string) string {
	escape := func(s string) string {
		var b strings.Builder
		_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
		return "<string>" + b.String() + "</string>"
	}
	var words, variables string
	for _, word := range command {
		words += "\n    " + escape(word)
	}
	for _, name := range installedVariables() {
		if value := environ[name]; value != "" {
			variables += "\n    <key>" + name + "</key>" + escape(value)
		}
	}
	return `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key>` + escape(agentName) + `
  <key>ProgramArguments</key>
  <array>` + words + `
  </array>
  <key>EnvironmentVariables</key>
  <dict>` + variables + `
  </dict>
  <key>RunAtLoad</key><true/>
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key><false/>
  </dict>
  <key>StandardErrorPath</key>` + escape(log) + `
</dict>
</plist>
`
}

// configHome is where the configuration of the user's programs is.
func (a *app) configHome() (string, error) {
	if dir, _ := lookup(a.environ, "XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	home, _ := lookup(a.environ, "HOME")
	if !filepath.IsAbs(home) {
		return "", errors.New("HOME is not set, which is where the system looks for what it is to start")
	}
	return filepath.Join(home, ".config"), nil
}

// installation is the file that has the system start the manager, and its text.
func (a *app) installation(paths workload.Paths, given []string) (path, text string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", "", err
	}
	pairs, err := rooted(a.environ)
	if err != nil {
		return "", "", err
	}
	environ := map[string]string{}
	for _, name := range installedVariables() {
		environ[name], _ = lookup(pairs, name)
	}
	switch runtime.GOOS {
	case "linux":
		config, err := a.configHome()
		return filepath.Join(config, "systemd", "user", unitName), unit(append([]string{self, "up", "--watcher=" + watcherSystemd}, given...), environ), err
	case "darwin":
		home, _ := lookup(a.environ, "HOME")
		if !filepath.IsAbs(home) {
			return "", "", errors.New("HOME is not set, which is where launchd looks for what it is to start")
		}
		return filepath.Join(home, "Library", "LaunchAgents", agentName+".plist"), agent(append([]string{self, "up", "--watcher=" + watcherLaunchd}, given...), environ, paths.Log()), nil
	}
	return "", "", fmt.Errorf("nothing is known on %s that starts it: use `weir up --detach`", runtime.GOOS)
}

// install has the system start the manager at each login, and now.
func (a *app) install(ctx context.Context, paths workload.Paths, given []string) error {
	c, err := workload.Find(ctx, paths)
	if err == nil {
		c.Close()
		return &workload.Error{Code: workload.CodeTaken, Message: fmt.Sprintf("a manager runs already, as process %d", c.Hello.PID), Next: "weir down"}
	}
	path, text, err := a.installation(paths, given)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := cli.WriteFile(path, []byte(text), 0o600); err != nil { // the URL of a proxy may hold a password
		return err
	}
	fmt.Fprintln(a.err, "wrote "+path)
	if runtime.GOOS == "darwin" {
		_, err := fmt.Fprintf(a.err, "start it now and at each login with:\n  launchctl bootstrap gui/%d %s\n", os.Getuid(), quoted(path))
		return err
	}
	if tool, err := exec.LookPath("systemd-analyze"); err == nil {
		if out, err := exec.CommandContext(ctx, tool, "--user", "verify", path).CombinedOutput(); err != nil {
			fmt.Fprintf(a.err, "systemd-analyze verify: %s\n", edge.Brief(strings.TrimSpace(string(out))))
		}
	}
	err = a.systemctl(ctx, "daemon-reload")
	if err == nil {
		err = a.systemctl(ctx, "enable", "--now", unitName)
	}
	if err != nil {
		return fmt.Errorf("%w\nwhere systemd runs for your user, start it with:\n  systemctl --user daemon-reload\n  systemctl --user enable --now %s", err, unitName)
	}
	if err := a.answers(ctx, paths); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.err, "the manager runs, and is started at each login; `loginctl enable-linger` has it run before you log in")
	return err
}

// answers waits until the manager that the system starts answers.
func (a *app) answers(ctx context.Context, paths workload.Paths) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		c, err := workload.Find(ctx, paths)
		if err == nil {
			c.Close()
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return &workload.Error{Code: workload.CodeFault, Message: fmt.Sprintf("systemd starts the manager, and it does not answer within %s: %v", startWithin, err), Next: "systemctl --user status " + unitName}
		}
	}
}

// uninstall has the system start the manager no longer, and ends the one it started.
func (a *app) uninstall(ctx context.Context) error {
	path, _, err := a.installation(workload.Paths{}, nil)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not there: it is not installed", path)
	}
	if runtime.GOOS == "darwin" {
		if err := launchctl(ctx, "bootout"); err != nil {
			fmt.Fprintln(a.err, err)
		}
		return os.Remove(path)
	}
	if err := a.systemctl(ctx, "disable", "--now", unitName); err != nil {
		fmt.Fprintln(a.err, err) // it may be that no systemd runs, and the file goes all the same
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	_ = a.systemctl(ctx, "daemon-reload") // as above
	_, err = fmt.Fprintln(a.err, "removed "+path)
	return err
}
