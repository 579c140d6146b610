package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/edge/sandbox/link"
)

var errEOF = io.EOF

// maxHeld is how many descriptors of one link the manager holds at a time.
const maxHeld = 1024

// maxOut is how many of them are connections out, where there is a way out: one more than it
// serves, which it refuses and counts. The others are kept for pipes and connections into the
// server, so that neither uses up what the other needs.
const maxOut = maxHeld/2 + 1

// maxText bounds a text of the helper's that is shown.
const maxText = 500

// session is the manager's end of one link. What comes over it is a stranger's: a message
// that was not asked for, a descriptor that is not what was asked for, and everything else
// that cannot come from the helper as we built it, ends the link and with it the sandbox.
type session struct {
	wire wire
	name string // of the workload

	sending sync.Mutex

	mu      sync.Mutex
	last    uint32 // id that was given
	waiting map[uint32]*question
	procs   map[uint32]*Process
	held    int    // but connections out
	out     int    // connections out
	reason  string // why it is being ended; "" for none
	err     error  // why it ended
	pid     int    // of the helper, as it sees itself
	uid     int    // likewise; once greeted is closed

	passage Passage // nil where nothing goes out
	ports   []int   // that the helper listens on for it
	answers chan link.Message

	// why says why the kernel ended processes, where it did so for the sandbox's limits;
	// nil for nobody who knows.
	why func() string

	greeted chan struct{}
	ended   chan struct{} // closed when the link has ended and err is set
}

// question is what the helper was asked and has not answered.
type question struct {
	kind    link.Kind // of the answer
	port    int       // of a dial
	process *Process  // of a start
	answer  chan answer
}

type answer struct {
	files [3]end // of a process
	conn  held
	err   error
}

// held is a connection that is counted while it is open.
type held interface {
	net.Conn
	onClose(f func())
}

// end is an end of a pipe.
type end = io.ReadWriteCloser

// wire is what carries frames, and what comes beside them. What it was given to judge or to
// close is its own from then on.
type wire interface {
	// next returns the next message, and what came beside it.
	next() (link.Message, []int, error)
	send(m *link.Message) error
	close()

	// pipe makes one end of a pipe of what came, which must be open for flag: O_RDONLY or
	// O_WRONLY.
	pipe(beside, flag int, name string) (end, error)

	// dialed makes the connection to a port inside of what came.
	dialed(beside, port int) (held, error)

	// accepted makes a connection that a server made to one of ports. One whose other end has
	// gone meanwhile is errGone, and no violation.
	accepted(beside int, m *link.Message, ports []int) (held, error)

	// drop closes what came and is not -1.
	drop(beside []int)
}

// socket is a wire of one kernel: what comes beside frames are descriptors.
type socket struct {
	conn   *net.UnixConn
	reader link.Reader
}

func newSocket(conn *net.UnixConn) *socket {
	return &socket{conn, link.Reader{Receive: func(p, oob []byte) (int, int, int, error) {
		n, oobn, flags, _, err := conn.ReadMsgUnix(p, oob)
		return n, oobn, flags, err
	}}}
}

func (s *socket) next() (link.Message, []int, error) { return s.reader.Next() }
func (s *socket) close()                             { _ = s.conn.Close() }
func (s *socket) drop(fds []int)                     { closeAll(fds) }

func (s *socket) send(m *link.Message) error {
	_ = s.conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	return link.Send(func(p, oob []byte) (int, error) {
		n, _, err := s.conn.WriteMsgUnix(p, oob, nil)
		return n, err
	}, m)
}

