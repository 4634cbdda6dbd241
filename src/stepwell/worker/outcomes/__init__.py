"""Write how runs ended, in batches."""
