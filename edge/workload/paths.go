package workload

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
)

// Paths are the directories of what Weir keeps for one user (the XDG base directory
// specification 0.8). WEIR_HOME replaces all of them by directories below it.
type Paths struct {
	State  string // workloads, groups, the manager's lock and log
	Run    string // the manager's socket
	Config string // defaults, profiles, the list of files to hide
	Data   string // secrets
	Cache  string // what can be had again, and the helper
}

// PathsOf finds the directories by a look at the environment. The error names WEIR_HOME.
func PathsOf(environ func(name string) (string, bool)) (Paths, error) {
	get := func(name string) string {
		value, _ := environ(name)
		return value
	}
	if home := get("WEIR_HOME"); home != "" {
		if !filepath.IsAbs(home) {
			return Paths{}, fmt.Errorf("WEIR_HOME: %q is no absolute path", home)
		}
		state := filepath.Join(home, "state")
		return Paths{state, state, filepath.Join(home, "config"), filepath.Join(home, "data"), filepath.Join(home, "cache")}, nil
	}
	home := get("HOME")
	if home == "" && runtime.GOOS == "windows" {
		home = get("USERPROFILE")
	}
	var missing error
	root := func(variable string, otherwise ...string) string {
		// A relative path is to be ignored, says the specification.
		if dir := get(variable); filepath.IsAbs(dir) {
			return filepath.Join(dir, "weir")
		}
		if !filepath.IsAbs(home) {
			missing = errors.New("HOME is not set, or is no absolute path: set WEIR_HOME to a directory of your own, where Weir may keep its workloads")
		}
		return filepath.Join(append(append([]string{home}, otherwise...), "weir")...)
	}
	p := Paths{
		State: root("XDG_STATE_HOME", ".local", "state"), Config: root("XDG_CONFIG_HOME", ".config"),
		Data: root("XDG_DATA_HOME", ".local", "share"), Cache: root("XDG_CACHE_HOME", ".cache"),
	}
	if p.Run = p.State; filepath.IsAbs(get("XDG_RUNTIME_DIR")) {
		p.Run = filepath.Join(get("XDG_RUNTIME_DIR"), "weir")
	}
	if missing != nil {
		return Paths{}, missing
	}
	return p, nil
}

// Unusable is the error of a state directory that cannot be made, or written to.
func (p Paths) Unusable(err error) error {
	return misplaced("state directory: ", err, "see that you may write there, or set WEIR_HOME to a directory of your own, where Weir may keep its workloads")
}

// NoSocket is the error of a place of the manager's socket that cannot be reached, or made, as that
// of another user is whose XDG_RUNTIME_DIR is still set.
func NoSocket(err error) error {
	return misplaced("the manager's socket: ", err, "set XDG_RUNTIME_DIR to a directory of your own, or to nothing")
}

// misplaced is an error of a place, with what to do where the system refuses it.
func misplaced(what string, err error, next string) error {
	if !errors.As(err, new(*fs.PathError)) {
		next = ""
	}
	return &Error{Code: CodeFault, Message: what + err.Error(), Next: next}
}

// Workloads is the directory that has a directory for each workload.
func (p Paths) Workloads() string { return filepath.Join(p.State, "workloads") }

// Socket is where the manager answers.
func (p Paths) Socket() string { return filepath.Join(p.Run, "manager.sock") }

// at is the file that says where the manager that runs answers.
func (p Paths) at() string { return filepath.Join(p.State, "manager.at") }

// Lock is the file that the manager holds.
func (p Paths) Lock() string { return filepath.Join(p.State, "manager.lock") }

// Log is where a detached manager writes.
func (p Paths) Log() string { return filepath.Join(p.State, "manager.log") }

// groups is the file with the names of groups.
func (p Paths) groups() string { return filepath.Join(p.State, "groups.yaml") }

// gone is the directory of the logs of workloads that were removed.
func (p Paths) gone() string { return filepath.Join(p.State, "gone") }