func (s *socket) pipe(fd, flag int, name string) (end, error) {
	f, err := takePipe(fd, flag, name)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (s *socket) dialed(fd, port int) (held, error) {
	c, err := takeConn(fd, port)
	if err != nil {
		return nil, err
	}
	return c.(*conn), nil
}

func (s *socket) accepted(fd int, _ *link.Message, ports []int) (held, error) {
	c, err := takeOutgoing(fd, ports)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// maxAnswers is how many answers of DNS may wait for a helper; what comes then has none.
const maxAnswers = 64

// newSession takes up a link, with the passage of what goes out, or nil; over is called when it
// has ended, unless it is nil.
func newSession(conn *net.UnixConn, name string, passage Passage, ports []int, over func()) *session {
	return newSessionOver(newSocket(conn), name, passage, ports, over)
}

func newSessionOver(w wire, name string, passage Passage, ports []int, over func()) *session {
	s := &session{
		passage: passage, ports: ports, answers: make(chan link.Message, maxAnswers),
		wire: w, name: name, waiting: map[uint32]*question{}, procs: map[uint32]*Process{},
		greeted: make(chan struct{}), ended: make(chan struct{}),
	}
	if passage != nil {
		go s.answerQueries()
	}
	go func() {
		s.read()
		if passage != nil {
			passage.Close()
		}
		if over != nil {
			over()
		}
	}()
	return s
}

// read takes what the helper sends, until the link ends.
func (s *session) read() {
	var err error
	for err == nil {
		var m link.Message
		var fds []int
		if m, fds, err = s.wire.next(); err == nil {
			err = s.take(&m, fds)
		}
	}
	s.end(err)
}

// errAsked says that the helper sent what nobody asked for.
var errAsked = errors.New("the helper sent what nobody asked for")

// take takes one message and its descriptors.
func (s *session) take(m *link.Message, fds []int) error {
	switch m.Kind {
	case link.Hello:
		return s.hello(m, fds)
	case link.Ended:
		s.mu.Lock()
		p := s.procs[m.ID]
		delete(s.procs, m.ID)
		s.mu.Unlock()
		if p == nil || len(fds) > 0 {
			s.wire.drop(fds)
			return errAsked
		}
		exit := Exit{Code: int(m.A & 0xff)}
		if m.B != 0 {
			exit = Exit{Code: -1, Signal: syscall.Signal(m.B & 0x7f).String()}
		}
		exit.Reason = s.reasonOf()
		p.finish(exit)
		return nil
	case link.Accepted:
		return s.outgoing(m, fds)
	case link.Query:
		if s.passage == nil || len(fds) > 0 {
			s.wire.drop(fds)
			return errAsked
		}
		if answer := s.passage.Answer([]byte(m.Text)); answer != nil {
			select {
			case s.answers <- link.Message{Kind: link.Answer, ID: m.ID, Text: string(answer)}:
			default: // who asked asks again
			}
		}
		return nil
	case link.Started, link.Dialed:
		s.mu.Lock()
		q := s.waiting[m.ID]
		if q != nil && q.kind == m.Kind {
			delete(s.waiting, m.ID)
			if q.process != nil && m.Text == "" { // its end may be the next message
				q.process.terminate = func() { _ = s.send(&link.Message{Kind: link.Signal, ID: m.ID, A: uint32(syscall.SIGTERM)}) }
				q.process.kill = func() { s.kill(m.ID, q.process) }
				s.procs[m.ID] = q.process
			}
		} else {
			q = nil
		}
		s.mu.Unlock()
		if q == nil {
			s.wire.drop(fds)
			return errAsked
		}
		return s.answer(q, m, fds)
	}
	s.wire.drop(fds)
	return errAsked
}

// outgoing takes a connection that a server made on its loopback. One that is more than may
// be held is closed.
func (s *session) outgoing(m *link.Message, fds []int) error {
	if s.passage == nil || len(fds) != 1 {
		s.wire.drop(fds)
		return errAsked
	}
	c, err := s.wire.accepted(fds[0], m, s.ports)
	if errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	room := s.out < maxOut
	if room {
		s.out++
	}
	s.mu.Unlock()
	if !room {
		return c.Close()
	}
	c.onClose(sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.out--
	}))
	go s.passage.Serve(c)
	return nil
}

// answerQueries sends answers of DNS, until the link ends: a helper that takes nothing does
// not keep the link from being read.
func (s *session) answerQueries() {
	for {
		select {
		case m := <-s.answers:
			if s.send(&m) != nil {
				return
			}
		case <-s.ended:
			return
		}
	}
}

func (s *session) hello(m *link.Message, fds []int) error {
	s.wire.drop(fds)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid != 0 || len(fds) > 0 || m.A != link.Version || m.B == 0 {
		return errAsked
	}
	s.pid, s.uid = int(m.B), int(m.C)
	close(s.greeted)
	return nil
}

// answer gives what came to who asked. A violation is an answer too, and ends the link.
func (s *session) answer(q *question, m *link.Message, fds []int) error {
	var a answer
	var violation error
	switch {
	case m.Text != "" && len(fds) == 0:
		a.err = errors.New(clean(m.Text))
	case q.kind == link.Started && m.Text == "" && len(fds) == 3:
		for i, flag := range [...]int{unix.O_WRONLY, unix.O_RDONLY, unix.O_RDONLY} {
			f, err := s.wire.pipe(fds[i], flag, [...]string{"stdin", "stdout", "stderr"}[i])
			if err != nil {
				violation = err
				fds[i] = -1
				continue
			}
			a.files[i], fds[i] = f, -1
		}
	case q.kind == link.Dialed && m.Text == "" && len(fds) == 1:
		c, err := s.wire.dialed(fds[0], q.port)
		if err != nil {
			violation = err
		} else {
			a.conn = c
		}
		fds[0] = -1
	default:
		violation = errAsked
	}
	s.wire.drop(fds)
	if violation != nil {
		a.close()
		a = answer{err: violation}
	}
	q.answer <- a // has room for one
	return violation
}

