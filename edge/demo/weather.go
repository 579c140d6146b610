package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	weatherToday = "demo://weather/today"
	weatherCity  = "demo://weather/{city}"
)

// report is the weather of one city, which is made up and never changes.
type report struct{ city, weather string }

// reports are sorted by city.
func reports() []report {
	return []report{
		{"bergen", "9 °C, rain, and more of it to come"},
		{"berlin", "17 °C, clouds with some sun between them"},
		{"cairo", "34 °C, clear, a light wind from the north"},
		{"lagos", "29 °C, a thunderstorm in the afternoon"},
		{"lima", "18 °C, fog until noon"},
		{"lisbon", "24 °C, clear, windy by the river"},
		{"oslo", "12 °C, light rain"},
		{"quito", "15 °C, sun in the morning, rain after it"},
		{"tokyo", "22 °C, overcast"},
	}
}

func addWeather(s *mcp.Server) {
	s.AddResource(&mcp.Resource{
		URI:         weatherToday,
		Name:        "weather-today",
		Title:       "Weather today",
		Description: "A made-up weather report for every city that this server knows.",
		MIMEType:    "text/plain",
	}, readWeather)
	s.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: weatherCity,
		Name:        "weather-city",
		Title:       "Weather in a city",
		Description: "A made-up weather report for one city, such as demo://weather/oslo; complete the argument city for more.",
		MIMEType:    "text/plain",
	}, readWeather)
}

func readWeather(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	var lines []string
	for _, known := range reports() {
		if r.Params.URI == weatherToday || r.Params.URI == "demo://weather/"+known.city {
			lines = append(lines, fmt.Sprintf("%s: %s", known.city, known.weather))
		}
	}
	if lines == nil {
		return nil, mcp.ResourceNotFoundError(r.Params.URI)
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{
		URI: r.Params.URI, MIMEType: "text/plain", Text: strings.Join(lines, "\n"),
	}}}, nil
}

// complete answers with the cities that begin with what was typed; nothing
// else here can be completed.
func complete(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	values := []string{}
	if ref := r.Params.Ref; ref != nil && ref.URI == weatherCity && r.Params.Argument.Name == "city" {
		for _, known := range reports() {
			if strings.HasPrefix(known.city, strings.ToLower(r.Params.Argument.Value)) {
				values = append(values, known.city)
			}
		}
	}
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values, Total: len(values)}}, nil
}
