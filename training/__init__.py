"""Programs that make a table or a figure of the documentation."""
