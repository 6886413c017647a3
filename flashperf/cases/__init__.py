"""Open cases: public reports in which an optimised path lost, measured and diagnosed here."""
