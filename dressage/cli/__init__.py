"""The command line: one file a verb, and the loop that trains between compiled chunks."""
