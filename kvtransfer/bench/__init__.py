"""How fast blocks move: every transport side by side with Mooncake's engine and the machine's own limits.

`figures` and `targets` are arithmetic, `cases` says what is read, `sides` and the modules beside it are the ways to
read it, `workers` runs both ends of each in processes of their own, `rounds` lets them take turns.
"""
