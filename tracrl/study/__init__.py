"""Studies: plans of many runs, carried out on one machine or on many."""
