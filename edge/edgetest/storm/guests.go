package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weir-edge/weir/cmd/weir/plugin"
	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// guestSource is a guest that notes in a header which version it is. It traps on
// the calls that it is told to: those whose number ends with two digits.
const guestSource = `package main

import weir "github.com/weir-edge/weir/sdk"

const version, traps = "%d", "%s"

func main() {}

func init() {
	weir.OnCall(func(c *weir.Call) {
		if traps != "" && c.Selected(0).View().HasSuffix(traps+"\"") {
			panic("asked to")
		}
		c.SetHeader("x-guest", version)
	}, weir.Pointers("/text"))
}
`

// buildGuest builds a version of the guest with the Go toolchain, and returns
// the file of its module.
func (s *storm) buildGuest(ctx context.Context, version int, traps string) string {
	l, ok := plugin.LanguageNamed("go")
	if !ok {
		kit.Fail("there is no SDK for Go")
	}
	dir := s.folder("guest-")
	project, file := filepath.Join(dir, "guest"), filepath.Join(dir, "guest.wasm")
	kit.Must(plugin.New(project, "guest", l))
	kit.Check(os.WriteFile(filepath.Join(project, "main.go"), fmt.Appendf(nil, guestSource, version, traps), 0o644))
	kit.Check(plugin.Build(ctx, l, project, file))
	return file
}

// runGuests is W14: a guest of the Go toolchain, whose machine code is some
// megabytes, is replaced by another version of it again and again, under calls
// that come by the clock. Each module is compiled beside the calls.
func runGuests(ctx context.Context, s *storm) {
	b := s.newBackend(kit.Modern, nil)
	s.swap(ctx, "guest", func(version int) kit.Plan { return s.behindGuest(ctx, b.Addr, version, "") })
}

// starlarkSource is a filter in Starlark that notes in a header which version it is.
const starlarkSource = `
def on_call_request(c):
    return set_header("x-guest", "%d")
`

// runStarlark is runGuests with a filter in Starlark.
func runStarlark(ctx context.Context, s *storm) {
	b := s.newBackend(kit.Modern, nil)
	s.swap(ctx, "filter in Starlark", func(version int) kit.Plan {
		return kit.PlanOf(b.Addr).Through("starlark", fmt.Sprintf("{inline: %q}", fmt.Sprintf(starlarkSource, version)))
	})
}

// swap replaces a program by another version of it again and again, under calls that
// come by the clock.
func (s *storm) swap(ctx context.Context, what string, behind func(version int) kit.Plan) {
	const versions, goal, may = 4, 2000, 10 << 20
	times := s.size(s.count, 20, 5, "reloads")
	hold := s.span(s.length, 60*time.Second, 15*time.Second, "load")
	// 1. The programs, and an edge with the first of them.
	var sets []kit.Plan
	for v := range versions {
		sets = append(sets, behind(v))
	}
	manifest := s.write(sets[0])
	e := s.startOn(ctx, manifest)
	gun, rate := s.gunAt(ctx, e, goal)
	defer gun.Close()
	// 2. The same load without a reload.
	calm := gun.Fire(ctx, rate, max(hold/6, time.Second))
	if _, shed, _, failed := kit.Sort(calm); shed+failed > 0 {
		kit.Fail("%d calls failed before the first reload", shed+failed)
	}
	base := settled(ctx, e)
	before := kit.Must(e.Status(ctx))
	// 3. And with reloads.
	top := s.peak(e)
	var shots []kit.Shot
	seen := map[string]bool{}
	var work sync.WaitGroup
	work.Go(func() { shots = gun.Fire(ctx, rate, hold) })
	began := time.Now()
	for i := range times {
		kit.Pause(ctx, time.Until(began.Add(time.Duration(float64(i)+0.5)*hold/time.Duration(times))))
		kit.Check(changeTo(ctx, e, manifest, sets[(i+1)%versions], byPost))
		if now := kit.Must(e.Status(ctx)); len(now.Filters) == 1 {
			seen[now.Filters[0].SHA256] = true
		}
	}
	work.Wait()
	highest := top()
	after := kit.Must(e.Status(ctx))
	back, waited := comesBack(ctx, e, base+may)
	// 4. What it comes to.
	good, shed, late, failed := kit.Sort(shots)
	s.bar(shed+failed == 0 && good > 0, "0", "%d reloads of a %s in %.0f s at %d rps, open loop: %d of %d calls failed%s", times, what, hold.Seconds(), rate, shed+failed, len(shots), suchAs(shots))
	s.bar(after.Reloads-before.Reloads >= int64(times) && len(seen) == min(versions, times), "each", "%d reloads done, %d versions seen in /status", after.Reloads-before.Reloads, len(seen))
	s.bar(back <= base+may, "base + 10 MiB", "resident %.1f MiB %.0f s after the last call, %.1f before the first reload, %.1f at the most", kit.MiB(back), waited.Seconds(), kit.MiB(base), kit.MiB(highest))
	s.tell("p50 %.1f ms, p99 %.1f ms, %d later than %s; without reloads p50 %.1f ms, p99 %.1f ms", kit.Millis(kit.Percentile(tookOf(shots), 500)), kit.Millis(kit.Percentile(tookOf(shots), 990)), late, kit.GoodWithin, kit.Millis(kit.Percentile(tookOf(calm), 500)), kit.Millis(kit.Percentile(tookOf(calm), 990)))
}

