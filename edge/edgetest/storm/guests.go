package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weir-edge/weir/cmd/weir/plugin"
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
func (s *storm) buildGuest(ctx context.Context, version int, traps string) (string, error) {
	l, ok := plugin.LanguageNamed("go")
	if !ok {
		return "", fmt.Errorf("there is no SDK for Go")
	}
	dir, err := os.MkdirTemp(s.dir, "guest-")
	if err != nil {
		return "", err
	}
	project := filepath.Join(dir, "guest")
	if _, err := plugin.New(project, "guest", l); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(project, "main.go"), fmt.Appendf(nil, guestSource, version, traps), 0o644); err != nil {
		return "", err
	}
	file := filepath.Join(dir, "guest.wasm")
	return file, plugin.Build(ctx, l, project, file)
}

// runGuests is W14: a guest of the Go toolchain, whose machine code is some
// megabytes, is replaced by another version of it again and again, under calls
// that come by the clock. Each module is compiled beside the calls.
func runGuests(ctx context.Context, s *storm) error {
	const versions, goal, may = 4, 2000, 10 << 20
	times := s.size(s.count, 20, 5, "reloads")
	hold := s.span(s.length, 60*time.Second, 15*time.Second, "load")
	// 1. The modules, and an edge with the first of them.
	b, err := s.newBackend(modern, nil)
	if err != nil {
		return err
	}
	var sets []plan
	for v := range versions {
		p, err := s.behindGuest(ctx, b.addr, v, "")
		if err != nil {
			return err
		}
		sets = append(sets, p)
	}
	manifest, err := s.write(sets[0])
	if err != nil {
		return err
	}
	e, err := s.startOn(ctx, manifest)
	if err != nil {
		return err
	}
	gun, rate, err := s.gunAt(ctx, e, goal)
	if err != nil {
		return err
	}
	defer gun.close()
	// 2. The same load without a reload.
	calm := gun.run(ctx, rate, max(hold/6, time.Second))
	if _, shed, _, failed := sortShots(calm); shed+failed > 0 {
		return e.fault(fmt.Errorf("%d calls failed before the first reload", shed+failed))
	}
	base, err := settled(ctx, e.pid(), 10*time.Second)
	if err != nil {
		return err
	}
	before, err := e.status(ctx)
	if err != nil {
		return err
	}
	// 3. And with reloads.
	top := peak(e.pid())
	var shots []shot
	var fault error
	seen := map[string]bool{}
	var work sync.WaitGroup
	work.Go(func() { shots = gun.run(ctx, rate, hold) })
	began := time.Now()
	for i := 0; i < times && fault == nil; i++ {
		if !sleep(ctx, time.Until(began.Add(time.Duration(float64(i)+0.5)*hold/time.Duration(times)))) {
			break
		}
		if fault = s.changeTo(ctx, e, manifest, sets[(i+1)%versions], byPost); fault != nil {
			break
		}
		var now status
		if now, fault = e.status(ctx); fault == nil && len(now.Filters) == 1 {
			seen[now.Filters[0].SHA256] = true
		}
	}
	work.Wait()
	highest := top()
	if fault != nil {
		return e.fault(fault)
	}
	after, err := e.status(ctx)
	if err != nil {
		return err
	}
	back, waited, err := comesBack(ctx, e, base+may)
	if err != nil {
		return err
	}
	// 4. What it comes to.
	good, shed, late, failed := sortShots(shots)
	s.bar(shed+failed == 0 && good > 0, "0", "%d reloads of a guest in %.0f s at %d rps, open loop: %d of %d calls failed%s", times, hold.Seconds(), rate, shed+failed, len(shots), suchAs(shots))
	s.bar(after.Reloads-before.Reloads >= int64(times) && len(seen) == min(versions, times), "each", "%d reloads done, %d versions seen in /status", after.Reloads-before.Reloads, len(seen))
	s.bar(back <= base+may, "base + 10 MiB", "resident %.1f MiB %.0f s after the last call, %.1f before the first reload, %.1f at the most", mib(back), waited.Seconds(), mib(base), mib(highest))
	s.tell("p50 %.1f ms, p99 %.1f ms, %d later than %s; without reloads p50 %.1f ms, p99 %.1f ms", millis(percentile(tookOf(shots), 0.5)), millis(percentile(tookOf(shots), 0.99)), late, goodWithin, millis(percentile(tookOf(calm), 0.5)), millis(percentile(tookOf(calm), 0.99)))
	return nil
}

// runTraps is G23: a guest traps in one call of a hundred, at 2,000 calls a
// second that come by the clock.
func runTraps(ctx context.Context, s *storm) error {
	const goal, traps = 2000, 7 // calls whose number ends with 07
	hold := s.span(s.length, 60*time.Second, 5*time.Second, "load")
	book := newLedger()
	b, err := s.newBackend(modern, func(b *backend) { b.arrived = book.arrived })
	if err != nil {
		return err
	}
	p, err := s.behindGuest(ctx, b.addr, 0, fmt.Sprintf("%02d", traps))
	if err != nil {
		return err
	}
	e, err := s.startPlan(ctx, p)
	if err != nil {
		return err
	}
	bang := func(number int64) bool { return number%100 == traps }
	gun, rate, err := s.gunAt(ctx, e, goal)
	if err != nil {
		return err
	}
	defer gun.close()
	shots := gun.run(ctx, rate, hold)
	var trapped, denied, wrong int
	var through []int64
	for _, one := range shots {
		switch {
		case bang(one.number):
			if trapped++; one.err == errBusy {
				denied++
			}
			through = append(through, one.number)
		case one.err != nil:
			wrong++
		}
	}
	ran, _ := book.ran(through)
	s.bar(trapped > 0 && denied == trapped, "all", "at %d rps, open loop: %d of the %d calls that trap got 503", rate, denied, trapped)
	s.bar(wrong == 0, "0", "%d of the %d others failed%s", wrong, len(shots)-trapped, suchAs(shots))
	s.bar(ran == 0, "0", "the backend ran %d of those that trap", ran)
	s.tell("p50 %.1f ms, p99 %.1f ms", millis(percentile(tookOf(shots), 0.5)), millis(percentile(tookOf(shots), 0.99)))
	return nil
}

// behindGuest is a plan of one backend behind a version of the guest.
func (s *storm) behindGuest(ctx context.Context, backend string, version int, traps string) (plan, error) {
	s.say("building version %d of the guest", version)
	file, err := s.buildGuest(ctx, version, traps)
	p := planOf([]string{backend})
	p.guest = file
	return p, err
}

// gunAt is an open loop before an edge, and the rate that it is to have. The
// ceiling is twice what goes through one call after the other: calls may trap.
func (s *storm) gunAt(ctx context.Context, e *edge, goal int) (*openLoop, int, error) {
	const probes = 2000
	gun := &openLoop{addr: e.addr, numbers: new(numbers)}
	began := time.Now()
	for range probes {
		if err := gun.shoot(ctx, new(shot)); err != nil && err != errBusy {
			return nil, 0, e.fault(err)
		}
	}
	return gun, s.steady(int(2*probes/time.Since(began).Seconds()), goal), nil
}

func tookOf(shots []shot) []time.Duration {
	took := make([]time.Duration, len(shots))
	for i, one := range shots {
		took[i] = one.took
	}
	return took
}

// suchAs tells of the first call that failed in another way than with 503.
func suchAs(shots []shot) string {
	for _, one := range shots {
		if one.err != nil && one.err != errBusy {
			return ", such as " + one.err.Error()
		}
	}
	return ""
}
