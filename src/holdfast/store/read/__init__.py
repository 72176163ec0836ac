"""Reading states, points, lookups and the feed."""
