package workload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/workload/logs"
)

// Edge serves workloads, each at a door of its own. What happens to one leaves the others
// alone. It is safe for concurrent use.
type Edge interface {
	// Read judges the manifests of a workload, and says what it is. It opens nothing. The
	// error is an *Error.
	Read(manifest []byte) (*Facts, error)

	// Open opens the door of a workload that is not open. An error changes nothing; it is
	// an *Error of CodeTaken where somebody else has the address.
	Open(o Opening) error

	// Meet returns when the server of an open workload has introduced itself, or why it
	// does not. Each call after the first has it do so anew, with a process of its own
	// where none runs.
	Meet(ctx context.Context, name string) error

	// Look says how an open workload is; false for one that is not open.
	Look(name string) (Look, bool)

	// Close closes the door of a workload, and ends its processes: in order, and when that
	// takes longer than within, at once. It returns when they have ended.
	Close(name string, within time.Duration) error
}

// Sweeper is an Edge whose workloads may leave something behind that does not end with their
// process.
type Sweeper interface {
	// Sweep removes what an earlier process left behind of workloads that are unwanted. It is
	// called once, before anything is opened.
	Sweep(unwanted func(name string) bool)
}

// Remover is an Edge that keeps something for workloads as long as they are there.
type Remover interface {
	// Removed is told that a workload was removed, and is closed; not when another one takes
	// its place. The error says what of it is left.
	Removed(name string) error
}

// Facts are what the manifests of a workload say of it.
type Facts struct {
	Name      string
	Package   string   // the server as it was named
	Command   []string // what is run; nil for a URL
	Transport string
	ProxyMode string
	Group     string
	Host      string // of the door
	Port      int    // 0 where none is given
	Labels    map[string]string
	Tools     []string
	Remote    bool
	Isolation bool
}

// Opening is a workload that is to be served.
type Opening struct {
	Name     string
	Manifest []byte
	Folder   string     // of this workload alone, absolute; its home is in it
	Lines    func(Line) // takes what the server prints, and what happens to its processes

	Say func(text string) // tells whoever waits for the start what it waits for

	// Remembered and Remember keep what the server of a digest speaks.
	Remembered func(digest string) (modern, known bool)
	Remember   func(digest string, modern bool)
}

// Look is how a workload is at a moment, as who serves it sees it.
type Look struct {
	State     State // Starting, Running, Unhealthy, AuthRetrying where its credential is refused, or Failed
	Reason    string
	URL       string
	RunAs     []string // as run, where that is another command than the given one
	Sandbox   string   // the grade that holds; "" while nobody knows
	Notes     []string // what it does not hold
	Tools     []string // what there is to know of its tools, such as one that a rule names and that is not there
	Image     string   // that containers are made of, by digest; "" for none
	Verified  string   // who signed it, or why that is not certain; "" for what is no image
	Open      bool     // the network, though it was to be isolated: the grade cannot hold what the profile names
	Processes int
	Restarts  int
	RSSBytes  int64
	Ended     string   // how the process ended that ended last; "" for none
	Over      bool     // and nothing starts another one but a start of the workload
	Stderr    []string // its last lines
	Next      string   // what to do about that end, where it says so; "" for looking into the log
}

// KeeperOptions are what a Keeper is made with.
type KeeperOptions struct {
	Paths   Paths
	Edge    Edge
	Log     *slog.Logger
	Version string // of the program
	Watcher string // who starts the process again; "" for nobody
	Admin   string // the admin address; "" for none
	Boot    string // which start of the system this is; "" for what the system says

	// Rotated is called when the audit logs of workloads were begun anew, since they were
	// full; nil where nobody writes any.
	Rotated func()

	// Forget removes what was kept for a workload that is gone, by its manifests, unless it is
	// of use for another one; nil where nothing is. It says what it has removed.
	Forget func(ctx context.Context, manifest []byte, others [][]byte) (forgotten []string, err error)

	// Ports are those from which doors without a given one have theirs, 0 for the usual ones;
	// nil for the usual ones.
	Ports func() (first, last int, err error)

	// Unlock takes the password of the user's secrets; nil where none has to be given.
	Unlock http.Handler

	// Judge says why a workload that is to take the place of another one could not be started,
	// and starts nothing: say is told what takes long. nil for not looking.
	Judge func(ctx context.Context, manifest []byte, say func(text string)) error

	// Evict removes a workload of another keeper, whose name is to be taken, once what is to take
	// it was judged; nil for none.
	Evict func(ctx context.Context, name string) error

	// Foreground says that the process keeps one workload, that it is given by Run, as
	// long as it lives. It is no manager then.
	Foreground bool
}

