// Package kit is of the tools: its interface is not counted.
package kit

type faker interface{ Fake() }

func init() {}

var _ faker
