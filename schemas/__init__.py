"""The contracts: one noun, one module. Nothing here imports anything heavy."""
