"""The command `penstock`: `command` has its subcommands, each other module does the work of one."""
