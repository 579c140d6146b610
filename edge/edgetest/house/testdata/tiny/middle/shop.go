package middle

import "example.org/tiny/low"

// Shop has two fields and, with the files of other systems, three methods.
type Shop struct {
	name, street string
	guard
}

type guard interface {
	Watch(low.Key) bool
	Sleep()
}

// any number: a constraint is no interface with methods.
type number interface{ ~int | ~float64 }

// Open uses what door.go and till.go declare.
func (s Shop) Open(k low.Key) {
	door{}.unlock(k)
	s.count(sum(1, 2))
}

func sum[N number](a, b N) N { return a + b }
