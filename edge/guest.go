package edge

// Guest is what the programs among the filters of a server want to be asked: a
// function for each phase in the life of a message. One that no program wants to
// be asked in is nil, and costs a comparison. All are safe for concurrent use.
type Guest struct {
	// Filter stands in the hallway before authorization: it asks about calls,
	// about other messages, and about their answers. nil for none.
	Filter Filter

	// Headers are the names, in small letters, of the header lines of clients
	// that programs want to see in Exchange.Heard.
	Headers []string
}
