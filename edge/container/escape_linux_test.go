package container

import (
	"bufio"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/edge/edgetest/engine"
	"github.com/weir-edge/weir/edge/edgetest/escape"
	"github.com/weir-edge/weir/edge/edgetest/need"
	"github.com/weir-edge/weir/edge/egress"
	"github.com/weir-edge/weir/edge/sandbox"
)

// TestFar is the process with the hosts outside, which TestV01Container runs.
func TestFar(t *testing.T) { escape.Serve(t) }

// proxied is the way out of a container, as an edge has it.
type proxied struct{ *egress.Proxy }

func (o proxied) Ports() []int          { return o.Rules().Ports() }
func (o proxied) Open() sandbox.Passage { return o.Proxy.Open() }

// letOut makes tries in a container that a round lets out, and holds what comes back to how it
// is to begin.
func letOut(t *testing.T, m *Machine, r escape.Round) (said map[string]string, lookups *atomic.Int64) {
	t.Helper()
	c := config(t)
	proxy, lookups := r.Proxy(t)
	c.Outlet = proxied{proxy}
	b := opened(t, m, c)
	defer b.Close()
	said = triedAtOnce(t, b, slices.Sorted(maps.Keys(r.Wants)))
	r.Wants.Check(t, said)
	return said, lookups
}

// triedAtOnce makes tries in several processes of one container, since many of them wait.
func triedAtOnce(t *testing.T, b *Box, tries []string) map[string]string {
	t.Helper()
	const processes = 6
	all := make(chan map[string]string, processes)
	for i := range processes {
		b.command = []string{"/probe"}
		for n := i; n < len(tries); n += processes {
			b.command = append(b.command, tries[n])
		}
		p, err := b.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			text, _ := io.ReadAll(p.Stdout())
			if exit := p.Wait(); exit != (sandbox.Exit{}) {
				t.Errorf("the probe ended: %+v", exit)
			}
			_, _, _ = p.Stdin().Close(), p.Stdout().Close(), p.Stderr().Close()
			all <- escape.Results(string(text))
		}()
	}
	said := map[string]string{}
	for range processes {
		maps.Copy(said, <-all)
	}
	return said
}

// TestV01Container tries from containers what TestV01Egress tries from sandboxes: V01 to V20,
// isolated with one host, with the profile network, with the gateway, and with the profile none
// (G33), in both forms of the link. The engine is in the network of the test, whose other containers live.
func TestV01Container(t *testing.T) {
	engine.Need(t)
	tryEngine(t, engineHere)
}

// TestV01Podman is TestV01Container with Podman.
func TestV01Podman(t *testing.T) {
	why := engine.MissingPodman()
	need.Of(t, why == "", why)
	tryEngine(t, podmanHere)
}

// tryEngine makes the tries with an engine, in a network of the test's own.
func tryEngine(t *testing.T, start func(*testing.T) *engine.Engine) {
	t.Helper()
	if !escape.InRoom(t) {
		return
	}
	asked, _ := escape.Far(t)
	e := start(t)
	other := neighbour(t, e) // before anything is counted: Podman asks the system's bus for a firewall
	near := escape.NewOutside(t, shared.probe)
	near.Host(4484) // V07, V08, V11: this host, at all its addresses, and the engine's gateway
	escape.Sockets(t, near)
	near.Open(nil)

	// 1. What is outside is reached from outside; so is another container (V10).
	escape.Alive(t, shared.probe, asked)
	escape.Neighbour(t, shared.probe)
	for _, form := range []Link{LinkSocket, LinkAttach} {
		t.Run(string(form), func(t *testing.T) {
			m := machine(t, e)
			m.Link = form
			tryForm(t, m, near, other, asked)
		})
	}
}

// tryForm makes the rounds of TestV01Container in one form of the link.
func tryForm(t *testing.T, m *Machine, near *escape.Outside, other string, asked func() map[string]int) {
	t.Helper()
	// 2. Nothing of it from inside, one host at one port.
	isolated := escape.Isolated(near)
	isolated.Wants["connect:"+other] = "403"
	isolated.Wants["tcp:"+other] = "refused: "
	said, lookups := letOut(t, m, isolated)
	for key, n := range asked() {
		if n > 0 && key != "93.184.216.34:443" { // which is dialled, and sent nothing
			t.Errorf("%s was reached: %d", key, n)
		}
	}
	near.Shut(said)
	if n := lookups.Load(); n > 20 {
		t.Errorf("%d look-ups", n)
	}

	// 3. What is allowed passes.
	isolated.Wants = escape.Allowed()
	letOut(t, m, isolated)
	if counts := asked(); counts["93.184.216.34:443"] != len(isolated.Wants) || len(counts) != 2 {
		t.Errorf("what is allowed was counted as %v", counts)
	}

	// 4. The profile network.
	network := escape.Network(near)
	network.Wants["connect:"+other], network.Wants["tcp:"+other] = "403", "refused: "
	said, _ = letOut(t, m, network)
	near.Shut(said)
	for key := range asked() {
		if !strings.HasPrefix(key, "93.184.216.") {
			t.Errorf("%s was reached", key)
		}
	}

	// 5. The gateway, when it was allowed.
	letOut(t, m, escape.Gateway())
	near.Unreached()

	// 6. The profile none: V01 to V12.
	tries := slices.Concat(near.All(), escape.Direct(), escape.Refused, []string{"tcp:" + other, "resolve:allowed.test", "resolve:host.docker.internal", "tcp:127.0.0.1:3128", "udp:127.0.0.1:53"})
	said = triedAtOnce(t, opened(t, m, config(t)), tries)
	for _, try := range tries {
		if !strings.HasPrefix(said[try], "refused: ") {
			t.Errorf("%s: %q", try, said[try])
		}
	}
	for _, try := range escape.Refused { // V05
		if !strings.HasSuffix(said[try], "operation not permitted") && !strings.HasSuffix(said[try], "address family not supported by protocol") {
			t.Errorf("%s: %q", try, said[try])
		}
	}
	near.Shut(said)
	if counts := asked(); len(counts) > 0 {
		t.Errorf("%v was reached", counts)
	}
}

