"""Help lines of this package's commands in `ome --help`. The lines are in a separate module, because loading the commands
takes as long as loading everything else.
"""

LOCAL = "Run a real control plane on this machine, with simulated nodes."
DEMO = "Serve Kimi K2 on 16 simulated nodes, and real tokens of a tiny model."
