SELECT key, open, holder, nominee FROM exclusives WHERE ns = ?1 ORDER BY key
