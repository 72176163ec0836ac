"""Rules about checkpoints, above the store: made from a State or a Store, no methods of them."""