// runTraps is G23: a guest traps in one call of a hundred, at 2,000 calls a
// second that come by the clock.
func runTraps(ctx context.Context, s *storm) {
	const goal, traps = 2000, 7 // calls whose number ends with 07
	hold := s.span(s.length, 60*time.Second, 5*time.Second, "load")
	book := newLedger()
	b := s.newBackend(kit.Modern, func(b *kit.Backend) { b.Arrived = book.arrived })
	p := s.behindGuest(ctx, b.Addr, 0, fmt.Sprintf("%02d", traps))
	e := s.startPlan(ctx, p)
	bang := func(number int64) bool { return number%100 == traps }
	gun, rate := s.gunAt(ctx, e, goal)
	defer gun.Close()
	shots := gun.Fire(ctx, rate, hold)
	var trapped, denied, wrong int
	var through []int64
	for _, one := range shots {
		switch {
		case bang(one.Number):
			if trapped++; errors.Is(one.Err, kit.ErrBusy) {
				denied++
			}
			through = append(through, one.Number)
		case one.Err != nil:
			wrong++
		}
	}
	ran, _ := book.ran(through)
	s.bar(trapped > 0 && denied == trapped, "all", "at %d rps, open loop: %d of the %d calls that trap got 503", rate, denied, trapped)
	s.bar(wrong == 0, "0", "%d of the %d others failed%s", wrong, len(shots)-trapped, suchAs(shots))
	s.bar(ran == 0, "0", "the backend ran %d of those that trap", ran)
	s.tell("p50 %.1f ms, p99 %.1f ms", kit.Millis(kit.Percentile(tookOf(shots), 500)), kit.Millis(kit.Percentile(tookOf(shots), 990)))
}

// behindGuest is a plan of one backend behind a version of the guest.
func (s *storm) behindGuest(ctx context.Context, backend string, version int, traps string) kit.Plan {
	s.say("building version %d of the guest", version)
	return kit.PlanOf(backend).Through("wasm", fmt.Sprintf("{path: %q}", s.buildGuest(ctx, version, traps)))
}

// gunAt is an open loop before an edge, and the rate that it is to have. The
// ceiling is twice what goes through one call after the other: calls may trap.
func (s *storm) gunAt(ctx context.Context, e *kit.Edge, goal int) (*kit.Gun, int) {
	const probes = 2000
	gun := &kit.Gun{Addr: e.Addr, Numbers: new(kit.Numbers)}
	began := time.Now()
	for range probes {
		if _, err := gun.Shoot(ctx); !errors.Is(err, kit.ErrBusy) {
			kit.Check(err)
		}
	}
	return gun, s.steady(int(2*probes/time.Since(began).Seconds()), goal)
}

func tookOf(shots []kit.Shot) []time.Duration {
	took := make([]time.Duration, len(shots))
	for i, one := range shots {
		took[i] = one.Took
	}
	return took
}

// suchAs tells of the first call that failed in another way than with 503.
func suchAs(shots []kit.Shot) string {
	for _, one := range shots {
		if one.Err != nil && !errors.Is(one.Err, kit.ErrBusy) {
			return ", such as " + one.Err.Error()
		}
	}
	return ""
}
