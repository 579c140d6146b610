package main

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// configUsage ends the help of every flag that names manifests.
const configUsage = "a `FILE` or a directory of manifests; may be repeated"

// addConfigFlag adds -c, which names what belongs to one set.
func addConfigFlag(cmd *cobra.Command, config *[]string, what string) {
	cmd.Flags().VarP((*paths)(config), "config", "c", what+configUsage)
	if err := cmd.MarkFlagFilename("config", "yaml", "yml", "json"); err != nil {
		panic(err) // the flag was added in the line before
	}
}

// paths are the values of a flag that names files or directories.
type paths []string

func (p *paths) String() string { return strings.Join(*p, ", ") }
func (p *paths) Type() string   { return "path" }

func (p *paths) Set(path string) error {
	if path == "" {
		return errors.New("name a file or a directory")
	}
	*p = append(*p, path)
	return nil
}

// lone reports whether a configuration is one file: perhaps one of a set.
func lone(config []string) bool {
	if len(config) != 1 {
		return false
	}
	info, err := os.Stat(config[0])
	return err == nil && !info.IsDir()
}
