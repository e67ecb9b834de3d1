"""The data-plane process: owns host blocks, handles and leases, serves peers, and pulls from them for its engine."""
