package container

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge/sandbox"
)

// usualPath is the PATH of an image that has none: the one that engines give it.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is what a server's process is given: the image's, what is the sandbox's own, and
// then what is the user's, which may replace all of it.
func (b *Box) environment(ctx context.Context) ([]string, error) {
	var all []string
	set := func(name, value string) {
		all = slices.DeleteFunc(all, func(has string) bool { return strings.HasPrefix(has, name+"=") })
		all = append(all, name+"="+value)
	}
	set("PATH", usualPath)
	for _, line := range os.Environ() { // the locale, as local processes have it
		if name, value, _ := strings.Cut(line, "="); name == "LANG" || name == "TZ" || strings.HasPrefix(name, "LC_") {
			set(name, value)
		}
	}
	set("TMPDIR", "/tmp")
	if b.changed {
		set("HOME", ownHome)
	}
	for _, line := range b.image.Env {
		name, value, ok := strings.Cut(line, "=")
		if ok && name != "" && !strings.ContainsRune(line, 0) && !(b.changed && name == "HOME") {
			set(name, value)
		}
	}
	c := &b.config
	if c.Transport != "" {
		set("MCP_TRANSPORT", c.Transport)
	}
	if c.Port > 0 {
		port := strconv.Itoa(c.Port)
		set("MCP_PORT", port)
		set("FASTMCP_PORT", port)
		set("MCP_HOST", "127.0.0.1")
	}
	if c.Outlet != nil {
		for _, line := range sandbox.ProxyVariables() {
			name, value, _ := strings.Cut(line, "=")
			set(name, value)
		}
	}
	if c.Environment == nil {
		return all, nil
	}
	users, err := c.Environment(ctx)
	if err != nil {
		return nil, fmt.Errorf("environment of %s: %w", c.Name, err)
	}
	for i, line := range users {
		name, value, ok := strings.Cut(line, "=")
		if !ok || name == "" || strings.ContainsRune(line, 0) {
			return nil, fmt.Errorf("environment of %s: variable %d is no NAME=VALUE, or has a NUL byte (it is not shown, as it may be a secret)", c.Name, i+1)
		}
		set(name, value)
	}
	return all, nil
}

// own are the paths inside that are the container's own.
var own = []string{"/proc", "/dev", "/sys", ours}

// Paths inside of what is ours.
const (
	ours       = "/.weir"
	helperPath = ours + "/inside"
	linkDir    = ours + "/link"
)

// inside says what is wrong with a path inside that something is to be mounted at.
func inside(at string) error {
	switch {
	case !path.IsAbs(at) || path.Clean(at) != at || strings.ContainsRune(at, 0) || len(at) > 4096:
		return fmt.Errorf("%q is no clean absolute path", at[:min(len(at), 100)])
	case at == "/" || at == "/run" || at == "/etc":
		return fmt.Errorf("%s is the container's own", at)
	}
	for _, dir := range own {
		if at == dir || strings.HasPrefix(at, dir+"/") {
			return fmt.Errorf("%s is the container's own", dir)
		}
	}
	return nil
}
