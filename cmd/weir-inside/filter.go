//go:build linux

package main

import (
	"slices"

	"golang.org/x/sys/unix"
)

// What a filter answers.
const (
	allow   = unix.SECCOMP_RET_ALLOW
	kill    = unix.SECCOMP_RET_KILL_PROCESS
	eperm   = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	enosys  = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	eafno   = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
	enotsup = unix.SECCOMP_RET_ERRNO | uint32(unix.EOPNOTSUPP)
)

// Where struct seccomp_data has what; of an argument, its low 32 bits come first on both
// architectures.
const (
	atNumber = 0
	atArch   = 4
)

func atArg(n uint32) uint32 { return 16 + 8*n }

const (
	// newNamespaces are the flags of clone that make namespaces.
	newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

	tioclinux = 0x541c
	typeMask  = 0xf // of a socket's type, without SOCK_CLOEXEC and SOCK_NONBLOCK
)

// filter is the program that judges a server's system calls: an allow list. What is not in
// it is EPERM; a number that no list of ours knows is ENOSYS, by which libraries know to do
// without. Calls of another architecture, by which one kernel can be asked in two ways, end
// the process. cBPF, as seccomp(2) takes it.
func filter(s setup) []unix.SockFilter {
	p := program{}
	p.load(atArch)
	p.unless(nativeArch, kill)
	p.load(atNumber)
	if x32Bit != 0 {
		p.atLeast(x32Bit, kill)
	}
	// 1. Calls that depend on what they are given.
	p.on(unix.SYS_CLONE3, func(b *program) { b.ret(enosys) }) // its flags lie in memory
	p.on(unix.SYS_CLONE, func(b *program) {
		b.load(atArg(0))
		b.anyBit(newNamespaces, eperm)
		b.ret(allow)
	})
	p.on(unix.SYS_IOCTL, func(b *program) {
		b.load(atArg(1)) // the kernel, too, looks at 32 bits
		b.when(unix.TIOCSTI, eperm)
		b.when(tioclinux, eperm)
		b.ret(allow)
	})
	p.on(unix.SYS_SOCKET, s.socket)
	if s.noUnix {
		p.on(unix.SYS_SOCKETPAIR, func(b *program) {
			b.load(atArg(1))
			b.and(typeMask)
			b.when(unix.SOCK_STREAM, allow) // one of datagrams could send to any path
			b.ret(eperm)
		})
	}
	for _, nr := range []uint32{unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_TGKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO} {
		p.on(nr, func(b *program) {
			b.load(atArg(0))
			b.when(uint32(s.guard), eperm)
			if s.guard != 1 { // -1 is everybody but the first process
				b.when(uint32(-s.guard), eperm)
			}
			b.ret(allow)
		})
	}
	p.on(unix.SYS_PRLIMIT64, func(b *program) {
		b.load(atArg(1))
		b.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, unix.RLIMIT_MSGQUEUE, 3, 0) // nobody's, past the next two: see tagLimit
		b.load(atArg(0))
		b.when(0, allow) // one's own
		b.load(atArg(2))
		b.unless(0, eperm) // limits of others are read, not set: the helper has some
		b.load(atArg(2) + 4)
		b.unless(0, eperm)
		b.ret(allow)
	})
	p.on(unix.SYS_SETRLIMIT, func(b *program) {
		b.load(atArg(0))
		b.when(unix.RLIMIT_MSGQUEUE, eperm)
		b.ret(allow)
	})
	if s.landlock {
		for _, c := range modeCalls {
			p.on(c.nr, func(b *program) {
				b.load(atArg(c.at))
				b.anyBit(unix.S_ISUID|unix.S_ISGID, eperm) // by which others become this user
				b.ret(allow)
			})
		}
		for _, c := range ownerCalls {
			p.on(c.nr, func(b *program) {
				b.own(c.at, unix.Getuid())
				b.own(c.at+1, unix.Getgid())
				b.ret(allow)
			})
		}
		for _, nr := range attributeCalls {
			p.on(nr, func(b *program) { b.ret(enotsup) }) // by which cp and install know to do without
		}
	}
	// 2. All others, by halves.
	p.tree(ranges(s.allowed()))
	return p
}

