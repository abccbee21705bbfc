"""Small dense and structured linear algebra; no robots."""
