"""The commands, one per file. Their names, sections and summaries are in `shardq.cli.command_table`."""
