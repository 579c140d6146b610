package wasi

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// errno is an error number of WASI preview 1 (typenames.witx, errno).
type errno uint16

const (
	success     errno = 0
	eAcces      errno = 2
	eAgain      errno = 6
	eBadf       errno = 8
	eBusy       errno = 10
	eExist      errno = 20
	eFault      errno = 21
	eFbig       errno = 22
	eInval      errno = 28
	eIO         errno = 29
	eIsdir      errno = 31
	eLoop       errno = 32
	eMfile      errno = 33
	eNameTooBig errno = 37
	eNoent      errno = 44
	eNospc      errno = 51
	eNotdir     errno = 54
	eNotempty   errno = 55
	eNotsup     errno = 58
	eOverflow   errno = 61
	ePerm       errno = 63
	ePipe       errno = 64
	eRofs       errno = 69
	eSpipe      errno = 70
	eXdev       errno = 75
	eNotcapable errno = 76
)

// numbers are those of the system that have a number of their own here.
var numbers = []struct {
	of error
	is errno
}{
	{syscall.ENOTDIR, eNotdir}, {syscall.EISDIR, eIsdir}, {syscall.ENOTEMPTY, eNotempty}, {syscall.ELOOP, eLoop},
	{syscall.ENAMETOOLONG, eNameTooBig}, {syscall.ENOSPC, eNospc}, {syscall.EFBIG, eFbig}, {syscall.EROFS, eRofs},
	{syscall.EXDEV, eXdev}, {syscall.EBUSY, eBusy}, {syscall.EINVAL, eInval}, {syscall.EPERM, ePerm}, {syscall.EACCES, eAcces},
	{syscall.EMFILE, eMfile}, {syscall.ENFILE, eMfile}, {syscall.EBADF, eBadf},
	{fs.ErrNotExist, eNoent}, {fs.ErrExist, eExist}, {fs.ErrPermission, eAcces}, {fs.ErrInvalid, eInval}, {os.ErrClosed, eBadf}, {io.ErrClosedPipe, ePipe},
}

// numberOf is the error number for an error of the system's files.
func numberOf(err error) errno {
	if err == nil {
		return success
	}
	for _, n := range numbers {
		if errors.Is(err, n.of) {
			return n.is
		}
	}
	if strings.Contains(err.Error(), "path escapes from parent") { // os.Root has no value for it
		return eNotcapable
	}
	return eIO
}
