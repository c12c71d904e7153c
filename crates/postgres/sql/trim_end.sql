DELETE FROM trimming WHERE ns = $1 AND stream = $2
