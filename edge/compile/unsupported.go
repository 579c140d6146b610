package compile

// unsupported is one thing that the model knows and the edge cannot do yet. It
// is refused, never accepted and ignored.
type unsupported struct {
	kind string
	path string // a field, or a section with all of its fields

	// allow are the values that the edge serves, or that ask for nothing.
	allow []string

	// enabled is the boolean of the section that turns it on. While it is false
	// the section asks for nothing and is accepted.
	enabled string

	// absent is the value that absence means, where even that is refused.
	absent string

	// with is the field whose refusal says it all: when that is refused, this is
	// not refused once more.
	with string

	instead string // what to do meanwhile; empty when there is nothing but to leave it out
}

// unsupportedFields is the one list of what does not exist yet. A feature that
// arrives takes its lines away, and its fields are served.
func unsupportedFields() []unsupported {
	return []unsupported{
		// What only a server in a container has, or a network of its own.
	}
}