// Keeper is the manager: it keeps the workloads of one user. It is safe for concurrent use.
type Keeper struct {
	KeeperOptions
	lock  *os.File // of the manager; nil in the foreground
	lost  chan struct{}
	since time.Time

	parent int // the process that started this one: its watcher, where it has one

	life   context.Context // ends with End
	end    context.CancelFunc
	starts chan struct{} // has room for as many as may start at a time

	// mu is taken before the mu of a workload, never after it.
	mu          sync.Mutex
	all         map[string]*one
	work        sync.WaitGroup // goroutines, which are begun while life lasts, with mu
	grouping    sync.Mutex     // held while groups.yaml changes
	transitions map[Transition]int64
}

// Transition is a workload and a state that it came to.
type Transition struct {
	Workload string
	To       State
}

var _ Manager = (*Keeper)(nil)

// startsAtOnce is how many workloads start at a time.
const startsAtOnce = 8

// startsFor is for how long one counts as one of them: what takes longer waits for its server.
const startsFor = 10 * time.Second

// ErrManaged says that another manager runs.
var ErrManaged = errors.New("another manager runs: `weir list` shows what it keeps, `weir up --replace` takes its place")

// Open makes a keeper, which reads what was kept before. It fails where another manager
// runs (ErrManaged), and where others than this user can reach what is kept.
func Open(o KeeperOptions) (_ *Keeper, err error) {
	k := &Keeper{KeeperOptions: o, since: time.Now(), parent: os.Getppid(), lost: make(chan struct{}), starts: make(chan struct{}, startsAtOnce), all: map[string]*one{}, transitions: map[Transition]int64{}}
	if k.Boot == "" {
		text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // "" where nothing tells one start of the system from another
		k.Boot = strings.TrimSpace(string(text))
	}
	for _, dir := range []string{o.Paths.State, o.Paths.Workloads()} {
		if err := privateDir(dir); err != nil {
			return nil, o.Paths.Unusable(err)
		}
	}
	k.life, k.end = context.WithCancel(context.Background())
	if o.Foreground {
		return k, nil
	}
	for range 5 { // somebody may only look whether there is a manager
		if k.lock, err = edge.LockFile(o.Paths.Lock()); !errors.Is(err, edge.ErrHeld) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if errors.Is(err, edge.ErrHeld) {
		return nil, ErrManaged
	} else if err != nil {
		return nil, fmt.Errorf("lock of the manager: %w", err)
	}
	sweep(o.Paths.State)
	entries, err := os.ReadDir(o.Paths.Workloads())
	if err != nil {
		k.lock.Close()
		return nil, o.Paths.Unusable(err)
	}
	var names []string
	for _, e := range entries {
		if checkName("workload", e.Name()) != nil {
			continue
		}
		if k.load(e.Name()) {
			names = append(names, e.Name())
		}
	}
	k.endOrphans(names)
	if s, ok := k.Edge.(Sweeper); ok {
		s.Sweep(func(name string) bool { return slices.Contains(names, name) || !k.held(name) })
	}
	return k, nil
}

// held reports whether another process keeps a workload now, as one in the foreground that has
// begun since this one looked: its directory is locked before anything of it is made.
func (k *Keeper) held(name string) bool {
	if checkName("workload", name) != nil {
		return false
	}
	folder, err := openFolder(filepath.Join(k.Paths.Workloads(), name))
	if err == nil {
		folder.close()
	}
	return errors.Is(err, edge.ErrHeld)
}

// load takes up a workload that was kept before; false for one that another process keeps.
// What is wrong with it harms it alone.
func (k *Keeper) load(name string) bool {
	w := newOne(k, name)
	path := filepath.Join(k.Paths.Workloads(), name)
	folder, err := openFolder(path)
	switch {
	case errors.Is(err, edge.ErrHeld):
		return false // it runs in the foreground of another process
	case err != nil:
		w.broken(err)
	case readRecord(path).Foreground: // and its process is gone
		if err := k.bury(folder, name); err != nil {
			k.Log.Warn("a workload that ran in the foreground is not removed", "workload", name, "error", err)
		}
		return true
	default:
		w.adopt(folder)
	}
	k.all[name] = w
	return true
}

// Begin starts what is to run, and looks after it from then on. What Run was given in the
// foreground runs already.
func (k *Keeper) Begin() {
	for _, w := range k.sorted() {
		if !k.Foreground && w.wanted() && w.try() {
			w.begin(false)
		}
	}
	k.spawn(k.supervise)
}

// watched is who starts the process again; "" for nobody, as when the watcher was killed.
func (k *Keeper) watched() string {
	if os.Getppid() != k.parent {
		return ""
	}
	return k.Watcher
}

// Lost is closed when what is kept was removed under the keeper: another one may keep workloads
// there by now.
func (k *Keeper) Lost() <-chan struct{} { return k.lost }

// robbed reports whether the lock of the manager is that of a file that nobody finds any longer.
func (k *Keeper) robbed() bool {
	if k.lock == nil {
		return false
	}
	mine, failed := k.lock.Stat()
	now, err := os.Lstat(k.Paths.Lock())
	return errors.Is(err, fs.ErrNotExist) || failed == nil && err == nil && !os.SameFile(mine, now)
}

// Again has what failed tried again at once: the reason may be gone.
func (k *Keeper) Again() {
	for _, w := range k.sorted() {
		w.mu.Lock()
		w.next, w.hopeless = time.Time{}, false
		w.mu.Unlock()
	}
}

// Note writes a line of the edge about a workload to its log.
func (k *Keeper) Note(workload, text string) {
	k.mu.Lock()
	w := k.all[workload]
	k.mu.Unlock()
	if w == nil {
		return
	}
	w.mu.Lock()
	log := w.edge
	w.mu.Unlock()
	if log != nil {
		log.Add(Line{Time: time.Now(), Source: logs.Edge, Text: text})
	}
}

// End ends the starts under way, and starts nothing again. Who serves the workloads ends
// after it, and then Close follows.
func (k *Keeper) End() {
	k.mu.Lock()
	k.end()
	k.mu.Unlock()
	k.work.Wait()
}

// Close ends what is left of the workloads' processes, and gives the locks back.
func (k *Keeper) Close() {
	k.End()
	var names []string
	for _, w := range k.sorted() {
		names = append(names, w.name)
	}
	k.endOrphans(names)
	for _, w := range k.sorted() {
		w.leave()
	}
	if k.lock != nil {
		k.lock.Close()
	}
}

// spawn runs f on a goroutine that End waits for; false once that was called.
func (k *Keeper) spawn(f func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.life.Err() != nil {
		return false
	}
	k.work.Go(f)
	return true
}

// sorted returns the workloads by name.
func (k *Keeper) sorted() (all []*one) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(k.all)) {
		all = append(all, k.all[name])
	}
	return all
}

// Transitions counts what states the workloads came to.
func (k *Keeper) Transitions() map[Transition]int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.transitions)
}

// Managed reports whether a manager has the lock of what is kept.
func Managed(paths Paths) bool {
	lock, err := edge.LockFile(paths.Lock())
	if err == nil {
		lock.Close()
	}
	return errors.Is(err, edge.ErrHeld)
}
