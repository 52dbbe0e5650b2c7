"""Run flywheel on a Prefect server: the deployments, their schedules, and everything local in one command."""
