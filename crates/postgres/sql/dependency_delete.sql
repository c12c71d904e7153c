DELETE FROM dependencies WHERE ns = $1 AND task = ANY ($2)
