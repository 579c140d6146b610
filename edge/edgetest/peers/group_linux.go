package peers

import (
	"os/exec"
	"syscall"
)

// groupAttr makes a child lead a process group, and lets the kernel end it when
// its starter is gone, even one that was killed.
func groupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// killGroup ends at once what is left of a command's group. It may be called
// right after the command has ended: the kernel gives numbers in a circle, and
// not one that a living group has.
func killGroup(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
