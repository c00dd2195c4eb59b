"""The command line: one file for each command in `commands`, loaded when it is called."""
