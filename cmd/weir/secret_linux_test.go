package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge/edgetest"
)

// typist is somebody at the terminal of a command.
type typist struct {
	t        *testing.T
	cmd      *exec.Cmd
	terminal *os.File
	shown    *os.File
	read     *bufio.Reader
	all      strings.Builder
}

// atATerminal starts a command on a terminal of its own; stdin is that, too, where it is nil.
func atATerminal(t *testing.T, stdin io.Reader, environ []string, args ...string) *typist {
	t.Helper()
	y := &typist{t: t}
	y.shown, y.terminal = pseudoTerminal(t, 200, 50)
	y.read = bufio.NewReader(y.shown)
	ctx, cancel := context.WithTimeout(t.Context(), edgetest.Patience)
	t.Cleanup(cancel)
	y.cmd = exec.CommandContext(ctx, "weir", args...)
	y.cmd.Env = append(environ, "PATH="+os.Getenv("PATH"))
	y.cmd.Stdin, y.cmd.Stdout, y.cmd.Stderr = y.terminal, y.terminal, y.terminal
	y.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1}
	if stdin != nil {
		y.cmd.Stdin = stdin
	}
	if err := y.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = y.cmd.Process.Kill(); _ = y.terminal.Close() }) // it has ended, mostly
	context.AfterFunc(ctx, func() { _ = y.terminal.Close() })              // whoever waits for a text in vain is told
	return y
}

// until reads what is shown, up to a text.
func (y *typist) until(text string) {
	y.t.Helper()
	for !strings.HasSuffix(y.all.String(), text) {
		c, err := y.read.ReadByte()
		if err != nil {
			y.t.Fatalf("no %q: %q, %v", text, y.all.String(), err)
		}
		y.all.WriteByte(c)
	}
}

// types types a line, when the terminal shows nothing that is typed.
func (y *typist) types(line string) {
	y.t.Helper()
	edgetest.Until(y.t, "what is typed is not shown", func() bool { return !y.echoes() })
	if _, err := y.shown.WriteString(line); err != nil {
		y.t.Fatal(err)
	}
}

func (y *typist) echoes() bool {
	state, err := unix.IoctlGetTermios(int(y.terminal.Fd()), unix.TCGETS)
	if err != nil {
		y.t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

// ends waits for the end, and returns the exit code.
func (y *typist) ends() int {
	_ = y.cmd.Wait() // its code is looked at
	return y.cmd.ProcessState.ExitCode()
}

// Passwords and values are asked for on the terminal, which shows neither, also where the value
// comes by a pipe.
func TestSecretsAreTypedUnseen(t *testing.T) {
	home := t.TempDir()
	environ := []string{"WEIR_HOME=" + home}
	const password, value = "typed-password", "typed-value"

	y := atATerminal(t, nil, environ, "secret", "setup")
	y.until("New password: ")
	y.types(password + "\n")
	y.until("The same once more: ")
	y.types("another one\n")
	y.until("the second password is another one than the first")
	if code := y.ends(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(filepath.Join(home, "data")); err == nil {
		t.Error("something was set up")
	}
	y = atATerminal(t, nil, environ, "secret", "setup")
	y.until("New password: ")
	y.types(password + "\n")
	y.until("The same once more: ")
	y.types(password + "\n")
	y.until("secrets are kept in ")
	if code := y.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	all := y.all.String()

	y = atATerminal(t, nil, environ, "secret", "set", "TOKEN")
	y.until("Password of your secrets: ")
	y.types(password + "\n")
	y.until("TOKEN: ")
	y.types(value + "\n")
	y.until("TOKEN is kept")
	if code := y.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	all += y.all.String()

	y = atATerminal(t, strings.NewReader("piped-value\n"), environ, "secret", "set", "PIPED")
	y.until("Password of your secrets: ")
	y.types(password + "\n")
	y.until("PIPED is kept")
	if code := y.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	all += y.all.String()
	for _, one := range []string{password, value, "piped-value"} {
		if strings.Contains(all, one) {
			t.Errorf("%s was shown: %q", one, all)
		}
	}

	y = atATerminal(t, nil, environ, "secret", "get", "TOKEN")
	y.until("Password of your secrets: ")
	y.types("a wrong password\n")
	y.until("the terminal: secrets in ")
	if code := y.ends(); code != 1 || strings.Contains(y.all.String(), "a wrong password") {
		t.Errorf("exit code %d, %q", code, y.all.String())
	}
	y = atATerminal(t, nil, environ, "secret", "get", "TOKEN")
	y.until("Password of your secrets: ")
	y.types(password + "\n")
	y.until(value + "\r\n") // with a line break, on a terminal
	if code := y.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Who interrupts a question has a terminal that shows again what is typed.
func TestSecretQuestionIsInterrupted(t *testing.T) {
	y := atATerminal(t, nil, []string{"WEIR_HOME=" + t.TempDir()}, "secret", "setup")
	y.until("New password: ")
	y.types("half a pass\x03")
	if code := y.ends(); code != cli.ExitSignal+2 {
		t.Errorf("exit code %d", code)
	}
	if !y.echoes() {
		t.Error("the terminal shows nothing any more")
	}
}
