//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// judge runs a filter as the kernel does, on a call of an architecture.
func judge(t *testing.T, p []unix.SockFilter, arch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	var data [64]byte
	binary.LittleEndian.PutUint32(data[atNumber:], nr)
	binary.LittleEndian.PutUint32(data[atArch:], arch)
	for i, a := range args {
		binary.LittleEndian.PutUint64(data[16+8*i:], a)
	}
	var acc uint32
	for pc := 0; pc < len(p); pc++ {
		in := p[pc]
		jump := func(yes bool) {
			if yes {
				pc += int(in.Jt)
			} else {
				pc += int(in.Jf)
			}
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = binary.LittleEndian.Uint32(data[in.K:])
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			acc &= in.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(acc == in.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(acc >= in.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(acc&in.K != 0)
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(in.K)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("instruction %d: %#v", pc, in)
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

// conditional are the calls that are judged by their arguments.
var conditional = []uint32{
	unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_IOCTL, unix.SYS_SOCKET, unix.SYS_KILL, unix.SYS_TKILL,
	unix.SYS_TGKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO, unix.SYS_PRLIMIT64, unix.SYS_SETRLIMIT,
}

// TestFilterNumbers holds the filter to its list, number by number.
func TestFilterNumbers(t *testing.T) {
	for _, s := range []setup{{guard: 1}, {guard: 1, noUnix: true, noInet: true, landlock: true}} {
		p, allowed := filter(s), s.allowed()
		judged := func(nr uint32) bool {
			return s.landlock && (slices.Contains(attributeCalls[:], nr) || slices.ContainsFunc(slices.Concat(modeCalls, ownerCalls), func(c placed) bool { return c.nr == nr }))
		}
		if len(p) > 4096 {
			t.Fatalf("%d instructions, and the kernel takes 4,096", len(p))
		}
		last := slices.Max(allowed)
		for nr := uint32(0); nr < 1000; nr++ {
			want := eperm
			switch {
			case slices.Contains(conditional, nr), s.noUnix && nr == unix.SYS_SOCKETPAIR, judged(nr):
				continue
			case slices.Contains(allowed, nr):
				want = allow
			case nr > last:
				want = enosys
			}
			if got := judge(t, p, nativeArch, nr); got != want {
				t.Errorf("call %d: %#x, want %#x", nr, got, want)
			}
			for _, arch := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, 0} {
				if got := judge(t, p, arch, nr); got != kill {
					t.Errorf("call %d of architecture %#x: %#x, want it killed", nr, arch, got)
				}
			}
		}
	}
}

// TestFilterRefuses names the calls that a sandbox must refuse whatever the list says.
func TestFilterRefuses(t *testing.T) {
	p := filter(setup{guard: 1})
	for _, nr := range []uint32{
		unix.SYS_PERSONALITY, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_BPF, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT,
		unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
		unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_USERFAULTFD,
		unix.SYS_PERF_EVENT_OPEN, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE,
		unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_CHROOT, unix.SYS_ACCT, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SYSLOG,
		unix.SYS_QUOTACTL, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_SETHOSTNAME, unix.SYS_FANOTIFY_INIT, unix.SYS_MBIND,
		unix.SYS_VHANGUP, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_NFSSERVCTL, unix.SYS_PROCESS_MADVISE,
	} {
		if got := judge(t, p, nativeArch, nr); got != eperm {
			t.Errorf("call %d: %#x, want EPERM", nr, got)
		}
	}
}

// TestFilterArguments holds the calls that depend on what they are given.
func TestFilterArguments(t *testing.T) {
	all, landlocked := filter(setup{guard: 1}), filter(setup{guard: 4711, noUnix: true, noInet: true, landlock: true})
	const high = uint64(1) << 32
	uid, gid := uint64(unix.Getuid()), uint64(unix.Getgid())
	minus := func(n int) uint64 { return uint64(int64(-n)) }
	for _, c := range []struct {
		name string
		p    []unix.SockFilter
		nr   uint32
		args []uint64
		want uint32
	}{
		{"a thread", all, unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, allow},
		{"a user namespace", all, unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, eperm},
		{"a network namespace", all, unix.SYS_CLONE, []uint64{unix.CLONE_NEWNET}, eperm},
		{"clone3", all, unix.SYS_CLONE3, nil, enosys},
		{"TIOCSTI", all, unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, eperm},
		{"TIOCSTI in its low half", all, unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI | high}, eperm},
		{"TIOCLINUX", all, unix.SYS_IOCTL, []uint64{0, tioclinux | 7*high}, eperm},
		{"TCGETS", all, unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, allow},
		{"stream", all, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, allow},
		{"datagram", all, unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_DGRAM}, allow},
		{"raw", all, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_RAW | unix.SOCK_NONBLOCK, 1}, eperm},
		{"SOCK_PACKET", all, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_PACKET}, eperm},
		{"AF_PACKET", all, unix.SYS_SOCKET, []uint64{unix.AF_PACKET, unix.SOCK_RAW}, eperm},
		{"AF_VSOCK", all, unix.SYS_SOCKET, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, eafno},
		{"AF_ALG", all, unix.SYS_SOCKET, []uint64{unix.AF_ALG, unix.SOCK_SEQPACKET}, eafno},
		{"AF_UNIX", all, unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_STREAM}, allow},
		{"routes", all, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, allow},
		{"audit", all, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, eafno},
		{"SIGTERM to the helper", all, unix.SYS_KILL, []uint64{1, 15}, eperm},
		{"SIGTERM to all", all, unix.SYS_KILL, []uint64{minus(1), 15}, allow},
		{"SIGTERM to another", all, unix.SYS_KILL, []uint64{2, 15}, allow},
		{"the helper's limits", all, unix.SYS_PRLIMIT64, []uint64{1, unix.RLIMIT_CPU, 4096}, eperm},
		{"limits at a high address", all, unix.SYS_PRLIMIT64, []uint64{1, unix.RLIMIT_CPU, 16 * high}, eperm},
		{"limits of another, read", all, unix.SYS_PRLIMIT64, []uint64{1, unix.RLIMIT_CPU, 0, 4096}, allow},
		{"limits of one's own", all, unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CPU, 4096}, allow},
		{"the mark of a process", all, unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_MSGQUEUE, 4096}, eperm},
		{"the mark in its low half", all, unix.SYS_PRLIMIT64, []uint64{high, unix.RLIMIT_MSGQUEUE | high, 16 * high}, eperm},
		{"the mark, read", all, unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_MSGQUEUE, 0, 4096}, allow},
		{"the mark, by the older call", all, unix.SYS_SETRLIMIT, []uint64{unix.RLIMIT_MSGQUEUE | high, 4096}, eperm},
		{"another limit, by the older call", all, unix.SYS_SETRLIMIT, []uint64{unix.RLIMIT_NOFILE, 4096}, allow},
		{"landlock: AF_UNIX", landlocked, unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_STREAM}, eafno},
		{"landlock: AF_INET", landlocked, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_DGRAM}, eafno},
		{"landlock: AF_INET6", landlocked, unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_STREAM}, eafno},
		{"landlock: a pair of streams", landlocked, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, allow},
		{"landlock: a pair of datagrams", landlocked, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_DGRAM}, eperm},
		{"setuid", all, unix.SYS_FCHMOD, []uint64{3, 0o4755}, allow},
		{"an attribute", all, unix.SYS_FSETXATTR, nil, allow},
		{"another owner", all, unix.SYS_FCHOWN, []uint64{3, uid + 1, gid}, allow},
		{"landlock: a mode", landlocked, unix.SYS_FCHMODAT, []uint64{minus(100), 4096, 0o1777}, allow},
		{"landlock: setuid", landlocked, unix.SYS_FCHMOD, []uint64{3, 0o4755}, eperm},
		{"landlock: setgid", landlocked, unix.SYS_FCHMODAT, []uint64{minus(100), 4096, 0o2755}, eperm},
		{"landlock: setuid, as the kernel cuts it", landlocked, unix.SYS_FCHMOD, []uint64{3, 0o4755 | high}, eperm},
		{"landlock: fchmodat2", landlocked, unix.SYS_FCHMODAT2, []uint64{minus(100), 4096, 0o4755}, enosys},
		{"landlock: one's own file", landlocked, unix.SYS_FCHOWN, []uint64{3, uid, gid}, allow},
		{"landlock: no change", landlocked, unix.SYS_FCHOWNAT, []uint64{minus(100), 4096, minus(1), minus(1)}, allow},
		{"landlock: another owner", landlocked, unix.SYS_FCHOWN, []uint64{3, uid + 1, gid}, eperm},
		{"landlock: another owner, high bits", landlocked, unix.SYS_FCHOWN, []uint64{3, uid + 1 | high, gid}, eperm},
		{"landlock: another group", landlocked, unix.SYS_FCHOWNAT, []uint64{minus(100), 4096, uid, gid + 1}, eperm},
		{"landlock: another group alone", landlocked, unix.SYS_FCHOWN, []uint64{3, minus(1), gid + 1}, eperm},
		{"landlock: an attribute", landlocked, unix.SYS_FSETXATTR, nil, enotsup},
		{"landlock: an attribute less", landlocked, unix.SYS_LREMOVEXATTR, nil, enotsup},
		{"landlock: an attribute at a directory", landlocked, unix.SYS_SETXATTRAT, nil, enosys},
		{"landlock: an attribute less there", landlocked, unix.SYS_REMOVEXATTRAT, nil, enosys},
		{"landlock: the helper", landlocked, unix.SYS_TGKILL, []uint64{4711, 4711, 9}, eperm},
		{"landlock: the helper's group", landlocked, unix.SYS_KILL, []uint64{minus(4711), 9}, eperm},
	} {
		if got := judge(t, c.p, nativeArch, c.nr, c.args...); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
	for _, c := range slices.Concat(modeCalls, ownerCalls) { // each form, the older ones, too
		args := make([]uint64, 6)
		args[c.at] = 0o6000 // a mode, or an owner
		if got := judge(t, landlocked, nativeArch, c.nr, args...); got != eperm {
			t.Errorf("call %d: %#x, want EPERM", c.nr, got)
		}
	}
	for _, nr := range attributeCalls {
		if got := judge(t, landlocked, nativeArch, nr); got != enotsup {
			t.Errorf("call %d: %#x, want EOPNOTSUPP", nr, got)
		}
	}
}

