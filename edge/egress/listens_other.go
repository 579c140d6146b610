//go:build !linux

package egress

import "errors"

// edgeListens is not known on other systems, where no sandbox goes out by a proxy.
func edgeListens(int) (bool, error) { return false, errors.ErrUnsupported }
