"""The command line. `command_table` says in which file of `commands` each command is."""
