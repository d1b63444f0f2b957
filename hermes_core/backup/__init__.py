"""`backup` and `restore`: a home as one file, and a home made from such a file."""
