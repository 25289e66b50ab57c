"""What serves notebooks and make: parameters, plans, claims, records, the report and its pages."""
