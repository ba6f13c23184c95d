"""The cases, one file for each topic."""
