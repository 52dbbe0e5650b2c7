"""Helpers for all packages: text, pictures, folders and processes. They import no other package."""
