package edge

// Sample is one number that a room counts. Samples of one name have labels of
// the same names; the values of labels come from sets that are bounded.
type Sample struct {
	Name   string // such as weir_ratelimit_refused; Prometheus gets _total behind the name of a counter
	Help   string
	Gauge  bool // may go down
	Value  float64
	Labels []Header
}

// Collector is a room that counts for itself and is asked when somebody
// collects. It is safe for concurrent use, does not block, and counts what it
// calls a counter upwards only.
type Collector interface {
	Collect(Emitter)
}

// CollectorFunc is a function that is a Collector.
type CollectorFunc func(Emitter)

// Collect calls f.
func (f CollectorFunc) Collect(m Emitter) { f(m) }

// Emitter takes the samples of a room, all with the same labels.
type Emitter struct {
	Emit   func(Sample)
	Labels []Header
}

// With returns an emitter whose samples have one more label.
func (m Emitter) With(name, value string) Emitter {
	m.Labels = append(m.Labels[:len(m.Labels):len(m.Labels)], Header{Name: name, Value: value})
	return m
}

// Gauge emits a number that may go down.
func (m Emitter) Gauge(name, help string, v float64) {
	m.Emit(Sample{Name: name, Help: help, Gauge: true, Value: v, Labels: m.Labels})
}

// Counter emits a number that only goes up.
func (m Emitter) Counter(name, help string, v float64) {
	m.Emit(Sample{Name: name, Help: help, Value: v, Labels: m.Labels})
}
