DELETE FROM chores WHERE ns = ?1 AND chore = ?2
