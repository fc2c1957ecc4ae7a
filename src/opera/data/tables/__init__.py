"""Tables: pairs, documents and queries in CSV, TSV, JSON Lines, Parquet and Arrow files."""
