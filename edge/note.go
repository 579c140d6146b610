package edge

// Note is what a program, or the edge for one, writes beside a message for whoever reads
// its record.
type Note struct {
	By   string // name of the filter
	Name string
	Text string
}

// maxNotes is how many notes a message carries. Further ones are dropped.
const maxNotes = 32

// Note adds a note. The owner of the exchange calls it.
func (x *Exchange) Note(by, name, text string) {
	if len(x.Notes) < maxNotes {
		x.Notes = append(x.Notes, Note{by, name, text})
	}
}
