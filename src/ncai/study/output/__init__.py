"""Tables, figures, claims and the page of the study."""
