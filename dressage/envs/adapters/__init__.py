"""Adapters to other ecosystems, one file each; an ecosystem is imported when its adapter is used."""
