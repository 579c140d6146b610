package optimizer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
)

// maxNamed is how many tools one finding names.
const maxNamed = 5

// Advice says what of the tools of a catalog makes them hard to find: those that say nothing
// of themselves, and those that say the same in other words or in none.
func Advice(c Catalog) (out []edge.Finding) {
	var silent []string
	alike := map[string][]string{} // names by the words of descriptions
	var order []string
	for target, raw := range c.Items(edge.Tool) {
		if target.Backend == "" {
			continue
		}
		p := partsOf(raw)
		var all []string
		words(p.description, false, func(word string) { all = append(all, word) })
		if len(all) == 0 {
			silent = append(silent, target.Name)
			continue
		}
		slices.Sort(all)
		said := strings.Join(slices.Compact(all), " ")
		if alike[said] == nil {
			order = append(order, said)
		}
		alike[said] = append(alike[said], target.Name)
	}
	if len(silent) > 0 {
		out = append(out, edge.Warning(edge.ClassNames, "give them descriptions, with overrides of aggregation.tools if you must",
			"%s without a description, which clients find by their names alone: %s", edge.Count(len(silent), "tool"), some(silent)))
	}
	for _, said := range order {
		if names := alike[said]; len(names) > 1 {
			out = append(out, edge.Warning(edge.ClassNames, "say in each what the others do not do",
				"%s have like descriptions, and clients cannot tell which one to call: %s", edge.Count(len(names), "tool"), some(names)))
		}
		if len(out) > 20 {
			break
		}
	}
	return out
}

func some(names []string) string {
	more := ""
	if len(names) > maxNamed {
		more = fmt.Sprintf(" and %d more", len(names)-maxNamed)
		names = names[:maxNamed]
	}
	return strings.Join(names, ", ") + more
}

// slow is how long a vector of a question may take before people feel it.
const slow = 300 * time.Millisecond

// Check asks an embedding service for the vector of a question, and says whether it is there
// in time.
func Check(ctx context.Context, s ServiceSpec, key edge.Secret, fetch Fetch) edge.Finding {
	c := &client{s, key, fetch}
	model, _, err := c.info(ctx)
	var began time.Time
	if err == nil {
		_, err = c.embed(ctx, []string{"is somebody there?"}, 0) // a model may have to be loaded first
	}
	if err == nil {
		began = time.Now()
		_, err = c.embed(ctx, []string{"find the tool that reads a file"}, 0)
	}
	took := time.Since(began)
	switch {
	case err != nil:
		return edge.Problem(edge.ClassUnreachable, "start the service, or correct its address; until then tools are found by keywords alone", "embedding service: %v", err)
	case took > questionWait:
		return edge.Warning(edge.ClassTimeout, "take a smaller model, or a faster machine for it", "the model %s takes %s for a question, and questions wait %s: tools are found by keywords alone", edge.Brief(model), took.Round(time.Millisecond), questionWait)
	case took > slow:
		return edge.Warning(edge.ClassTimeout, "take a smaller model, or a faster machine for it", "the model %s takes %s for a question, and each find_tool waits for that", edge.Brief(model), took.Round(time.Millisecond))
	}
	return edge.Fine(fmt.Sprintf("model %s, %s for a question", edge.Brief(model), took.Round(time.Millisecond)))
}
