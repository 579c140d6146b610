package login

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"runtime"

	"github.com/weir-edge/weir/edge/oauth"
)

// browse opens a URL in the user's browser: the program that BROWSER names, else the
// system's way. No shell reads the URL, and the program gets it as its one argument. What
// the browser makes of it is not waited for.
func browse(text string) error {
	u, err := oauth.ParseURL(text, true) // http and https alone: no other scheme, and no flag
	if err != nil {
		return fmt.Errorf("the URL to open: %w", err)
	}
	program, args := opener()
	if program == "" {
		return errors.New("no way to open a browser is known here")
	}
	cmd := exec.Command(program, append(args, escaped(u))...)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("open a browser: %w", err)
	}
	go func() { _ = cmd.Wait() }() // ends with what opens the browser
	return nil
}

// opener is the program that opens URLs, and what stands before the URL.
func opener() (program string, args []string) {
	if own := os.Getenv("BROWSER"); own != "" {
		if path, err := exec.LookPath(own); err == nil { // one program: no list, and nothing to expand
			return path, nil
		}
	}
	switch runtime.GOOS {
	case "darwin":
		return "open", nil
	case "windows":
		return "rundll32", []string{"url.dll,FileProtocolHandler"}
	}
	for _, name := range []string{"xdg-open", "sensible-browser", "x-www-browser"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", nil
}

// escaped writes a URL so that nothing in it means anything to a shell that a script of the
// system may have in between.
func escaped(u *url.URL) string {
	var out []byte
	for _, c := range []byte(u.String()) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == '~',
			c == ':', c == '/', c == '?', c == '=', c == '&', c == '%', c == '+', c == ',', c == '@', c == '[', c == ']':
			out = append(out, c)
		default:
			out = fmt.Appendf(out, "%%%02X", c)
		}
	}
	return string(out)
}
