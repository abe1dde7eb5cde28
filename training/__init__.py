"""What makes a table or a figure of the documentation: several runs, and what is measured of trained nets."""
