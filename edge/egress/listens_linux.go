package egress

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// edgeListens reports whether a process of this program listens at a TCP port of this host:
// this one, or another edge. Those of other users it cannot see, unless it is root.
func edgeListens(port int) (bool, error) {
	sockets := map[string]bool{}
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		if err := listeners(name, port, sockets); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	if len(sockets) == 0 {
		return false, nil
	}
	own, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return false, err
	}
	own = programOf(own)
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return false, err
	}
	for _, p := range processes {
		exe, err := os.Readlink(p + "/exe")
		if err != nil || programOf(exe) != own {
			continue // it has ended, or is somebody else's
		}
		files, err := os.ReadDir(p + "/fd")
		if err != nil {
			continue
		}
		for _, f := range files {
			to, err := os.Readlink(p + "/fd/" + f.Name())
			if err == nil && sockets[to] {
				return true, nil
			}
		}
	}
	return false, nil
}

// programOf is the name of a program, by what a link to it says: also of one whose file has
// been replaced since.
func programOf(link string) string { return strings.TrimSuffix(filepath.Base(link), " (deleted)") }

// listeners adds the sockets that listen at a port, as links in /proc name them (proc(5),
// /proc/net/tcp).
func listeners(name string, port int, sockets map[string]bool) error {
	const listening = "0A"
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] != listening {
			continue
		}
		_, text, _ := strings.Cut(fields[1], ":")
		if n, err := strconv.ParseUint(text, 16, 16); err == nil && int(n) == port {
			sockets[fmt.Sprintf("socket:[%s]", fields[9])] = true
		}
	}
	return lines.Err()
}
