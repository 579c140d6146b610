package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge/workload"
)

// Steps shows what is waited for: on a terminal in one line that is written anew, elsewhere in
// a line for each step. Where the output is for programs it shows nothing.
type Steps struct {
	out   io.Writer
	file  *os.File // the terminal; nil for none
	mark  string   // of notes
	quiet bool

	mu    sync.Mutex
	text  string
	since time.Time
	over  chan struct{} // closed at the end; nil before the first step on a terminal
	gone  sync.WaitGroup
}

// steps begins to show steps. The caller must call End.
func (a *App) Steps(cmd *cobra.Command) *Steps {
	s := &Steps{out: a.Err, mark: a.Paint(a.Err, Dim, cmd.CommandPath()+": note: "), quiet: WantsJSON(cmd), since: time.Now()}
	kind, _ := Lookup(a.Environ, "TERM")
	if f, ok := a.Err.(*os.File); ok && Terminal(f) && kind != "" && kind != "dumb" {
		s.file = f
	}
	return s
}

// Told is what a manager tells of its steps with one workload; the last one says how it ended.
func (s *Steps) Told(o *Outcome) func(workload.Event) {
	return func(e workload.Event) {
		if e.State != "" {
			o.Status = e.State
		}
		if e.URL != "" {
			o.URL = e.URL
		}
		if e.Text == "" || e.Error != nil || s.quiet {
			return
		}
		text := Naming(o.Name, show.FirstLine(e.Text)) // "NAME: stderr: " stands before what a server says
		if note, is := strings.CutPrefix(text, o.Name+": note: "); is {
			s.stay(s.mark + note)
		} else if strings.HasPrefix(text, o.Name+": warning: ") {
			s.stay(text)
		} else {
			s.Show(text)
		}
	}
}

// stay shows a line that does not make room for the next step.
func (s *Steps) stay(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		text = "\r\x1b[K" + text
	}
	fmt.Fprintln(s.out, text)
}

// Show shows a step.
func (s *Steps) Show(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		fmt.Fprintln(s.out, text)
		return
	}
	s.text = text
	if s.over == nil {
		s.over = make(chan struct{})
		s.gone.Go(func() { s.turn(s.over) })
	}
}

// turn writes the line anew until the end.
func (s *Steps) turn(over <-chan struct{}) {
	const signs = `|/-\`
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		s.mu.Lock()
		line, took := []rune(fmt.Sprintf("%c %s", signs[i%len(signs)], s.text)), fmt.Sprintf(" (%d s)", int(time.Since(s.since).Seconds()))
		if width, _, err := term.GetSize(int(s.file.Fd())); err == nil {
			line = line[:max(0, min(len(line), width-1-len(took)))]
		}
		fmt.Fprintf(s.file, "\r\x1b[K%s%s", string(line), took)
		s.mu.Unlock()
		select {
		case <-over:
			return
		case <-tick.C:
		}
	}
}

// End takes the line away.
func (s *Steps) End() {
	if s.over == nil {
		return
	}
	close(s.over)
	s.gone.Wait()
	fmt.Fprint(s.file, "\r\x1b[K")
}

// Outcome is how acting on one workload ended.
type Outcome struct {
	Name   string         `json:"name"`
	Status workload.State `json:"status"`
	URL    string         `json:"url,omitempty"`

	Err error `json:"-"`
}
