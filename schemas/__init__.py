"""Contracts: tables, the config, actions and failures, with one module per concept. No module imports heavy
packages."""
