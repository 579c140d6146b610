package stdio

import "time"

const (
	// firstWait is how long a server that ended rests until it is started again. It
	// doubles up to mostWait with each further end, until one process lived for steady, or
	// none has ended for as long.
	firstWait = time.Second
	mostWait  = time.Minute
	steady    = time.Minute

	// crashes within crashing are a server that ends again and again.
	crashes  = 5
	crashing = time.Minute

	// spread is by how much of it a wait differs, so that servers which fell together do
	// not start together.
	spread = 0.2
)

// restart says when a server may be started again.
type restart struct {
	next time.Duration // how long the server rests the next time
	at   time.Time     // no start before
	ends []time.Time   // of late
	bad  bool          // the last of them was one too many
	how  string        // the last one was; of a bridge's alone
}

// wait returns how long a start has to wait; 0 for not at all.
func (r *restart) wait(now time.Time) time.Duration { return max(0, r.at.Sub(now)) }

// fail notes the end of a process, and reports whether there have been too many of late. Processes
// that share a container end together with it: the end of one that began before the last end that
// counts is that end once more. chance is in [0, 1).
func (r *restart) fail(began, now time.Time, chance float64) bool {
	if n := len(r.ends); n > 0 && began.Before(r.ends[n-1]) {
		return r.bad
	}
	if now.Sub(began) >= steady || now.Sub(r.at) >= steady {
		r.next, r.ends = 0, nil
	}
	for len(r.ends) > 0 && now.Sub(r.ends[0]) > crashing {
		r.ends = r.ends[1:]
	}
	r.ends = append(r.ends, now)
	if r.next = min(2*r.next, mostWait); r.next == 0 {
		r.next = firstWait
	}
	rest := r.next
	if r.bad = len(r.ends) >= crashes; r.bad {
		rest, r.next, r.ends = mostWait, mostWait, r.ends[len(r.ends)-crashes+1:]
	}
	r.at = now.Add(time.Duration(float64(rest) * (1 - spread + 2*spread*chance)))
	return r.bad
}
