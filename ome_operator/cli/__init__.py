"""The command `ome`, with one module for each subcommand. Other packages add subcommands by the entry point
`ome.commands`.
"""
