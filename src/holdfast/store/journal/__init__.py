"""One line of history, as it is stored and read: entries, timelines, feed, directory."""
