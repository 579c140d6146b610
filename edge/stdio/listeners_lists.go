package stdio

import "github.com/weir-edge/weir/edge/mcp"

// lists are bits of the kinds of lists whose changes are told of.
type lists uint8

var listsByName = map[string]lists{"toolsListChanged": 1, "promptsListChanged": 2, "resourcesListChanged": 4}

// listsOf splits the notifications member of subscriptions/listen: the lists that it wishes for,
// and the JSON text of what else it is for.
func listsOf(notifications []byte) (w lists, rest []byte) {
	var drop []string
	for _, f := range mcp.Members(notifications) {
		kind, list := listsByName[string(f.Name)]
		switch value := string(f.Value); {
		case list && value == "true":
			w |= kind
		case list && value == "false":
		case string(f.Name) == "resourceSubscriptions" && value[0] == '[' && len(mcp.Elements(f.Value)) == 0:
		default:
			continue
		}
		drop = append(drop, string(f.Name))
	}
	return w, mcp.Change(notifications, drop)
}

// members are the lists in the notifications member.
func (w lists) members() (set []mcp.Member) {
	for _, name := range []string{"toolsListChanged", "promptsListChanged", "resourcesListChanged"} {
		if w&listsByName[name] != 0 {
			set = append(set, mcp.With(name, "true"))
		}
	}
	return set
}

// listOf is the list of whose change a notification tells; 0 for others.
func listOf(method string) lists {
	switch method {
	case "notifications/tools/list_changed":
		return 1
	case "notifications/prompts/list_changed":
		return 2
	case "notifications/resources/list_changed":
		return 4
	}
	return 0
}

var listMethods = []string{"notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed"}
