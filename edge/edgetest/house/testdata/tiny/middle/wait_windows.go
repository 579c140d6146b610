package middle

func init() {
	total = 2
}

func (s Shop) wait() {}
