package main

import (
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a script that completes commands in a shell",
		Long: `Print a script with which a shell completes the commands, flags and fixed values
of weir. SHELL is bash, zsh, fish or powershell. To install it:

bash (needs the package bash-completion):
  weir completion bash > ~/.local/share/bash-completion/completions/weir

zsh (the directory must be in $fpath, and compinit be called in ~/.zshrc):
  weir completion zsh > "${fpath[1]}/_weir"

fish:
  weir completion fish > ~/.config/fish/completions/weir.fish

powershell (add the line to the file that $PROFILE names):
  weir completion powershell | Out-String | Invoke-Expression

It works in shells that are started after that.`,
		Example: `  weir completion bash
  source <(weir completion bash)
  weir completion fish > ~/.config/fish/completions/weir.fish`,
		ValidArgs: shells,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("name one shell: %s", strings.Join(shells, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(a.out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(a.out)
			case "fish":
				return cmd.Root().GenFishCompletion(a.out, true)
			case "powershell":
				return cmd.Root().GenPowerShellCompletionWithDesc(a.out)
			}
			return usagef("no completion for shell %q%s", args[0], didYouMean(args[0], shells, "there is one for "+strings.Join(shells, ", ")))
		},
	}
}
