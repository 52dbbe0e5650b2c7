"""Helpers of every package: text, pictures, folders, the process. They know no contract."""
