package guest

// glob reports whether text matches a pattern in which * stands for any
// characters. Its time is at most proportional to the product of their
// lengths; it does not allocate.
func glob[T string | []byte](pattern string, text T) bool {
	p, t := 0, 0
	star, from := -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, t
			p++
		case p < len(pattern) && pattern[p] == text[t]:
			p, t = p+1, t+1
		case star >= 0:
			from++
			p, t = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// anyGlob reports whether text matches one of the patterns, or there are
// none.
func anyGlob[T string | []byte](patterns []string, text T) bool {
	for _, p := range patterns {
		if glob(p, text) {
			return true
		}
	}
	return len(patterns) == 0
}
