// Package items holds tests alone. They hold a running edge before several
// backends to the rules that proxies of this protocol get wrong (TestItem01 to
// TestItem24), to what backends that mean harm or are broken may not do to the
// others (TestP05 and on), and to its behaviour when the process is reloaded,
// killed or short of something (TestL02 and on).
//
// Backends are fake servers of edgetest; the edge is the one of the module,
// within the test where that shows the same, and else the program weir.
package items
