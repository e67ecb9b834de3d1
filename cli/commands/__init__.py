"""The subcommands: each module adds its parser and carries out its command."""
