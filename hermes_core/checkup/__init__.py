"""`status`, `doctor` and `explain`, and the sandboxed child process in which they run plugins."""
