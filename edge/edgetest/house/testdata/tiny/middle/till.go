package middle

var total int

func init() {
	total = 1
}

func (s Shop) count(n int) {
	total += n
}
