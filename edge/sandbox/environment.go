package sandbox

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// passed are the variables of this process that a server has too; locale says of others.
var passed = []string{"PATH", "LANG", "TZ"}

// environment is what a server's process is given: nothing of this process's but passed,
// then what is the sandbox's own, then what is the user's, which may replace all of it.
func (c *Config) environment(ctx context.Context, temp string) ([]string, error) {
	var own []string
	for _, line := range os.Environ() {
		name, _, _ := strings.Cut(line, "=")
		if slices.Contains(passed, name) || strings.HasPrefix(name, "LC_") || !onUnix && slices.Contains(needed, strings.ToUpper(name)) {
			own = append(own, line)
		}
	}
	own = append(own, "HOME="+c.Home, "TMPDIR="+temp)
	if c.Transport != "" {
		own = append(own, "MCP_TRANSPORT="+c.Transport)
	}
	if c.Port > 0 {
		port := strconv.Itoa(c.Port)
		own = append(own, "MCP_PORT="+port, "FASTMCP_PORT="+port, "MCP_HOST=127.0.0.1")
	}
	if c.Network == Profile {
		own = append(own, ProxyVariables()...)
	}
	if c.Environment == nil {
		return own, nil
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
		own = slices.DeleteFunc(own, func(has string) bool { return strings.HasPrefix(has, name+"=") })
		own = append(own, name+"="+value)
	}
	return own, nil
}

// ProxyVariables say where the egress proxy is, to programs that ask.
func ProxyVariables() (lines []string) {
	const at, not = "http://127.0.0.1:3128", "localhost,127.0.0.1,::1"
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		lines = append(lines, name+"="+at, strings.ToLower(name)+"="+at)
	}
	return append(lines, "NO_PROXY="+not, "no_proxy="+not, "NODE_USE_ENV_PROXY=1")
}

// needed are variables without which a program of Windows does not start.
var needed = []string{"SYSTEMROOT", "SYSTEMDRIVE", "PATHEXT", "COMSPEC", "WINDIR", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "PROGRAMFILES"}

// Risky says whether a variable makes programs run code or load libraries that their
// command does not name. By -e such ones work, with a warning; a registry entry may set none.
func Risky(name string) bool {
	return slices.ContainsFunc([]string{"LD_", "DYLD_", "GIT_CONFIG"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) || slices.Contains(risky, name)
}

// risky are variables by which interpreters, libraries and common tools run or load what is
// named in them.
var risky = []string{
	"NODE_OPTIONS", "NODE_PATH", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONWARNINGS", "PERL5OPT", "PERL5LIB", "RUBYOPT", "RUBYLIB", "PHPRC", "PHP_INI_SCAN_DIR",
	"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "DOTNET_STARTUP_HOOKS", "GCONV_PATH", "OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES",
	"BASH_ENV", "ENV", "PROMPT_COMMAND", "EDITOR", "VISUAL", "PAGER", "LESSOPEN", "LESSCLOSE", "SSH_ASKPASS",
	"GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_EXEC_PATH", "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND", "GIT_TEMPLATE_DIR", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_PAGER",
}
