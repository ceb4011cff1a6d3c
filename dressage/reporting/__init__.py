"""What a run leaves behind: metric rows, progress, curves, films and the report."""
