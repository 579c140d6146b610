package v1beta1

// CompositeTool is a workflow of tool calls that clients call as one tool. It
// has either steps or a script.
type CompositeTool struct {
	// Name of the tool, unique within the server.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// Description of what the tool does.
	Description string `json:"description,omitempty"`

	// Parameters is a JSON Schema of type object.
	Parameters JSONObject `json:"parameters,omitempty"`

	// Steps of the workflow. Exclusive with script.
	Steps []WorkflowStep `json:"steps,omitempty"`

	// Script is the workflow as a Starlark program. Exclusive with steps.
	Script string `json:"script,omitempty"`

	// Timeout of the whole workflow.
	Timeout Duration `json:"timeout,omitempty"`

	// Output says how the result is made. Without it the result is the output of
	// the last step, or what the script returns.
	Output *WorkflowOutput `json:"output,omitempty"`

	// Annotations that clients see.
	Annotations *ToolAnnotations `json:"annotations,omitempty"`
}

// StepType is what a step does.
// +kubebuilder:validation:Enum=tool;elicitation;forEach
type StepType string

// The types of steps.
const (
	StepTool        StepType = "tool"
	StepElicitation StepType = "elicitation"
	StepForEach     StepType = "forEach"
)

// WorkflowStep is one step of a workflow.
type WorkflowStep struct {
	// ID of the step, unique within the workflow.
	// +kubebuilder:validation:MinLength=1
	ID string `json:"id"`

	// Type of the step.
	// +kubebuilder:default=tool
	Type StepType `json:"type,omitempty"`

	// Tool to call, workload.tool_name. Only when type is tool.
	Tool string `json:"tool,omitempty"`

	// Arguments of the call. String values are templates over .params and .steps.
	Arguments JSONObject `json:"arguments,omitempty"`

	// Condition is a template; the step runs only if it yields true.
	Condition string `json:"condition,omitempty"`

	// DependsOn lists the steps that must end first.
	DependsOn []string `json:"dependsOn,omitempty"`

	// DefaultResults stand in for the output of a step that is skipped, or that
	// fails while onError.action is continue.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	DefaultResults JSONValue `json:"defaultResults,omitempty"`

	// Timeout of the step.
	Timeout Duration `json:"timeout,omitempty"`

	// OnError says what happens when the step fails.
	OnError *OnError `json:"onError,omitempty"`

	// Message to the user. Only when type is elicitation.
	Message string `json:"message,omitempty"`

	// Schema of the user's answer. Only when type is elicitation.
	Schema JSONObject `json:"schema,omitempty"`

	// OnDecline says what happens when the user declines. Only when type is
	// elicitation.
	OnDecline *ElicitationResponse `json:"onDecline,omitempty"`

	// OnCancel says what happens when the user cancels. Only when type is
	// elicitation.
	OnCancel *ElicitationResponse `json:"onCancel,omitempty"`

	// Collection is a template that yields a JSON array. Only when type is
	// forEach.
	Collection string `json:"collection,omitempty"`

	// ItemVar is the name of the loop variable. Only when type is forEach; the
	// default is item.
	ItemVar string `json:"itemVar,omitempty"`

	// MaxIterations of the loop, at most 1000. Only when type is forEach; the
	// default is 100.
	// +weir:low=1
	// +weir:high=1000
	MaxIterations *int `json:"maxIterations,omitempty"`

	// MaxParallel is how many items run at once, at most 50. Only when type is
	// forEach; the default is 10.
	// +weir:low=1
	// +weir:high=50
	MaxParallel *int `json:"maxParallel,omitempty"`

	// Step is run for each item. Only when type is forEach.
	Step *InnerStep `json:"step,omitempty"`
}

// InnerStep is the step that a forEach runs for each item: a tool call.
type InnerStep struct {
	// ID of the step.
	ID string `json:"id,omitempty"`

	// Type is tool.
	// +kubebuilder:default=tool
	// +kubebuilder:validation:Enum=tool
	Type StepType `json:"type,omitempty"`

	// Tool to call, workload.tool_name.
	// +kubebuilder:validation:MinLength=1
	Tool string `json:"tool"`

	// Arguments of the call. String values are templates over .params, .steps
	// and .forEach.
	Arguments JSONObject `json:"arguments,omitempty"`

	// Condition is a template; the call is made only if it yields true.
	Condition string `json:"condition,omitempty"`

	// DefaultResults stand in for the output of a call that is skipped or fails.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	DefaultResults JSONValue `json:"defaultResults,omitempty"`

	// Timeout of the call.
	Timeout Duration `json:"timeout,omitempty"`

	// OnError says what happens when the call fails.
	OnError *OnError `json:"onError,omitempty"`
}

// ErrorAction is what happens when a step fails.
// +kubebuilder:validation:Enum=abort;continue;retry
type ErrorAction string

// What may happen when a step fails.
const (
	ErrorAbort    ErrorAction = "abort"
	ErrorContinue ErrorAction = "continue"
	ErrorRetry    ErrorAction = "retry"
)

// OnError says what happens when a step fails.
type OnError struct {
	// Action is abort, continue or retry.
	// +kubebuilder:default=abort
	Action ErrorAction `json:"action,omitempty"`

	// RetryCount is how often to try again, at most 10. Only for retry.
	RetryCount *int `json:"retryCount,omitempty"`

	// RetryDelay is the time before the first new try. Only for retry.
	// +weir:least=0s
	RetryDelay Duration `json:"retryDelay,omitempty"`
}

// ElicitationAction is what happens when a user gives no answer.
// +kubebuilder:validation:Enum=skip_remaining;abort;continue
type ElicitationAction string

// What may happen when a user gives no answer.
const (
	ElicitationAbort         ElicitationAction = "abort"
	ElicitationSkipRemaining ElicitationAction = "skip_remaining"
	ElicitationContinue      ElicitationAction = "continue"
)

// ElicitationResponse says what happens when a user gives no answer.
type ElicitationResponse struct {
	// Action is abort, skip_remaining or continue.
	// +kubebuilder:default=abort
	Action ElicitationAction `json:"action,omitempty"`
}

// WorkflowOutput says how the result of a workflow is made.
type WorkflowOutput struct {
	// Properties of the result.
	Properties map[string]OutputProperty `json:"properties"`

	// Required lists the properties that must be there.
	Required []string `json:"required,omitempty"`
}

// OutputType is the JSON type of a property.
// +kubebuilder:validation:Enum=string;integer;number;boolean;object;array
type OutputType string

// The types of properties.
const (
	OutputString  OutputType = "string"
	OutputInteger OutputType = "integer"
	OutputNumber  OutputType = "number"
	OutputBoolean OutputType = "boolean"
	OutputObject  OutputType = "object"
	OutputArray   OutputType = "array"
)

// OutputProperty is one property of the result of a workflow.
type OutputProperty struct {
	// Type of the property.
	Type OutputType `json:"type"`

	// Description of the property.
	Description string `json:"description,omitempty"`

	// Value is a template over .params and .steps. An object may be given as a
	// JSON string.
	Value string `json:"value,omitempty"`

	// Properties of an object, each of this same shape.
	// +weir:elsewhere
	Properties JSONObject `json:"properties,omitempty"`

	// Default is used when the template yields no value.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Default JSONValue `json:"default,omitempty"`
}
