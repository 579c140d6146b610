package show

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/status"
)

// Look is the status of an edge at a moment.
type Look struct {
	At      time.Time
	Text    []byte // as the edge sent it
	Servers []status.Server
}

// ReadStatus reads the status of the one server of an edge, or the list of all. The error
// says that the text is no status of an edge.
func ReadStatus(at time.Time, text []byte) (*Look, error) {
	var all struct {
		Servers []status.Server `json:"servers"`
		status.Server
	}
	err := json.Unmarshal(text, &all)
	if err == nil && all.Servers == nil {
		all.Servers = []status.Server{all.Server}
	}
	for _, s := range all.Servers {
		if s.Name == "" || s.Phase == "" {
			err = errors.New("no name and phase of a server")
		}
	}
	if err != nil || len(all.Servers) == 0 {
		return nil, errors.New("this address is not that of an edge: name the admin address of one with --admin HOST:PORT")
	}
	return &Look{at, text, all.Servers}, nil
}

// Ready reports whether every server is.
func (l *Look) Ready() bool {
	for _, s := range l.Servers {
		if s.Phase != string(health.PhaseReady) {
			return false
		}
	}
	return true
}

// pace is how busy a backend was between two looks.
type pace struct {
	perSecond float64
	latency   time.Duration // mean of the calls between; 0 without any
	rough     bool          // latency may be a tenth off
}

// named is a backend of a server.
type named struct{ server, backend string }

// paces compares two looks. A backend whose counters began anew in between, as
// they do when the edge is started again, has no pace.
func paces(before, now *Look) map[named]pace {
	out := map[named]pace{}
	seconds := now.At.Sub(before.At).Seconds()
	if seconds <= 0 {
		return out
	}
	old := map[named]status.Backend{}
	for _, s := range before.Servers {
		for _, b := range s.DiscoveredBackends {
			old[named{s.Name, b.Name}] = b
		}
	}
	for _, s := range now.Servers {
		for _, b := range s.DiscoveredBackends {
			was, ok := old[named{s.Name, b.Name}]
			calls := b.Calls - was.Calls
			if !ok || calls < 0 {
				continue
			}
			p := pace{perSecond: float64(calls) / seconds}
			if calls > 0 {
				// The counters give the mean of all calls in whole microseconds, so
				// that a sum of them is off by as many as there were calls.
				millis := (b.Millis*float64(b.Calls) - was.Millis*float64(was.Calls)) / float64(calls)
				millis = max(millis, 0)
				off := float64(max(b.Calls, was.Calls)) / 1000 / float64(calls)
				p.latency = time.Duration(millis * float64(time.Millisecond))
				p.rough = off > millis/10
			}
			out[named{s.Name, b.Name}] = p
		}
	}
	return out
}

// Status writes a status for people; with a look before it, also how busy
// the backends were since.
func Status(w io.Writer, now, before *Look) error {
	var since map[named]pace
	if before != nil {
		since = paces(before, now)
	}
	for i, s := range now.Servers {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := writeServer(w, s, now.At, since); err != nil {
			return err
		}
	}
	return nil
}

