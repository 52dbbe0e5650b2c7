"""The wheel on a Prefect server: what is deployed there, when it runs, and everything local in one command."""
