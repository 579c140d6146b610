package workload

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Run is Manager.Run.
func (k *Keeper) Run(ctx context.Context, manifest []byte, replace bool, wait time.Duration, told func(Event)) error {
	if len(manifest) > MaxManifest {
		return &Error{Code: CodeInvalid, Message: fmt.Sprintf("the manifests have %d bytes, and %d are the most", len(manifest), MaxManifest)}
	}
	facts, err := k.Edge.Read(manifest)
	if err == nil {
		err = checkName("workload", facts.Name)
	}
	if err == nil {
		err = k.knows(facts.Group)
	}
	if err != nil {
		return err
	}
	host, err := addressOf(ctx, facts.Host) // before anybody has to wait for this one
	if err != nil {
		return err
	}
	if replace {
		// What runs stays where what is to take its place cannot.
		would := *facts
		k.mu.Lock()
		err := k.choosePort(&would, host)
		k.mu.Unlock()
		if err == nil && k.Judge != nil {
			err = k.Judge(ctx, manifest, func(text string) { steps(told)(Event{Text: facts.Name + ": " + text}) })
		}
		if err == nil && k.Evict != nil {
			err = k.Evict(ctx, facts.Name)
		}
		if err != nil {
			e := *asError(err)
			e.Unchanged = true
			return &e
		}
		_, err = k.remove(ctx, facts.Name, true, nil, steps(told))
		if e := asError(err); e == nil {
			steps(told)(Event{Text: "removed " + facts.Name})
		} else if e.Code != CodeNotFound {
			return err
		} else if err = k.displace(facts.Name); err != nil {
			return err
		}
	}
	for tries := 1; ; tries++ {
		f := *facts
		w, err := k.create(&f, host, manifest)
		if err != nil {
			return err
		}
		w.heir = replace
		// Somebody else may have taken a port since it was chosen.
		again := func(err error) bool {
			var e *Error
			return facts.Port == 0 && tries < portTries && errors.As(err, &e) && e.Code == CodeTaken && e.Field == "--proxy-port"
		}
		err = w.await(ctx, w.begin(true), wait, func(e Event) {
			if told != nil && (e.Error == nil || !again(e.Error)) {
				told(e)
			}
		})
		if !again(err) {
			return err
		}
	}
}

// displace removes what is kept of a workload that no process keeps, such as that of a manager
// which does not run.
func (k *Keeper) displace(name string) error {
	left, err := openFolder(filepath.Join(k.Paths.Workloads(), name))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, edge.ErrHeld): // who has it is told by create
		return nil
	case err != nil:
		return err
	}
	return k.bury(left, name)
}

// steps passes events on, but for that one is the last: more follow.
func steps(told func(Event)) func(Event) {
	return func(e Event) {
		if told != nil && e.Text != "" {
			told(Event{Time: e.Time, Text: e.Text})
		}
	}
}

// create makes a new workload, whose turn the caller has. host is the address of its door.
func (k *Keeper) create(facts *Facts, host string, manifest []byte) (*one, error) {
	w := newOne(k, facts.Name)
	w.try()
	w.facts, w.now.Created, w.now.Foreground = facts, time.Now(), k.Foreground

	// 1. The name and the port are its own from here on.
	err := func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.all[w.name] != nil {
			return taken(w.name, "is there already")
		}
		if err := k.choosePort(facts, host); err != nil {
			return err
		}
		k.all[w.name] = w
		return nil
	}()
	if err != nil {
		return nil, err
	}

	// 2. Its directory.
	if manifest, err = withPort(manifest, facts.Port); err == nil {
		manifest, err = withWish(manifest, Running)
	}
	var f *folder
	if err == nil {
		f, err = k.makeFolder(w.name)
	}
	if err == nil {
		w.mu.Lock()
		w.describe(manifest)
		w.folder = f
		w.mu.Unlock()
		w.openLogs()
		if k.Foreground { // by its record it is known when this process is killed
			w.keep()
		}
		if err = writeOwn(f.manifest(), manifest); err != nil {
			err = errors.Join(err, k.bury(f, w.name))
		}
	}
	if err != nil {
		w.forget()
		w.release()
		var e *Error
		if !errors.As(err, &e) {
			err = fmt.Errorf("what is kept of %s: %w", w.name, err)
		}
		return nil, err
	}
	return w, nil
}

// makeFolder makes the directory of a workload. One that a process in the foreground left
// behind makes room.
func (k *Keeper) makeFolder(name string) (*folder, error) {
	path := filepath.Join(k.Paths.Workloads(), name)
	f, err := makeFolder(path)
	if !errors.Is(err, fs.ErrExist) {
		return f, err
	}
	left, err := openFolder(path)
	switch {
	case errors.Is(err, edge.ErrHeld): // by the manager, or by a process in the foreground
		return nil, taken(name, fmt.Sprintf("is there already: the process %d keeps it", readRecord(path).PID))
	case err != nil:
		return nil, err
	case !readRecord(path).Foreground:
		left.close()
		if k.Foreground {
			return nil, taken(name, "is there already")
		}
		return nil, taken(name, "has a directory that was not there when the manager started, "+path)
	}
	if err := k.bury(left, name); err != nil {
		return nil, err
	}
	return makeFolder(path)
}

