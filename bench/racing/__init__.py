"""The race between Java's ChangeFeedProcessor and ours. `bench/race` runs it."""
