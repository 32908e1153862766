"""What `ome --help` says of the commands of this package: shown without loading them, which takes as long as the rest."""

LOCAL = "A real control plane on this machine, with simulated nodes."
DEMO = "Kimi K2 on 16 simulated nodes, and tokens of a tiny model."
