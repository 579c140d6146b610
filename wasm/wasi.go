package wasm

import (
	"encoding/binary"
	"log/slog"
	"time"
)

const wasiModule = "wasi_snapshot_preview1"

// Error numbers of WASI preview 1.
const (
	wasiBadFile   = 8
	wasiInvalid   = 28
	wasiNoSystem  = 52
	wasiNoCapable = 76
)

// wasiFunctions are what toolchains link in. A guest has no arguments, no
// environment, no files and no sockets; what it writes to its standard output
// and error goes to the log.
func wasiFunctions() []hostFunction {
	denied := func(name, params string, errno uint64) hostFunction {
		return hostFunction{name: name, params: params, results: vI32, call: func(_ *instance, s []uint64) { s[0] = errno }}
	}
	none := func(in *instance, s []uint64) { // two sizes, both zero
		clear(in.view(s[0], 4))
		clear(in.view(s[1], 4))
		s[0] = 0
	}
	all := []hostFunction{
		{name: "args_sizes_get", params: vI32 + vI32, results: vI32, call: none},
		{name: "environ_sizes_get", params: vI32 + vI32, results: vI32, call: none},
		denied("args_get", vI32+vI32, 0),
		denied("environ_get", vI32+vI32, 0),
		{name: "sched_yield", results: vI32, call: func(_ *instance, s []uint64) { s[0] = 0 }},
		{name: "proc_exit", params: vI32, call: func(*instance, []uint64) { panic(errExit) }},
		{name: "clock_time_get", params: vI32 + vI64 + vI32, results: vI32, call: wasiClock},
		{name: "clock_res_get", params: vI32 + vI32, results: vI32, call: func(in *instance, s []uint64) {
			binary.LittleEndian.PutUint64(in.view(s[1], 8), uint64(time.Microsecond))
			s[0] = 0
		}},
		{name: "random_get", params: vI32 + vI32, results: vI32, call: wasiRandom},
		{name: "fd_write", params: vI32 + vI32 + vI32 + vI32, results: vI32, call: wasiWrite},
		{name: "poll_oneoff", params: vI32 + vI32 + vI32 + vI32, results: vI32, call: wasiPoll},
		denied("fd_close", vI32, wasiBadFile),
		denied("fd_read", vI32+vI32+vI32+vI32, wasiBadFile),
		denied("fd_seek", vI32+vI64+vI32+vI32, wasiBadFile),
		denied("fd_fdstat_get", vI32+vI32, wasiBadFile),
		denied("fd_fdstat_set_flags", vI32+vI32, wasiBadFile),
		denied("fd_filestat_get", vI32+vI32, wasiBadFile),
		denied("fd_prestat_get", vI32+vI32, wasiBadFile),
		denied("fd_prestat_dir_name", vI32+vI32+vI32, wasiBadFile),
		denied("path_open", vI32+vI32+vI32+vI32+vI32+vI64+vI64+vI32+vI32, wasiNoCapable),
		denied("path_filestat_get", vI32+vI32+vI32+vI32+vI32, wasiNoCapable),
		denied("sock_accept", vI32+vI32+vI32, wasiNoCapable),
	}
	for i := range all {
		all[i].module = wasiModule
	}
	return all
}

func wasiClock(in *instance, s []uint64) {
	now := uint64(time.Since(in.guest.opened))
	if uint32(s[0]) == 0 {
		now = uint64(time.Now().UnixNano())
	}
	binary.LittleEndian.PutUint64(in.view(s[2], 8), now)
	s[0] = 0
}

// wasiRandom gives the same bytes to every instance of a module: enough for
// the seeds of hash tables, while randomness is behind a grant.
func wasiRandom(in *instance, s []uint64) {
	if uint32(s[1]) > MaxRandom {
		s[0] = wasiInvalid
		return
	}
	b := in.view(s[0], s[1])
	in.spend(uint64(len(b)))
	in.guest.seed(b)
	s[0] = 0
}

func wasiWrite(in *instance, s []uint64) {
	fd, vectors, count := uint32(s[0]), uint32(s[1]), uint32(s[2])
	if fd != 1 && fd != 2 {
		s[0] = wasiBadFile
		return
	}
	if count > 64 {
		s[0] = wasiInvalid
		return
	}
	total := uint32(0)
	for i := range count {
		v := in.view(uint64(vectors)+8*uint64(i), 8)
		p, n := binary.LittleEndian.Uint32(v), binary.LittleEndian.Uint32(v[4:])
		text := in.view(uint64(p), uint64(n))
		total += n
		in.spend(uint64(n))
		if fd == 2 {
			in.keepLast(text)
		}
		if len(text) > 0 {
			in.guest.log(slog.LevelInfo, text[:min(len(text), MaxLine)])
		}
	}
	binary.LittleEndian.PutUint32(in.view(s[3], 4), total)
	s[0] = 0
}

// wasiPoll answers at once: the clocks of all subscriptions have rung. A guest
// cannot sleep; one that waits for time runs through its fuel.
func wasiPoll(in *instance, s []uint64) {
	const subscription, event = 48, 32
	n := uint32(s[2])
	if n == 0 || n > 64 {
		s[0] = wasiInvalid
		return
	}
	ready := uint32(0)
	for i := range n {
		sub := in.view(s[0]+subscription*uint64(i), subscription)
		out := in.view(s[1]+event*uint64(ready), event)
		userdata := binary.LittleEndian.Uint64(sub)
		kind := sub[8]
		clear(out)
		binary.LittleEndian.PutUint64(out, userdata)
		out[10] = kind
		if kind != 0 { // not a clock
			binary.LittleEndian.PutUint16(out[8:], wasiNoSystem)
		}
		ready++
	}
	binary.LittleEndian.PutUint32(in.view(s[3], 4), ready)
	s[0] = 0
}