func taken(name, how string) error {
	return &Error{Code: CodeTaken, Field: "--name", Message: fmt.Sprintf("the workload %s %s", name, how), Next: "give another --name, or take its place with --replace (if that was given, somebody was faster: try again)"}
}

// The ports from which doors without a given one have theirs, unless the user's defaults say
// others, and how many of them a run tries where other processes take what it has chosen.
const (
	firstPort, lastPort = 20000, 29999
	portTries           = 5
)

// portRange is where the doors without a given port have theirs.
func (k *Keeper) portRange() (first, last int, err error) {
	if k.Ports != nil {
		if first, last, err = k.Ports(); err != nil || first != 0 {
			return first, last, err
		}
	}
	return firstPort, lastPort, nil
}

// addressOf is the address of this machine that a host is. A name has a time to be looked up.
func addressOf(ctx context.Context, host string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "", &Error{Code: CodeInvalid, Field: "--host", Message: host + " is no address of this machine", Next: "give one that it has, or 0.0.0.0 for all"}
	case err != nil:
		return "", &Error{Code: CodeInvalid, Field: "--host", Message: err.Error()}
	}
	return ln.Addr().(*net.TCPAddr).AddrPort().Addr().Unmap().String(), ln.Close()
}

// choosePort gives a workload the port of its door: the one that is given, or the first free
// one from a place that its name determines; host is its address. k.mu is held.
func (k *Keeper) choosePort(f *Facts, host string) error {
	used := k.ports()
	if f.Port != 0 {
		taken := &Error{Code: CodeTaken, Field: "--proxy-port", Message: fmt.Sprintf("the port %d is that of the workload %s", f.Port, used[f.Port]), Next: "give another --proxy-port, or none"}
		switch used[f.Port] {
		case f.Name: // which is to be replaced
			return nil
		case "":
			ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(f.Port)))
			if err == nil {
				return ln.Close()
			}
			if taken.Message = err.Error(); !inUse(err) {
				return nil // Open says what is wrong
			}
		}
		return taken
	}
	first, last, err := k.portRange()
	if err != nil {
		return &Error{Code: CodeInvalid, Message: err.Error()}
	}
	h := fnv.New32a()
	h.Write([]byte(f.Name))
	count := uint32(last - first + 1)
	for i := range count {
		port := first + int((h.Sum32()%count+i)%count)
		if used[port] != "" {
			continue
		}
		ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			ln.Close()
			f.Port = port
			return nil
		}
		if i > 200 && !inUse(err) { // it is not for the port
			return &Error{Code: CodeInvalid, Field: "--host", Message: err.Error()}
		}
	}
	return &Error{Code: CodeTaken, Field: "--proxy-port", Message: fmt.Sprintf("no port from %d to %d is free", first, last), Next: "give a --proxy-port"}
}

// inUse reports whether somebody else listens at an address.
func inUse(err error) bool { return strings.Contains(err.Error(), "in use") }

// ports are those of the doors of all workloads, with their names; k.mu is held.
func (k *Keeper) ports() map[int]string {
	used := map[int]string{}
	for name, w := range k.all {
		w.mu.Lock()
		if w.facts != nil {
			used[w.facts.Port] = name
		}
		w.mu.Unlock()
	}
	for _, name := range k.others() {
		if Abandoned(filepath.Join(k.Paths.Workloads(), name)) {
			continue
		}
		text, _ := readOwn(filepath.Join(k.Paths.Workloads(), name, "manifest.yaml"), MaxManifest) // one that is none has no port
		if m, err := parseManifests(text); err == nil {
			port, _ := strconv.Atoi(m.get("spec", "proxyPort"))
			used[port] = name
		}
	}
	delete(used, 0)
	return used
}

// Abandoned reports whether a directory is that of a workload which ran in the foreground of a
// process that is gone.
func Abandoned(path string) bool {
	if !readRecord(path).Foreground {
		return false
	}
	f, err := openFolder(path)
	if err == nil {
		f.close()
	}
	return err == nil
}

// others are workloads on disk that other processes keep; k.mu is held.
func (k *Keeper) others() (all []string) {
	entries, _ := os.ReadDir(k.Paths.Workloads())
	for _, e := range entries {
		if checkName("workload", e.Name()) == nil && k.all[e.Name()] == nil {
			all = append(all, e.Name())
		}
	}
	return all
}