// socket says which sockets there are. Those of the internet are streams and datagrams; the
// kernel is asked for routes and addresses, and for nothing else.
func (s setup) socket(b *program) {
	b.load(atArg(0))
	inet := uint32(allow)
	if s.noInet {
		inet = eafno
	}
	if !s.noUnix {
		b.when(unix.AF_UNIX, allow)
	}
	b.when(unix.AF_PACKET, eperm)
	for _, family := range []uint32{unix.AF_INET, unix.AF_INET6} {
		b.on(family, func(b *program) {
			b.load(atArg(1))
			b.and(typeMask)
			b.when(unix.SOCK_RAW, eperm)
			b.when(unix.SOCK_PACKET, eperm)
			b.ret(inet)
		})
	}
	b.on(unix.AF_NETLINK, func(b *program) {
		b.load(atArg(2))
		b.when(unix.NETLINK_ROUTE, allow)
		b.ret(eafno)
	})
	b.ret(eafno)
}

// span is a run of numbers that have one answer, from one number on to that of the next.
type span struct{ from, answer uint32 }

func ranges(allowed []uint32) []span {
	slices.Sort(allowed)
	all := []span{{0, eperm}}
	for _, nr := range slices.Compact(allowed) {
		if last := &all[len(all)-1]; last.answer == eperm && last.from == nr {
			last.answer = allow
			// It may go on the run before it.
			if n := len(all); n > 1 && all[n-2].answer == allow {
				all = all[:n-1]
			}
		} else {
			all = append(all, span{nr, allow})
		}
		all = append(all, span{nr + 1, eperm})
	}
	all[len(all)-1].answer = enosys // above all that are known
	return all
}

// program is classic BPF.
type program []unix.SockFilter

func (p *program) add(code uint16, k uint32, yes, no uint8) {
	*p = append(*p, unix.SockFilter{Code: code, K: k, Jt: yes, Jf: no})
}

func (p *program) load(at uint32)    { p.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, at, 0, 0) }
func (p *program) and(mask uint32)   { p.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, mask, 0, 0) }
func (p *program) ret(answer uint32) { p.add(unix.BPF_RET|unix.BPF_K, answer, 0, 0) }

func (p *program) when(k, answer uint32)    { p.jump(unix.BPF_JEQ, k, 0, 1, answer) }
func (p *program) unless(k, answer uint32)  { p.jump(unix.BPF_JEQ, k, 1, 0, answer) }
func (p *program) atLeast(k, answer uint32) { p.jump(unix.BPF_JGE, k, 0, 1, answer) }
func (p *program) anyBit(k, answer uint32)  { p.jump(unix.BPF_JSET, k, 0, 1, answer) }

func (p *program) jump(op uint16, k uint32, yes, no uint8, answer uint32) {
	p.add(unix.BPF_JMP|op|unix.BPF_K, k, yes, no)
	p.ret(answer)
}

// own refuses an owner, or a group, but one's own and -1, which changes nothing: so archives are
// unpacked as root, and no file is given away.
func (p *program) own(at uint32, id int) {
	p.load(atArg(at))
	p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, uint32(id), 2, 0) // past the next one
	p.unless(^uint32(0), eperm)
}

// on has a block judge what is loaded when it is k. The block ends with an answer.
func (p *program) on(k uint32, block func(b *program)) {
	var b program
	block(&b)
	p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, k, 0, uint8(len(b)))
	*p = append(*p, b...)
}

// tree finds the span that has the number loaded.
func (p *program) tree(spans []span) {
	if len(spans) == 1 {
		p.ret(spans[0].answer)
		return
	}
	half := len(spans) / 2
	var below program
	below.tree(spans[:half])
	p.add(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, spans[half].from, 0, 1)
	p.add(unix.BPF_JMP|unix.BPF_JA, uint32(len(below)), 0, 0)
	*p = append(*p, below...)
	p.tree(spans[half:])
}
