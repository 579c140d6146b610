package peers_test

import "github.com/weir-edge/weir/edge/edgetest/peers"

// args are named values.
type args = map[string]any

// use is something of a server to be used by name. Answer is what a tool that
// asks is told: the content of a form, or the words of a model.
type use struct {
	Name      string `json:"name"`
	Arguments args   `json:"arguments,omitempty"`
	Count     int    `json:"count,omitempty"` // of progress notifications
	Answer    any    `json:"answer,omitempty"`
}

// all returns the arguments; there is always an object of them.
func (u use) all() args {
	if u.Arguments == nil {
		return args{}
	}
	return u.Arguments
}

// plan is what a client is told to do; clients/steps.mjs describes it.
type plan struct {
	Transport string `json:"transport"`
	Mode      string `json:"mode"`
	Call      use    `json:"call"`
	Header    *use   `json:"header,omitempty"`
	Progress  use    `json:"progress"`
	Resource  string `json:"resource"`
	Prompt    use    `json:"prompt"`
	Elicit    *use   `json:"elicit,omitempty"`
	Sample    *use   `json:"sample,omitempty"`
}

// seen is what a client saw. A client of the table that cannot tell something
// leaves it empty.
type seen struct {
	Version   string    `json:"version"` // the negotiated revision
	Tools     []string  `json:"tools"`
	Call      string    `json:"call"`
	Header    string    `json:"header"`
	Progress  []float64 `json:"progress"`
	Resources []string  `json:"resources"`
	Resource  string    `json:"resource"`
	Prompts   []string  `json:"prompts"`
	Prompt    string    `json:"prompt"`
	Elicit    asked     `json:"elicit"`
	Sample    asked     `json:"sample"`
}

// asked is a call during which the server asked its client.
type asked struct {
	Asked string `json:"asked"` // its words
	Said  string `json:"said"`  // the result of the call
}

// stock is a server, what it has, and what is seen when that is used. In want
// the lists hold what a client must find among others, and Said is a part.
type stock struct {
	peers.Server
	has  plan
	want seen
}

// stocks are the rows of the table. document is the text of the resource that
// the npm servers read from their package.
func stocks(document string) []stock {
	goHas := func(elicit, sample *use) plan {
		return plan{
			Call:     use{Name: "json_schema_2020_12_tool", Arguments: args{"email": "weir@example.org", "name": "weir"}},
			Header:   &use{Name: "test_x_mcp_header", Arguments: args{"region": "Zürich "}},
			Progress: use{Name: "test_tool_with_progress", Count: 3},
			Resource: "test://static-text",
			Prompt:   use{Name: "test_prompt_with_arguments", Arguments: args{"arg1": "one", "arg2": "two"}},
			Elicit:   elicit, Sample: sample,
		}
	}
	goWants := func(elicit, sample asked) seen {
		return seen{
			Tools:     []string{"json_schema_2020_12_tool", "test_elicitation", "test_sampling", "test_simple_text", "test_x_mcp_header"},
			Call:      `JSON Schema 2020-12 tool called with: {"email":"weir@example.org","name":"weir"}`,
			Header:    "region=Zürich ",
			Progress:  []float64{0, 50, 100},
			Resources: []string{"test://static-text", "test://static-binary", "test://watched-resource"},
			Resource:  "This is the content of the static text resource.",
			Prompts:   []string{"test_simple_prompt", "test_prompt_with_arguments"},
			Prompt:    "Prompt with arguments: arg1='one', arg2='two'",
			Elicit:    elicit, Sample: sample,
		}
	}
	npm := func(server peers.Server) stock {
		return stock{
			Server: server,
			has: plan{
				Call:     use{Name: "echo", Arguments: args{"message": "weir"}},
				Progress: use{Name: "trigger-long-running-operation", Arguments: args{"duration": 0.1, "steps": 4}, Count: 4},
				Resource: "demo://resource/static/document/features.md",
				Prompt:   use{Name: "args-prompt", Arguments: args{"city": "Bern"}},
				Elicit:   &use{Name: "trigger-elicitation-request", Answer: args{"name": "weir"}},
				Sample:   &use{Name: "trigger-sampling-request", Arguments: args{"prompt": "say something"}, Answer: "something"},
			},
			want: seen{
				Tools:     []string{"echo", "get-sum", "get-structured-content", "trigger-long-running-operation"},
				Call:      "Echo: weir",
				Progress:  []float64{1, 2, 3, 4},
				Resources: []string{"demo://resource/static/document/features.md", "demo://resource/static/document/startup.md"},
				Resource:  document,
				Prompts:   []string{"simple-prompt", "args-prompt"},
				Prompt:    "What's weather in Bern?",
				Elicit:    asked{"Please provide inputs for the following fields:", "- Name: weir"},
				Sample:    asked{"Resource trigger-sampling-request context: say something", `"text": "something"`},
			},
		}
	}
	return []stock{
		{
			Server: peers.GoServer(peers.Legacy),
			has: goHas(
				&use{Name: "test_elicitation", Arguments: args{"message": "who are you?"}, Answer: args{"username": "weir"}},
				&use{Name: "test_sampling", Arguments: args{"prompt": "say something"}, Answer: "something"},
			),
			want: goWants(
				asked{"who are you?", "Elicitation result: action=accept, content=map[username:weir]"},
				asked{"say something", "LLM response: something"},
			),
		},
		{
			Server: peers.GoServer(peers.Modern),
			has: goHas(
				&use{Name: "test_input_required_result_elicitation", Answer: args{"name": "weir"}},
				&use{Name: "test_input_required_result_sampling", Answer: "something"},
			),
			want: goWants(
				asked{"What is your name?", "Hello, weir!"},
				asked{"What is the capital of France?", "Sampling response: something"},
			),
		},
		npm(peers.NpmHTTP()),
		npm(peers.NpmSSE()),
		npm(peers.NpmStdio()),
	}
}
