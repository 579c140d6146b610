package cli

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/workload"
)

// Codes of errors that no manager has, as --format json says them.
const (
	codeConnection  workload.Code = "connection"  // the server could not be reached
	codeProtocol    workload.Code = "protocol"    // it answered with an error
	codeInterrupted workload.Code = "interrupted" // by a signal
)

// why is an error as the user is told it.
type why struct {
	workload.Error
	exit  int
	usage bool   // the command line is wrong
	said  string // all of it, for people
	step  string // what to do next, as it ends what is said
}

// whyOf says why a command failed.
func whyOf(cmd *cobra.Command, err error) why {
	var (
		usage      *UsageError
		known      *workload.Error
		connection *client.ConnectionError
		protocol   *client.ProtocolError
	)
	w := why{exit: ExitFault, said: err.Error()}
	w.Code = workload.CodeFault
	switch {
	case errors.As(err, &usage):
		w.exit, w.usage, w.Code, w.Next = ExitUsage, true, workload.CodeInvalid, "`"+cmd.CommandPath()+" --help`"
	case errors.As(err, &known):
		w.exit, w.Code, w.Field, w.Next = known.Code.Exit(), known.Code, known.Field, known.Next
		if w.Field != "" && !strings.Contains(w.said, w.Field) {
			w.said = w.Field + ": " + w.said
		}
		w.Message, w.step = w.said, Advised(w.Next)
		switch {
		case w.Next == "":
		case strings.Contains(w.said, "\n"): // it is not about the last line
			w.said += "\nnext: " + w.step
		default:
			w.said += ": " + w.step
		}
	case door.InUse(err):
		w.exit, w.Code = ExitTaken, workload.CodeTaken
	case client.NeedsLogin(err):
		w.exit, w.Code = ExitLogin, workload.CodeLogin
	case errors.As(err, &connection):
		w.exit, w.Code, w.Next = ExitConnection, codeConnection, connection.Next
	case errors.As(err, &protocol):
		w.exit, w.Code, w.Next = ExitProtocol, codeProtocol, protocol.Next
	case errors.Is(err, errHungUp):
		w.exit, w.Code = ExitSignal+1, codeInterrupted
	case errors.Is(err, errTerminated):
		w.exit, w.Code = ExitSignal+15, codeInterrupted
	case errors.Is(err, ErrInterrupted):
		w.exit, w.Code = ExitSignal+2, codeInterrupted
	}
	if known == nil {
		w.Message, w.step = strings.TrimSuffix(w.said, ": "+w.Next), w.Next
	}
	return w
}

var bare = regexp.MustCompile("^weir( [^\\s,;`]+)+$")

// Advised is what to do next, for people: a command alone is put into backticks.
func Advised(next string) string {
	if bare.MatchString(next) {
		return "`" + next + "`"
	}
	return next
}

// writeJSON writes the error as one line for programs.
func (w *why) writeJSON(out io.Writer) {
	var all struct {
		Error workload.Error `json:"error"`
	}
	all.Error = w.Error
	_ = PrintJSON(out, all, "") // there is nobody else to tell
}

// Gravest is the exit code of a command that failed in several ways: the one that its user has
// to know of first.
func Gravest(codes []int) int {
	for _, code := range []int{ExitSignal + 2, ExitSignal + 15, ExitSignal + 1, ExitFault, ExitBuild, ExitPull, ExitStart, ExitLogin, ExitRefused, ExitSandbox, ExitTaken, ExitConnection, ExitUsage, ExitMissing} {
		if slices.Contains(codes, code) {
			return code
		}
	}
	return slices.Max(append(codes, ExitOK)) // one that is in no order yet is a failure all the same
}

// Fail prints an error and returns its exit code.
func (a *App) Fail(cmd *cobra.Command, err error) int {
	said := new(saidError)
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &said):
		return said.code
	}
	w := whyOf(cmd, err)
	if WantsJSON(cmd) {
		w.writeJSON(a.Err)
		return w.exit
	}
	for line := range strings.Lines(w.said) {
		line = edge.Clean(strings.TrimSuffix(line, "\n"))
		if said, ok := strings.CutSuffix(line, w.step); ok {
			line = said + a.Paint(a.Err, Advice, w.step)
		}
		fmt.Fprintf(a.Err, "%s %s\n", a.Paint(a.Err, Wrong, cmd.CommandPath()+":"), line)
	}
	connection, protocol := new(client.ConnectionError), new(client.ProtocolError)
	switch {
	case w.exit == ExitUsage && w.usage:
		fmt.Fprintln(a.Err, a.Paint(a.Err, Dim, fmt.Sprintf("See `%s --help`.", cmd.CommandPath())))
	case errors.As(err, &connection):
		a.more(cmd, connection.Asks, connection.Body)
	case errors.As(err, &protocol):
		a.more(cmd, protocol.Asks, string(protocol.More))
	}
	return w.exit
}

// more prints what a server answered when it refused: which credential it asks
// for, and with -v its words.
func (a *App) more(cmd *cobra.Command, asks, body string) {
	if asks != "" {
		fmt.Fprintln(a.Err, a.Paint(a.Err, Dim, "The server asks for "+edge.Clean(asks)))
	}
	verbose := cmd.Flags().Lookup("verbose")
	switch body = strings.TrimSpace(edge.Clean(body)); {
	case verbose == nil || body == "":
	case verbose.Value.String() == "true":
		fmt.Fprintln(a.Err, a.Paint(a.Err, Dim, "The server said: "+body))
	default:
		fmt.Fprintln(a.Err, a.Paint(a.Err, Dim, "With -v you see what the server said."))
	}
}
