//go:build linux

// Command weir-inside is the helper: the first process in every sandbox. It starts servers,
// hands their pipes to the manager over the link (edge/sandbox/link), reaps what is left
// without a parent, and when the link ends it ends everything inside and leaves.
//
//	weir-inside link SETUP            the helper, with the link as descriptor 3
//	weir-inside socket SETUP PATH [INSIDE DEVICE FILE]…
//	                                  the same in a container, with the link at a socket, and
//	                                  what is to be mounted where
//	weir-inside attached SETUP [INSIDE DEVICE FILE]…
//	                                  the same, with the link as standard input and output
//	weir-inside exec SETUP DIR CMD…   what the helper is between fork and exec of a server
//	weir-inside watch CMD…            starts CMD again when it ends
//	weir-inside hold                  the first process where an image is built, until its
//	                                  standard input ends
//	weir-inside put FILE              writes its standard input there
//	weir-inside quiet                 ends every other process but the first one
//	weir-inside wipe                  removes the directory that it is in
//	weir-inside probe                 does nothing, so that a sandbox can be tried
//
// It is read by nobody: its file has no read permission, so that the kernel makes it, and
// what it is before exec, undumpable from the first instruction on.
package main

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	mode := ""
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	switch {
	case mode == "link" && len(os.Args) == 3:
		if s, ok := parseSetup(os.Args[2]); ok {
			os.Exit(serveLink(s))
		}
	case mode == "socket" && len(os.Args) >= 4:
		if s, ok := parseSetup(os.Args[2]); ok {
			s.container = true
			err := connectLink(os.Args[3])
			if err == nil {
				err = mounted(os.Args[4:])
			}
			if err != nil {
				fatal(err.Error())
				os.Exit(1)
			}
			os.Exit(serveLink(s))
		}
	case mode == "attached" && len(os.Args) >= 3:
		if s, ok := parseSetup(os.Args[2]); ok {
			s.container, s.attached = true, true
			if err := mounted(os.Args[3:]); err != nil {
				fatal(err.Error())
				os.Exit(1)
			}
			os.Exit(serveLink(s))
		}
	case mode == "exec" && len(os.Args) > 4:
		if s, ok := parseSetup(os.Args[2]); ok {
			os.Exit(become(s, os.Args[3], os.Args[4:]))
		}
	case mode == "watch" && len(os.Args) > 2:
		os.Exit(watch(os.Args[2:]))
	case mode == "hold" && len(os.Args) == 2:
		os.Exit(hold())
	case mode == "put" && len(os.Args) == 3:
		os.Exit(put(os.Args[2]))
	case mode == "quiet" && len(os.Args) == 2:
		os.Exit(quiet())
	case mode == "wipe" && len(os.Args) == 2:
		os.Exit(wipe())
	case mode == "probe" && len(os.Args) == 2:
		return
	}
	fatal("usage: weir-inside link SETUP | socket SETUP PATH [INSIDE DEVICE FILE]… | attached SETUP [INSIDE DEVICE FILE]… | exec SETUP DIR COMMAND… | watch COMMAND… | hold | put FILE | quiet | wipe | probe; weir starts it")
	os.Exit(2)
}

func fatal(text string) {
	_, _ = unix.Write(2, []byte("weir-inside: "+text+"\n"))
}

// setup is what a sandbox holds, as the manager says it to the helper and the helper to what
// becomes a server: NAME=NUMBER with commas between.
type setup struct {
	filter   bool // system calls are filtered
	noUnix   bool // and Unix sockets are refused
	noInet   bool // and those of the internet
	landlock bool // a ruleset of Landlock is descriptor 4, and what it does not hold is filtered
	scope    bool // that ruleset is about abstract sockets alone
	drop     bool // capabilities are dropped
	files    uint // open files a process may have; 0 for as many as the manager
	procs    uint // processes and threads of the user namespace; 0 for no bound
	tag      uint // which process of the link this is, and all that it starts
	guard    int  // the helper's pid

	attached  bool // the link is the container's own standard input and output
	container bool // somebody else made the sandbox; servers are not told

	// ports are those that the helper listens on for what carries connections out; a server
	// is not told them.
	ports []int
}

func (s *setup) fields() map[string]any {
	return map[string]any{
		"filter": &s.filter, "nounix": &s.noUnix, "noinet": &s.noInet, "landlock": &s.landlock, "scope": &s.scope,
		"drop": &s.drop, "files": &s.files, "procs": &s.procs, "tag": &s.tag, "guard": &s.guard,
	}
}

func (s *setup) String() string {
	var all []string
	for name, field := range s.fields() {
		n := 0
		switch f := field.(type) {
		case *bool:
			if *f {
				n = 1
			}
		case *uint:
			n = int(*f)
		case *int:
			n = *f
		}
		if n != 0 {
			all = append(all, name+"="+strconv.Itoa(n))
		}
	}
	return strings.Join(all, ",")
}

// parseSetup reads what String writes. What it does not know is an error: it would not hold.
func parseSetup(text string) (setup, bool) {
	var s setup
	fields := s.fields()
	for _, one := range strings.Split(text, ",") {
		if one == "" {
			continue
		}
		name, value, _ := strings.Cut(one, "=")
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return s, false
		}
		if name == "port" {
			s.ports = append(s.ports, n)
			continue
		}
		switch f := fields[name].(type) {
		case *bool:
			*f = n == 1
		case *uint:
			*f = uint(n)
		case *int:
			*f = n
		default:
			return s, false
		}
	}
	return s, true
}
