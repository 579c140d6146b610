package wire

import (
	"bufio"
	"net"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Free connections are dropped when their time is over, with no traffic to
// remind the pool of them, and nothing runs while there are none.
func TestFreeConnectionsAreDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := &Pool{most: 10}
		ended := map[string]time.Duration{}
		var mu sync.Mutex
		put := func(name, keepAlive string) {
			here, there := net.Pipe()
			p.open.Add(1)
			c := &Conn{Conn: here, Reader: bufio.NewReaderSize(here, readBuffer)}
			c.Head.idle = idleDefault
			c.Head.keepAlive([]byte(keepAlive))
			go func() {
				_, _ = there.Read(make([]byte, 1))
				mu.Lock()
				ended[name] = time.Since(began)
				mu.Unlock()
			}()
			p.Put(c, time.Now())
			synctest.Wait()
		}
		put("a minute", "timeout=61, max=5")
		put("the default", "")
		put("one second", "timeout=2")
		put("none", "timeout=1")
		put("less than none", "timeout=0")
		time.Sleep(2 * time.Second)
		put("the default, later", "nonsense")
		time.Sleep(70 * time.Second)
		synctest.Wait()
		if !p.wake.IsZero() || len(p.free) != 0 || p.open.Load() != 0 {
			t.Errorf("wakes at %v with %d free and %d open connections", p.wake, len(p.free), p.open.Load())
		}
		put("after a pause", "timeout=11")
		time.Sleep(11 * time.Second)
		put("of a pool that closes", "timeout=11")
		p.Close()
		put("of a pool that is closed", "timeout=11")
		synctest.Wait()
		for name, want := range map[string]time.Duration{
			"none": 0, "less than none": 0, "one second": time.Second, "the default": idleDefault, "the default, later": 2*time.Second + idleDefault,
			"a minute": time.Minute, "after a pause": 82 * time.Second, "of a pool that closes": 83 * time.Second, "of a pool that is closed": 83 * time.Second,
		} {
			if got, ok := ended[name]; !ok || got != want {
				t.Errorf("%s: dropped after %s (%v), not %s", name, got, ok, want)
			}
		}
	})
}

// TestMost: how many connections may be open is 1024 where nobody says.
func TestMost(t *testing.T) {
	for most, want := range map[int]int{0: 1024, 3: 3} {
		u, _ := url.Parse("http://127.0.0.1:1/")
		if p := New(u, nil, true, most); p.Most() != want {
			t.Errorf("%d connections for %d", p.Most(), most)
		}
	}
}
