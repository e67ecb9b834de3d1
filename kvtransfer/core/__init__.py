"""What is decided about blocks, handles and transfers: no I/O, no locks, no clock (time is passed in)."""
