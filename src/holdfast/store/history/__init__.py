"""Looking and going back: checkpoints, restore, diff, merge, revert."""
