DELETE FROM locks WHERE ns = ?1 AND key = ?2
