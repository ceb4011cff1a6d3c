"""Tasks of the suite with shields that keep them safe, one file each; the registry knows them by name."""
