"""What every room needs: errors, files, seeds, processes, intervals, provenance."""
