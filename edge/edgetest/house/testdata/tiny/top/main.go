// Command top uses all that is below it.
package main

import (
	"example.org/tiny/low"
	"example.org/tiny/middle"
)

func main() {
	middle.Shop{}.Open(low.Key(0))
}
