package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge"
)

// Exit codes.
const (
	ExitOK         = 0
	ExitFault      = 1   // the configuration cannot be served, or something broke
	ExitUsage      = 2   // the command line is wrong
	ExitTool       = 3   // the tool that was called reports a failure
	ExitProtocol   = 4   // the server answered with an error
	ExitConnection = 5   // the server could not be reached; from 10 on: see doctor.Classes
	ExitMissing    = 6   // there is no such workload, group or secret
	ExitTaken      = 7   // the name or the port is taken
	ExitSandbox    = 8   // no engine, sandbox or grade that was asked for
	ExitRefused    = 9   // a rule refuses it
	ExitBuild      = 42  // an image cannot be built
	ExitPull       = 43  // an image cannot be had
	ExitStart      = 44  // the server ended, or did not introduce itself in time
	ExitLogin      = 45  // somebody has to log in
	ExitSignal     = 128 // plus the number of the signal
)

// ErrInterrupted is the error of a command that the user interrupted.
var ErrInterrupted = errors.New("interrupted")

// errTerminated and errHungUp are the errors of those that SIGTERM and SIGHUP ended.
var (
	errTerminated = fmt.Errorf("%w by SIGTERM", ErrInterrupted)
	errHungUp     = fmt.Errorf("%w by SIGHUP", ErrInterrupted)
)

// UsageError is a mistake in the command line.
type UsageError struct{ what string }

func (e *UsageError) Error() string { return e.what }

// Usagef is a UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// Said is the error of a failure that is already printed, which ends with an exit code.
func Said(code int) error { return &saidError{code} }

type saidError struct{ code int }

func (e *saidError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// Brief is a text of a stranger, cut and in quotes, for an error.
func Brief(text string) string { return strconv.Quote(edge.Brief(text)) }

// Naming is a text that names a workload: its name stands before it where it does not.
func Naming(name, text string) string {
	inName := func(r rune) bool {
		return r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if words := strings.FieldsFunc(text, func(r rune) bool { return !inName(r) }); slices.Contains(words, name) {
		return text
	}
	return name + ": " + text
}