// TestV21 tries each call that the filter leaves out, and each entry by which the kernel can
// be asked in another way.
func TestV21Calls(t *testing.T) {
	helper, probe := programs(t)
	allowed := setup{}.allowed()
	var tries []string
	want := map[string]string{}
	for nr := uint32(0); nr < 480; nr++ {
		if nr == 335 || nr == 336 { // uretprobe, uprobe: the kernel's own, which it shows to no filter
			continue
		}
		if slices.Contains(allowed, nr) || slices.Contains(conditional, nr) && nr != unix.SYS_CLONE3 {
			continue
		}
		try := fmt.Sprintf("call:%d", nr)
		tries, want[try] = append(tries, try), "refused: operation not permitted"
		if nr > slices.Max(allowed) || nr == unix.SYS_CLONE3 {
			want[try] = "refused: function not implemented"
		}
	}
	for try, said := range map[string]string{
		"clone:0x10000000": "refused: operation not permitted",
		"clone:0x40000000": "refused: operation not permitted",
		"clone:0":          "made",
		"ioctl:0x5412":     "refused: operation not permitted",
		"ioctl:0x541c":     "refused: operation not permitted",
		"ioctl:0x5401":     "refused: inappropriate ioctl for device",
		"socket:2,3,1":     "refused: operation not permitted",
		"socket:17,3,768":  "refused: operation not permitted",
		"socket:40,1,0":    "refused: address family not supported by protocol",
		"socket:38,5,0":    "refused: address family not supported by protocol",
		"socket:16,3,9":    "refused: address family not supported by protocol",
		"socket:16,3,0":    "made",
	} {
		tries, want[try] = append(tries, try), said
	}
	bare := runExec(t, helper, "guard=1", probe, "ioctl:0x5412", "child:int80:20", "socket:16,3,9")
	entries := []string{"child:int80:20", "child:int80:26", "child:x32:39", "child:x32:101"}
	if strings.Contains(bare["child:int80:20"], "exit status 2") { // a fault, by which a kernel without that entry answers: in virtual machines it may be off
		t.Log("this kernel has no entry for programs of 32 bits")
		entries = entries[2:]
	}
	if x32Bit != 0 {
		for _, try := range entries {
			tries, want[try] = append(tries, try), "killed by bad system call"
		}
	}
	got := runExec(t, helper, "filter=1,guard=1", append([]string{probe}, tries...)...)
	for _, try := range tries {
		if got[try] != want[try] {
			t.Errorf("%s: %q, want %q", try, got[try], want[try])
		}
	}
	// The table shows something only when the same is not refused without a filter.
	for try, said := range bare {
		if said == want[try] {
			t.Errorf("without a filter, too, %s: %q", try, said)
		}
	}
}

// programs builds the helper and the probe.
func programs(t *testing.T) (helper, probe string) {
	t.Helper()
	dir := t.TempDir()
	helper, probe = filepath.Join(dir, "weir-inside"), filepath.Join(dir, "probe")
	for file, from := range map[string]string{helper: ".", probe: "../../edge/edgetest/probe"} {
		cmd := exec.Command("go", "build", "-o", file, from)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v: %s", from, err, out)
		}
	}
	return helper, probe
}

// runExec has the helper become a program, and returns what the probe said of each try.
func runExec(t *testing.T, helper, setup string, argv ...string) map[string]string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(helper, append([]string{"exec", setup, "/"}, argv...)...)
	cmd.ExtraFiles = []*os.File{w}
	out, err := cmd.Output()
	_ = w.Close()
	if said, _ := io.ReadAll(r); len(said) > 0 {
		t.Fatalf("the helper: %s", said)
	}
	_ = r.Close()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	said := map[string]string{}
	for line := range strings.Lines(string(out)) {
		try, result, _ := strings.Cut(strings.TrimSpace(line), " = ")
		said[try] = result
	}
	return said
}
