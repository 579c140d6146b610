package backend

import "testing"

// pooledLines is a local server that may have some processes.
type pooledLines struct {
	OverLines
	size int
}

func (p pooledLines) Pool() int { return p.size }

// Calls go to the process that has the least to do, and to the one on which their principal
// listens as long as that has not much to do: there the principal is told what they change.
func TestPoolLane(t *testing.T) {
	b := &Backend{lined: pooledLines{size: 2}}
	var all []*lane
	for range 2 {
		l := newLane(b, "one", nil)
		l.live.Store(&lines{})
		b.lanes.of = map[string][]*lane{"one": append(all, l)}
		all = b.lanes.of["one"]
	}
	busy := func(i, calls, lasts int) {
		l := all[i].live.Load()
		l.calls, l.lasts = make([]*waiter, calls+lasts), lasts
	}
	for _, c := range []struct {
		name                 string
		calls, lasts, others int
		want                 int
	}{
		{"the first has less to do", 1, 0, 2, 0},
		{"the second has less to do", 2, 0, 1, 1},
		{"there is a listener", crowded - 1, 1, 0, 0},
		{"there is a listener where there is much to do", crowded, 1, 0, 1},
	} {
		busy(0, c.calls, c.lasts)
		busy(1, c.others, 0)
		if b.poolLane("one") != all[c.want] {
			t.Errorf("%s: it goes to the other", c.name)
		}
	}
}
