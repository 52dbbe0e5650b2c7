"""Show the lake's status and current activity as pages next to the review desk's."""
