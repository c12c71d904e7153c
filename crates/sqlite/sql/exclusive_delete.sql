DELETE FROM exclusives WHERE ns = ?1 AND key = ?2
