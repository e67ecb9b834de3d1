"""The `halfmoon` command: reads flags, wires objects, supervises programs."""
