"""The command `ome`: a module for each command. Other packages add theirs by the entry point `ome.commands`."""
