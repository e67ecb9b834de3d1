"""How bytes get from an owner's host pool into a reader's: the interface, and its implementations `shm` and `tcp`."""
