"""Environments that come with dressage, one file each."""
