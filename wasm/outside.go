package wasm

import (
	"bytes"
	"context"
	"time"

	"github.com/weir-edge/weir/sdk/abi"
)

// Outside carries a request of a guest to others, and returns their answer, or
// one of abi.Err… below zero. ctx ends when the time of the guest for such things
// does; it has the values of the one that the hook was called with. It is safe for
// concurrent use.
type Outside func(ctx context.Context, request []byte) (answer []byte, failed int64)

// blocks notes at which hooks the guest said that it waits for others.
func (g *Guest) blocks(s *Subscription) {
	if s.Blocking {
		g.blocking[s.Hook] = true
	}
}

func hostFetch(in *instance, s []uint64) { in.outside(in.guest.binding.Fetch, s) }
func hostTool(in *instance, s []uint64)  { in.outside(in.guest.binding.Tool, s) }

// outside asks others, and keeps their answer until the next time or the end of
// the call. The time that takes is not the guest's, but has a bound of its own.
func (in *instance) outside(ask Outside, s []uint64) {
	in.answer = nil
	request := in.view(s[0], s[1])
	switch {
	case ask == nil || !in.guest.blocking[in.hook]:
		s[0] = code(abi.ErrDenied)
		return
	case len(request) > MaxRequest || in.asked == MaxOutside || in.waitedFor >= MaxWait:
		s[0] = code(abi.ErrLimit)
		return
	}
	in.asked++
	in.acted = true
	in.spend(uint64(len(request)) / 16)
	resume, start := in.clock.pause(), time.Now()
	ctx, cancel := context.WithTimeout(in.call, MaxWait-in.waitedFor)
	answer, failed := ask(ctx, bytes.Clone(request))
	cancel()
	in.waitedFor += time.Since(start)
	resume()
	switch {
	case in.call.Err() != nil:
		in.end(errCanceled)
	case failed < 0:
		s[0] = code(failed)
	case len(answer) > MaxAnswer:
		s[0] = code(abi.ErrLimit)
	default:
		in.answer = answer
		s[0] = in.give(s[2], s[3])
	}
}

// give writes the last answer to where the guest has room for it, and returns its
// length. Nothing is written where there is too little room.
func (in *instance) give(p, room uint64) uint64 {
	if n := uint64(len(in.answer)); n <= uint64(uint32(room)) {
		in.spend(n / 16)
		copy(in.view(p, n), in.answer)
	}
	return uint64(len(in.answer))
}

func hostAnswer(in *instance, s []uint64) {
	if in.answer == nil {
		s[0] = code(abi.ErrNotFound)
		return
	}
	s[0] = in.give(s[0], s[1])
}

// hostEmit tells of an event. What is emitted at on_event would be told of to
// on_event again.
func hostEmit(in *instance, s []uint64) {
	name := in.view(s[0], min(s[1], MaxName+1))
	data := in.view(s[2], min(s[3], MaxEvent+1))
	s[0] = uint64(uint32(int32(in.emit(name, data))))
}

func (in *instance) emit(name, data []byte) int64 {
	emit := in.guest.binding.Emit
	switch {
	case emit == nil || in.hook >= abi.Hooks || in.hook == abi.OnEvent:
		return abi.ErrDenied
	case len(data) > MaxEvent:
		return abi.ErrLimit
	case len(name) == 0 || len(name) > MaxName:
		return abi.ErrArgument
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return abi.ErrArgument
		}
	}
	in.acted = true
	in.spend(uint64(len(data)))
	return emit(in.call, in.hook, string(name), bytes.Clone(data))
}
