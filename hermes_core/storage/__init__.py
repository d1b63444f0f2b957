"""What is on the disk: HERMES_HOME, atomic file writes, locks, SQLite files, processes."""
