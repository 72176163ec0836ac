"""Words and checks that everything uses."""
