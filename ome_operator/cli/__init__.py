"""The command `ome`, with one module for each subcommand or group of related subcommands. Other packages add subcommands
by the entry point `ome.commands`.
"""