// engineHere starts an engine in the network of the test, with the image probe:1.
func engineHere(t *testing.T) *engine.Engine {
	t.Helper()
	var err error
	if shared.dir, err = makeShared(); err != nil {
		t.Fatal(err)
	}
	e, err := engine.OpenHere()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	image(t, e, "probe:1", engine.Config{})
	return e
}

// podmanHere is engineHere with Podman.
func podmanHere(t *testing.T) *engine.Engine {
	t.Helper()
	var err error
	if shared.dir, err = makeShared(); err != nil {
		t.Fatal(err)
	}
	e := engine.StartPodmanHere(t)
	image(t, e, "probe:1", engine.Config{})
	return e
}

// neighbour is a container of somebody else's in the engine's default network, and the address
// at which it is reached from this machine.
func neighbour(t *testing.T, e *engine.Engine) (address string) {
	t.Helper()
	var made struct{ ID string }
	e.PostFor(t, "/containers/create", `{"Image": "probe:1", "Cmd": ["listen:0.0.0.0:5555"]}`, &made)
	e.Post(t, "/containers/"+made.ID+"/start", "")
	var is struct {
		NetworkSettings struct{ IPAddress string }
	}
	e.Get(t, "/containers/"+made.ID+"/json", &is)
	address = is.NetworkSettings.IPAddress + ":5555"
	until(t, "answer of another container at "+address, func() bool {
		return probed(t, "tcp:"+address) == "reached"
	})
	return address
}

// TestV21Container attacks the helper from inside a container, as root, too: by reading it,
// tracing it, signalling it, limiting it. It lives; and when it dies all inside die. Nobody finds
// its link (V22), and there is no terminal (V23).
func TestV21Container(t *testing.T) { attackHelper(t, running(t)) }

// TestV21Podman does it with Podman.
func TestV21Podman(t *testing.T) {
	if shared.probe == "" {
		running(t)
	}
	attackHelper(t, engine.StartPodman(t))
}

func attackHelper(t *testing.T, e *engine.Engine) {
	t.Helper()
	m := machine(t, e)
	refused := []string{
		"read:/proc/1/mem", "read:/proc/1/fd/3", "list:/proc/1/fd/10", "read:/proc/1/environ", "write:/proc/1/mem", "read:/proc/1/maps", "ptrace:1", "prlimit:1", "signals:1", // V21
		"unix:/.weir/link/link", "read:/.weir/inside", "write:/.weir/link/link", "write:/.weir/inside", // V22
		"ioctl:0x5412", "ioctl:0x541c", "ioctl:0x100005412", "write:/dev/console", "write:/dev/tty", "write:/dev/tty1", "write:/proc/sysrq-trigger", // V23
	}
	for _, one := range []struct {
		user string
		link Link
	}{{"", LinkSocket}, {"image", LinkSocket}, {"", LinkAttach}, {"image", LinkAttach}} {
		user := one.user
		m.Link = one.link
		image(t, e, "probe:1", engine.Config{})
		c := config(t, slices.Concat(refused, []string{"signal:1", "list:/.weir/link", "status:"})...)
		c.RunAs = user
		b := opened(t, m, c)
		said := tried(t, b)
		if user == "image" && !strings.HasPrefix(said["status:"], "Uid=0,0,0,0") {
			t.Errorf("root is %s", said["status:"])
		}
		for _, try := range refused {
			if user == "image" && slices.Contains([]string{"read:/.weir/inside", "write:/dev/console", "write:/dev/tty1"}, try) {
				continue // the helper is root's file, and what is in every weir; in /dev root makes files of its own
			}
			if !strings.HasPrefix(said[try], "refused: ") {
				t.Errorf("as %q: %s: %q", user, try, said[try])
			}
		}
		if !strings.HasPrefix(said["signal:1"], "lives") || said["list:/.weir/link"] != "" && !strings.HasPrefix(said["list:/.weir/link"], "refused: ") {
			t.Errorf("as %q: %q, %q", user, said["signal:1"], said["list:/.weir/link"])
		}
		// It still does what it is for, and all inside dies with it.
		b.command = []string{"/probe", "daemon:stay"}
		p, err := b.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(p.Stdout())
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		var is inspected
		e.Get(t, "/containers/"+b.ID()+"/json", &is)
		all := e.Processes(t, b.ID())
		if len(all) < 3 || !slices.Contains(all, is.State.Pid) {
			t.Errorf("processes: %v", all)
		}
		if err := unix.Kill(is.State.Pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if exit := p.Wait(); exit.Code != -1 {
			t.Errorf("exit %+v", exit)
		}
		<-b.Ended()
		for _, pid := range all {
			until(t, "end of the process "+strconv.Itoa(pid), func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
		}
		_, _ = io.Copy(io.Discard, lines)
		_, _, _ = p.Stdin().Close(), p.Stdout().Close(), p.Stderr().Close()
	}
}
