"""The commands. `shardq.cli.command_table` has their names, files and summaries."""
