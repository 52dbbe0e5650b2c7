"""What people touch: the command line, the report, the review desk."""
