SELECT kind, revision FROM floors WHERE ns = ?1 ORDER BY kind
