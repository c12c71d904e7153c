DELETE FROM streams WHERE ns = ?1 AND stream = ?2