func writeServer(w io.Writer, s status.Server, now time.Time, since map[named]pace) error {
	line := FirstLine(s.Name) + ": " + FirstLine(s.Phase)
	if s.Message != "" {
		line += " (" + FirstLine(s.Message) + ")"
	}
	facts := []string{
		count(s.Calls, "call"), fmt.Sprintf("%d in flight", s.Inflight), fmt.Sprintf("%d parked", s.Parked),
		count(int64(s.Sessions), "session"), count(int64(s.Streams), "stream"), count(s.Reloads, "reload"),
	}
	if s.Dropped > 0 {
		facts = append(facts, count(s.Dropped, "notification")+" dropped")
	}
	if _, err := fmt.Fprintf(w, "%s\n%s, weir %s\n%s\n", line, FirstLine(s.URL), FirstLine(s.Version), strings.Join(facts, ", ")); err != nil {
		return err
	}
	if len(s.DiscoveredBackends) > 0 {
		rows := [][]string{{"BACKEND", "STATUS", "CIRCUIT", "ERA", "TOOLS", "PROMPTS", "RESOURCES", "CALLS", "FAILED", "LATENCY"}}
		if since != nil {
			rows[0] = append(rows[0], "CALLS/S", "RECENT")
		}
		rows[0] = append(rows[0], "CHECKED", "MESSAGE")
		for _, b := range s.DiscoveredBackends {
			row := []string{
				b.Name, b.Status, b.CircuitBreakerState, b.Era,
				offers(b, tools), offers(b, prompts), resources(b), number64(b.Calls), number64(b.Failed), latency(b),
			}
			if since != nil {
				row = append(row, recent(since, named{s.Name, b.Name})...)
			}
			row = append(row, ago(checked(b), now), b.Message)
			for i := range row {
				if row[i] = FirstLine(row[i]); row[i] == "" && i < len(row)-1 {
					row[i] = "-"
				}
			}
			rows = append(rows, row)
		}
		if err := Table(w, rows); err != nil {
			return err
		}
	}
	if err := writeList(w, "Advice:", advice(s.Conditions)); err != nil {
		return err
	}
	if err := writeList(w, "Withheld or changed:", s.Withheld); err != nil || s.Reload == "" {
		return err
	}
	return writeList(w, "The last reload changed nothing:", strings.Split(s.Reload, "\n"))
}

// advice is what conditions say that keep nothing from being served, and that somebody should know.
func advice(all []status.Condition) (lines []string) {
	for _, c := range all {
		kind := c.Type == "IdentitySynthesized" || strings.HasSuffix(c.Type, "Warning") || strings.HasSuffix(c.Type, "Ignored")
		if kind && c.Status == "True" {
			lines = append(lines, c.Type+": "+c.Message)
		}
	}
	return lines
}

// writeList writes lines under a title, nothing when there are none.
func writeList(w io.Writer, title string, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w, title); err != nil {
		return err
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, "  "+FirstLine(line)); err != nil {
			return err
		}
	}
	return nil
}

func number64(n int64) string { return strconv.FormatInt(n, 10) }

// count is plural for counters.
func count(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// offers is text of how much a backend offers; "" where the edge does not know.
func offers(b status.Backend, of func(*status.Offer) int) string {
	if b.Offer == nil {
		return ""
	}
	return strconv.Itoa(of(b.Offer))
}

func tools(o *status.Offer) int   { return o.Tools }
func prompts(o *status.Offer) int { return o.Prompts }

// resources is how many resources a backend offers, with templates after a plus.
func resources(b status.Backend) string {
	text := offers(b, func(o *status.Offer) int { return o.Resources })
	if b.Offer != nil && b.Templates > 0 {
		text += "+" + strconv.Itoa(b.Templates)
	}
	return text
}

// checked is when a backend was last checked; the zero time for never.
func checked(b status.Backend) time.Time {
	if b.LastHealthCheck == nil {
		return time.Time{}
	}
	return *b.LastHealthCheck
}

// latency is the mean of all calls; "" without any.
func latency(b status.Backend) string {
	if b.Calls == 0 || math.IsNaN(b.Millis) {
		return ""
	}
	return short(time.Duration(b.Millis * float64(time.Millisecond)))
}

// recent is what CALLS/S and RECENT show.
func recent(since map[named]pace, b named) []string {
	p, ok := since[b]
	if !ok {
		return []string{"", ""}
	}
	rate := strconv.FormatFloat(p.perSecond, 'f', 1, 64)
	switch {
	case p.perSecond == 0:
		return []string{"0", ""}
	case p.rough:
		return []string{rate, "~" + short(p.latency)}
	}
	return []string{rate, short(p.latency)}
}

// short writes a duration with three digits.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < 100*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// ago says how long before now a moment was; "" for never. Clocks of two
// machines may differ: what is to come is now.
func ago(then, now time.Time) string {
	if then.IsZero() {
		return ""
	}
	return max(now.Sub(then), 0).Round(time.Second).String() + " ago"
}