func (a *answer) close() {
	for _, f := range a.files {
		if f != nil {
			_ = f.Close()
		}
	}
	if a.conn != nil {
		_ = a.conn.Close()
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// clean makes a stranger's text one that may be shown.
func clean(text string) string {
	out := make([]rune, 0, min(len(text), maxText))
	for _, r := range text {
		if len(out) == maxText {
			break
		}
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			r = '?'
		}
		out = append(out, r)
	}
	return string(out)
}

// end ends the link: all that waits fails, all processes have ended, descriptors that
// nobody took are closed.
func (s *session) end(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		err = errors.New("the sandbox has ended")
	}
	s.err = err
	waiting, procs := s.waiting, s.procs
	s.waiting, s.procs = map[uint32]*question{}, map[uint32]*Process{}
	s.mu.Unlock()
	s.wire.close()
	reason := s.reasonOf()
	for _, p := range procs {
		p.finish(Exit{Code: -1, Signal: syscall.SIGKILL.String(), Reason: reason})
	}
	close(s.ended)
	for _, q := range waiting {
		q.answer <- answer{err: err}
	}
}

// reasonOf is why processes end, where it is not their own doing.
func (s *session) reasonOf() string {
	s.mu.Lock()
	reason, why := s.reason, s.why
	s.mu.Unlock()
	if reason == "" && why != nil {
		reason = why()
	}
	return reason
}

// kill ends all that a process started. A helper that cannot do it any more ends with
// everything else.
func (s *session) kill(id uint32, p *Process) {
	if s.send(&link.Message{Kind: link.Kill, ID: id}) != nil {
		return
	}
	time.AfterFunc(time.Second, func() {
		if !p.hasEnded() {
			s.close("")
		}
	})
}

// close ends the link for a reason of ours.
func (s *session) close(reason string) {
	s.mu.Lock()
	if s.reason == "" {
		s.reason = reason
	}
	s.mu.Unlock()
	s.wire.close() // read sees it
}

// greet waits for the helper's first message.
func (s *session) greet(ctx context.Context) error {
	select {
	case <-s.greeted:
		return nil
	case <-s.ended:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *session) send(m *link.Message) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	err := s.wire.send(m)
	if err != nil && !errors.Is(err, link.ErrSize) {
		s.end(fmt.Errorf("link: %w", err)) // half a frame may be there
	}
	return err
}

// ask sends a request and waits for its answer. It reserves n descriptors, which count until
// release has been called n times.
func (s *session) ask(ctx context.Context, m *link.Message, q *question, n int) (answer, error) {
	q.answer = make(chan answer, 1)
	most := maxHeld
	if s.passage != nil {
		most -= maxOut
	}
	s.mu.Lock()
	switch {
	case s.err != nil:
		s.mu.Unlock()
		<-s.ended // so that who is told so, sees that it has ended
		return answer{}, s.err
	case s.held+n > most:
		s.mu.Unlock()
		return answer{}, fmt.Errorf("%d descriptors of one sandbox are open: close some", most)
	}
	s.held += n
	s.last++
	m.ID = s.last
	s.waiting[m.ID] = q
	s.mu.Unlock()
	err := s.send(m)
	if err != nil {
		s.mu.Lock()
		delete(s.waiting, m.ID)
		s.mu.Unlock()
		s.release(n)
		if !errors.Is(err, link.ErrSize) {
			<-s.ended
		}
		return answer{}, err
	}
	select {
	case a := <-q.answer:
		if a.err != nil {
			s.release(n)
		}
		return a, a.err
	case <-ctx.Done():
		// It comes, or the link ends: then it is closed.
		go func() {
			a := <-q.answer
			a.close()
			s.release(n)
			if q.process != nil && a.err == nil {
				q.process.Kill()
			}
		}()
		return answer{}, ctx.Err()
	}
}

func (s *session) release(n int) {
	s.mu.Lock()
	s.held -= n
	s.mu.Unlock()
}

// start starts a process.
func (s *session) start(ctx context.Context, args, env []string, dir string) (*Process, error) {
	p := newProcess()
	m := link.Message{Kind: link.Start, Args: args, Env: env, Text: dir}
	a, err := s.ask(ctx, &m, &question{kind: link.Started, process: p}, 3)
	if err != nil {
		return nil, err
	}
	streams := [3]end{}
	for i, f := range a.files {
		closed := sync.OnceFunc(func() { s.release(1) })
		if file, ok := f.(*os.File); ok {
			streams[i] = &stream{file, closed}
		} else {
			streams[i] = &carried{f, closed}
		}
	}
	p.stdin, p.stdout, p.stderr = streams[0], streams[1], streams[2]
	return p, nil
}

// stream is an end of a pipe that is counted while it is open.
type stream struct {
	*os.File
	closed func()
}

func (s *stream) Close() error {
	err := s.File.Close()
	s.closed()
	return err
}

// carried is as a stream, of another link than one by a socket.
type carried struct {
	end
	closed func()
}

func (c *carried) Close() error {
	err := c.end.Close()
	c.closed()
	return err
}

// dial connects to a port inside.
func (s *session) dial(ctx context.Context, port int) (net.Conn, error) {
	a, err := s.ask(ctx, &link.Message{Kind: link.Dial, A: uint32(port)}, &question{kind: link.Dialed, port: port}, 1)
	if err != nil {
		return nil, fmt.Errorf("port %d of %s: %w", port, s.name, err)
	}
	a.conn.onClose(sync.OnceFunc(func() { s.release(1) }))
	return a.conn, nil
}
