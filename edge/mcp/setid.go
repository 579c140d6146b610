package mcp

// SetID gives the message another id. The message must own its bytes and its text must
// be shared with nobody: where the new id is not longer they are changed in place, so that
// a large answer is not copied.
func (m *Message) SetID(id []byte) {
	if !m.ID.OK() {
		return
	}
	was, old := m.ID, m.Raw
	by := len(id) - int(was.End-was.Start)
	switch {
	case by > 0:
		m.Raw = Splice(make([]byte, 0, len(old)+by), old, Edit{was, id})
	case int(was.Start) < len(old)-int(was.End): // what stands before it is shorter
		copy(old[-by:], old[:was.Start])
		m.Raw = old[-by:]
		copy(m.Raw[was.Start:], id)
	default:
		copy(old[was.Start:], id)
		copy(old[int(was.Start)+len(id):], old[was.End:])
		m.Raw = old[:len(old)+by]
	}
	if by != 0 {
		m.shift(was.End, by)
	}
	m.ID = Span{was.Start, uint32(int(was.End) + by)}
}

// shift moves what stands at or after a place by so many bytes.
func (m *Message) shift(from uint32, by int) {
	move := func(at *uint32) {
		if *at >= from {
			*at = uint32(int(*at) + by)
		}
	}
	span := func(s *Span) {
		if s.OK() {
			move(&s.Start)
			move(&s.End)
		}
	}
	span(&m.Params)
	span(&m.Result)
	span(&m.Error)
	for i := range m.n {
		move(&m.members[i].start)
		span(&m.members[i].value)
	}
	for i := range m.more {
		move(&m.more[i].start)
		span(&m.more[i].value)
	}
}
