package workload

import (
	"context"
	"time"

	"github.com/weir-edge/weir/edge/workload/logs"
)

// State is what a workload does at the moment, by the word of its manager.
type State string

// The states of workloads.
const (
	Starting        State = "starting" // its first answer is waited for
	Running         State = "running"
	Unhealthy       State = "unhealthy"       // probes fail, or it is being restarted
	AuthRetrying    State = "auth_retrying"   // its credential is refused, and tried again from time to time
	Stopping        State = "stopping"        //
	Stopped         State = "stopped"         //
	Removing        State = "removing"        //
	Failed          State = "error"           // it does not start, or ends again and again
	Unauthenticated State = "unauthenticated" // somebody has to log in
	PolicyStopped   State = "policy_stopped"  // a rule refuses it
	Unknown         State = "unknown"         // nobody who knows has said
)

// Status is what a manager says of a workload. The names in JSON up to group are those that
// scripts of the reference's list read.
type Status struct {
	Name          string            `json:"name"`
	Package       string            `json:"package"` // the server as it was named: a command, an image, a URL
	URL           string            `json:"url"`
	Port          int               `json:"port"`
	TransportType string            `json:"transport_type"` // stdio, streamable-http or sse
	ProxyMode     string            `json:"proxy_mode"`
	Status        State             `json:"status"`
	StatusContext string            `json:"status_context,omitempty"` // why, for people
	CreatedAt     time.Time         `json:"created_at"`
	StartedAt     *time.Time        `json:"started_at,omitempty"` // nil while it does not run
	Labels        map[string]string `json:"labels,omitempty"`
	Group         string            `json:"group"`
	Tools         []string          `json:"tools,omitempty"` // that its filter lets through; none for all
	Remote        bool              `json:"remote"`

	Sandbox   string `json:"sandbox"` // the grade that holds: bwrap, landlock, none; "" for a URL
	Isolation bool   `json:"isolation"`
	Processes int    `json:"processes"` // now
	Restarts  int    `json:"restarts"`  // since it was started
	Reason    string `json:"reason,omitempty"`
	RSSBytes  int64  `json:"rssBytes,omitempty"` // of its processes
}

// Detail is everything that a manager knows of a workload. It holds no value of a secret.
type Detail struct {
	Status
	Wish     State    `json:"wish"`            // running or stopped: what the user wants
	Command  []string `json:"command"`         // as given
	RunAs    []string `json:"runAs,omitempty"` // as run, where that is another
	Manifest string   `json:"manifest"`        // YAML
	Failure  string   `json:"failure,omitempty"`
	Next     string   `json:"next,omitempty"`     // what to do about the failure
	Stderr   []string `json:"stderr,omitempty"`   // its last lines, the newest last
	Notes    []string `json:"notes,omitempty"`    // what the sandbox does not hold, and why
	Withheld []string `json:"withheld,omitempty"` // what clients do not see of its tools, and rules that name none
	Image    string   `json:"image,omitempty"`    // by digest, of what runs in containers; "" for others, and while it is not known
	Verified string   `json:"verified,omitempty"` // who signed that, or why it is not certain
}

// Event is a step of something that takes time. The last one has State, and Error when it
// failed.
type Event struct {
	Time  time.Time `json:"time"`
	Text  string    `json:"text,omitempty"` // for people, one line
	State State     `json:"state,omitempty"`
	URL   string    `json:"url,omitempty"`
	Error *Error    `json:"error,omitempty"`
}

// Line is one of a workload's log.
type Line = logs.Line

// Code says what kind of error it is. A command ends with its Exit.
type Code string

// The kinds of errors.
const (
	CodeFault    Code = "fault"     // something broke
	CodeInvalid  Code = "invalid"   // what was asked for makes no sense
	CodeNotFound Code = "not_found" // no such workload, group or secret
	CodeTaken    Code = "taken"     // the name or the port
	CodeSandbox  Code = "sandbox"   // no engine, sandbox or grade that was asked for
	CodeRefused  Code = "refused"   // by a rule
	CodePull     Code = "pull"      // the image cannot be had
	CodeBuild    Code = "build"     // the image cannot be built
	CodeStart    Code = "start"     // the server ended, or did not introduce itself in time
	CodeLogin    Code = "login"     // somebody has to log in
	CodeLocked   Code = "locked"    // somebody has to unlock the secrets
)

// Exit is the exit code of a command that ends with the error.
func (c Code) Exit() int {
	switch c {
	case CodeInvalid:
		return 2
	case CodeNotFound:
		return 6
	case CodeTaken:
		return 7
	case CodeSandbox:
		return 8
	case CodeRefused:
		return 9
	case CodeBuild:
		return 42
	case CodePull:
		return 43
	case CodeStart:
		return 44
	case CodeLogin:
		return 45
	}
	return 1
}

// Error is an error for the user. It holds no secret.
type Error struct {
	Code    Code   `json:"code"`
	Field   string `json:"field,omitempty"` // the flag or the field that it is about
	Message string `json:"message"`
	Next    string `json:"next,omitempty"` // what to type next

	Unchanged bool `json:"unchanged,omitempty"` // nothing was done: what was there before goes on

	// Passing says that waiting may cure it, whatever Code is.
	Passing bool `json:"-"`
}

func (e *Error) Error() string { return e.Message }

// Group is a set of workloads that belong together.
type Group struct {
	Name    string   `json:"name"`
	Members []string `json:"members"`
}

// LogOptions say which lines of a log are wanted.
type LogOptions = logs.Options

// RemoveOptions say how a workload is removed.
type RemoveOptions struct {
	Force     bool // also one that cannot be stopped or looked at
	KeepImage bool // that was built for it, though nothing else uses it

	KeepVolumes bool // since another one takes its place
}

// Manager keeps the workloads of one user. What takes time calls told with each step, the
// last one included, and returns the error of that. Errors are *Error where they are the
// user's.
type Manager interface {
	// Run keeps a new workload, described by a set of manifests of which one is the workload
	// itself, and starts it. With replace one of the same name is removed first. It ends when
	// the workload has introduced itself, has failed, or wait is over.
	Run(ctx context.Context, manifest []byte, replace bool, wait time.Duration, told func(Event)) error

	List(ctx context.Context) ([]Status, error) // sorted by name
	Inspect(ctx context.Context, name string) (*Detail, error)

	Start(ctx context.Context, name string, wait time.Duration, told func(Event)) error
	Restart(ctx context.Context, name string, wait time.Duration, told func(Event)) error
	Stop(ctx context.Context, name string, timeout time.Duration, told func(Event)) error
	Remove(ctx context.Context, name string, o RemoveOptions, told func(Event)) error // stops it first

	Logs(ctx context.Context, name string, o LogOptions, line func(Line)) error
	PruneLogs(ctx context.Context) (files int, bytes int64, err error) // of workloads that are gone

	Groups(ctx context.Context) ([]Group, error)
	CreateGroup(ctx context.Context, name string) error
	RemoveGroup(ctx context.Context, name string, withWorkloads bool, told func(Event)) error // members move to default
}
