package serve

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// forgetProgram takes the pages of the program's own file out of the process: those that its
// start has read all over, and those around what was used, count as its memory, and most are
// not used again. The system keeps them for a while, and those that are used are back within a
// microsecond, some at a time.
func forgetProgram() {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer maps.Close()
	for _, m := range asInFile(maps, path) {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.start, m.end-m.start, syscall.MADV_DONTNEED) // at worst it stays
	}
}

// mapping is a piece of the process's memory.
type mapping struct{ start, end uintptr }

// asInFile returns the mappings of a file that cannot be written to and of which no page is
// another than in the file (a debugger, and the linker of a program that can lie anywhere, make
// such pages), from a text as that of /proc/self/smaps, proc(5).
func asInFile(smaps io.Reader, path string) (all []mapping) {
	var now mapping // the zero value for one that is not wanted
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) < 2:
		case !strings.HasSuffix(words[0], ":"): // START-END PERMISSIONS OFFSET DEVICE INODE PATH
			now = mapping{}
			from, to, _ := strings.Cut(words[0], "-")
			start, err := strconv.ParseUint(from, 16, 64)
			end, wrong := strconv.ParseUint(to, 16, 64)
			if err == nil && wrong == nil && len(words) >= 6 && strings.Join(words[5:], " ") == path && !strings.Contains(words[1], "w") {
				now = mapping{uintptr(start), uintptr(end)}
			}
		case words[0] == "Anonymous:" && words[1] == "0" && now != mapping{}:
			all = append(all, now)
		}
	}
	return all
}
