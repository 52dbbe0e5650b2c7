"""Web applications: are their tasks done and scored rightly, and what does a sandbox cost."""
