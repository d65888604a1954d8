"""The paper's claims and what the results say of each."""
